"""One command that bash is at: what it printed so far and how long it may go on.

Law: it holds what is known of one command, and decides nothing.
"""

from __future__ import annotations

import math
import os
import time
from binascii import hexlify
from collections.abc import Callable, Iterable, Mapping, Set
from copy import copy
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from ..models import TTY, Outcome, Request, Result, Stream as StreamName
from .marks import Framer
from .output import Capture, counted
from .spill import NO_SPILLS, Spills
from .streams import Stream

if TYPE_CHECKING:
    from .dialogue import Dialogue

T = TypeVar("T")
NOBODY: Final[Mapping[int, int]] = MappingProxyType({})

# What expect can look back on, in bytes.
_UNSEEN_MAX: Final = 1 << 18
# What waits for who follows a command that is being ended, in bytes: the last that its pipes held. (It is read in any
# case, and nobody takes it meanwhile.)
_LAST_PIECES: Final = 4 << 20
# A result of more bytes is kept by who asked for it, and a text by who gave it, and not here as well until the next
# command.
LARGE: Final = 1 << 12
# How soon a silent command is looked at, in seconds; then ever less often. A look costs 10 to 30 us per process.
LOOK_TERMINAL: Final = 0.01
LOOK_PLAIN: Final = 0.1
# Amid the steps, which are generators, these would say that the steps themselves are at their end.
_MEAN_AN_END: Final = (GeneratorExit, StopIteration)


_NONCES: Final = list[bytes]()
os.register_at_fork(after_in_child=_NONCES.clear)


def fresh_nonce() -> bytes:
    """A nonce that nobody can guess while its command runs: 56 bits, and 24 that may be seen.

    From a pool, as one getrandom(2) is as dear as a look at the clock.
    """
    try:
        return _NONCES.pop()
    except IndexError:
        random = hexlify(os.urandom(640))
        _NONCES.extend(random[at : at + 20] for at in range(0, 1280, 20))
        return _NONCES.pop()


class _Made(Generic[T]):
    """An attribute that is made when it is first asked for. Most commands are over before that."""

    def __init__(self, make: Callable[[Call], T]) -> None:
        self._make = make

    def __set_name__(self, _: type, name: str) -> None:
        self._name = name

    def __get__(self, call: Call, _: object) -> T:
        value = call.__dict__[self._name] = self._make(call)
        return value


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
    marked_at = 0.0  # when bash gave its mark, while the call still waits for the end of the output
    over_since: float | None = None  # since when it is seen to have ended, though nobody has asked how
    pieces: list[tuple[StreamName, bytes]] | None = None  # for who follows it bit by bit
    _waiting = 0  # bytes, in those
    following = False  # come back as soon as something is heard
    has_news = False
    own_stdout_closed = False  # bash has let go of its own stdout
    dialogue: Dialogue | None = None
    framer = _Made(lambda call: Framer(call.nonce, call.prompt))
    stdout = _Made(lambda call: call.fresh_capture("stdout"))
    stderr = _Made(lambda call: call.fresh_capture("stderr"))
    own_output = _Made(lambda call: call.fresh_capture())  # what was said on bash's own stdout
    unseen = _Made(lambda call: bytearray())  # for expect: what none has looked at

    def __init__(
        self,
        request: Request,
        typed: Typed,
        older: Mapping[int, int] = NOBODY,
        modes: bytes = b"",
        spills: Spills = NO_SPILLS,
        prompt: bytes = b"",
        nonce: bytes = b"",
    ) -> None:
        """``prompt``: what bash is known to say before it reads a line. ``nonce``: in place of that of ``typed``."""
        self.request = request
        self.started = self.last_output = started = time.monotonic()
        self.until = None if request.timeout is None else started + request.timeout
        self.terminal = request.stdin is TTY
        self.typed = typed
        self.prompt: bytes = prompt
        self.nonce: bytes = nonce or typed.nonce
        self.older = older  # what was below bash before (see Family.present): not ours to touch
        self.modes = modes  # the terminal's when it began
        self.spills = spills
        self.look_every = LOOK_TERMINAL if self.terminal else LOOK_PLAIN
        self.look_at = started + self.look_every

    @property
    def idle_at(self) -> float:
        """When its idle limit passes, if it prints nothing more."""
        idle = self.request.idle_timeout
        return math.inf if idle is None or self.paused else max(self.last_output, self.attended_from) + idle

    def typed_as(self, typed: Typed) -> None:
        """It was typed again: by which mark it ends, and where its output comes out."""
        self.typed, self.nonce, self.framer = typed, typed.nonce, Framer(typed.nonce, self.prompt)

    @property
    def streams(self) -> tuple[tuple[StreamName, Stream], ...]:
        """Where its output comes out."""
        return self.typed.streams

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
        self.tell(name, data)

    def tell(self, name: StreamName, data: bytes) -> None:
        """Call its callback, if it has one."""
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
        return isinstance(stdin := self.request.stdin, bytes) and len(stdin) > LARGE

    def forget_stdin(self) -> None:
        """Bash has it, in a file, or needs none any more."""
        if self.request.stdin and not self.terminal:
            self.request = self.request.__replace__(stdin=b"")

    def lightened(self) -> Call:
        """The same without a large output or text; who holds this one itself still has all."""
        result, request = self.result, self.request
        if result is None:
            return self
        is_long = len(request.command) > LARGE
        if not is_long and len(result.stdout_bytes) + len(result.stderr_bytes) <= LARGE:
            return self
        light = copy(self)
        light.result = counted(result)
        if is_long:  # not b"": that is the same object everywhere, and a command is known by its very text
            light.request = request.__replace__(command=request.command[:LARGE])
        return light

    def fresh_capture(self, name: str = "") -> Capture:
        """As bounded as the command's own. ``name``: of its stream, if what is too much of that is spilled."""
        spill = self.spills.get(name) if self.spills else None
        return Capture(self.request.limits.max_output, spill.write if spill else None)

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
