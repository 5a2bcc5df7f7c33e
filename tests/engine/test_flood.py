"""Endless output, where the engine listens or skips old output, does not defeat time limits."""

from __future__ import annotations

import os
import signal
import threading
from itertools import repeat
from pathlib import Path

import pytest
from system import PATIENCE

from shellsession import Session
from shellsession.engine.io.streams import Stream, pipe_stream

FLOOD = "for i in 1 2 3 4; do cat /dev/zero >&2 & done"


def test_a_time_limit_works_through_a_flood(sh: Session) -> None:
    sh.open()
    pid = sh.pid
    assert pid is not None
    forgotten = threading.Event()

    def end() -> None:
        forgotten.set()
        os.kill(pid, signal.SIGKILL)

    watch = threading.Timer(PATIENCE, end)
    watch.start()
    result = sh.run(f"PROMPT_COMMAND='{FLOOD}; wait'", timeout=0.2)
    watch.cancel()
    assert (result.outcome, forgotten.is_set()) == ("timed_out", False)


def test_of_what_is_said_without_end_some_is_skipped(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before each command, of what is said to the terminal between two: writers kept us there for half a second."""
    said = repeat(b"more", 100_000)
    stream = pipe_stream(str(place / "pipe"))
    monkeypatch.setattr(Stream, "read", lambda _: next(said, b""))
    stream.skip()
    stream.close()
    assert next(said, b"") == b"more"
