"""Ask a person before a command runs, except for those that only read. Answer n first, and then y.

Needs:   the extra policy
Run:     python examples/approve_commands.py [--model openai:gpt-6-sol]
Prints:  left in the directory: ['a.txt']
"""

import os
import sys
import tempfile
from pathlib import Path

from shellsession import Policy, Session

from models.plain import choose_model
from react_loop import solve

TASK = "Look which files are here, then remove those that end in .tmp. Leave the others."


def confirm(command: str, agent: str, directory: str) -> bool:
    """Ask at the terminal. A command that is not confirmed does not run, and the model reads that."""
    print(f"The agent wants to run {command!r} in {directory}. Allow it? [y/N]")
    return sys.stdin.readline().strip().lower() == "y"  # the end of the input is a no


def main() -> None:
    model = choose_model(
        "<bash>ls</bash>",
        "<bash>rm -f *</bash>",
        "That went too far. <bash>rm -f b.tmp</bash>",
        "<bash>ls</bash>",
        "Answer: I have removed what I was allowed to.",
    )
    policy = Policy(allow=["ls", "cat", "grep", "head", "wc"], deny_commands=["sudo"], confirm=confirm)
    with tempfile.TemporaryDirectory() as project, Session(cwd=project, policy=policy, tty=False) as sh:
        for name in ("a.txt", "b.tmp"):
            Path(project, name).touch()
        solve(sh, model, TASK)
        print(f"left in the directory: {os.listdir(project)}")


if __name__ == "__main__":
    main()
