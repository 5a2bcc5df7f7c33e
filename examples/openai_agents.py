"""An agent of the OpenAI Agents SDK whose tools are one bash.

Needs:   the extra openai
Run:     python examples/openai_agents.py [--model openai:gpt-6-sol]
Prints:  bash: 271
"""

import asyncio

from agents import Agent, Runner, set_tracing_disabled

from shellsession import AsyncSession
from shellsession.integrations import openai

from models.openai import choose_model


async def main() -> None:
    set_tracing_disabled(True)  # it would send what happens to OpenAI
    model = choose_model(
        commands=["numbers=$(seq 1000)", 'grep -c 7 <<<"$numbers"'],
        answer="271 of the numbers contain a 7.",
    )
    async with AsyncSession() as sh:
        agent = Agent("developer", instructions="Use bash.", model=model, tools=openai.function_tools(sh))
        result = await Runner.run(agent, "How many of the numbers from 1 to 1000 contain a 7?")

    for item in result.new_items:
        if item.type == "tool_call_output_item":
            print(f"bash: {item.output}")
    print(result.final_output)


if __name__ == "__main__":
    asyncio.run(main())
