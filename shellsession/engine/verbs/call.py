"""The state of one command (``Call``), and of what it leaves running (``SessionJob``).

A ``Call`` lasts from the moment a command is typed until its result is made. A ``SessionJob`` holds the processes that
a call left running, and the streams that they still hold. Its output is bounded like any output, and a reader always
reads it.

Law: no method of a reader is called while a job's lock is held (see ``drainer.Drainer``).
"""

from __future__ import annotations

import math
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from copy import copy
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, TypeVar

from ...errors import FORKED, InvalidRequest, NotRunning, SessionClosed
from ...models import TTY, Outcome, Request, Result, Stream as StreamName
from ...observe import Tap
from ...search import search
from ...signatures import AnyJob, Seconds
from ...text import sentences
from ..bash.outputs import Outputs
from ..io.jobs import AsyncJob, Job
from ..io.output import NO_SPILLS, Capture, Spills
from ..io.streams import Stream
from ..io.threads import Steps, Wait, drive
from ..kernel import activity, proc
from ..kernel.family import Family, new_released_tag, released, set_tag
from ..kernel.signals import kill
from ..wire import MarkFinder
from .delivery import Delivery

if TYPE_CHECKING:
    from ..io.dialogue import Dialogue


class Reader(Protocol):
    """Reads streams while no verb does: a shared thread, or the asyncio loop."""

    def add(self, fd: int, read: Callable[[], bool], calls_back: bool = False) -> object: ...
    def remove(self, fd: int, read: Callable[[], bool]) -> None: ...


# At most this many reads of 4 KiB from the terminal when it is taken away: the job may live and print without end.
_LAST_READS: Final = 16
# A job's kill scans for processes at most this many times, and ends after this many in a row that find no new one.
_SCANS: Final = 100
_QUIET: Final = 2
_PASSES: Final = 20
# This many ended jobs are remembered, and this many bytes of the output and text of all: the latest ones.
_MOST: Final = 100
_MOST_BYTES: Final = 16 << 20

# What ``wait`` searches of the output that the call itself returned: its last bytes.
_BEFORE: Final = 1 << 12
# Seconds that `setsid` or `nohup` have to detach a job that is to be released, and between two looks.
_DETACHED_WITHIN: Final = 0.2
_TICK: Final = 0.005
_ALONE: Final = (
    "start it so that it outlives the session: `setsid COMMAND >FILE 2>&1 </dev/null &`, and release that job"
)

Peek = tuple[bytes, int, int]  # what a capture has: see ``Capture.peek``


