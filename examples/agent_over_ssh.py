"""An agent on another machine: its commands run there, and its shell outlives the connection.

Run:     python examples/agent_over_ssh.py [--model openai:gpt-6-sol]
Prints:  another connection finds 3 cities

That runs here. For another machine, with Python and shellsession: SHELLSESSION_VIA='ssh box'
"""

import os
import sys
from pathlib import Path

from shellsession import connect

from models.plain import choose_model
from react_loop import solve

TASK = "Which of Oslo, Rome and Cairo comes first in the alphabet? Keep all three in the variable 'cities'."


def main() -> None:
    model = choose_model(
        r"The variable first. <bash>cities=$(printf '%s\n' Oslo Rome Cairo)</bash>",
        'The shell there still has it. <bash>sort <<<"$cities" | head -1</bash>',
        "Answer: Cairo.",
    )
    via = os.environ.get("SHELLSESSION_VIA", "env").split()
    # The program there. Here it is beside this Python; elsewhere PATH has it, or SHELLSESSION_REMOTE names it.
    here = str(Path(sys.executable).with_name("shellsession"))
    remote = here if via == ["env"] else os.environ.get("SHELLSESSION_REMOTE")

    agent = f"traveller-{os.getpid()}"
    with connect(agent, via=via, remote=remote, tty=False, timeout=60) as session:
        solve(session, model, TASK)
    # The block only disconnects. Had ssh died in the middle of a command, the session would have connected again.
    with connect(agent, via=via, remote=remote, tty=False) as session:
        print(f"another connection finds {session.run('wc -l <<<$cities').stdout.strip()} cities")
        session.close()


if __name__ == "__main__":
    main()
