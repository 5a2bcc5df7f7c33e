"""The daemon notices the end of a handed-back command, and keeps it for the client of that command."""

from __future__ import annotations

from pathlib import Path

import clients
import pexpect
import pytest
from clients import begin, hand_back
from daemons import Daemon, Raw, refused, seen
from system import PATIENCE, wait_until

from shellsession import TTY, NotRunning, RemoteSession, connect
from shellsession.errors import GONE

sh = clients.sh
SOON = 0.3


def test_a_handed_back_command_is_any_clients(daemon: Daemon, sh: RemoteSession, place: Path) -> None:
    with connect(sh.agent, daemon.socket, False) as other:
        hand_back(other, begin(place), "one")
    (place / "open").touch()
    assert sh.wait().stdout == "two\n"


def test_each_client_waits_for_the_command_that_it_was_handed_back(
    daemon: Daemon, sh: RemoteSession, place: Path
) -> None:
    hand_back(sh, "echo mine; sleep 99", "mine")
    with connect(sh.agent, daemon.socket, False) as other:
        assert other.interrupt().outcome == "interrupted"
        assert other.run("echo theirs; read word; echo got $word", timeout=PATIENCE, stdin=TTY).outcome == "input"
        with pytest.raises(NotRunning):
            sh.send("mine\n")
        ended = sh.wait(PATIENCE)
        assert (ended.outcome, ended.stdout) == ("interrupted", "")
        assert sh.poll().runs_on  # nothing is its own any more: whichever runs
        assert other.send("theirs\n").stdout.endswith("got theirs\n")
        ended = sh.wait(PATIENCE)
        assert (ended.outcome, ended.exit_code) == ("exited", 0)
        with pytest.raises(NotRunning):
            sh.wait(PATIENCE)


def test_a_command_that_ended_by_itself_is_not_anothers(daemon: Daemon, sh: RemoteSession, place: Path) -> None:
    sh.run("until [ -e open ]; do sleep 0.05; done; (exit 7)", timeout=0.05, on_timeout="yield")
    with connect(sh.agent, daemon.socket, False) as other:
        (place / "open").touch()
        wait_until(lambda: other.state != "running" or other.idle, "its end")
        assert other.run("echo theirs; sleep 99", timeout=0.05, on_timeout="yield").runs_on
        assert sh.wait(PATIENCE).exit_code == 7
        other.interrupt()


@pytest.mark.parametrize("then", ["another runs", "several run", "another restarts"])
def test_an_end_that_nobody_waited_for_is_kept_whole_for_who_has_the_command(
    daemon: Daemon, sh: RemoteSession, place: Path, then: str
) -> None:
    assert hand_back(sh, begin(place) + "; (exit 7)", "one") == "one\n"
    with connect(sh.agent, daemon.socket, False) as other:
        (place / "open").touch()
        wait_until(lambda: other.state == "idle", "its end")
        if then == "another restarts":
            other.restart()
        else:
            for _ in range(1 if then == "another runs" else 40):
                assert other.run("echo theirs").stdout == "theirs\n"
        with pytest.raises(NotRunning):
            other.wait(PATIENCE)
    ended = sh.wait(PATIENCE)
    assert (ended.stdout, ended.stdout_omitted, ended.exit_code) == ("two\n", 0, 7)
    with pytest.raises(NotRunning):
        sh.wait(PATIENCE)


def test_what_is_kept_of_ends_is_bounded(daemon: Daemon, sh: RemoteSession, place: Path) -> None:
    """Of the last one with its output, of some before it without, of the rest nothing."""
    clients = [connect(sh.agent, daemon.socket, False) for _ in range(18)]
    for number, client in enumerate(clients):
        text = f"until [ -e go{number} ]; do sleep 0.05; done; echo {number}; (exit {number})"
        assert client.run(text, timeout=0.02, on_timeout="yield").runs_on
        (place / f"go{number}").touch()
        wait_until(lambda: sh.state == "idle", "its end")
    sh.run("true")
    told = []
    for client in reversed(clients[2:]):
        ended = client.wait(PATIENCE)
        told.append((ended.exit_code, ended.stdout_bytes, ended.stdout_omitted))
        client.disconnect()
    assert told == [(17, b"17\n", 0), *((number, b"", len(f"{number}\n")) for number in range(16, 1, -1))]
    for client in clients[:2]:
        with pytest.raises(NotRunning, match="no longer kept"):
            client.wait(PATIENCE)
        client.disconnect()


def test_who_runs_the_next_command_at_once_takes_nobodys_end(daemon: Daemon, sh: RemoteSession, place: Path) -> None:
    """As soon as it has ended, and is only just being found to have."""
    with connect(sh.agent, daemon.socket, False) as other:
        for number in range(20):
            first = sh.run(f"until [ -e go{number} ]; do :; done; (exit 3)", timeout=0.02, on_timeout="yield")
            assert first.outcome == "running"
            (place / f"go{number}").touch()
            while refused(other):
                pass
            assert sh.wait().exit_code == 3


def test_a_command_that_a_restart_ended_is_reported_to_who_has_it(daemon: Daemon, sh: RemoteSession) -> None:
    sh.run("sleep 99", timeout=0.05, on_timeout="yield")
    with connect(sh.agent, daemon.socket, False) as other:
        other.restart()
    assert sh.wait(PATIENCE).outcome == "shell_exited"