class SessionJob(AnyJob):
    """A live view of what one call left running. It stays readable after its end."""

    def __init__(
        self,
        command: str,
        pids: Sequence[int],
        tag: int,
        family: Family,
        number: int,
        exit_code_of: Callable[[SessionJob], object],
        before: Sequence[Peek] = (),
    ) -> None:
        """``exit_code_of``: asks bash, and sets ``known_exit_code``.

        ``before``: the streams of the call itself, as ``Capture.peek`` returns them.
        """
        self.command = command
        self.tag = tag  # of all its processes; 0 if processes of other calls have it too
        self.family = family
        self._owner = os.getpid()
        self.id = f"j{number}"
        self.pids = tuple(pids)
        # The pid by which to ask bash for the exit status, another one in a sandbox. 0: bash is not to be asked.
        self.bash_pid = 0 if not pids else proc.inner_pid(pids[-1]) if family.is_confined else pids[-1]
        self._before = b"".join(data[-_BEFORE:] for data, _, _ in before)
        self.known_exit_code: int | None = None
        self._exit_code_of = exit_code_of
        self._released = False
        self._started = {pid: proc.start_time(pid) for pid in pids}
        self._lock = threading.RLock()  # reentrant: see drainer.Drainer
        self._open: dict[int, tuple[Stream, Capture, Callable[[], None]]] = {}  # the last stops the reader
        self._captures: dict[str, Capture] = {}
        self._lent = -1

    def __repr__(self) -> str:
        return f"Job({self.id}, {self.command!r}, pids={self.pids}, {self.status})"

    def adopt(self, name: str, stream: Stream, capture: Capture, reader: Reader) -> None:
        """Take over a stream that a process still holds, and let ``reader`` read it from now on."""
        capture = self._captures.setdefault(name, capture)  # continue an earlier record of the terminal
        read = partial(self._read, stream.fd)
        self._open[stream.fd] = (stream, capture, partial(reader.remove, stream.fd, read))
        reader.add(stream.fd, read)

    def borrow(self, name: str, stream: Stream, capture: Capture, reader: Reader) -> None:
        """Take over the controlling terminal like ``adopt``, but only until ``give_back``."""
        self._lent = stream.fd
        self.adopt(name, stream, capture, reader)

    def give_back(self) -> None:
        """Give the terminal back: another command needs it, or the job has ended. The job gets what is there now."""
        if (lent := self._open.get(self._lent)) is None:
            return
        stream, capture, stop = lent
        stop()
        with self._lock:
            if self._open.pop(self._lent, None) is not lent:
                return
            for _ in range(_LAST_READS):
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
            self._release(fd)
            return False
        return True

    def alive(self) -> list[int]:
        """Return the pids of its processes that still live, orphans included.

        A process that has reused one of the pids does not count.
        """
        first = [pid for pid, start in self._started.items() if proc.start_time(pid) == start and proc.alive(pid)]
        carriers = [] if not self.tag else released(self.tag) if self._released else self.family.carriers(self.tag)
        orphans = [pid for pid in carriers if pid not in self._started]
        if not first and not orphans:
            self.tag = 0  # a job without processes gets no new ones
        return first + orphans

    @property
    def running(self) -> bool:
        return any(fd != self._lent for fd in list(self._open)) or bool(self.alive())

    @property
    def exit_code(self) -> int | None:
        if self.known_exit_code is None and not self.running:
            self._exit_code_of(self)
        return self.known_exit_code

    def is_there(self, pid: int) -> bool:
        """Return whether that process of the call, or its zombie, is there, and no later one with its pid."""
        return proc.start_time(pid) == self._started[pid] != 0

    @property
    def size(self) -> int:
        """The bytes that are kept for it: its output and its command text."""
        return sum((capture.kept for capture in list(self._captures.values())), sys.getsizeof(self.command))

    def kept(self, name: str) -> tuple[bytes, int, int]:
        self._check_owner()
        if name == "before":
            return self._before, 0, 0
        with self._lock:
            capture = self._captures.get(name)
            return capture.peek() if capture else (b"", 0, 0)

    def _check_owner(self) -> None:
        """Refuse in a forked child: a thread of the parent may have held the lock."""
        if self._owner != os.getpid():
            raise SessionClosed(FORKED)

    def kill(self) -> tuple[int, ...]:
        """Kill its processes, everything below them, and what else holds its streams. Returns the signalled pids.

        Bash itself may hold the streams (`exec 3>&2`), but does not belong to the job. Raises SessionClosed in a forked
        child.
        """
        self._check_owner()
        killed: list[int] = []
        # Repeat until nothing is found: a process that ends just after it has started the next may escape all scans.
        for _ in range(_PASSES):
            if not (more := self._kill_more(killed)):
                break
            killed += more
        return tuple(killed)

    def _kill_more(self, killed: Collection[int]) -> list[int]:
        """Kill all that were not killed before. First stop them: otherwise each may start another one meanwhile."""
        victims: list[int] = []
        quiet = 0
        try:
            for _ in range(_SCANS):
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
        """Yield its living processes, everything below them, and the processes that hold its streams."""
        for parent in self.alive():
            yield parent
            yield from proc.descendants(parent)
        if files := self._held():
            # Check again for each: if a stream was closed meanwhile, a stranger's terminal may have its number.
            holders = activity.holders(self.family.descendants(), files)
            yield from (pid for pid, file in holders if file in self._held())

    def _held(self) -> set[tuple[int, int]]:
        """Return device and inode of its open streams. The lent terminal is not its own."""
        streams = [stream for stream, _, _ in list(self._open.values())]
        return {stream.identity for stream in streams if stream.fd != self._lent and not stream.closed}

    def release(self) -> None:
        drive(self.releasing())

    def releasing(self) -> Steps[None]:
        """Return the steps of ``release``. They wait a moment: `setsid` may only just have been started."""
        self._check_owner()
        if self._released:
            return
        if not self.alive():
            raise NotRunning(f"job {self.id} has no process that could be released: it has ended")
        until = time.monotonic() + _DETACHED_WITHIN
        while why := self._why_dependent():
            if self.family.is_confined or time.monotonic() >= until:
                raise InvalidRequest(f"job {self.id} cannot be released: {why}")
            yield Wait((), time.monotonic() + _TICK)
        tag = new_released_tag()
        # Repeat until nothing is found: a process that was forked before its parent had the new tag has the old one.
        for _ in range(_SCANS):
            if not (fresh := [pid for pid in self._all() if proc.tag(pid) != tag]):
                break
            for pid in fresh:
                if not set_tag(pid, tag) and proc.alive(pid):
                    why = f"process {pid} belongs to another user, or has limits of its own"
                    raise InvalidRequest(f"job {self.id} cannot be released: {why}")
        self.tag, self._released, self.family.has_released = tag, True, True

    def _all(self) -> list[int]:
        """Return its living processes, and everything below them."""
        first = self.alive()
        return [*first, *(pid for one in first for pid in proc.descendants(one))]

    def _why_dependent(self) -> str:
        """Return how the end of the session would reach the job; "" if it would not."""
        if self.family.is_confined:
            return "all that a sandbox runs ends with it"
        group = proc.process_group(self.family.pid)
        for pid in self._all():
            if any(activity.holders([pid], self._held())):
                return f"process {pid} writes to the session's own stream, which ends with it; {_ALONE}"
            if proc.process_group(pid) == group and not activity.ignores(pid, signal.SIGHUP):
                return f"process {pid} would end with the session's terminal (SIGHUP); {_ALONE}"
        return ""

    @property
    def released(self) -> bool:
        return self._released

    def close(self) -> None:
        """Close the streams, and give up the orphans."""
        self.tag = self.tag if self._released else 0
        for fd in list(self._open):
            self._release(fd)

    def _release(self, fd: int) -> None:
        """Stop reading a stream, and close it.

        The reader forgets it first: if a fork of the host holds the file, epoll would report its end for ever. The job
        forgets it last: if a signal handler raises in between, ``close`` finds it again.
        """
        if (held := self._open.get(fd)) is None:
            return
        stream, _, stop = held
        stop()
        with self._lock:
            if self._open.get(fd) is held:  # otherwise another thread was faster
                if fd != self._lent:
                    stream.close()
                del self._open[fd]


