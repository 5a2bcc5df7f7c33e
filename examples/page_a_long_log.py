"""Read a log of 5 MB as a model does: first both ends, then only the lines that matter.

The tools of all SDKs have `read_output` as well, and the mark where output is missing names that call.

Run:     python examples/page_a_long_log.py
Prints:  123456:test_123456 FAILED: disk full
"""

from shellsession import Session

TESTS = "seq -f 'test_%.0f passed' 300000 | sed '123456s/passed/FAILED: disk full/'"


def main() -> None:
    with Session(tty=False, timeout=60) as sh:
        log = sh.run(TESTS)

        print("What the model reads first:")
        print(log.for_model(max_chars=300))

        print("\nThe lines that match:")
        print(sh.read_output(log.id, grep="FAILED"))

        print("What stands around that line:")
        print(sh.read_output(log.id, lines=(123_455, 123_457)))

        print("A page that is cut says how to get the next one:")
        print(sh.read_output(log.id, lines=(200_000, None), max_chars=200))


if __name__ == "__main__":
    main()
