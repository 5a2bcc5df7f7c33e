"""A LangGraph agent that dies during a command, and resumes from its checkpoint: the command runs once.

Needs:   the extra langchain and the package langgraph-checkpoint-sqlite
Run:     python examples/langgraph_resume.py
Prints:  resumed: the build has run 1 time
"""

import multiprocessing
import os
import signal
import tempfile

from langchain.agents import create_agent
from langgraph.checkpoint.sqlite import SqliteSaver

from shellsession import connect
from shellsession.integrations import langchain

from models.langchain import choose_model

COMMAND = "echo start >>builds; echo building; sleep 1; echo built"
THREAD = {"configurable": {"thread_id": "1"}}


def die(stream: str, data: bytes) -> None:
    """Die as the first output arrives: the command runs, and no checkpoint has its result."""
    os.kill(os.getpid(), signal.SIGKILL)


def work(directory: str, name: str, resumes: bool) -> None:
    """Build, or go on with the build. The daemon keeps the shell, and a receipt of each command."""
    with connect(name, cwd=directory) as sh, SqliteSaver.from_conn_string(f"{directory}/checkpoints") as saver:
        tools = langchain.tools(sh, on_output=None if resumes else die)
        model = choose_model(commands=[] if resumes else [COMMAND], answer="It is built.")
        agent = create_agent(model, tools=tools, checkpointer=saver)
        task = None if resumes else {"messages": [{"role": "user", "content": "Build the project."}]}
        state = agent.invoke(task, THREAD, durability="sync")  # each checkpoint is written before the next step
        print(f"the model read: {state['messages'][-2].text!r}", flush=True)
        print(f"resumed: the build has run {sh.run('wc -l <builds').stdout.strip()} time", flush=True)
        sh.close()


def main() -> None:
    with tempfile.TemporaryDirectory() as directory:
        for resumes in (False, True):
            arguments = (directory, f"build-{os.getpid()}", resumes)
            worker = multiprocessing.get_context("spawn").Process(target=work, args=arguments)
            worker.start()
            worker.join()
            print(f"the agent has ended with {worker.exitcode}")


if __name__ == "__main__":
    main()
