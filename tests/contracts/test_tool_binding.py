"""A contract bound to sessions of all kinds: where a call runs, in which environment, and for which agent."""

from __future__ import annotations

import asyncio
import gc
import os
import shlex
import signal
import subprocess
import weakref
from pathlib import Path
from typing import Any

import pytest
from bashes import BUILTINS_FIRST_LINE
from daemons import Daemon
from system import is_alive, wait_until

from shellsession import Agents, AsyncAgents, AsyncSession, InvalidRequest, Result, Session, aconnect, connect
from shellsession.contracts import phoenix, spec
from shellsession.contracts.contract import Contract, Steps
from shellsession.contracts.tool import AsyncTool, Tool
from shellsession.models import Request

pytestmark = pytest.mark.usefixtures("company")


def environment(text: str) -> dict[str, str]:
    pairs = dict(entry.split("=", 1) for entry in text.split("\0") if entry)
    del pairs["_"]  # the path of env itself, or how it was called
    return pairs


def test_a_session_whose_time_is_up_just_then_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    threads, loop = Session.run, AsyncSession.run
    closed: list[Session | AsyncSession] = []

    def run(session: Session, *arguments: Any, **options: Any) -> Any:
        if not closed:
            closed.append(session)
            session.close()
        return threads(session, *arguments, **options)

    async def arun(session: AsyncSession, *arguments: Any, **options: Any) -> Any:
        if not closed:
            closed.append(session)
            await session.close()
        return await loop(session, *arguments, **options)

    monkeypatch.setattr(Session, "run", run)
    monkeypatch.setattr(AsyncSession, "run", arun)

    async def main() -> Any:
        async with AsyncAgents() as agents:
            return await spec.tool(agents, agent="a1")(call)

    call = {"command": "echo hi"}
    with Agents() as agents:
        assert spec.tool(agents, agent="a1")(call)["stdout"] == "hi\n"
    closed.clear()
    assert asyncio.run(main())["stdout"] == "hi\n"
    with Session() as session:
        session.close()
        assert "closed" in spec.tool(session)(call)["error"]


class Asking(Contract[Result]):
    """Asks for one request, and returns its result."""

    persistent = True

    def __init__(self, request: Request) -> None:
        self.request = request

    def steps(self, call: object) -> Steps[Result]:
        result: Result = yield self.request
        return result


class Ranked(Request):
    """A request with an option that no session knows."""

    rank: int = 1


def test_a_request_keeps_all_its_options() -> None:
    with Session() as session:
        result = Tool(Asking(Request(b"sleep 100", timeout=20, idle_timeout=0.1)), session, None, None)({})
        assert result.outcome == "idle"


def test_an_option_that_no_session_knows_is_refused_before_anything_runs() -> None:
    with Session() as session:
        with pytest.raises(TypeError, match="unexpected keyword argument 'rank'"):
            Tool(Asking(Ranked(b"echo hi")), session, None, None)({})
        assert session.state == "new"


@pytest.mark.parametrize("contract", [spec, phoenix])
def test_a_list_shows_the_command_of_the_model_first(contract: Any, tmp_path: Path) -> None:
    log = tmp_path / "log"
    first = f"echo 'it''s' $(id -u) >>{log}"
    with Session() as session:
        contract.tool(session)({"command": f"{first}\necho more"})
        assert session.engine.last is not None
        text = session.engine.last.request.command.decode()
    assert text.startswith(f"{{ \\builtin : {shlex.quote(first + ' ...')}; ")
    assert log.read_text() == f"its {os.getuid()}\n"  # run once: it is only shown there


