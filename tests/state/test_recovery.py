"""``recover=True``: the shell after a dead one has its state, and the result says which."""

from __future__ import annotations

import asyncio
import os
import re
import signal
from pathlib import Path

import pytest
from system import PATIENCE, is_alive, wait_until

from shellsession import AsyncSession, InvalidRequest, Result, Session
from shellsession.engine.verbs.on_branch import BranchEngine

pytestmark = pytest.mark.usefixtures("each_bash")

STATE = "cd /usr; A='a b'; export B=2; f() { echo $A; }; alias ll='ls -l'; set -f; trap 'echo usr' USR1"
ASKED = "echo $PWD, $A, $B; f; alias ll; echo $-; trap -p USR1"

DEATHS = {
    "exit": "exit 3",
    "a function that exits": "g() { exit 4; }; g",
    "set -eu": "set -eu; : $unset_name",
    "exec": "exec true",
    "SIGKILL": "kill -9 $$",
    "SIGHUP": "kill -HUP $$; while :; do :; done",
    "set -r": "set -r",
    "descriptors": "ulimit -n 9",
    "a time limit": "trap '' INT; while :; do :; done",
}


@pytest.fixture
def recovering(tmp_path: Path) -> Session:
    return Session(cwd=tmp_path, tty=False, timeout=PATIENCE, recover=True)


@pytest.mark.parametrize("death", DEATHS.values(), ids=DEATHS)
def test_a_shell_that_died_comes_back_with_its_state(recovering: Session, death: str) -> None:
    with recovering as sh:
        sh.run(STATE)
        before = sh.run(ASKED).stdout
        pid = sh.pid
        limit = {"timeout": 0.3, "on_timeout": "kill"} if "INT" in death else {}
        result = sh.run(f"A=changed; {death}", **limit)  # type: ignore[arg-type]  # a table of options
        assert not result.state_kept
        by_itself = "exit" in death or "set -eu" in death or "HUP" in death
        moment = "after the last command" if by_itself else "before the last (command|2 commands)"
        told = rf"a fresh bash continues in /usr with the state from {moment}(; `set -e` is off)?"
        assert re.fullmatch(told, result.recovered)
        assert result.recovered in str(result)
        sh.run("set +u")
        again = sh.run(ASKED)
        assert (again.stdout, again.recovered) == (before.replace("a b", "changed") if by_itself else before, "")
        assert sh.pid != pid


def test_a_shell_that_is_killed_between_two_commands_comes_back(recovering: Session) -> None:
    with recovering as sh:
        sh.run(STATE)
        sh.run("exit 3")  # a snapshot was taken before it
        pid = sh.pid
        assert pid
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not is_alive(pid), "its end")
        result = sh.run("touch never")
        assert not result.ran
        assert result.reason == "the shell had ended before this command, which was not run"
        assert "with the state from after the last command" in result.recovered
        assert sh.run("ls never; echo $B").stdout == "2\n"


def test_what_ends_a_shell_does_not_come_back(recovering: Session) -> None:
    with recovering as sh:
        sh.run("set -eu; A=1; TMOUT=1000")
        result = sh.run(": $unset_name; exit")
        assert result.recovered.endswith("; `set -e` is off")
        assert sh.run("echo $A [${TMOUT-}] $-").stdout.startswith("1 [] ")
        assert "e" not in sh.run("echo $-").stdout


def test_what_does_not_come_back_is_named(recovering: Session) -> None:
    with recovering as sh:
        sh.run("mkdir d; cd d; A=1")
        assert "the directory is gone" in sh.run("rmdir ../d; exit").recovered
        assert sh.run("echo $A").stdout == "1\n"


def test_a_restart_forgets_the_state(recovering: Session) -> None:
    with recovering as sh:
        sh.run(STATE)
        sh.run("exit")
        sh.restart()
        assert sh.run("echo [$A]").stdout == "[]\n"
        assert sh.run("exit").recovered.endswith("from after the last command")
        assert sh.run("echo [$A]").stdout == "[]\n"


def test_startup_commands_run_first_and_the_state_goes_over_them(tmp_path: Path) -> None:
    with Session(cwd=tmp_path, recover=True, startup=["A=startup; C=1"]) as sh:
        sh.run("A=mine; unset C")
        sh.run("exit")
        assert sh.run("echo $A [${C-unset}]").stdout == "mine [unset]\n"


def test_a_command_is_never_run_again(recovering: Session) -> None:
    with recovering as sh:
        for _ in range(3):
            sh.run("echo x >>count; exit 3")
        assert sh.run("cat count").stdout == "x\n" * 3


def test_a_handed_back_command_that_ends_the_shell_recovers_too(recovering: Session, tmp_path: Path) -> None:
    os.mkfifo(go := tmp_path / "go")
    with recovering as sh:
        sh.run(STATE)
        assert sh.run(f"read x <{go}; exit 5", timeout=0.05, on_timeout="yield").still_running
        go.write_text("\n")
        result = sh.wait(PATIENCE)
        assert (result.exit_code, result.state_kept) == (5, False)
        assert result.recovered
        assert sh.run("echo $B").stdout == "2\n"


