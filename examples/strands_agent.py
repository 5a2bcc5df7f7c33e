"""A Strands agent whose tools are one bash.

Needs:   the extra strands
Run:     python examples/strands_agent.py [--model openai:gpt-6-sol]
Prints:  bash: 271
"""

from strands import Agent

from shellsession import Session
from shellsession.integrations import strands

from models.strands import choose_model


def main() -> None:
    model = choose_model(
        commands=["numbers=$(seq 1000)", 'grep -c 7 <<<"$numbers"'],
        answer="271 of the numbers contain a 7.",
    )
    with Session() as sh:
        agent = Agent(model=model, tools=strands.tools(sh), system_prompt="Use bash.", callback_handler=None)
        answer = agent("How many of the numbers from 1 to 1000 contain a 7?")

    for message in agent.messages:
        for block in message["content"]:
            if "toolResult" in block:
                print(f"bash: {block['toolResult']['content'][0]['text']}")
    print(answer, end="")


if __name__ == "__main__":
    main()