@pytest.mark.parametrize("before", [None, "/usr", "/nonexistent"])
def test_the_environment_is_the_hosts(agents: Agents, before: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OLDPWD", raising=False)
    if before is not None:
        monkeypatch.setenv("OLDPWD", before)
    command = "env -0; :"  # bash -c alone would exec env, and give it another SHLVL
    # env= as given: Python's readline puts COLUMNS into the environment behind os.environ's back.
    done = subprocess.run(["bash", "-c", command], env=dict(os.environ), capture_output=True, text=True, check=True)
    bash = spec.tool(agents, agent="a1")
    assert environment(bash({"command": command})["stdout"]) == environment(done.stdout)


def test_the_environment_is_the_hosts_of_now(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    bash = spec.tool(agents, agent="a1")
    monkeypatch.setenv("GOES", "away")
    monkeypatch.setenv("CHANGES", "first")
    assert bash({"command": "echo $GOES $CHANGES"})["stdout"] == "away first\n"
    monkeypatch.delenv("GOES")
    monkeypatch.setenv("CHANGES", "it's a\nnew \\one")
    monkeypatch.setenv("COMES", "*")
    found = bash({"command": 'printf "[%s]" "${GOES-none}" "$CHANGES" "$COMES"; env | grep -c ^COMES='})
    assert found["stdout"] == "[none][it's a\nnew \\one][*]1\n"


def test_it_is_the_hosts_of_now_whichever_tool_was_there_before(
    agents: Agents, monkeypatch: pytest.MonkeyPatch
) -> None:
    look = {"command": "echo ${COMES-none} ${OPENAI_KEY-none} ${EDITOR-none}"}
    monkeypatch.delenv("EDITOR", raising=False)
    monkeypatch.setenv("OPENAI_KEY", "key")
    phoenix.tool(agents, agent="a1")(look)
    monkeypatch.setenv("COMES", "new")
    assert spec.tool(agents, agent="a1")(look)["stdout"] == "new key none\n"
    assert phoenix.tool(agents, agent="a1")(look).output == "new none /bin/false\n"


def test_what_bash_alone_may_set_stays_as_it_is(agents: Agents, monkeypatch: pytest.MonkeyPatch) -> None:
    bash = spec.tool(agents, agent="a1")
    bash({"command": "true"})
    monkeypatch.setenv("UID", "77")
    monkeypatch.setenv("SHELLOPTS", "posix")
    assert bash({"command": "echo $UID"}) == {"stdout": f"{os.getuid()}\n", "stderr": "", "exitCode": 0}


def test_an_isolated_call_runs_where_the_host_is_now(
    agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bash = spec.tool(agents, agent="a1")
    for name in ("plain", "a b'c\"$(x)\n", "-P", "é"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        assert bash({"command": 'printf %s "$PWD"'})["stdout"] == str(tmp_path / name)


def test_a_removed_working_directory_is_reported(
    agents: Agents, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone").mkdir()
    bash = spec.tool(agents, agent="a1")
    bash({"command": "true"})
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    told = bash({"command": "touch here"})
    assert list(told) == ["error"]
    assert told["error"].endswith("gone does not exist: nothing was run; change to another directory")


@pytest.mark.parametrize("persistent", [False, True])
def test_a_shell_that_an_earlier_call_has_killed(agents: Agents, tmp_path: Path, persistent: bool) -> None:
    """A call that promises nothing between calls gets a fresh one; with state that was lost, it is told so."""
    bash = spec.tool(agents, agent="a1", persistent=persistent)
    bash({"command": "true"})
    pid = agents.session("a1").pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid), "the end of the shell")
    told = bash({"command": "echo ran"})
    if persistent:
        assert list(told) == ["error"]
        assert "was not run" in told["error"]
        told = bash({"command": "echo ran"})
    assert told == {"stdout": "ran\n", "stderr": "", "exitCode": 0}


def test_messages_are_those_of_the_command_alone(agents: Agents) -> None:
    found = spec.tool(agents, agent="a1")({"command": "echo $LINENO; cd /nowhere"})
    assert found["stderr"] == f"/bin/bash: {BUILTINS_FIRST_LINE}cd: /nowhere: No such file or directory\n"


def test_each_agent_has_its_own(agents: Agents) -> None:
    one, two = (spec.tool(agents, agent=name, persistent=True) for name in ("one", "two"))
    one({"command": "X=1"})
    assert two({"command": "echo ${X-none}"})["stdout"] == "none\n"
    assert one({"command": "echo ${X-none}"})["stdout"] == "1\n"


def test_an_agent_that_is_an_object_is_held_weakly(agents: Agents) -> None:
    class Agent:
        pass

    agent = Agent()
    seen = weakref.ref(agent)
    bash = spec.tool(agents, agent=agent)
    assert bash({"command": "echo hi"})["stdout"] == "hi\n"
    del agent
    gc.collect()
    assert seen() is None
    assert agents.list() == []
    assert "error" in bash({"command": "true"})


@pytest.mark.parametrize(
    ("where", "agent"), [(object(), None), (None, None), ("session", "a1")], ids=["object", "none", "str"]
)
def test_it_runs_only_in_sessions_and_agents(where: Any, agent: object) -> None:
    with pytest.raises(InvalidRequest, match="in a session or in Agents"):
        spec.tool(where, agent)


def test_agents_need_an_agent_and_a_session_needs_none(agents: Agents) -> None:
    nobody: Any = None
    with pytest.raises(InvalidRequest, match="needs its agent"):
        spec.tool(agents, agent=nobody)
    with pytest.raises(InvalidRequest, match="allows weak references, not 5"):
        spec.tool(agents, agent=5)
    with Session() as session, pytest.raises(InvalidRequest, match="already"):
        spec.tool(session, agent="a1")


def test_sessions_of_all_four_kinds(daemon: Daemon) -> None:
    call, expected = {"command": "echo hi; exit 3"}, {"stdout": "hi\n", "stderr": "", "exitCode": 3}
    with Session() as session:
        assert spec.tool(session)(call) == expected
    with connect("tools", socket=daemon.socket) as remote:
        assert spec.tool(remote)(call) == expected

    async def main() -> None:
        async with AsyncSession() as session:
            assert await spec.tool(session)(call) == expected
        async with AsyncAgents() as agents:
            bash = spec.tool(agents, agent="a1")
            assert isinstance(bash, AsyncTool)
            assert await bash(call) == expected
        async with await aconnect("tools", socket=daemon.socket) as remote:
            assert await spec.tool(remote)(call) == expected

    asyncio.run(main())


def test_many_tools_at_once(agents: Agents) -> None:
    tools = [spec.tool(agents, agent=f"a{number % 3}") for number in range(6)]
    assert all(isinstance(one, Tool) for one in tools)
    found = [one({"command": f"echo {number}"})["stdout"] for number, one in enumerate(tools)]
    assert found == [f"{number}\n" for number in range(6)]
    assert len(agents.list()) == 3
