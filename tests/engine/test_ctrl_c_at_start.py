"""Ctrl-C at the moment when a descriptor is made: it has an owner by then, or is closed."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from system import PATIENCE, wait_until

from shellsession import TTY, Session
from shellsession.engine.io import streams
from shellsession.engine.io.drainer import Drainer
from shellsession.engine.io.output import Spill
from shellsession.engine.io.streams import Streams


@pytest.fixture(autouse=True)
def _nothing_is_left_open() -> Iterator[None]:
    before, threads = os.listdir("/proc/self/fd"), set(threading.enumerate())
    yield
    wait_until(lambda: set(threading.enumerate()) <= threads, "the end of the threads")
    assert set(os.listdir("/proc/self/fd")) <= set(before)  # a collection may have closed an older one


def strikes_behind(monkeypatch: pytest.MonkeyPatch, where: object, name: str, which: int = 0) -> None:
    """Sends Ctrl-C once, as that call of this function comes back."""
    real, calls = getattr(where, name), count()

    def interrupted(*values: Any, **named: Any) -> Any:
        came = real(*values, **named)
        if next(calls) == which:
            signal.raise_signal(signal.SIGINT)
        return came

    monkeypatch.setattr(where, name, interrupted)


def test_what_leads_to_the_file_that_takes_a_stream_whole_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "spill"
    for which in range(len(path.parts)):  # the directories on the way, and the file itself
        with monkeypatch.context() as patch:
            strikes_behind(patch, os, "open", which)
            with pytest.raises(KeyboardInterrupt):
                Spill(str(path), 1).write(b"x")


def test_what_wakes_the_reading_thread_is_the_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    drainer, read = Drainer(), threading.Event()
    reading, writing = os.pipe()

    def hear() -> bool:
        read.set()
        return False

    try:
        strikes_behind(monkeypatch, os, "eventfd")
        with pytest.raises(KeyboardInterrupt):
            drainer.add(reading, hear)
        drainer.add(reading, hear)
        os.write(writing, b"x")
        assert read.wait(PATIENCE)
        wait_until(lambda: not [one for one in threading.enumerate() if one.name == "shellsession-jobs"], "its end")
    finally:
        os.close(reading)
        os.close(writing)


@pytest.mark.parametrize(
    ("where", "name", "options"),
    [(streams, "_open_slave", {"stdin": TTY}), (Streams, "_make", {"tty": False})],
    ids=["terminal", "pipe"],
)
def test_what_a_command_gets_is_the_shells(
    place: Path, monkeypatch: pytest.MonkeyPatch, where: object, name: str, options: dict[str, Any]
) -> None:
    with Session(cwd=place) as session:
        session.run("X=1")
        strikes_behind(monkeypatch, where, name)
        with pytest.raises(KeyboardInterrupt):
            session.run("true", **options)
        assert session.run("echo $X", **options).stdout == "1\n"
