"""Five attempts at a fix, side by side, each on a fork of the files. The one whose test passes is applied.

Run:     python examples/best_of_five.py
Prints:  applied: value.replace(' ', '-').lower()
"""

import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from shellsession import Session
from shellsession.branch.attempt import Attempt

CODE = "def slug(value):\n    return value\n"
TEST = "from app import slug\nassert slug('One Two') == 'one-two'\nassert slug('') == ''\n"
# What five runs of a model might propose.
FIXES = (
    "value.lower()",
    "value.replace(' ', '-')",
    "value.replace(' ', '-').lower()",
    "'-'.join(value.lower())",
    "value.lower() or 1 / 0",
)


def main() -> None:
    with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
        project = Path(directory) / "project"
        project.mkdir()
        (project / "app.py").write_text(CODE)
        (project / "test.py").write_text(TEST)
        with Session(cwd=project, branch=project, branch_dir=Path(directory) / "layers") as sh:

            def tried(fix: str) -> Attempt:
                return sh.attempt(f'sed -i "s/return value/return {fix}/" app.py && python3 -B test.py')

            with ThreadPoolExecutor(5) as threads:
                attempts = list(threads.map(tried, FIXES))
            for fix, trial in zip(FIXES, attempts, strict=True):
                print("passed:" if trial.result.ok else "failed:", fix)
            best, fix = next((trial, fix) for trial, fix in zip(attempts, FIXES, strict=True) if trial.result.ok)
            best.apply()
            print("applied:", fix)
            for trial in attempts:
                trial.discard()
            sh.branch.apply()  # from the session's branch to the project itself
        print((project / "app.py").read_text(), end="")


if __name__ == "__main__":
    main()
