"""Ctrl-C at the moment when a command is sent or handed back, or its shell is restarted."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from system import PATIENCE, in_thread, unique_seconds, wait_until, with_argument

from shellsession import RemoteSession, Session
from shellsession.daemon.client.link import Pool
from shellsession.engine.io.control_socket import ControlSocket
from shellsession.engine.io.line import ThreadPlace
from shellsession.engine.kernel import proc
from shellsession.errors import GONE

Interrupts = Callable[[object, str, bool], None]


@pytest.fixture
def interrupts(monkeypatch: pytest.MonkeyPatch) -> Interrupts:
    """Sends Ctrl-C once, as this function is called, or as it comes back."""

    def interrupts(where: object, name: str, late: bool) -> None:
        real, armed = getattr(where, name), [True]

        def interrupted(*values: Any, **named: Any) -> Any:
            strikes_now = bool(armed) and threading.current_thread() is threading.main_thread()
            if strikes_now:
                armed.clear()
            if strikes_now and not late:
                signal.raise_signal(signal.SIGINT)
            came = real(*values, **named)
            if strikes_now and late:
                signal.raise_signal(signal.SIGINT)
            return came

        monkeypatch.setattr(where, name, interrupted)

    return interrupts


class Interrupted(list[ThreadPlace]):
    """The places of a line. Ctrl-C comes once, before one of them is added or removed, or just after it."""

    def __init__(self, where: str, late: bool) -> None:
        super().__init__()
        self._where, self._late = where, late

    def _change(self, where: str, place: ThreadPlace) -> None:
        interrupts, late = self._where == where, self._late
        if interrupts:
            self._where = ""
        if interrupts and not late:
            raise KeyboardInterrupt
        getattr(super(), where)(place)
        if interrupts:
            raise KeyboardInterrupt

    def append(self, place: ThreadPlace) -> None:
        self._change("append", place)

    def remove(self, place: ThreadPlace) -> None:
        self._change("remove", place)


LATE = pytest.mark.parametrize("late", [False, True], ids=["before", "after"])


@LATE
@pytest.mark.parametrize("where", ["append", "remove"])
def test_where_a_verb_gets_or_leaves_its_place_nobody_waits_for_it(sh: Session, where: str, late: bool) -> None:
    sh.line.places = Interrupted(where, late)
    with pytest.raises(KeyboardInterrupt):
        sh.run("true")
    thread, came = in_thread(lambda: sh.run("echo on").stdout)
    thread.join(PATIENCE)
    assert (came, sh.run("echo and on").stdout) == (["on\n"], "and on\n")


@LATE
@pytest.mark.parametrize("command", ["true", "sleep {}", "while :; do : {}; done"])
def test_where_a_command_is_typed(sh: Session, interrupts: Interrupts, command: str, late: bool) -> None:
    seconds = unique_seconds()
    sh.run("X=kept")
    interrupts(ControlSocket, "send", late)
    with pytest.raises(KeyboardInterrupt):
        sh.run(command.format(seconds))
    assert with_argument(seconds) == []
    assert sh.run("echo $X").stdout == "kept\n"


@LATE
def test_where_a_command_is_handed_back_nobody_has_it_and_it_is_ended(
    sh: Session, interrupts: Interrupts, late: bool
) -> None:
    seconds = unique_seconds()
    sh.run("X=kept")
    interrupts(proc, "link", late)  # it tells where the command is
    with pytest.raises(KeyboardInterrupt):
        sh.run(f"sleep {seconds}", timeout=0.05, on_timeout="yield")
    assert with_argument(seconds) == []
    assert sh.run("echo $X").stdout == "kept\n"


@LATE
@pytest.mark.parametrize("job", [False, True], ids=["handed back", "left in the background"])
def test_where_the_reading_thread_starts_it_reads_nothing_of_the_hosts(
    sh: Session, place: Path, interrupts: Interrupts, job: bool, late: bool
) -> None:
    """It waits for the thread to begin, which has its descriptors by then."""
    wait_until(lambda: not [one for one in threading.enumerate() if one.name == "shellsession-jobs"], "the last one")
    seconds = unique_seconds()
    sh.run("X=kept")
    interrupts(threading.Thread, "start", late)
    with pytest.raises(KeyboardInterrupt):
        sh.run(f"sleep {seconds}{' &' if job else ''}", timeout=0.05, on_timeout="yield")
    pipes = [os.pipe() for _ in range(4)]
    for _, write in pipes:
        os.write(write, b"precious")
    assert sh.run("echo $X").stdout == "kept\n"
    left = sh.run("(until [ -e go ]; do sleep 0.05; done; echo on) &").background
    (place / "go").touch()
    wait_until(lambda: not sh.jobs()[-1].running, "the end of a job that is read")
    assert (sh.jobs()[-1].pids, sh.jobs()[-1].stdout) == (left, "on\n")
    for read, write in pipes:
        assert os.read(read, 99) == b"precious"
        os.close(read)
        os.close(write)


def test_where_a_command_gets_its_reader_that_one_does_not_outlive_it(sh: Session) -> None:
    """It would take the output of the next one."""
    reading: dict[int, Callable[[], bool]] = {}

    class Reader:
        def add(self, fd: int, read: Callable[[], bool], _: bool = False) -> None:
            reading[fd] = read
            signal.raise_signal(signal.SIGINT)

        def remove(self, fd: int, read: Callable[[], bool]) -> None:
            if reading.get(fd) is read:
                del reading[fd]

    seconds = unique_seconds()
    sh.run("X=kept")
    sh.engine.host = sh.engine.host._replace(reader=Reader())
    with pytest.raises(KeyboardInterrupt):
        sh.run(f"sleep {seconds}", timeout=0.05, on_timeout="yield")
    assert (reading, with_argument(seconds)) == ({}, [])
    assert sh.run("echo $X").stdout == "kept\n"


@LATE
def test_where_the_daemon_has_handed_a_command_back_nobody_has_it_and_it_is_ended(
    remote: RemoteSession, interrupts: Interrupts, late: bool
) -> None:
    seconds = unique_seconds()
    remote.run("X=kept")
    interrupts(Pool, "give_back", late)  # as soon as the answer has come
    with pytest.raises(KeyboardInterrupt):
        remote.run(f"sleep {seconds}", timeout=0.1, on_timeout="yield")
    wait_until(lambda: not with_argument(seconds), "its end")
    assert remote.run("echo $X").stdout == "kept\n"


def test_a_shell_that_was_lost_by_it_is_announced_by_the_next_command(sh: Session, interrupts: Interrupts) -> None:
    sh.run("X=1")
    interrupts(proc, "link", True)
    with pytest.raises(KeyboardInterrupt):
        sh.run("trap '' INT; while :; do :; done", timeout=0.05, on_timeout="yield")
    told = sh.run("touch ran")
    assert (told.outcome, told.state_kept, told.ran, told.reason.startswith(GONE)) == (
        "shell_exited",
        False,
        False,
        True,
    )
    assert sh.run("ls; echo ${X-fresh}").stdout == "fresh\n"


def test_a_shell_that_was_lost_as_a_command_was_handed_back_is_reported_by_the_next_one(
    sh: Session, interrupts: Interrupts
) -> None:
    sh.run("X=1")
    interrupts(sh, "_leave", False)
    with pytest.raises(KeyboardInterrupt):
        sh.run("trap 'kill -9 $$' INT; sleep 1000", timeout=0.05, on_timeout="yield")
    lost = sh.run("touch ran")
    assert (lost.outcome, lost.state_kept, lost.ran, lost.reason.startswith(GONE)) == (
        "shell_exited",
        False,
        False,
        True,
    )
    assert sh.run("ls; echo ${X-fresh}").stdout == "fresh\n"


def test_a_restart_that_was_interrupted_keeps_nobody_waiting(
    sh: Session, interrupts: Interrupts, monkeypatch: pytest.MonkeyPatch
) -> None:
    sh.run("X=1")
    kill, queued = sh._kill_running, []

    def kill_with_another_in_the_queue(why: str) -> None:
        queued.append(in_thread(lambda: sh.run("echo ${X-fresh}").stdout))
        wait_until(lambda: len(sh.line.places) == 2, "the other thread")
        kill(why)

    monkeypatch.setattr(sh, "_kill_running", kill_with_another_in_the_queue)
    interrupts(sh.line, "wake_first", False)
    with pytest.raises(KeyboardInterrupt):
        sh.restart()
    [(thread, came)] = queued
    thread.join(PATIENCE)
    assert came == ["fresh\n"]


def test_a_signal_handler_may_use_the_session_that_is_being_restarted(sh: Session, interrupts: Interrupts) -> None:
    came: list[str] = []
    before = signal.signal(signal.SIGINT, lambda *_: came.append(sh.run("echo here").stdout))
    try:
        interrupts(sh, "_kill_running", True)
        sh.restart()
    finally:
        signal.signal(signal.SIGINT, before)
    assert came == ["here\n"]
    assert sh.run("echo on").stdout == "on\n"
