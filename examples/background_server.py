"""Start a server in the background, wait until it is ready, use it, and end it.

Run:     python examples/background_server.py
Prints:  the server answers 200
"""

import re
import tempfile
import urllib.request

from shellsession import Session


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, Session(cwd=directory, tty=False, timeout=30) as sh:
        sh.run("echo hello >index.html")

        # The command returns. What it left running is a job, which keeps its output.
        started = sh.run("python3 -u -m http.server 0 --bind 127.0.0.1 &")
        (server,) = sh.jobs()
        print(f"{server.id} is {server.status}: {server.command}")

        # Wait for its first line, and not for a guessed number of seconds.
        if not server.wait(timeout=20, until=r"http://\S+/"):
            raise SystemExit(f"the server did not start: {server.stderr}")
        url = re.findall(r"http://\S+/", started.stdout + server.stdout)[0]
        with urllib.request.urlopen(url, timeout=10) as response:
            print(f"the server answers {response.status}")

        # The session is free meanwhile. Its end would end the server, too.
        print(f"the session still works: {sh.run('cat index.html').stdout.strip()}")
        server.kill()
        server.wait()
        print(f"the server has {server.status}; its log: {server.stderr.splitlines()[-1]}")


if __name__ == "__main__":
    main()
