"""The tool runner of the Anthropic SDK calls Claude, runs the commands that it asks for, and sends back the output.

Needs:   the extra anthropic
Run:     python examples/anthropic_loop.py [--model anthropic:claude-sonnet-4-5]
Prints:  bash: 271
"""

from shellsession import Session
from shellsession.integrations import anthropic

from models.anthropic import choose_client


def main() -> None:
    client, model = choose_client(
        commands=["numbers=$(seq 1000)", 'grep -c 7 <<<"$numbers"'],
        answer="271 of the numbers contain a 7.",
    )
    with Session() as sh:
        runner = client.beta.messages.tool_runner(
            model=model,
            max_tokens=4096,
            tools=anthropic.tools(sh),
            messages=[{"role": "user", "content": "How many of the numbers from 1 to 1000 contain a 7? Use bash."}],
        )
        for message in runner:
            for block in message.content:
                if block.type == "text":
                    print(block.text)
            results = runner.generate_tool_call_response()  # None after the last message
            for result in results["content"] if results else ():
                print(f"bash: {result['content']}")


if __name__ == "__main__":
    main()
