"""pexpect's ``expect`` over a command that has the terminal.

Law: the searching is pexpect's own; this only brings it what the command prints. What it reads stays in the results.
"""

from __future__ import annotations

import time
from typing import Any

from ...errors import InvalidRequest
from ..io.dialogue import Dialogue
from ..io.threads import Steps
from .verbs import Engine


def glimpse(engine: Engine, until: float | None) -> Steps[tuple[bytes, bool]]:
    """What the running command printed that no expect has seen (b"" when the moment passed), and whether it ended."""
    call = engine.running("expect from", ended_too=True)
    if not call.terminal:
        raise InvalidRequest("expect looks at the terminal: run the command with stdin=TTY")
    if not call.unseen and call.delivery.runs_on:
        yield from engine.await_output(call, until, "yield")
    seen = bytes(call.unseen)
    call.unseen.clear()
    return seen, call.delivery.is_due


def late(patterns: Any, exact: bool) -> int:
    """The moment has passed before anybody could look: do what ``expect`` does then."""
    index: int = Dialogue().expecter(patterns, exact).timeout()
    return index


def expect(engine: Engine, patterns: Any, until: float | None, exact: bool) -> Steps[int]:
    """Wait for one of the patterns; its index. Raises pexpect.TIMEOUT and pexpect.EOF as pexpect does."""
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
            late: int = expecter.timeout()
            return late
    return index
