"""A shell whose directory, variables and functions outlive its bash and its daemon.

Run:     python examples/survives_anything.py
Prints:  after the daemon was killed: hello, Ann, in /usr/lib
"""

import json
import os
import signal
import subprocess
import sys
import tempfile
import time

from shellsession import RemoteSession, connect

ENDS = {
    "the command failed under set -e": "set -e; false; echo never",
    "the command said exit": "exit 3",
    "bash was killed": "kill -9 $$",
}


def greet(sh: RemoteSession, after: str) -> None:
    print(f"after {after}: {sh.run('set +e; greet', tty=False).stdout.strip()}", flush=True)


def kill_daemon(socket: str) -> None:
    command = [sys.executable, "-m", "shellsession", "status", "--socket", socket, "--json"]
    status = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
    os.kill(json.loads(status.stdout)["pid"], signal.SIGKILL)


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        socket = f"{directory}/run/socket"
        with connect("ann", socket, recover=True) as sh:
            sh.run("cd /usr/lib; NAME=Ann; greet() { echo hello, $NAME, in $PWD; }")
            for after, command in ENDS.items():
                sh.run(command)
                greet(sh, after)
            time.sleep(3)  # the daemon stores the state a second after the last command
        kill_daemon(socket)
        with connect("ann", socket, recover=True) as sh:  # another daemon
            greet(sh, "the daemon was killed")
            sh.close()
        stop = [sys.executable, "-m", "shellsession", "stop", "--socket", socket]
        subprocess.run(stop, check=True, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
