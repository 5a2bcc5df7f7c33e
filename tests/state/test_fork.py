"""``fork``: a new session with the state of another one, and with its rules."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from sandboxes import needs_bwrap
from states import listed
from system import is_alive, wait_until

from shellsession import (
    AsyncSession,
    InvalidRequest,
    Limits,
    Policy,
    PolicyRefused,
    Sandbox,
    Session,
    ShellUnavailable,
    StartupFailed,
)

pytestmark = pytest.mark.usefixtures("each_bash")

STATE = "cd /usr; A='a b'; export B=2; declare -A m=([k]=v); f() { echo $A; }; alias ll='ls -l'; set -f; umask 077"


def test_a_fork_has_the_state_and_changes_nothing_of_its_parent(tmp_path: Path) -> None:
    with Session(cwd=tmp_path, tty=False) as parent:
        parent.run(STATE)
        before = listed(parent)
        with parent.fork() as child:
            assert child.restored.complete
            assert child.pid != parent.pid
            assert listed(child) == before
            child.run("cd /; A=changed; unset -f f; touch /nowhere/x")
            assert listed(parent) == before
            child.restart()
            assert listed(child) == before


def test_a_fork_has_the_environment_limits_and_rules_of_its_parent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = Policy(deny_commands=["git push"], hide_prefixes=["HIDDEN"])
    monkeypatch.setenv("HIDDEN", "x")
    monkeypatch.setenv("KEPT", "first")
    with Session(cwd=tmp_path, policy=policy, redact=True, limits=Limits(max_output=100), timeout=7) as parent:
        parent.run("A=1")
        monkeypatch.setenv("KEPT", "later")
        with parent.fork() as child:
            assert child.run("echo $A $KEPT [$HIDDEN]").stdout == "1 first []\n"
            assert child.run("seq 100").stdout_omitted > 0
            assert child.redact == parent.redact
            with pytest.raises(PolicyRefused):
                child.run("git push")


@needs_bwrap
def test_a_fork_of_a_confined_session_is_confined(tmp_path: Path) -> None:
    with Session(cwd=tmp_path, sandbox=Sandbox(write=[str(tmp_path)])) as parent:
        parent.run("f() { touch /usr/never; }; A=1")
        with parent.fork() as child:
            result = child.run("f; echo $A")
            assert (result.stdout, "Read-only" in result.stderr) == ("1\n", True)


def test_forks_of_one_moment_are_independent(tmp_path: Path) -> None:
    with Session(cwd=tmp_path) as parent:
        parent.run("x=0")
        children = [child for child in parent.fork_many(3) if isinstance(child, Session)]
        assert len(children) == 3
        for number, child in enumerate(children):
            assert child.run(f"((x += {number})); echo $x").stdout == f"{number}\n"
            child.close()
        assert parent.run("echo $x").stdout == "0\n"


def test_a_fork_that_cannot_start_is_an_error_beside_the_others(tmp_path: Path) -> None:
    count = tmp_path / "count"
    startup = [f"echo x >>{count}; [ $(wc -l <{count}) != 3 ]"]
    with Session(cwd=tmp_path, startup=startup) as parent:
        parent.run("A=1")
        first, second, third = parent.fork_many(3)
        assert isinstance(second, StartupFailed)
        for child in (first, third):
            assert isinstance(child, Session)
            assert child.run("echo $A").stdout == "1\n"
            child.close()


@pytest.mark.parametrize("count", [0, -1, True, "2"])
def test_the_number_of_forks_is_checked(tmp_path: Path, count: int) -> None:
    with Session(cwd=tmp_path) as parent, pytest.raises(InvalidRequest, match="count must be"):
        parent.fork_many(count)


def test_a_fork_recovers_to_its_own_state(tmp_path: Path) -> None:
    with Session(cwd=tmp_path, recover=True) as parent:
        parent.run("A=1")
        with parent.fork() as child:
            child.run("A=2")
            assert child.run("exit").recovered
            assert child.run("echo $A").stdout == "2\n"


def test_asyncio_sessions_fork(tmp_path: Path) -> None:
    async def main() -> list[str]:
        async with AsyncSession(cwd=tmp_path) as parent:
            await parent.run("A=1")
            one, *more = await parent.fork_many(2)
            children = [await parent.fork(), one, *more]
            said = []
            for child in children:
                assert isinstance(child, AsyncSession)
                said.append((await child.run("echo $A")).stdout)
                await child.close()
            return said

    assert asyncio.run(main()) == ["1\n"] * 3


def test_cancelled_fork_many_leaves_no_fork(tmp_path: Path) -> None:
    """The parent and the first fork start; the second one does not get that far."""
    pids = tmp_path / "pids"
    startup = [f"echo $$ >>{pids}; [ $(wc -l <{pids}) -lt 3 ] || sleep 1000"]

    async def main() -> None:
        async with AsyncSession(cwd=tmp_path, startup=startup) as parent:
            await parent.open()
            task = asyncio.create_task(parent.fork_many(2))
            await asyncio.to_thread(wait_until, lambda: pids.read_text().count("\n") == 3, "the second fork")
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            first, *forks = map(int, pids.read_text().split())
            assert [is_alive(pid) for pid in (first, *forks)] == [True, False, False]

    asyncio.run(main())


def test_a_closed_session_has_no_fork(tmp_path: Path) -> None:
    with Session(cwd=tmp_path) as parent:
        parent.run("exec true")
        with parent.fork() as child:  # of the fresh shell
            assert child.run("echo on").stdout == "on\n"
        (tmp_path / "gone").mkdir()
        with Session(cwd=tmp_path / "gone") as other:
            other.run("cd /")
            (tmp_path / "gone").rmdir()
            with pytest.raises((ShellUnavailable, InvalidRequest), match="gone"):
                other.fork()
