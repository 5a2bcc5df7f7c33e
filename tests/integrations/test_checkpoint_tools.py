"""The tools ``checkpoint``, ``rollback`` and ``diff``, which are offered on request."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from daemons import Daemon
from stories import KINDS, Call, Play, player
from system import PATIENCE
from test_mcp import Talk, talk

from shellsession import AsyncSession, InvalidRequest, JobsRunning, SessionBusy, connect
from shellsession.errors import BranchUnavailable
from shellsession.integrations import toolbox
from shellsession.integrations.toolbox import Toolbox

_TOOLS = ["checkpoint", "rollback", "diff"]


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """The directory of the branch."""
    (base := tmp_path / "base").mkdir()
    return base


@pytest.fixture(params=KINDS)
def play(request: pytest.FixtureRequest, daemon: Daemon, base: Path) -> Play:
    """Plays a story with the tools of a session on a branch."""
    options = {"cwd": base, "branch": base, "branch_dir": base.with_name("layers"), "auto_checkpoints": 5}
    return player(request.param, request.node.name, daemon.socket, options, checkpoints=True, max_chars=2000)


def test_rollback_brings_back_files_and_shell(play: Play, base: Path) -> None:
    async def story(call: Call) -> None:
        await call("bash", command="echo one >file; X=1")
        assert await call("checkpoint", name="first") == (
            "[checkpoint first: rollback brings these files and this shell back]"
        )
        await call("bash", command="echo two >file; echo new >other; X=2; cd /")
        assert await call("diff", since="first") == "changed file\nadded other"
        assert "-one\n+two\n" in await call("diff", since="first", patch=True)
        assert await call("rollback", checkpoint="first") == "[the files and the shell are as at checkpoint first]"
        assert await call("bash", command='echo $X "$PWD"; cat file; ls') == f"1 {base}\none\nfile"
        assert await call("diff") == "added file"
        await call("bash", command="mkfifo fifo")
        assert "added fifo (not applied: " in await call("diff", since="first")

    play(story)
    assert list(base.iterdir()) == []


def test_rollback_without_a_name_takes_back_commands(play: Play) -> None:
    async def story(call: Call) -> None:
        await call("bash", command="echo one >file")
        await call("bash", command="rm file; X=2")
        assert await call("rollback") == "[the files and the shell are as before the command `rm file; X=2`]"
        assert await call("bash", command="cat file; echo $X.") == "one\n."
        assert await call("rollback") == "[the files and the shell are as before the command `echo one >file`]"
        assert await call("diff") == "[no file has changed]"
        with pytest.raises(
            InvalidRequest, match=r"no command left to take back: name a checkpoint \(there are: none\)"
        ):
            await call("rollback")
        with pytest.raises(InvalidRequest, match=r"there is no checkpoint 'x' \(there are: none\)"):
            await call("rollback", checkpoint="x")

    play(story)


def test_jobs_and_running_commands_are_named_for_the_model(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolbox, "_END_OF_JOB", PATIENCE)

    async def story(call: Call) -> None:
        await call("bash", command="echo one >file")
        await call("checkpoint", name="first")
        await call("bash", command="sleep 99 &")
        with pytest.raises(JobsRunning, match=r"job j1 runs.*wait for its end, or kill it with `jobs`; nothing"):
            await call("rollback", checkpoint="first")
        await call("jobs", job="j1", kill=True)
        assert "as at checkpoint first" in await call("rollback", checkpoint="first")

        await call("bash", command="cat", interactive=True)
        with pytest.raises(SessionBusy, match="an earlier command is still running, so nothing was run: `wait`"):
            await call("checkpoint")
        await call("interrupt")
        assert await call("checkpoint") == "[checkpoint checkpoint-1: rollback brings these files and this shell back]"

    play(story)


def test_long_diff_is_cut_in_the_middle(play: Play) -> None:
    async def story(call: Call) -> None:
        await call("bash", command="touch file-{1..999}")
        text = await call("diff")
        assert len(text) <= 2000
        assert text.startswith("added file-1\n")
        assert text.endswith("added file-999")
        assert "omitted" in text

    play(story)


def test_without_a_branch_each_says_so() -> None:
    async def main() -> None:
        async with AsyncSession() as session:
            tools = Toolbox(session, checkpoints=True)
            for verb in _TOOLS:
                with pytest.raises(BranchUnavailable, match="nothing to roll back or to show"):
                    await tools.call(verb, {})
            plain = Toolbox(session)
            assert not set(_TOOLS) & set(plain.verbs)
            with pytest.raises(InvalidRequest, match="there is no tool 'rollback'"):
                await plain.call("rollback", {})

    asyncio.run(main())


def test_over_mcp_they_are_offered_on_request(daemon: Daemon, agent: str, base: Path) -> None:
    async def story(talk: Talk) -> None:
        tools = {tool.name: tool for tool in (await talk.client.list_tools()).tools}
        assert [name for name in tools if name in _TOOLS] == _TOOLS
        assert tools["diff"].annotations is not None
        assert tools["diff"].annotations.read_only_hint
        assert not tools["rollback"].annotations.read_only_hint
        await talk.call("bash", command="echo x >file")
        assert await talk.call("diff") == ("added file", False)
        await talk.call("rollback")
        assert await talk.call("bash", command="ls") == ("[no output]", False)

    place = ("-s", agent, "--socket", daemon.socket, "--branch", str(base))
    talk(story, *place, "--auto-checkpoints", "3", "--checkpoints")
    for option in (("--checkpoints",), ("--branch", str(base))):
        refused = subprocess.run([sys.executable, "-m", "shellsession", "mcp", *option], capture_output=True)
        assert refused.returncode == 125
        assert b"name one with -s" in refused.stderr
    with connect(agent, daemon.socket, False, create=False) as session:
        session.branch.discard()
        session.close()
