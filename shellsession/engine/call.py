"""One command that bash is at: what it printed so far and how long it may go on.

Law: it holds what is known of one command, and decides nothing.
"""

from __future__ import annotations

import math
import os
import time
from binascii import hexlify
from collections.abc import Iterable, Mapping, Set
from copy import copy
from typing import TYPE_CHECKING, Final, NamedTuple

from ..models import TTY, Outcome, Request, Result, Stream as StreamName
from .marks import Framer
from .output import Capture, counted
from .spill import NO_SPILLS, Spills
from .streams import Stream

if TYPE_CHECKING:
    from .dialogue import Dialogue

# What expect can look back on, in bytes.
_UNSEEN_MAX: Final = 1 << 18
# What waits for who follows a command that is being ended, in bytes: the last that its pipes held. (It is read in any
# case, and nobody takes it meanwhile.)
_LAST_PIECES: Final = 4 << 20
# A result of more bytes is kept by who asked for it, and a text by who gave it, and not here as well until the next
# command.
_LARGE: Final = 1 << 12
# How soon a silent command is looked at, in seconds; then ever less often. A look costs 10 to 30 us per process.
LOOK_TERMINAL: Final = 0.01
LOOK_PLAIN: Final = 0.1
# Amid the steps, which are generators, these would say that the steps themselves are at their end.
_MEAN_AN_END: Final = (GeneratorExit, StopIteration)


def fresh_nonce() -> bytes:
    """One that nobody can guess while its command runs: 56 bits, and 24 that may be seen."""
    return hexlify(os.urandom(10))


class Typed(NamedTuple):
    """How a command is typed: its lines, the nonce of its mark, what is read for it, if a group has that.

    ``in_one``: bash takes all its lines at once, or none of them.
    """

    lines: bytes = b""
    nonce: bytes = b""
    streams: tuple[tuple[StreamName, Stream], ...] = ()
    grouped: bool = False
    in_one: bool = True


