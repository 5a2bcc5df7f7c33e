"""Fix a repository as in SWE-bench: the agent edits it until the tests pass, and its answer is the patch.

Needs:   the program git
Run:     python examples/swebench_style_fix.py [--model openai:gpt-6-sol]
Prints:  +    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
"""

import tempfile

from shellsession import Session

from models.plain import choose_model
from react_loop import solve

REPOSITORY = """
cat >stats.py <<'END'
def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle]
END
cat >test_stats.py <<'END'
import unittest
from stats import median

class Median(unittest.TestCase):
    def test_odd(self):
        self.assertEqual(median([3, 1, 2]), 2)

    def test_even(self):
        self.assertEqual(median([4, 1, 3, 2]), 2.5)
END
git init -q && git add . && git -c user.name=Ann -c user.email=ann@example.org commit -qm 'Add median'
"""
FIX = "if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2"
TESTS = "python3 -B -m unittest -q"


def main() -> None:
    model = choose_model(
        f"<bash>{TESTS} 2>&1 | grep Error</bash>",
        "<bash>cat stats.py</bash>",
        f"<bash>sed -i 's,ordered.middle.$,& {FIX},' stats.py && {TESTS}</bash>",
        "Answer: the median of an even number of values is now the mean of the two in the middle.",
    )
    with tempfile.TemporaryDirectory() as repository, Session(cwd=repository, tty=False, timeout=300) as sh:
        sh.run(REPOSITORY, check=True)
        solve(sh, model, f"median() in stats.py is wrong. Fix it, so that {TESTS!r} passes.")

        # Judge by a fresh shell: the agent may have changed anything in its own.
        with Session(cwd=repository, tty=False) as judge:
            print(f"the tests pass: {judge.run(TESTS, timeout=120).ok}")
            print(judge.run("git diff", check=True).stdout)


if __name__ == "__main__":
    main()
