"""What all five contracts offer: a definition, pure ``parse`` and ``render``, and tools that can be called."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

import pytest

from shellsession import Agents, AsyncAgents, InvalidRequest
from shellsession.contracts import bashtool, langchain, phoenix, spec, strands
from shellsession.contracts.contract import BadCall, Input, tool_definition
from shellsession.models import Request, Result

CONTRACTS: Final = {"spec": spec, "strands": strands, "langchain": langchain, "bashtool": bashtool, "phoenix": phoenix}
RESULT: Final = Result(b"out\n", b"", 0, None, "/", 0.0, "exited")
# What a call of `echo out`, and a result like that, become in each.
PAYLOADS: Final[dict[str, Any]] = {
    "spec": {"stdout": "out\n", "stderr": "", "exitCode": 0},
    "strands": {"output": "out", "error": ""},
    "langchain": "out\n",
    "bashtool": {
        "content": [{"type": "text", "text": "Exit code: 0\nout\n"}],
        "details": {"exit_code": 0, "success": True},
    },
    "phoenix": phoenix.ToolResult("out\n"),
}


def call(name: str, command: str = "echo out") -> dict[str, object]:
    return {"mode": "execute", "command": command} if name == "strands" else {"command": command}


@pytest.fixture(params=CONTRACTS)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def test_the_definition_stands_there_before_any_session(name: str) -> None:
    module: Any = CONTRACTS[name]
    assert sorted(module.TOOL) == ["description", "input_schema", "name"]
    assert module.TOOL["name"] == "bash"
    assert "command" in module.TOOL["input_schema"]["properties"]
    json.dumps(module.TOOL)
    with Agents() as agents:
        bash = module.tool(agents, agent="a1")
        definition = {
            **module.TOOL,
            "description": module.TOOL["description"].replace("{working_directory}", bash._place()),
        }
        assert bash.definition == definition
        assert agents.list() == []


def test_a_call_becomes_a_request_and_a_result_the_payload(name: str) -> None:
    module: Any = CONTRACTS[name]
    request = module.parse(call(name))
    assert isinstance(request, Request)
    assert request.command == b"echo out"
    assert module.render(RESULT) == PAYLOADS[name]
    with pytest.raises(BadCall):
        module.parse({})


def test_it_is_called_with_a_mapping_or_with_its_fields(name: str) -> None:
    module: Any = CONTRACTS[name]
    with Agents() as agents:
        bash = module.tool(agents, agent="a1")
        assert bash(call(name)) == bash(**call(name)) == PAYLOADS[name]

    async def main() -> None:
        async with AsyncAgents() as agents:
            bash = module.tool(agents, agent="a1")
            assert await bash(call(name)) == await bash(**call(name)) == PAYLOADS[name]

    asyncio.run(main())


@pytest.mark.parametrize("arguments", [(), (None,), (7,), ("ls",), ([],)])
def test_wrong_arguments_are_an_error_of_the_contract(name: str, arguments: tuple[object, ...]) -> None:
    module: Any = CONTRACTS[name]
    with Agents() as agents:
        try:
            said = str(module.tool(agents, agent="a1")(*arguments))
        except (strands.BashInputError, langchain.BashToolError, bashtool.InvalidArgs) as error:
            said = str(error)
        assert "the arguments must be an object with fields" in said
        assert agents.list() == []


def test_what_confirms_has_the_documents_name_too() -> None:
    with Agents() as agents:
        bash = bashtool.tool(agents, agent="a1", confirm_fn=lambda command: command == "true")
        assert bash({"command": "true"})["details"]["success"]
        with pytest.raises(bashtool.Failed, match="not confirmed"):
            bash({"command": "false"})
    with pytest.raises(InvalidRequest, match="two names"):
        bashtool.BashTool(confirm=bool, confirm_fn=bool)


def test_docstring_of_an_input_is_not_for_the_model() -> None:
    class Documented(Input):
        """Ours."""

        command: str

    schema = tool_definition("bash", "Run it", Documented)["input_schema"]
    assert schema.keys() == {"type", "properties", "required", "additionalProperties"}
