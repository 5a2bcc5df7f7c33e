"""What a call left running: its processes, and the streams they still hold.

Law: a job's output is that call's for ever, it is bounded like any output, and somebody always reads it. Who reads is
never asked for anything with a job's lock held: see draining.
"""

from __future__ import annotations

import itertools
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from copy import copy
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeVar

from ...errors import FORKED, SessionClosed
from ...models import TTY, Outcome, Request, Result, Stream as StreamName
from ...signatures import AnyJob
from ..io.output import NO_SPILLS, Capture, Spills
from ..io.streams import Stream
from ..kernel import activity, proc
from ..kernel.family import Family
from ..kernel.signals import kill
from ..wire import Framer
from .delivery import Delivery

if TYPE_CHECKING:
    from ..io.dialogue import Dialogue


_NUMBERS = itertools.count(1)


class Reader(Protocol):
    """Who reads while nobody calls: a shared thread, or the asyncio loop."""

    def add(self, fd: int, read: Callable[[], bool], calls_back: bool = False) -> object: ...
    def remove(self, fd: int, read: Callable[[], bool]) -> None: ...


# Reads of 4 KiB: one that lives, and prints without end, is not listened to for ever.
_LAST_WORDS: Final = 16
# Looks at who is to be killed, at the most, and how many in a row bring nobody new until it is believed.
_HOLDS: Final = 100
_QUIET: Final = 2
_PASSES: Final = 20
# Of those that have ended so many are remembered, and so many bytes of what all have printed, and of their texts: the
# latest.
_MOST: Final = 100
_MOST_BYTES: Final = 16 << 20


class Job(AnyJob):
    """A live view of what one call left behind; it stays readable after its end."""

    def __init__(self, command: str, pids: Sequence[int], tag: int, family: Family) -> None:
        self.command = command
        self.tag = tag  # of all its processes; 0 where others have it too
        self._family = family
        self._owner = os.getpid()
        self.number = next(_NUMBERS)
        self.pids = tuple(pids)
        self._started = {pid: proc.start_time(pid) for pid in pids}
        self._lock = threading.RLock()  # reentrant: see background.Drainer
        self._open: dict[int, tuple[Stream, Capture, Callable[[], None]]] = {}  # and how to have it read no more
        self._captures: dict[str, Capture] = {}
        self._lent = -1

    def __repr__(self) -> str:
        return f"Job({self.command!r}, pids={self.pids}, {self.status})"

    def adopt(self, name: str, stream: Stream, capture: Capture, reader: Reader) -> None:
        """Take over a stream that a process still holds, and have it read from now on."""
        capture = self._captures.setdefault(name, capture)  # of the terminal, if it had it before
        read = partial(self._read, stream.fd)
        self._open[stream.fd] = (stream, capture, partial(reader.remove, stream.fd, read))
        reader.add(stream.fd, read)

    def borrow(self, name: str, stream: Stream, capture: Capture, reader: Reader) -> None:
        """As ``adopt``, of the controlling terminal, which is only lent: see ``give_back``."""
        self._lent = stream.fd
        self.adopt(name, stream, capture, reader)

    def give_back(self) -> None:
        """The terminal is wanted for another command, or the job has ended: what is there is its last word."""
        if (lent := self._open.get(self._lent)) is None:
            return
        stream, capture, stop = lent
        stop()
        with self._lock:
            if self._open.pop(self._lent, None) is not lent:
                return
            for _ in range(_LAST_WORDS):
                if not (data := stream.read()):
                    break
                capture.feed(data)

    def _read(self, fd: int) -> bool:
        with self._lock:
            if fd not in self._open:
                return False
            stream, capture, _ = self._open[fd]
            data = stream.read()
            if data:
                capture.feed(data)
        if data == b"":
            self._let_go(fd)
            return False
        return True

    def alive(self) -> list[int]:
        """Those of its processes that still live, its orphans too (not who got the number of one since)."""
        first = [pid for pid, start in self._started.items() if proc.start_time(pid) == start and proc.alive(pid)]
        orphans = [pid for pid in self._family.carriers(self.tag) if pid not in self._started] if self.tag else []
        if not first and not orphans:
            self.tag = 0  # who has no process gets no new one
        return first + orphans

    @property
    def running(self) -> bool:
        return any(fd != self._lent for fd in list(self._open)) or bool(self.alive())

    @property
    def size(self) -> int:
        """The bytes that are kept of it: its output, and its text."""
        return sum((capture.kept for capture in list(self._captures.values())), sys.getsizeof(self.command))

    def _kept(self, name: str) -> tuple[bytes, int, int]:
        self._check_owner()
        with self._lock:
            capture = self._captures.get(name)
            return capture.peek() if capture else (b"", 0, 0)

    def _check_owner(self) -> None:
        """In a forked child the lock may be one that a thread of the parent had."""
        if self._owner != os.getpid():
            raise SessionClosed(FORKED)

    def kill(self) -> tuple[int, ...]:
        """Kill its processes, everything below them, and who holds its streams; the pids that were signalled.

        Bash itself, which holds them after `exec 3>&2`, is not the job's. Raises SessionClosed in a forked child.
        """
        self._check_owner()
        killed: list[int] = []
        # Once more after the last: who ends as it has started the next may have slipped through between all looks.
        for _ in range(_PASSES):
            if not (more := self._kill_more(killed)):
                break
            killed += more
        return tuple(killed)

    def _kill_more(self, killed: Collection[int]) -> list[int]:
        """All but those who were killed before. Stopped first, or each may start another one before its turn comes."""
        victims: list[int] = []
        quiet = 0
        try:
            for _ in range(_HOLDS):
                victims = [pid for pid in victims if proc.alive(pid)]
                known = len(victims)
                for pid in self._to_be_killed():
                    if pid not in victims and pid not in killed:
                        victims.append(pid)
                        kill([pid], signal.SIGSTOP)
                quiet = quiet + 1 if len(victims) == known else 0
                if quiet == _QUIET:
                    break
        finally:
            signalled = kill(victims)
        return signalled

    def _to_be_killed(self) -> Iterator[int]:
        """What lives of it, what is below that, and who holds its streams."""
        for parent in self.alive():
            yield parent
            yield from proc.descendants(parent)
        if files := self._held():
            # Asked anew: of one that has been closed since, a stranger's terminal may have the number.
            holders = activity.holders(self._family.descendants(), files)
            yield from (pid for pid, file in holders if file in self._held())

    def _held(self) -> set[tuple[int, int]]:
        """The files that it holds, as long as they are open: what is lent is not its own."""
        streams = [stream for stream, _, _ in list(self._open.values())]
        return {stream.identity for stream in streams if stream.fd != self._lent and not stream.closed}

    def close(self) -> None:
        """Let go of the streams, and of its orphans."""
        self.tag = 0
        for fd in list(self._open):
            self._let_go(fd)

    def _let_go(self, fd: int) -> None:
        """Out of the loop first: where a fork of the host has the file, epoll would go on telling of its end.

        Forgotten last: what a signal strikes here (on a loop, or at the end) is found again by ``close``.
        """
        if (held := self._open.get(fd)) is None:
            return
        stream, _, stop = held
        stop()
        with self._lock:
            if self._open.get(fd) is held:  # else another thread was quicker
                if fd != self._lent:
                    stream.close()
                del self._open[fd]


