"""A workflow that crashes and goes on where it was: the daemon keeps its shell, and the shell keeps the checkpoints.

Run:     python examples/resume_after_restart.py
Prints:  attempt 2: filter is done already
"""

import os
import signal
import subprocess
import sys

from shellsession import RemoteSession, connect

STEPS = {
    "fetch": "numbers=$(seq 100)",
    "filter": """odd=$(grep '[13579]$' <<<"$numbers")""",
    "count": 'count=$(wc -l <<<"$odd")',
}


def work(agent: str) -> None:
    """Do the steps that are left. Each attempt connects to the same agent, and so to the same bash."""
    with connect(agent, timeout=60) as sh:
        attempt = int(sh.run("echo $((++attempt))", tty=False).stdout)
        for step, command in STEPS.items():
            if is_done(sh, step):
                print(f"attempt {attempt}: {step} is done already", flush=True)
                continue
            # In one command: no crash can come between the step and its checkpoint.
            sh.run(f"{command} && done_{step}=yes", check=True)
            print(f"attempt {attempt}: {step}", flush=True)
            if attempt == 1 and step == "filter":
                os.kill(os.getpid(), signal.SIGKILL)  # the crash
        print(f"attempt {attempt}: {sh.run('echo $count', tty=False).stdout.strip()} numbers are odd")
        sh.close()  # ends the session; leaving the block only disconnects


def is_done(sh: RemoteSession, step: str) -> bool:
    return sh.run(f"[[ -v done_{step} ]]").ok


def main() -> None:
    agent = f"workflow-{os.getpid()}"
    for _ in range(3):
        worker = subprocess.run([sys.executable, __file__, agent], check=False)
        if worker.returncode == 0:
            return
        print(f"the worker ended with {worker.returncode}; start it again", flush=True)
    raise SystemExit("the workflow has failed three times")


if __name__ == "__main__":
    work(sys.argv[1]) if len(sys.argv) > 1 else main()
