"""An agent in a sandbox: it can write in its project alone, without a network. The model reads why a command failed.

Needs:   the program bubblewrap
Run:     python examples/sandboxed_agent.py [--model openai:gpt-6-sol]
Prints:  bash: /etc/motd: Read-only file system
"""

import os
import tempfile

from shellsession import Sandbox, Session

from models.plain import choose_model
from react_loop import solve

TASK = """\
Write 'hello' into /etc/motd. Then download http://192.0.2.1/. At last write 'hello' into greeting.txt here."""


def main() -> None:
    model = choose_model(
        "First the system's file. <bash>echo hello >/etc/motd</bash>",
        "That is forbidden. Now the download. <bash>exec 3<>/dev/tcp/192.0.2.1/80</bash>",
        "There is no network. Here I can write. <bash>echo hello >greeting.txt && cat greeting.txt</bash>",
        "Answer: only greeting.txt could be written.",
    )
    with tempfile.TemporaryDirectory() as project:
        sandbox = Sandbox(write=[project], hide=["~"], network=False)
        with Session(cwd=project, sandbox=sandbox, tty=False, timeout=60) as sh:
            solve(sh, model, TASK)
        print(f"the project has {os.listdir(project)}")


if __name__ == "__main__":
    main()
