"""Agents of several SDKs that store their steps: ``python replayed_agents.py SDK DIRECTORY TURNS`` runs one.

The model calls the tool ``bash`` with one command and one id in every turn. Run again with the same directory, the
agent goes on from what its SDK has stored. It prints what the tool returned last.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from shellsession import connect

# It ends when it has removed the file ``go``, so each run of it needs another one.
COMMAND = "echo ran >>runs; until rm go 2>&-; do sleep 0.05; done; echo built | tee ended"
ID = "bash:0"


def in_langgraph(place: Path, turns: int) -> str:
    """A thread whose checkpoints are in SQLite. A checkpoint that has a next step is one to go on from."""
    from langchain.agents import create_agent
    from langchain_core.messages import AIMessage
    from langgraph.checkpoint.sqlite import SqliteSaver
    from scripted_langchain import Scripted

    from shellsession.integrations import langchain

    class Model(Scripted):
        def _generate(self, messages: Any, *_: Any, **__: Any) -> Any:
            calls = [{"name": "bash", "args": {"command": COMMAND}, "id": ID}]
            self.script = [AIMessage("", tool_calls=calls if messages[-1].type == "human" else [])]
            self.asked.clear()
            return super()._generate(messages)

    config: Any = {"configurable": {"thread_id": "1"}}
    with connect("langgraph", cwd=place) as sh, SqliteSaver.from_conn_string(str(place / "saved")) as saver:
        agent = create_agent(Model(script=[]), tools=langchain.tools(sh), checkpointer=saver)
        state: Any = {}
        for _ in range(turns):
            is_interrupted = bool(agent.get_state(config).next)
            question = None if is_interrupted else {"messages": [("user", "build")]}
            state = agent.invoke(question, config, durability="sync")
    return str(next(one for one in reversed(state["messages"]) if one.type == "tool").text)


def in_strands(place: Path, turns: int) -> str:
    """An agent with a session manager, which stores each message."""
    from scripted_strands import Scripted
    from strands import Agent
    from strands.session.file_session_manager import FileSessionManager

    from shellsession.integrations import strands

    class Model(Scripted):
        async def stream(self, messages: Any, *arguments: Any, **options: Any) -> Any:
            self.asked.clear()
            self.script = ["done" if _has("toolResult", messages[-1]) else {"command": COMMAND}]
            async for event in super().stream(messages, *arguments, **options):
                yield event

    with connect("strands", cwd=place) as sh:
        manager = FileSessionManager("1", storage_dir=str(place / "saved"))
        agent = Agent(model=Model(), tools=strands.tools(sh), session_manager=manager, callback_handler=None)
        for _ in range(turns):
            is_interrupted = bool(agent.messages) and _has("toolUse", agent.messages[-1])
            agent(None if is_interrupted else "build")
        message = next(one for one in reversed(agent.messages) if _has("toolResult", one))
    return str(message["content"][0]["toolResult"]["content"][0]["text"])


def _has(kind: str, message: Any) -> bool:
    return any(kind in block for block in message["content"])


def _pydantic_ai_agent(sh: Any, **options: Any) -> Any:
    from pydantic_ai import Agent
    from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart, UserPromptPart
    from pydantic_ai.models.function import FunctionModel

    from shellsession.integrations import pydantic_ai

    def model(messages: Any, _: Any) -> ModelResponse:
        if any(isinstance(part, UserPromptPart) for part in messages[-1].parts):
            return ModelResponse([ToolCallPart("bash", {"command": COMMAND}, ID)])
        return ModelResponse([TextPart(str(messages[-1].parts[-1].content))])

    return Agent(FunctionModel(model), toolsets=[pydantic_ai.toolset(sh)], **options)


def in_pydantic_ai(place: Path, turns: int) -> str:
    """Runs whose messages are stored after each step, and given to the next run."""
    from pydantic_ai import ModelMessagesTypeAdapter
    from pydantic_ai.messages import ModelResponse

    saved = place / "saved"

    async def turn(agent: Any) -> str:
        history = ModelMessagesTypeAdapter.validate_json(saved.read_bytes()) if saved.exists() else []
        is_interrupted = bool(history) and isinstance(history[-1], ModelResponse) and bool(history[-1].tool_calls)
        async with agent.iter(None if is_interrupted else "build", message_history=history) as run:
            async for _ in run:
                saved.write_bytes(run.all_messages_json() if run.result is None else run.result.all_messages_json())
        return str(run.result.output)

    with connect("pydantic-ai", cwd=place) as sh:
        agent, said = _pydantic_ai_agent(sh), ""
        for _ in range(turns):
            said = asyncio.run(turn(agent))
    return said


def in_dbos(place: Path, turns: int) -> str:
    """A workflow of DBOS, whose database is in SQLite. It does each tool call anew, and no request to the model."""
    from dbos import DBOS, SetWorkflowID
    from pydantic_ai.durable_exec.dbos import DBOSDurability

    database = f"sqlite:///{place / 'saved'}"
    DBOS(config={"name": "builder", "system_database_url": database, "log_level": "ERROR"})
    with connect("dbos", cwd=place) as sh:
        agent = _pydantic_ai_agent(sh, name="builder", capabilities=[DBOSDurability()])

        @DBOS.workflow()
        async def build() -> str:
            said, history = "", None
            for _ in range(turns):
                result = await agent.run("build", message_history=history)
                said, history = result.output, result.all_messages()
            return str(said)

        async def main() -> str:
            DBOS.launch()
            with SetWorkflowID("1"):
                handle = await DBOS.start_workflow_async(build)
            return str(await handle.get_result())

        said = asyncio.run(main())
        DBOS.destroy()
    return said


AGENTS = {"langgraph": in_langgraph, "strands": in_strands, "pydantic-ai": in_pydantic_ai, "dbos": in_dbos}

if __name__ == "__main__":
    sys.stdout.write(f"{AGENTS[sys.argv[1]](Path(sys.argv[2]), int(sys.argv[3]))}\n")
