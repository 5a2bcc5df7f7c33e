"""A workflow of DBOS that dies during a command: DBOS repeats the step, and its command runs once.

Needs:   the package dbos
Run:     python examples/durable_workflow.py
Prints:  recovered: the steps have run 3 times
"""

import multiprocessing
import os
import signal
import tempfile

from dbos import DBOS, SetWorkflowID

from shellsession import connect

SPAWN = multiprocessing.get_context("spawn")
STEPS = ["echo fetch >>steps", "echo compile >>steps; echo compiling; sleep 1; echo compiled", "echo test >>steps"]


def die(*_: object) -> None:
    """Die as the first output of a command arrives."""
    os.kill(os.getpid(), signal.SIGKILL)


def work(directory: str, agent: str, dies: bool) -> None:
    """Run the workflow, or what is left of it. The daemon keeps the shell, and a receipt of each command."""
    DBOS(config={"name": "builder", "system_database_url": f"sqlite:///{directory}/workflows", "log_level": "ERROR"})

    @DBOS.step()
    def run(command: str) -> str:
        with connect(agent, cwd=directory) as sh:
            # A step that is repeated has these two names again, and no other step ever has.
            key, on_output = f"{DBOS.workflow_id}/{DBOS.step_id}", die if dies and "compile" in command else None
            result = sh.run(command, idempotency_key=key, on_output=on_output, check=True)
        return f"known: {result.stdout!r}" if result.replayed else "run"

    @DBOS.workflow()
    def build() -> list[str]:
        return [run(command) for command in STEPS]

    DBOS.launch()
    with SetWorkflowID("build-1"):
        print(build())
    DBOS.destroy()
    with connect(agent) as sh:
        print(f"recovered: the steps have run {sh.run('wc -l <steps').stdout.strip()} times")
        sh.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        for dies in (True, False):
            worker = SPAWN.Process(target=work, args=(directory, f"build-{os.getpid()}", dies))
            worker.start()
            worker.join()


if __name__ == "__main__":
    main()
