"""Stream a LangGraph agent: its steps, and between them the output of each command while it runs.

Needs:   the extra langchain
Run:     python examples/langgraph_streaming.py [--model openai:gpt-6-sol]
Prints:  output: test 2 of 3
"""

import asyncio

from langchain.agents import create_agent
from langgraph.config import get_stream_writer

from shellsession import AsyncSession
from shellsession.integrations import langchain

from models.langchain import choose_model


def show(stream: str, data: bytes) -> None:
    """Send output into the stream of the graph, as a custom event."""
    get_stream_writer()(data.decode("utf-8", "replace"))


async def main() -> None:
    model = choose_model(
        commands=["for n in 1 2 3; do echo test $n of 3; sleep 0.1; done"],
        answer="The three tests have passed.",
    )
    async with AsyncSession() as sh:
        agent = create_agent(model, tools=langchain.tools(sh, on_output=show))
        task = {"messages": [{"role": "user", "content": "Print 'test N of 3' for three tests, with bash."}]}
        async for mode, event in agent.astream(task, stream_mode=["updates", "custom"]):
            if mode == "custom":
                for line in event.splitlines():
                    print(f"output: {line}")
            else:
                print(f"step: {', '.join(event)}")


if __name__ == "__main__":
    asyncio.run(main())
