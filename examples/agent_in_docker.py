"""An agent in a container: its commands run in there, this program and the model's key stay out here.

Needs:   the program docker
Run:     python examples/agent_in_docker.py [--model openai:gpt-6-sol]
Prints:  the commands ran as user 1000

The image is the one that examples/Dockerfile builds. Any other with bash, Python 3.11 and shellsession will do.
"""

import subprocess

from shellsession import connect

from models.plain import choose_model
from react_loop import solve

IMAGE = "shellsession"


def main() -> None:
    model = choose_model(
        "I look around. <bash>name=$(sed -n 's/^ID=//p' /etc/os-release)</bash>",
        'The shell still has the variable. <bash>echo "$name"</bash>',
        "Answer: it is Debian.",
    )
    # --init: the first process of the container collects those that have ended.
    options = ("--rm", "--detach", "--init", "--network", "none", "--entrypoint", "sleep")
    started = subprocess.run(
        ["docker", "run", *options, IMAGE, "infinity"], check=True, stdout=subprocess.PIPE, text=True
    )
    container = started.stdout.strip()
    try:
        with connect("inside", via=["docker", "exec", "-i", container], tty=False, timeout=60) as session:
            solve(session, model, "Which system is this?")
            print(f"the commands ran as user {session.run('id -u').stdout.strip()}")
    finally:
        subprocess.run(["docker", "kill", container], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