class ThreadJob(SessionJob, Job):
    """A job of a ``Session``."""


class LoopJob(SessionJob, AsyncJob):
    """A job of an ``AsyncSession``."""


def remembered(jobs: Sequence[SessionJob]) -> list[SessionJob]:
    """Return the jobs to remember: all that run, and the latest of those that have ended. The last job always stays.

    ``jobs`` and the returned list begin with the oldest.
    """
    if len(jobs) <= _MOST and sum(job.size for job in jobs) <= _MOST_BYTES:
        return list(jobs)  # checking whether a job runs takes 10 us for each
    kept, size = [jobs[-1]], jobs[-1].size
    for job in reversed(jobs[:-1]):
        size += job.size
        if (len(kept) < _MOST and size <= _MOST_BYTES) or job.running:
            kept.append(job)
    return kept[::-1]


T = TypeVar("T")
NOBODY: Final[Mapping[int, int]] = MappingProxyType({})

# How many bytes of output are kept for the next expect or ``until``.
_UNSEEN_MAX: Final = 1 << 18
# How many bytes are kept for the consumer of a command that is being ended: the last contents of its pipes. They are
# read in any case, and the consumer takes nothing meanwhile.
_LAST_PIECES: Final = 4 << 20
# The engine drops results and texts of more bytes before the next command. The caller has them.
LARGE: Final = 1 << 12
# The first check of a silent command comes after this many seconds; later ones are ever less frequent. A check costs
# 10 to 30 us per process.
LOOK_TERMINAL: Final = 0.01
LOOK_PLAIN: Final = 0.1
# Raised inside a generator, these would be mistaken for its own end (PEP 479).
_MEAN_AN_END: Final = (GeneratorExit, StopIteration)