def test_asyncio_session_recovers(tmp_path: Path) -> None:
    async def main() -> None:
        async with AsyncSession(cwd=tmp_path, recover=True) as sh:
            await sh.run(STATE)
            assert (await sh.run("exit 3")).recovered
            assert (await sh.run("f")).stdout == "a b\n"

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["threads", "asyncio"])
def test_large_output_of_a_command_that_ended_the_shell_is_forgotten(kind: str, tmp_path: Path) -> None:
    text = "head -c 1M /dev/zero; exit 3"
    if kind == "threads":
        with Session(cwd=tmp_path, recover=True) as sh:
            sh.run("true")
            engine, result = sh.engine, sh.run(text)
    else:

        async def work() -> tuple[BranchEngine, Result]:
            async with AsyncSession(cwd=tmp_path, recover=True) as sh:
                await sh.run("true")
                return sh.engine, await sh.run(text)

        engine, result = asyncio.run(work())
    assert result.recovered
    assert len(result.stdout_bytes) == 1 << 20
    assert engine.last is not None
    assert engine.last.delivery.result is not None
    assert engine.last.delivery.result.stdout_bytes == b""


def test_recover_is_checked() -> None:
    with pytest.raises(InvalidRequest, match="recover"):
        Session(recover="yes")  # type: ignore[arg-type]  # the test


def test_a_state_that_ends_each_shell_is_given_up(recovering: Session, tmp_path: Path) -> None:
    with recovering as sh:
        sh.run("A=1; PROMPT_COMMAND='[[ -e deadly ]] && exit 4'")
        sh.run("exit 3")
        (tmp_path / "deadly").touch()
        died = sh.run("echo $A")
        assert not died.state_kept
        assert "the state of the last one is lost: bash ended while it was given the state" in died.recovered
        assert sh.run("echo [$A]").stdout == "[]\n"


def test_a_fresh_shell_that_is_killed_while_it_gets_the_state_is_followed_by_another(recovering: Session) -> None:
    with recovering as sh:
        sh.run("A=1; PROMPT_COMMAND='[[ -e deadly ]] && rm deadly && kill -9 $$'")
        sh.run("exit 3")
        died = sh.run("A=2; exec touch deadly")
        assert died.recovered.endswith("from before the last command")
        assert sh.run("ls; echo $A").stdout == "1\n"


def test_a_shell_that_ends_while_idle_comes_back_as_after_its_only_command(recovering: Session) -> None:
    with recovering as sh:
        sh.run(STATE)
        pid = sh.pid
        assert pid
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not is_alive(pid), "its end")
        result = sh.run("touch never")
        assert result.recovered == "a fresh bash continues in /usr with the state from after the last command"
        assert sh.run("echo $B").stdout == "2\n"


def test_a_command_that_is_not_run_is_not_counted_as_missing(tmp_path: Path) -> None:
    with Session(cwd=tmp_path, tty=False, timeout=PATIENCE, recover=True, startup=["S=1"]) as sh:
        sh.run("A=1")  # a snapshot is taken
        sh.run("A=2")
        assert not sh.run("true", cwd="/nope").ran
        pid = sh.pid
        assert pid
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not is_alive(pid), "its end")
        recovered = sh.run("touch never").recovered
        assert recovered.endswith("from before the last command")
        assert sh.run("echo $A").stdout == "1\n"


def test_a_stream_that_ends_the_shell_loses_nothing(recovering: Session) -> None:
    with recovering as sh:
        sh.run("A=1")
        sh.run("A=2")
        *_, result = sh.stream("A=3; exit 3")
        assert isinstance(result, Result)
        assert not result.state_kept
        result = sh.run("echo $A")
        assert (result.stdout, result.recovered.rpartition(" the ")[2]) == ("3\n", "last command")


def test_a_command_whose_caller_is_cancelled_while_the_next_shell_starts_keeps_its_result(tmp_path: Path) -> None:
    async def main() -> None:
        startup = ["if [[ -e slow ]]; then touch begun; sleep 1000; fi"]
        async with AsyncSession(cwd=tmp_path, recover=True, startup=startup) as sh:
            await sh.run("A=1; touch slow")
            task = asyncio.create_task(sh.run("echo out; exit 3"))
            await asyncio.to_thread(wait_until, (tmp_path / "begun").exists, "the startup command")
            (tmp_path / "slow").unlink()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            result = sh.engine.came_of()
            assert result is not None
            assert (result.stdout, result.exit_code) == ("out\n", 3)
            result = await sh.run("echo $A")
            assert (result.stdout, bool(result.recovered)) == ("1\n", True)

    asyncio.run(main())


def test_a_shell_with_a_snapshot_comes_back_with_it_after_its_first_command(recovering: Session) -> None:
    with recovering as sh:
        sh.run("A=1")
        with sh.fork() as child:
            assert child.run("B=1; kill -9 $$").recovered.endswith("from before the last command")
            assert child.run("echo $A [$B]").stdout == "1 []\n"


def test_a_state_that_could_not_be_kept_is_told_with_the_reason(recovering: Session) -> None:
    with recovering as sh:
        sh.run("ulimit -f 1")
        result = sh.run("A=1; exit")
        assert result.recovered == ""
        assert "its state was not kept: this bash may write files of at most" in result.reason
