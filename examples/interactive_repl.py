"""Use a program that asks: a Python REPL gets a terminal, and the session says when it waits for input.

Run:     python examples/interactive_repl.py
Prints:  The REPL printed: 42
"""

from shellsession import TTY, Session


def main() -> None:
    with Session(timeout=30) as sh:
        # `run` returns when the program waits. No pattern is needed: the kernel says so.
        result = sh.run("PYTHON_BASIC_REPL=1 python3 -q", stdin=TTY)
        print(f"The outcome is {result.outcome!r}, the question {result.question!r}.")

        # `send` types, and waits until the program asks again or ends.
        result = sh.send("6 * 7\n")
        print(f"The REPL printed: {result.stdout.splitlines()[0]}")

        # `type` and `expect` are for output that comes before the next question, as with pexpect.
        sh.type("for n in range(3): print('step', n)\n\n")
        sh.expect(r"step (\d)\r?\n")
        print(f"The first step is {sh.match[1]}.")

        # Keys have the names that tmux gives them: C-d is Ctrl-D, the end of input.
        result = sh.send(keys=["C-d"])
        print(f"The outcome is {result.outcome!r}, the exit status {result.exit_code}.")


if __name__ == "__main__":
    main()
