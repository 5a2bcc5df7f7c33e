"""``restart(keep_state=True)``: the fresh bash has the state of the old one, or nothing is lost."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from system import PATIENCE, wait_until

from shellsession import AsyncSession, Session, SessionBusy, SnapshotUnavailable

STATE = "cd /usr; A='a b'; f() { echo $A; }; set -f"


@pytest.fixture
def plain(tmp_path: Path) -> Iterator[Session]:
    with Session(cwd=tmp_path, tty=False, timeout=PATIENCE) as sh:
        yield sh


@pytest.fixture
def recovering(tmp_path: Path) -> Iterator[Session]:
    with Session(cwd=tmp_path, tty=False, timeout=PATIENCE, recover=True) as sh:
        yield sh


def test_restart_that_keeps_the_state_of_a_gone_shell_says_why_not(plain: Session) -> None:
    with pytest.raises(SnapshotUnavailable, match="there is no bash"):
        plain.restart(keep_state=True)
    plain.run("A=1; exit")
    with pytest.raises(SnapshotUnavailable, match="there is no bash"):
        plain.restart(keep_state=True)


def test_restart_during_a_threads_command_is_refused_and_ends_nothing(plain: Session) -> None:
    plain.run(STATE)
    command = threading.Thread(target=plain.run, args=("sleep 100",))
    command.start()
    wait_until(lambda: plain.state == "running", "the command")
    pid = plain.pid
    with pytest.raises(SessionBusy):
        plain.restart(keep_state=True)
    plain.interrupt()
    command.join(PATIENCE)
    assert (plain.pid, plain.run("f").stdout) == (pid, "a b\n")


def test_restart_during_a_command_brings_back_what_recovery_has_kept(recovering: Session) -> None:
    recovering.run(STATE)
    recovering.run("B=lost; sleep 100", timeout=0.1, on_timeout="yield")
    assert recovering.restart(keep_state=True).complete
    result = recovering.run("f; echo [$B] $PWD $-")
    assert result.stdout.startswith("a b\n[] /usr ")
    assert "with the state from before the last command" in result.recovered


def test_restart_during_a_command_names_what_would_end_the_next_shell(recovering: Session) -> None:
    recovering.run("set -e; TMOUT=1000")
    recovering.run("sleep 100", timeout=0.1, on_timeout="yield")
    missing = recovering.restart(keep_state=True).not_restored
    assert [one[:2] for one in missing] == [("option", "errexit"), ("variable", "TMOUT")]
    assert {one.reason for one in missing} == {"it would end the next shell"}
    assert recovering.restored.not_restored == missing


def test_restart_of_an_idle_recovering_session_keeps_the_state_of_now(recovering: Session) -> None:
    recovering.run(STATE)
    recovering.run("A=2")
    pid = recovering.pid
    assert recovering.restart(keep_state=True).complete
    result = recovering.run("f; exit 3")
    assert (result.stdout, recovering.pid != pid) == ("2\n", True)
    assert recovering.run("f").stdout == "2\n"


def test_restart_in_another_task_during_a_command_is_refused(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncSession(cwd=tmp_path, timeout=PATIENCE) as sh:
            await sh.run(STATE)
            command = asyncio.create_task(sh.run("sleep 100"))
            await asyncio.to_thread(wait_until, lambda: sh.state == "running", "the command")
            with pytest.raises(SessionBusy):
                await sh.restart(keep_state=True)
            await sh.interrupt()
            assert (await command).state_kept
            assert (await sh.restart(keep_state=True)).complete
            assert (await sh.run("f")).stdout == "a b\n"

    asyncio.run(main())