class Call:
    """The state of one command from the moment it is typed to the moment its result is made."""

    # What most calls never change stands here, which saves setting it for each.
    result: Result | None = None  # once it has ended
    ending: Outcome | None = None  # set once we have decided to end it
    reason = ""
    signal: int | None = None
    control_closed = False  # bash has let go of its socket
    stolen = False  # somebody else has read what was typed
    killed: tuple[int, ...] = ()
    hung: Set[int] = frozenset()  # streams that nobody holds at the moment
    hung_until = 0.0
    idle_looks = 0
    readers: Set[int] = frozenset()  # who read the terminal at the last look
    not_run = False  # the shell was gone before it, or another reader took it
    fault: BaseException | None = None  # of a callback that did not run within a verb
    paused = False  # its output is not read: who takes it has enough for now
    retyped = 0
    begun = False  # beyond doubt bash has begun with its text, which is never to be typed again
    abandoned = False  # who followed it is gone
    attended_from = 0.0  # since when somebody stays with it: before that nobody could say that it is idle
    interrupt_requested = False  # another thread wants it ended
    over_since: float | None = None  # since when it is seen to have ended, though nobody has asked how
    pieces: list[tuple[StreamName, bytes]] | None = None  # for who follows it bit by bit
    _waiting = 0  # bytes, in those
    following = False  # come back as soon as something is heard
    has_news = False
    own_stdout_closed = False  # bash has let go of its own stdout
    dialogue: Dialogue | None = None

    def __init__(
        self, request: Request, typed: Typed, older: Mapping[int, int], modes: bytes, spills: Spills = NO_SPILLS
    ) -> None:
        self.request = request
        self.started = self.last_output = started = time.monotonic()
        self.until = None if request.timeout is None else started + request.timeout
        self.terminal = request.stdin is TTY
        self.typed_as(typed)
        self.older = older  # what was below bash before (see Family.present): not ours to touch
        self.modes = modes  # the terminal's when it began
        self.spills = spills
        kept = request.limits.max_output
        out, err = (spill.write for spill in spills.values()) if spills else (None, None)
        self.stdout, self.stderr = Capture(kept, out), Capture(kept, err)
        self.own_output = Capture(kept)  # what was said on bash's own stdout
        self.look_every = LOOK_TERMINAL if self.terminal else LOOK_PLAIN
        self.look_at = started + self.look_every
        self.unseen = bytearray()  # for expect: what none has looked at

    @property
    def idle_at(self) -> float:
        """When its idle limit passes, if it prints nothing more."""
        idle = self.request.idle_timeout
        return math.inf if idle is None or self.paused else max(self.last_output, self.attended_from) + idle

    def typed_as(self, typed: Typed) -> None:
        """By which mark it ends, and where its output comes out."""
        self.framer, self.streams, self.grouped = Framer(typed.nonce), typed.streams, typed.grouped
        self.in_one = typed.in_one

    def feed(self, name: StreamName, data: bytes, now: float) -> None:
        """Output has come."""
        self.last_output = now
        (self.stdout if name == "stdout" else self.stderr).feed(data)
        self.has_news = True
        if self.pieces is not None and self._room_for_pieces(data):
            self.pieces.append((name, data))
        if self.terminal:
            self.unseen += data
            del self.unseen[:-_UNSEEN_MAX]
        if self.request.on_output is not None:
            try:
                self.request.on_output(name, data)
            except _MEAN_AN_END as error:
                self.fault = error
                self.raise_fault()

    def _room_for_pieces(self, data: bytes) -> bool:
        """Who follows takes each piece, also of what others have read; but no more than the limit waits for that."""
        self._waiting += len(data)
        most = self.request.limits.max_output
        if self.ending is not None:
            return self._waiting <= max(most, _LAST_PIECES)
        if self._waiting > most:  # later, then; and another who waits comes back, so that it can be taken
            self.paused = self.following = True
        return True

    def take_pieces(self) -> list[tuple[StreamName, bytes]]:
        """For who follows it: what has come since the last time."""
        pieces, self.pieces, self._waiting = self.pieces or [], [], 0
        self.paused = self.following = False
        return pieces

    def raise_fault(self) -> None:
        """Tell the caller, in the caller's own thread, of a callback that failed elsewhere."""
        if self.fault is not None:
            fault, self.fault = self.fault, None
            if isinstance(fault, _MEAN_AN_END):
                raise RuntimeError(f"on_output raised {type(fault).__name__}") from fault
            raise fault

    def mute(self) -> None:
        """Its callback has failed: go on without, so that the output can still be taken away.

        It is let go: it may hold whoever holds the session.
        """
        if self.request.on_output is not None:
            self.request = self.request.__replace__(on_output=None)

    def end(self, result: Result) -> None:
        """It has come to its end, and is as told there."""
        self.result = result
        if self.request.stdin or self.request.on_output is not None:
            self.let_go()

    def let_go(self) -> None:
        """It is over: neither its callback is needed any more, nor what it was fed."""
        self.mute()
        self.forget_stdin()

    @property
    def is_fed(self) -> bool:
        """Is much held for its stdin?"""
        return isinstance(stdin := self.request.stdin, bytes) and len(stdin) > _LARGE

    def forget_stdin(self) -> None:
        """Bash has it, in a file, or needs none any more."""
        if self.request.stdin and not self.terminal:
            self.request = self.request.__replace__(stdin=b"")

    def lightened(self) -> Call:
        """The same without a large output or text; who holds this one itself still has all."""
        result, request = self.result, self.request
        if result is None:
            return self
        is_long = len(request.command) > _LARGE
        if not is_long and len(result.stdout_bytes) + len(result.stderr_bytes) <= _LARGE:
            return self
        light = copy(self)
        light.result = counted(result)
        if is_long:  # not b"": that is the same object everywhere, and a command is known by its very text
            light.request = request.__replace__(command=request.command[:_LARGE])
        return light

    def fresh_capture(self) -> Capture:
        """For what comes after the call: bounded alike, and counted apart."""
        return Capture(self.request.limits.max_output)

    def note_killed(self, pids: Iterable[int]) -> None:
        """Each is told of once, however often it had to be struck."""
        self.killed += tuple(pid for pid in pids if pid not in self.killed)

    def why(self, reason: str) -> str:
        """The reason in words, and what went wrong beside it."""
        return "; ".join(filter(None, (reason or self.reason, *(spill.fault for spill in self.spills.values()))))

    def spill_files(self) -> tuple[str | None, str | None]:
        """The files that were written, if any."""
        if not self.spills:
            return None, None
        return self.spills["stdout"].written, self.spills["stderr"].written

    @property
    def overflowed(self) -> bool:
        return self.request.limits.on_overflow == "kill" and (
            self.stdout.overflowed or self.stderr.overflowed or self.own_output.overflowed
        )
