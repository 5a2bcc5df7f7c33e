"""An isolated call gets the host's directory, umask and environment of that moment, in any session."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from bashes import VERSION
from daemons import Daemon

from shellsession import Agents, AsyncSession, Session, connect
from shellsession.contracts import bashtool, langchain, phoenix, spec
from shellsession.errors import ContractError

Told = Callable[[Any], str]
CONTRACTS: Final[dict[str, tuple[Any, Told]]] = {
    "spec": (spec, lambda found: found["stdout"]),
    "langchain": (langchain, str),
    "bashtool": (bashtool, lambda found: found["content"][0]["text"].partition("\n")[2]),
    "phoenix": (phoenix, lambda found: found.output),
}
LOOK: Final = {"command": "echo ${COMES-none} ${GOES-none} ${CHANGES-none} ${PAGER-none}"}


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


@pytest.fixture
def before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PAGER", raising=False)
    monkeypatch.setenv("GOES", "there")
    monkeypatch.setenv("CHANGES", "first")


def go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GOES")
    monkeypatch.setenv("CHANGES", "second")
    monkeypatch.setenv("COMES", "new")


@pytest.mark.parametrize("name", CONTRACTS)
@pytest.mark.usefixtures("before")
def test_a_session_that_inherits_follows_the_host(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    contract, told = CONTRACTS[name]
    with Session() as early, Session() as late:
        early.run("true")
        tools = [contract.tool(early), contract.tool(late)]
        go_on(monkeypatch)
        for _ in range(2):
            assert [told(bash(LOOK)) for bash in tools] == ["new none second none\n"] * 2


@pytest.mark.usefixtures("before")
def test_so_does_one_in_a_daemon_and_one_for_asyncio(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with AsyncSession() as session:
            await session.run("true")
            go_on(monkeypatch)
            assert (await spec.tool(session)(LOOK))["stdout"] == "new none second none\n"

    with connect("follows", socket=daemon.socket) as remote:
        bash = spec.tool(remote)
        assert bash(LOOK)["stdout"] == "none there first none\n"
        asyncio.run(main())
        assert bash(LOOK)["stdout"] == "new none second none\n"


@pytest.mark.usefixtures("before")
def test_and_an_agents_that_was_there_before_its_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    with Agents() as agents:
        agents.run("a1", "true")
        go_on(monkeypatch)
        assert spec.tool(agents, agent="a1")(LOOK)["stdout"] == "new none second none\n"


@pytest.mark.usefixtures("before")
def test_what_a_session_was_given_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"GOES": "mine", "PATH": os.environ["PATH"]}
    with Session(env=own) as replaced, Session(extra_env={"GOES": "mine", "PAGER": "more"}) as added:
        tools = [spec.tool(replaced), spec.tool(added)]
        replaced.run("export COMES=exported")
        go_on(monkeypatch)
        assert [bash(LOOK)["stdout"] for bash in tools] == ["exported mine none none\n", "new mine second more\n"]


@pytest.mark.parametrize("name", CONTRACTS)
def test_the_umask_is_the_hosts_of_now(daemon: Daemon, name: str) -> None:
    contract, told = CONTRACTS[name]
    with Agents() as agents, connect("umask", socket=daemon.socket) as remote:
        for tool in (contract.tool(agents, agent="a1"), contract.tool(remote)):
            for mask in (0o27, 0, 0o777, 0o22):
                with umask(mask):
                    assert told(tool({"command": "umask"})) == f"{mask:04o}\n"


def said(bash: Any, command: str) -> str:
    """All that is told of it, in whichever way."""
    try:
        return str(bash({"command": command}))
    except ContractError as error:
        return str(error)


@pytest.mark.parametrize("state", ["true", "set -xv", "readonly PWD"])
@pytest.mark.parametrize("name", CONTRACTS)
def test_a_call_that_cannot_begin_is_an_error_not_a_result(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, state: str
) -> None:
    contract, told = CONTRACTS[name]
    ran, gone = tmp_path / "ran", tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    with Session(cwd=tmp_path) as session:
        session.run(state)
        bash = contract.tool(session)
        assert told(bash({"command": f"pwd; :>{ran}"})) == f"{gone}\n"
        ran.unlink()
        gone.rmdir()
        monkeypatch.setattr(os.path, "isdir", lambda path: True)  # it was there when we looked
        found = said(bash, f":>{ran}")
        assert f"the working directory {gone} cannot be entered (No such file or directory): nothing was run" in found
        assert "builtin" not in found
        assert "exit" not in found.lower()
        assert not ran.exists()


@pytest.mark.sampled
@pytest.mark.skipif(VERSION < (5, 0), reason="bash 4.4 cannot be named, and tells it as its own words")
@pytest.mark.parametrize("state", ["true", "set -xv; trap 'echo trapped' EXIT", "export BASH_ARGV0"])
@pytest.mark.parametrize("name", CONTRACTS)
def test_a_bash_that_cannot_be_started_any_more_is_no_commands_end(
    monkeypatch: pytest.MonkeyPatch, name: str, state: str
) -> None:
    contract, told = CONTRACTS[name]
    with Agents() as agents:
        agents.run("a1", state)
        bash = contract.tool(agents, agent="a1")
        with monkeypatch.context() as patched:
            patched.setenv("LARGE", "x" * (128 << 10))  # more than the kernel takes as one (MAX_ARG_STRLEN)
            found = said(bash, "echo ran")
        assert "nothing was run: bash could not be started (Argument list too long)" in found
        assert "exit" not in found.lower()
        assert told(bash({"command": "echo ${BASH_ARGV0#/bin/} $(printenv BASH_ARGV0)"})) == "bash\n"


@pytest.mark.parametrize(
    "state",
    [
        "builtin() { :; }; readonly -f builtin",
        'builtin() { command builtin "$@"; }; readonly -f builtin',
        "builtin() { echo mine; }; readonly -f builtin; set -u",
        "enable -n builtin; set -- some words",
    ],
)
@pytest.mark.parametrize("name", CONTRACTS)
def test_a_session_with_a_replaced_builtin_runs_nothing_and_says_so(tmp_path: Path, name: str, state: str) -> None:
    with Session() as session:
        session.run(state)
        found = said(CONTRACTS[name][0].tool(session), f":>{tmp_path}/ran")
    assert "nothing was run: a command has replaced `builtin` in this session: restart it" in found
    assert not (tmp_path / "ran").exists()


@pytest.mark.sampled
@pytest.mark.parametrize(
    "name", ["BASH", "BASH_ARGV0", "DIRSTACK", "GROUPS", "HISTCMD", "OPTIND", "RANDOM", "SRANDOM", "UID"]
)
@pytest.mark.parametrize("value", ["/no where", "2"])
def test_what_bash_sets_itself_may_be_in_the_hosts_environment(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    with Agents() as agents:
        agents.run("a1", "true")
        monkeypatch.setenv(name, value)
        for contract, told in CONTRACTS.values():
            assert told(contract.tool(agents, agent="a1")({"command": "echo hi $0"})) in ("hi bash\n", "hi /bin/bash\n")


def test_what_is_gone_from_the_hosts_environment_is_not_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GOES", "a secret")
    with Session() as session:
        session.run("readonly GOES")
        monkeypatch.delenv("GOES")
        assert spec.tool(session)({"command": "echo ${GOES-gone}"}) == {"stdout": "gone\n", "stderr": "", "exitCode": 0}