class _Made(Generic[T]):
    """An attribute that is made on first use. Most commands end before that."""

    def __init__(self, make: Callable[[Call], T]) -> None:
        self._make = make

    def __set_name__(self, _: type, name: str) -> None:
        self._name = name

    def __get__(self, call: Call, _: object) -> T:
        value = call.__dict__[self._name] = self._make(call)
        return value


class Typed(NamedTuple):
    """How a command was typed: its lines, the nonce of its mark, and the streams of its output.

    ``grouped``: see ``Frame``. ``in_one``: bash reads all the lines at once, or none of them. ``sources``: bash sources
    the text.
    """

    lines: bytes = b""
    nonce: bytes = b""
    streams: tuple[tuple[StreamName, Stream], ...] = ()
    grouped: bool = False
    in_one: bool = True
    sources: bool = False


class Call:
    """The state of one command, from the moment it is typed to the moment its result is made."""

    # Most calls never change these. As class attributes they need not be set for each call.
    ending: Outcome | None = None  # set once we have decided to end it
    reason = ""
    signal: int | None = None
    control_closed = False  # bash has closed its control socket
    stolen = False  # something else has read what was typed
    killed: tuple[int, ...] = ()
    hung_up: Set[int] = frozenset()  # streams that no process holds at the moment (POLLHUP)
    hung_up_until = 0.0
    mark_requests = 0
    readers: Set[int] = frozenset()  # the processes that read the terminal at the last check
    not_run = False  # the shell was gone before it was typed, or something else read its lines
    fault: BaseException | None = None  # what a callback raised outside of a verb
    paused = False  # its output is not read, because its consumer has enough for now
    retyped = 0
    begun = False  # bash has certainly begun with the text, so it must not be typed again
    attended_from = 0.0  # when the current verb began to wait on it; the idle limit counts from here
    interrupt_requested = False  # another thread wants it ended
    marked_at = 0.0  # when bash gave its mark, while the call still waits for the end of the output
    over_since: float | None = None  # when it was first seen to be over, if no caller has asked for its result
    pieces: list[tuple[StreamName, bytes]] | None = None  # for a consumer that takes the output piece by piece
    _waiting = 0  # the number of bytes in ``pieces``
    following = False  # ``pump`` returns as soon as there is output
    has_output = False
    own_stdout_closed = False  # bash has closed its own stdout
    dialogue: Dialogue | None = None
    idle_timeout_now: Seconds = ...  # the idle limit of the present ``wait`` or ``send``; ... is that of the request
    application_keys = False  # the program has switched the cursor keys of the terminal
    id = ""  # of its results; "" for a startup command
    outputs: Outputs | None = None  # keeps its output for ``read_output``
    taps: Sequence[Tap] = ()  # those of its session; none for a startup or shutdown command
    finder = _Made(lambda call: MarkFinder(call.nonce, call.prompt))
    stdout = _Made(lambda call: call.fresh_capture("stdout"))
    stderr = _Made(lambda call: call.fresh_capture("stderr"))
    own_output = _Made(lambda call: call.fresh_capture())  # what was printed on bash's own stdout
    unseen = _Made(lambda call: bytearray())  # output that no expect, and no ``until`` of a wait, has seen
    record = _Made(lambda call: call.outputs.begin(call.id) if call.outputs is not None else None)

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
        """``prompt``: what bash is known to print before it reads a line. ``nonce``: replaces that of ``typed``."""
        self.request = request
        self.delivery = Delivery()
        self.started = self.last_output = started = time.monotonic()
        self.until = None if request.timeout is None else started + request.timeout
        self.terminal = request.stdin is TTY
        self.typed = typed
        self.prompt: bytes = prompt
        self.nonce: bytes = nonce or typed.nonce
        self.older = older  # the processes below bash before it (see Family.present); they must be left alone
        self.modes = modes  # those of the terminal when it began
        self.spills = spills
        self.look_every = LOOK_TERMINAL if self.terminal else LOOK_PLAIN
        self.look_at = started + self.look_every

    def name(self, id: str, outputs: Outputs, taps: Sequence[Tap]) -> None:
        """Give it the id of its results, have its output kept, and show it to the taps."""
        self.id, self.outputs, self.taps = id, outputs, taps
        for tap in taps:
            tap.begin(id, self.request)

    @property
    def idle_timeout(self) -> float | None:
        """After how many seconds without output its call returns, or None."""
        return self.request.idle_timeout if self.idle_timeout_now is ... else self.idle_timeout_now

    @property
    def idle_at(self) -> float:
        """The moment at which its idle limit passes, if it prints nothing more."""
        idle = self.idle_timeout
        return math.inf if idle is None or self.paused else max(self.last_output, self.attended_from) + idle

    def typed_as(self, typed: Typed) -> None:
        """Note that it was typed again: it has another mark and other streams now."""
        self.typed, self.nonce, self.finder = typed, typed.nonce, MarkFinder(typed.nonce, self.prompt)

    def look_again(self, every: float) -> None:
        """Have the kernel asked about it after ``every`` seconds, and from then on ever less often."""
        self.look_every, self.look_at = every, time.monotonic() + every

    @contextmanager
    def followed(self) -> Iterator[None]:
        """Make ``pump`` return as soon as there is new output."""
        self.following, self.has_output = True, False
        try:
            yield
        finally:
            self.stop_following()

    def nudge(self) -> None:
        """Make ``pump`` return as if there was new output, until ``stop_following``."""
        self.following = self.has_output = True

    def stop_following(self) -> None:
        """Let ``pump`` go on when there is new output."""
        self.following = False

    @property
    def streams(self) -> tuple[tuple[StreamName, Stream], ...]:
        """The streams of its output."""
        return self.typed.streams

    def feed(self, name: StreamName, data: bytes, now: float) -> None:
        """Add output."""
        self.last_output = now
        (self.stdout if name == "stdout" else self.stderr).feed(data)
        if self.record is not None:
            self.record.feed(name, data)
        self.has_output = True
        if self.pieces is not None and self._room_for_pieces(data):
            self.pieces.append((name, data))
        if self.terminal or self.request.on_timeout == "yield":
            self.unseen += data
            del self.unseen[:-_UNSEEN_MAX]
        if self.terminal and (on := data.rfind(b"\x1b[?1h")) != (off := data.rfind(b"\x1b[?1l")):
            self.application_keys = on > off
        self.show(name, data)

    def feed_own(self, data: bytes, now: float) -> None:
        """Add what was printed on bash's own stdout."""
        self.last_output = now
        self.own_output.feed(data)

    @property
    def printed(self) -> int:
        """How many bytes it has printed so far."""
        return self.stdout.total + self.stderr.total

    def sees(self, pattern: re.Pattern[str]) -> bool:
        """Return whether the output matches that no expect has seen. What comes after the match stays unseen.

        Raises SearchTooSlow.
        """
        text = self.unseen.decode("utf-8", "surrogateescape")
        if (found := search(pattern, text)) is None:
            return False
        del self.unseen[: len(text[: found.end()].encode("utf-8", "surrogateescape"))]
        return True

    def keeps_output(self, final: bool) -> bool:
        """Return whether ``read_output`` can show its output. ``final``: the command has ended."""
        if (record := self.record) is None:
            return True
        if final:
            record.end()
        return not record.lost

    def show(self, name: StreamName, data: bytes) -> None:
        """Pass output on to the taps and to its callback."""
        try:
            for tap in self.taps:
                tap.output(self.id, name, data)
            if self.request.on_output is not None:
                self.request.on_output(name, data)
        except _MEAN_AN_END as error:
            self.fault = error
            self.raise_fault()

    def _room_for_pieces(self, data: bytes) -> bool:
        """Return whether to keep the piece for the consumer. If more than the limit waits for it, pause the output."""
        self._waiting += len(data)
        most = self.request.limits.max_output
        if self.ending is not None:
            return self._waiting <= max(most, _LAST_PIECES)
        if self._waiting > most:  # any other verb that waits returns, so that the consumer can take the pieces
            self.paused = self.following = True
        return True

    def take_pieces(self) -> list[tuple[StreamName, bytes]]:
        """Return the output since the last time, and end a pause."""
        pieces, self.pieces, self._waiting = self.pieces or [], [], 0
        self.paused = self.following = False
        return pieces

    def pause(self) -> None:
        """Stop reading the output for now. The command then blocks when it has filled its pipe."""
        self.paused = True

    def go_on(self, fault: BaseException | None) -> None:
        """Read the output again. ``fault``: what the callback raised."""
        self.paused, self.fault, self.last_output = False, self.fault or fault, time.monotonic()

    def hand_back(self) -> None:
        """It runs on, and its caller asks for the rest. The silence that shows a wait for input begins anew."""
        self.delivery.hand_back()
        self.last_output = time.monotonic()

    def note_fault(self, fault: BaseException) -> None:
        """The callback has failed in another thread. The next verb raises that in the caller's own thread."""
        self.mute()
        self.fault = fault

    def raise_fault(self) -> None:
        """Raise in the caller's own thread what a callback has raised in another one."""
        if self.fault is not None:
            fault, self.fault = self.fault, None
            if isinstance(fault, _MEAN_AN_END):
                raise RuntimeError(f"on_output raised {type(fault).__name__}") from fault
            raise fault

    def mute(self) -> None:
        """Continue without the callback, because it has failed; the output must still be read.

        The reference to it is dropped: it may keep alive what refers to the session.
        """
        if self.request.on_output is not None:
            self.request = self.request.with_output(None)

    def end(self, result: Result) -> None:
        """Note that it has ended, with this result."""
        self.delivery.end(result)
        for tap in self.taps:
            tap.end(self.request.command, result)
        self.taps = ()
        if not self.terminal and self.unseen:
            self.unseen.clear()
        if self.request.stdin or self.request.on_output is not None:
            self.release()

    def release(self) -> None:
        """Drop the callback and the stdin: the command is over."""
        self.mute()
        self.forget_stdin()

    @property
    def is_fed(self) -> bool:
        """Whether a large stdin is held for it."""
        return isinstance(stdin := self.request.stdin, bytes) and len(stdin) > LARGE

    def forget_stdin(self) -> None:
        """Drop the stdin: bash has it in a file, or does not need it any more."""
        if self.request.stdin and not self.terminal:
            self.request = self.request.__replace__(stdin=b"")

    def lightened(self) -> Call:
        """Return a copy without a large output or text, or the call itself if it has neither."""
        result, request = self.delivery.result, self.request
        if result is None:
            return self
        is_long = len(request.command) > LARGE
        if not is_long and len(result.stdout_bytes) + len(result.stderr_bytes) <= LARGE:
            return self
        light = copy(self)
        light.delivery = self.delivery.without_output()
        if is_long:  # not b"": all empty texts are one object, and a command is recognised by its text object
            light.request = request.__replace__(command=request.command[:LARGE])
        return light

    def fresh_capture(self, name: str = "") -> Capture:
        """Return a new capture with the limit of this command. ``name``: its stream, if it has a spill file."""
        spill = self.spills.get(name) if self.spills else None
        return Capture(self.request.limits.max_output, spill.write if spill else None)

    def end_as(self, outcome: Outcome, reason: str) -> None:
        """Note that we end it: no caller can continue it."""
        self.ending, self.reason = outcome, reason
        self.delivery.withdraw()

    def fail(self, reason: str, ran: bool) -> None:
        """Note that bash could not run it, or may not have run it as a whole. ``ran``: it has begun."""
        self.reason, self.not_run = reason, not ran

    def explain(self, reason: str) -> None:
        """Note a reason, unless there is one."""
        self.reason = self.reason or reason

    def note_killed(self, pids: Iterable[int], signal: int | None = None) -> None:
        """Note each pid once, however many signals it took. ``signal``: the last of these, if that counts."""
        self.killed += tuple(pid for pid in pids if pid not in self.killed)
        self.signal = self.signal if signal is None else int(signal)

    def why(self, reason: str) -> str:
        """Return the reason in words, and what went wrong with the spill files."""
        return sentences(reason, *(spill.fault for spill in self.spills.values()))

    def spill_files(self) -> tuple[str | None, str | None]:
        """Return the spill files of stdout and stderr that were written; None for each that was not."""
        if not self.spills:
            return None, None
        return self.spills["stdout"].written, self.spills["stderr"].written

    @property
    def overflowed(self) -> bool:
        return self.request.limits.on_overflow == "kill" and (
            self.stdout.overflowed or self.stderr.overflowed or self.own_output.overflowed
        )
