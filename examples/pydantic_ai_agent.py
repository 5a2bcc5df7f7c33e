"""A Pydantic AI agent whose toolset is one bash.

Needs:   the extra pydantic-ai
Run:     python examples/pydantic_ai_agent.py [--model openai:gpt-6-sol]
Prints:  bash: 271
"""

from pydantic_ai import Agent
from pydantic_ai.messages import ToolReturnPart

from shellsession import Session
from shellsession.integrations import pydantic_ai

from models.pydantic_ai import choose_model


def main() -> None:
    model = choose_model(
        commands=["numbers=$(seq 1000)", 'grep -c 7 <<<"$numbers"'],
        answer="271 of the numbers contain a 7.",
    )
    with Session() as sh:
        agent = Agent(model, toolsets=[pydantic_ai.toolset(sh)], instructions="Use bash.")
        result = agent.run_sync("How many of the numbers from 1 to 1000 contain a 7?")

    for message in result.all_messages():
        for part in message.parts:
            if isinstance(part, ToolReturnPart):
                print(f"{part.tool_name}: {part.content}")
    print(result.output)


if __name__ == "__main__":
    main()
