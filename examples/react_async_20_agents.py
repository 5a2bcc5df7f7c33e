"""Twenty agents at the same time, each with its own bash, in one asyncio program.

Run:     python examples/react_async_20_agents.py [--model openai:gpt-6-sol]
Prints:  agent-12: Answer: 144
"""

import asyncio
import re

from shellsession import AsyncAgents

from models.plain import Model, choose_model

SYSTEM = """\
You solve a task with bash. Write one command in each reply, like this: <bash>ls</bash>. You then get its output.
End with a line that begins with "Answer:"."""
MAX_STEPS = 20


async def solve(agents: AsyncAgents, name: str, model: Model, task: str) -> str:
    """The loop of react_loop.py, awaited. The commands of different agents run side by side."""
    messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": task}]
    for _ in range(MAX_STEPS):
        reply = await asyncio.to_thread(model, messages)
        found = re.search(r"<bash>(.*?)</bash>", reply, re.DOTALL)
        if found is None:
            return f"{name}: {reply}"
        result = await agents.run(name, found[1])
        messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": result.for_model()}]
    return f"{name}: no answer after {MAX_STEPS} steps"


def model_for(number: int) -> Model:
    return choose_model(
        f"<bash>number={number}; sleep 0.2</bash>",
        "<bash>echo $((number * number))</bash>",
        f"Answer: {number * number}",
    )


async def main() -> None:
    async with AsyncAgents(max_sessions=20, tty=False, timeout=60) as agents:
        work = [
            solve(agents, f"agent-{number}", model_for(number), f"Compute the square of {number} with bash.")
            for number in range(20)
        ]
        for answer in await asyncio.gather(*work):
            print(answer)


if __name__ == "__main__":
    asyncio.run(main())
