"""A LangChain agent whose tools are one bash: directory, variables and functions persist between its calls.

Needs:   the extra langchain
Run:     python examples/langchain_agent.py [--model openai:gpt-6-sol]
Prints:  bash: 271
"""

from langchain.agents import create_agent

from shellsession import Session
from shellsession.integrations import langchain

from models.langchain import choose_model


def main() -> None:
    model = choose_model(
        commands=["numbers=$(seq 1000)", 'grep -c 7 <<<"$numbers"'],
        answer="271 of the numbers contain a 7.",
    )
    with Session() as sh:
        agent = create_agent(model, tools=langchain.tools(sh))
        task = "How many of the numbers from 1 to 1000 contain a 7? Use bash."
        state = agent.invoke({"messages": [{"role": "user", "content": task}]})

    for message in state["messages"]:
        if message.type == "tool":
            print(f"{message.name}: {message.text}")
    print(state["messages"][-1].text)


if __name__ == "__main__":
    main()