def test_the_end_of_a_handed_back_command_is_noticed_by_itself(daemon: Daemon, sh: RemoteSession, place: Path) -> None:
    """Who asked for it may be dead: the session is free, its line is in the log, and its result there for who waits."""
    hand_back(sh, begin(place), "one")
    (place / "open").touch()
    wait_until(lambda: sh.state == "idle", "its end")
    logged = wait_until(lambda: daemon.logged(sh.agent), "its line in the log")
    assert [(line["outcome"], line["stdout"]) for line in logged] == [("exited", len("one\ntwo\n"))]
    result = sh.wait()
    assert (result.stdout, result.exit_code, result.outcome) == ("two\n", 0, "exited")
    (place / "open").unlink()
    hand_back(sh, begin(place))
    (place / "open").touch()
    wait_until(lambda: sh.state == "idle", "its end")
    assert sh.run("echo free").stdout == "free\n"
    assert [line["command"] for line in wait_until(lambda: daemon.logged(sh.agent)[2:], "the log")] == ["echo free"]


@pytest.mark.parametrize("end", ["kill -9 $$", "exit 3"])
def test_a_shell_that_ends_after_it_was_handed_back_is_noticed(sh: RemoteSession, place: Path, end: str) -> None:
    sh.run(f"until [ -e open ]; do sleep 0.05; done; {end}", timeout=0.1, on_timeout="yield")
    (place / "open").touch()
    wait_until(lambda: sh.state == "new", "its end")
    assert sh.wait().outcome == "shell_exited"


def handed_back_and_dies(sh: RemoteSession) -> None:
    """A command that was handed back ends its shell, and nobody is told."""
    sh.run("X=kept")
    command = "until [ -e go ]; do :; done; echo precious; kill -9 $$"
    assert sh.run(command, timeout=SOON, on_timeout="yield").outcome == "running"
    Path(sh.cwd, "go").touch()
    wait_until(lambda: sh.pid is None, "the end of the shell")


@pytest.mark.parametrize("who", ["same", "other"])
def test_a_shell_that_ended_with_what_was_handed_back_is_announced_by_the_next_command(
    daemon: Daemon, sh: RemoteSession, who: str
) -> None:
    handed_back_and_dies(sh)
    with connect(sh.agent, daemon.socket, start=False) as other:
        asker = sh if who == "same" else other
        announced = asker.run("touch run; echo [$X]")
        assert (announced.outcome, announced.exit_code, announced.stdout) == ("shell_exited", 137, "")
        assert (announced.state_kept, announced.ran) == (False, False)
        assert announced.reason.startswith(f"{GONE}; nobody has read the result of the earlier command c")
        assert asker.run("ls; echo [$X]").stdout == "go\n[]\n"
    end = sh.wait()
    assert (end.stdout, end.outcome, end.exit_code) == ("precious\n", "shell_exited", 137)
    with pytest.raises(NotRunning):
        sh.wait()


def test_who_was_notified_of_the_end_of_the_shell_is_not_notified_again(sh: RemoteSession) -> None:
    handed_back_and_dies(sh)
    assert sh.wait().stdout == "precious\n"
    assert sh.run("echo [$X]").stdout == "[]\n"


def test_what_was_handed_back_and_ended_is_reported_after_another_command(sh: RemoteSession, place: Path) -> None:
    command = "until [ -e go ]; do :; done; echo precious; (exit 7)"
    assert sh.run(command, timeout=SOON, on_timeout="yield").outcome == "running"
    (place / "go").touch()
    wait_until(lambda: sh.state == "idle", "the end")
    assert sh.run("echo next").stdout == "next\n"
    end = sh.wait()
    assert (end.stdout, end.outcome, end.exit_code) == ("precious\n", "exited", 7)


def test_whose_command_ended_with_a_restart_is_notified(daemon: Daemon, sh: RemoteSession) -> None:
    sh.run("sleep 1000", timeout=SOON, on_timeout="yield")
    with connect(sh.agent, daemon.socket, start=False) as other:
        other.restart()
    end = sh.wait()
    assert (end.outcome, end.reason) == ("shell_exited", "the session was restarted meanwhile")


def test_an_end_that_expect_saw_is_reported_and_logged_though_nobody_waits_for_it(
    daemon: Daemon, sh: RemoteSession, raw: Raw
) -> None:
    raw.ask("watch", agent=sh.agent)
    assert sh.run("read x; (exit 3)", stdin=TTY).outcome == "input"
    sh.type("it\n")
    assert sh.expect(pexpect.EOF) == 0
    assert seen(raw)[-1].header["exit_code"] == 3
    sh.run("echo next")
    wait_until(lambda: len(daemon.logged(sh.agent)) == 2, "the log")
    assert [(line["command"], line["exit_code"]) for line in daemon.logged(sh.agent)] == [
        ("read x; (exit 3)", 3),
        ("echo next", 0),
    ]


def test_a_shell_whose_death_expect_saw_is_announced_by_the_next_command_once(sh: RemoteSession) -> None:
    assert sh.run("X=kept; read x; kill -9 $$", stdin=TTY).outcome == "input"
    sh.type("go\n")
    assert sh.expect(pexpect.EOF) == 0
    told = sh.run("echo [$X]")
    assert (told.outcome, told.ran, told.state_kept) == ("shell_exited", False, False)
    assert told.reason.startswith(f"{GONE}; nobody has read the result of the earlier command c")
    assert sh.run("echo [$X]").stdout == "[]\n"


def test_a_shell_whose_death_expect_saw_and_wait_reported_is_not_announced_again(sh: RemoteSession) -> None:
    assert sh.run("read x; echo last; kill -9 $$", stdin=TTY).outcome == "input"
    sh.type("go\n")
    assert sh.expect(pexpect.EOF) == 0
    assert not sh.wait().state_kept
    assert sh.run("echo next").stdout == "next\n"
