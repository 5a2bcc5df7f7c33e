"""The audit log of a daemon has one line for each command, however it ended, and no secret."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import clients
import pytest
from clients import hand_back
from daemons import Daemon, Raw
from gates import Gate
from system import PATIENCE, unique_seconds, wait_until, with_argument

from shellsession import TTY, NotRunning, RemoteSession, ShellSessionError

# By then a busy machine has printed a word, and begun to sleep.
sh = clients.sh
SOON = 0.3


def interrupted_by_another(session: RemoteSession) -> None:
    seconds = unique_seconds()
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(session.run, f"echo 12; sleep {seconds}")
        wait_until(lambda: with_argument(seconds), "the command")
        session.interrupt()
        running.result(PATIENCE)


def ended_by_another(session: RemoteSession, verb: str) -> None:
    seconds = unique_seconds()
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(session.run, f"echo 12; sleep {seconds}")
        wait_until(lambda: with_argument(seconds), "the command")
        getattr(session, verb)()
        running.exception(PATIENCE)


def left_to(session: RemoteSession, verb: str) -> None:
    hand_back(session, "echo 12; sleep 100", "12")
    getattr(session, verb)()


def in_pieces(session: RemoteSession) -> None:
    hand_back(session, "echo 1; read x; echo 23; read x; echo 456 >&2", "1", stdin=TTY)
    session.send("\n")
    session.send("\n")


def in_a_dialogue(session: RemoteSession) -> None:
    assert session.run("read -p name x; echo $x", stdin=TTY).outcome == "input"
    session.send("me\n")


def unheard(session: RemoteSession) -> None:
    hand_back(session, f"sleep {(seconds := unique_seconds())}; echo 12")
    os.kill(wait_until(lambda: with_argument(seconds), "the command")[0], signal.SIGKILL)
    wait_until(lambda: session.state == "idle", "its end")
    session.run("echo next")


def left_early(session: RemoteSession) -> None:
    seconds = unique_seconds()
    stream = session.stream(f"echo 12; sleep {seconds}")
    next(stream)
    wait_until(lambda: with_argument(seconds), "the command")
    stream.close()


def stay_left_early(session: RemoteSession, verb: str) -> None:
    seconds = unique_seconds()
    hand_back(session, f"echo 12; sleep {seconds}", stdin=TTY)
    wait_until(lambda: with_argument(seconds), "the command")
    with Raw(str(session.transport)) as raw, Raw(str(session.transport)) as other:
        assert raw.ask("glimpse", agent=session.agent, timeout=PATIENCE).parts[0] == b"12\n"  # there is no more
        request = raw.say(verb, agent=session.agent, timeout=None)
        wait_until(lambda: other.ask("cancel", request=request).header["value"], "the cancelling")


def refused_ones(session: RemoteSession) -> None:
    seconds = unique_seconds()
    hand_back(session, f"sleep {seconds}")
    wait_until(lambda: with_argument(seconds), "the command")
    with suppress(ShellSessionError):
        session.run("echo never")
    with suppress(ShellSessionError):
        session.send("x")
    session.interrupt()
    with pytest.raises(NotRunning):
        session.poll()


# What is done, and of each line of the log: exit status, outcome, sizes of stdout and stderr.
Line = tuple[int | None, str, int, int]
STORIES: dict[str, tuple[Callable[[RemoteSession], object], list[Line]]] = {
    "run": (lambda sh: sh.run("echo 12; echo 3456 >&2; (exit 3)"), [(3, "exited", 3, 5)]),
    "timed out": (lambda sh: sh.run("sleep 100", timeout=SOON), [(130, "timed_out", 0, 0)]),
    "killed": (lambda sh: sh.run("sleep 100", timeout=SOON, on_timeout="kill"), [(137, "timed_out", 0, 0)]),
    "large": (lambda sh: sh.run("head -c 5000000 /dev/zero"), [(0, "exited", 5_000_000, 0)]),
    "in pieces": (in_pieces, [(0, "exited", 5, 4)]),
    "in a dialogue": (in_a_dialogue, [(0, "exited", 3, 4)]),
    "interrupted": (interrupted_by_another, [(130, "interrupted", 3, 0)]),
    "restarted": (lambda sh: ended_by_another(sh, "restart"), [(137, "shell_exited", 3, 0)]),
    "closed": (lambda sh: ended_by_another(sh, "close"), [(137, "shell_exited", 3, 0)]),
    "handed back and restarted": (lambda sh: left_to(sh, "restart"), [(137, "shell_exited", 3, 0)]),
    "handed back and closed": (lambda sh: left_to(sh, "close"), [(137, "shell_exited", 3, 0)]),
    "the end of the shell": (lambda sh: sh.run("echo 12; exit 4"), [(4, "shell_exited", 3, 5)]),
    "refused": (refused_ones, [(130, "interrupted", 0, 0)]),
    "left early": (left_early, [(130, "interrupted", 3, 0)]),
    "handed back and left": (lambda sh: stay_left_early(sh, "wait"), [(130, "interrupted", 3, 0)]),
    "left as a word was expected": (lambda sh: stay_left_early(sh, "glimpse"), [(130, "interrupted", 3, 0)]),
    "unheard": (unheard, [(0, "exited", 3, 0), (0, "exited", 5, 0)]),
}


@pytest.mark.parametrize(("story", "lines"), STORIES.values(), ids=STORIES)
def test_each_command_is_one_line_of_the_log(
    daemon: Daemon, sh: RemoteSession, story: Callable[[RemoteSession], object], lines: list[Line]
) -> None:
    story(sh)
    wait_until(lambda: len(daemon.logged(sh.agent)) >= len(lines), "the log")
    sh.close()
    assert [brief(line) for line in daemon.logged(sh.agent)] == lines


def brief(line: dict[str, Any]) -> Line:
    return line["exit_code"], line["outcome"], line["stdout"], line["stderr"]


def test_the_line_of_a_client_that_died(daemon: Daemon, sh: RemoteSession, raw: Raw, gate: Gate) -> None:
    raw.say("run", gate.text.encode(), agent=sh.agent)
    gate.until_begun()
    raw.close()
    gate.open()
    assert brief(wait_until(lambda: daemon.logged(sh.agent), "the log")[0]) == (0, "exited", 12, 0)


def test_the_log_tells_who_did_what_and_how_long_it_took(daemon: Daemon, sh: RemoteSession) -> None:
    sh.run("curl -H opensesame; sleep 0.1; echo output-of-mine", timeout=PATIENCE)
    (line,) = wait_until(lambda: daemon.logged(sh.agent), "the log")
    assert line["command"] == "curl -H ***; sleep 0.1; echo output-of-mine"
    assert 0.1 <= line["duration"] < PATIENCE
    sh.run("x=out; echo ${x}put-of-mine $API_TOKEN")
    sh.run("sleep 100 & sleep 100", timeout=SOON, on_timeout="kill")
    wait_until(lambda: len(daemon.logged(sh.agent)) == 3, "the log")
    log = daemon.logged(sh.agent)
    assert "output-of-mine" not in json.dumps(log[1:])
    assert "opensesame" not in daemon.audit.read_text(encoding="ascii")
    assert log[2]["killed"] >= 2
    assert daemon.audit.stat().st_mode & 0o777 == 0o600
