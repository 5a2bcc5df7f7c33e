"""pexpect's ``expect`` for a command that has the terminal.

pexpect does the search. This module only passes it what the command prints. All of that is in the results as well.
"""

from __future__ import annotations

import time
from typing import Any

from ...errors import InvalidRequest
from ..io.dialogue import Dialogue
from ..io.threads import Steps
from .engine import Engine


def glimpse(engine: Engine, until: float | None) -> Steps[tuple[bytes, bool]]:
    """Return what the command has printed since the last expect, and whether it has ended.

    Waits until there is some output. Returns b"" if the moment passes, or if the command ends without more.
    """
    call = engine.running("expect from", ended_too=True)
    if not call.terminal:
        raise InvalidRequest("expect reads the terminal, which the command was not given: run it with stdin=TTY")
    if not call.unseen and call.delivery.runs_on:
        yield from engine.await_output(call, until, "yield")
    seen = bytes(call.unseen)
    call.unseen.clear()
    return seen, call.delivery.is_due


def late(patterns: Any, exact: bool) -> int:
    """Do what ``expect`` does at its timeout, as the moment has passed before it could begin."""
    index: int = Dialogue().expecter(patterns, exact).timeout()
    return index


def expect(engine: Engine, patterns: Any, until: float | None, exact: bool) -> Steps[int]:
    """Wait for one of the patterns, and return its index. Raises pexpect.TIMEOUT and pexpect.EOF as pexpect does."""
    call = engine.running("expect from", ended_too=True)
    if call.dialogue is None:
        call.dialogue = Dialogue()
    expecter = call.dialogue.expecter(patterns, exact)
    index: int | None = expecter.existing_data()
    ended = False
    while index is None:
        if ended:
            end: int = expecter.eof()
            return end
        seen, ended = yield from glimpse(engine, until)
        index = call.dialogue.search(expecter, seen)
        if index is None and not ended and until is not None and time.monotonic() >= until:
            passed: int = expecter.timeout()
            return passed
    return index
