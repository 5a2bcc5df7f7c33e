"""The restart of a shared session: the running command's client gets its end, and later commands run as usual."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import clients
import pytest
from daemons import Daemon, Raw, served
from system import wait_until

from shellsession import RemoteSession, ShellUnavailable, connect

sh = clients.sh
SOON = 0.3


def hand_back(sh: RemoteSession, command: str) -> None:
    assert sh.run(command, timeout=SOON, on_timeout="yield").outcome == "running"


def logged(daemon: Daemon, agent: str, lines: int) -> list[tuple[str, str]]:
    wait_until(lambda: len(daemon.logged(agent)) >= lines, "the log")
    return [(line["command"], line["outcome"]) for line in daemon.logged(agent)]


@pytest.mark.parametrize("before", ["the first start", "an idle shell", "a command"])
def test_a_command_behind_a_restart_is_gone_on_with_and_logged_as_any_other(
    daemon: Daemon, raw: Raw, place: Path, before: str
) -> None:
    go, log = place / "go", [("echo mine; until [ -e end ]; do sleep 0.05; done", "exited")]
    startup = f"until [ -e {go} ]; do sleep 0.05; done"
    with connect(f"behind {before}", daemon.socket, cwd=place, startup=[startup]) as sh, Raw(daemon.socket) as other:

        def ask_for_a_shell(verb: str) -> None:
            pid = sh.pid
            other.say(verb, agent=sh.agent)
            wait_until(lambda: sh.pid not in (None, pid) and sh.state == "running", "the startup command")

        if before == "the first start":
            ask_for_a_shell("start")
        else:
            go.touch()
            hand_back(sh, "sleep 1000") if before == "a command" else sh.open()
            log = [("sleep 1000", "shell_exited"), *log] if before == "a command" else log
            go.unlink()
            ask_for_a_shell("restart")
        how: dict[str, object] = {"timeout": SOON, "on_timeout": "yield", "patience": None}
        run = other.say("run", log[-1][0].encode(), agent=sh.agent, **how)
        wait_until(lambda: served(raw) == 3, "that it waits for its turn")
        if before == "the first start":
            ask_for_a_shell("restart")  # goes before it, too
        go.touch()
        for _ in range(2 if before == "the first start" else 1):  # the restart, and then the start
            assert "error" not in other.receive().header
        piece = other.receive()
        assert (piece.header["id"], piece.header["command"]) == (run, run)
        (place / "end").touch()
        end = other.ask("wait", agent=sh.agent, command=run)
        assert (end.header["result"]["outcome"], piece.parts[0] + end.parts[0]) == ("exited", b"mine\n")
        sh.close()
    assert logged(daemon, sh.agent, len(log)) == log


def test_a_restart_that_fails_has_ended_what_was_handed_back(daemon: Daemon, place: Path) -> None:
    with connect("failing", daemon.socket, cwd=place, startup=["[ ! -e fails ] || exit"]) as sh:
        hand_back(sh, "sleep 1000")
        (place / "fails").touch()
        with pytest.raises(ShellUnavailable):
            sh.restart()
        end = sh.wait()
        assert (end.outcome, end.reason) == ("shell_exited", "the session was restarted meanwhile")
        assert logged(daemon, sh.agent, 1) == [("sleep 1000", "shell_exited")]
        sh.close()


@pytest.mark.parametrize("fetched", [False, True], ids=["some left", "all fetched"])
@pytest.mark.parametrize("verb", ["restart", "close", "kill"])
def test_what_another_ends_is_reported_with_all_that_it_printed_and_each_byte_is_counted_once(
    daemon: Daemon, sh: RemoteSession, place: Path, verb: str, fetched: bool
) -> None:
    """Also what its client had been told before, in the log, and what it has printed since, to who waits."""
    text = "echo before; until [ -e go ]; do sleep 0.05; done; echo since; : >done; sleep 1000"
    told = sh.run(text, timeout=SOON, on_timeout="yield").stdout
    (place / "go").touch()
    wait_until((place / "done").exists, "what it prints")
    told += sh.poll().stdout if fetched else ""
    with connect(sh.agent, daemon.socket, start=False) as other:
        if verb == "kill":  # the shell's own end
            os.kill(sh.pid or 0, signal.SIGKILL)
        else:
            getattr(other, verb)()
    if verb != "close":  # then it is nobody's to tell
        end = sh.wait()
        assert (told + end.stdout, end.stdout_omitted) == ("before\nsince\n", 0)
        assert (end.outcome, end.exit_code, end.signal) == ("shell_exited", 137, signal.SIGKILL)
    wait_until(lambda: daemon.logged(sh.agent), "the log")
    assert [line["stdout"] for line in daemon.logged(sh.agent)] == [len("before\nsince\n")]


def test_a_restart_that_is_refused_has_ended_nothing(daemon: Daemon, place: Path) -> None:
    first = place / "first"
    first.mkdir()
    with connect("refused", daemon.socket, cwd=first) as sh:
        hand_back(sh, "cd ..; until [ -e end ]; do sleep 0.05; done; echo done")
        first.rmdir()
        with pytest.raises(ShellUnavailable):
            sh.restart()
        (place / "end").touch()
        assert sh.wait().stdout == "done\n"
        sh.close()
