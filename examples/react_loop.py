"""A ReAct loop without a framework: the model writes a command, reads what it printed, and goes on.

Run:     python examples/react_loop.py [--model openai:gpt-6-sol]
Prints:  model: Answer: 271 of the numbers contain a 7.
"""

import re

from shellsession import RemoteSession, Session, ShellSessionError

from models.plain import Model, choose_model

SYSTEM = """\
You solve a task with bash. Write one command in each reply, like this: <bash>ls</bash>. You then get its output.
The directory and the variables persist between commands. End with a line that begins with "Answer:"."""
MAX_STEPS = 20


def solve(sh: Session | RemoteSession, model: Model, task: str) -> str:
    """Let the model run commands until it gives an answer, and return that."""
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": task}]
    for _ in range(MAX_STEPS):
        reply = model(messages)
        print(f"model: {reply}")
        found = re.search(r"<bash>(.*?)</bash>", reply, re.DOTALL)
        if found is None:
            return reply
        output = run(sh, found[1])
        print(output)
        messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": output}]
    return f"There is no answer after {MAX_STEPS} steps."


def run(sh: Session | RemoteSession, command: str) -> str:
    """Run a command, and return what the model should read: its output, and how it ended."""
    try:
        return sh.run(command).for_model()
    except ShellSessionError as error:
        return f"[nothing was run: {error}]"


def main() -> None:
    model = choose_model(
        "I keep the numbers in a variable. <bash>numbers=$(seq 1000)</bash>",
        'The shell still has them. <bash>grep -c 7 <<<"$numbers"</bash>',
        "Answer: 271 of the numbers contain a 7.",
    )
    with Session(tty=False, timeout=60) as sh:
        solve(sh, model, "How many of the numbers from 1 to 1000 contain a 7?")


if __name__ == "__main__":
    main()