def remembered(jobs: Sequence[Job]) -> list[Job]:
    """Of these, the oldest first, all that run, and the latest of what has ended; the last one in any case."""
    if len(jobs) <= _MOST and sum(job.size for job in jobs) <= _MOST_BYTES:
        return list(jobs)  # to ask each whether it runs takes 10 us
    kept, size = [jobs[-1]], jobs[-1].size
    for job in reversed(jobs[:-1]):
        size += job.size
        if (len(kept) < _MOST and size <= _MOST_BYTES) or job.running:
            kept.append(job)
    return kept[::-1]


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
    attended_from = 0.0  # since when somebody stays with it: before that nobody could say that it is idle
    interrupt_requested = False  # another thread wants it ended
    marked_at = 0.0  # when bash gave its mark, while the call still waits for the end of the output
    over_since: float | None = None  # since when it is seen to have ended, though nobody has asked how
    pieces: list[tuple[StreamName, bytes]] | None = None  # for who follows it bit by bit
    _waiting = 0  # bytes, in those
    following = False  # come back as soon as it prints something
    has_output = False
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
        self.delivery = Delivery()
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
        self.has_output = True
        if self.pieces is not None and self._room_for_pieces(data):
            self.pieces.append((name, data))
        if self.terminal:
            self.unseen += data
            del self.unseen[:-_UNSEEN_MAX]
        self.call_back(name, data)

    def call_back(self, name: StreamName, data: bytes) -> None:
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
        """Raise, in the caller's own thread, what a callback raised elsewhere."""
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
            self.request = self.request.with_output(None)

    def end(self, result: Result) -> None:
        """It has ended, with that result."""
        self.delivery.end(result)
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
        result, request = self.delivery.result, self.request
        if result is None:
            return self
        is_long = len(request.command) > LARGE
        if not is_long and len(result.stdout_bytes) + len(result.stderr_bytes) <= LARGE:
            return self
        light = copy(self)
        light.delivery = self.delivery.without_output()
        if is_long:  # not b"": that is the same object everywhere, and a command is known by its very text
            light.request = request.__replace__(command=request.command[:LARGE])
        return light

    def fresh_capture(self, name: str = "") -> Capture:
        """As bounded as the command's own. ``name``: of its stream, if what is too much of that is spilled."""
        spill = self.spills.get(name) if self.spills else None
        return Capture(self.request.limits.max_output, spill.write if spill else None)

    def note_killed(self, pids: Iterable[int]) -> None:
        """Note each of them once, however many signals it took."""
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
