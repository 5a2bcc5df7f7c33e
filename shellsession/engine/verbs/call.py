"""The state of one command: a ``Call`` lasts from the moment a command is typed until its result is made."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from copy import copy
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, TypeVar

from ...models import TTY, Outcome, Request, Result, Stream as StreamName
from ...observe import Tap
from ...search import search
from ...signatures import Seconds
from ...text import sentences
from ..bash.outputs import Outputs
from ..io.output import NO_SPILLS, Capture, Spills
from ..io.streams import Stream
from ..wire import Errexit, Mark, MarkFinder
from .delivery import Delivery

if TYPE_CHECKING:
    from ..io.dialogue import Dialogue

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

    ``grouped``: see ``Frame``. ``in_one``: bash reads all the lines at once, or none of them. ``errexit``: see
    ``Errexit``.
    """

    lines: bytes = b""
    nonce: bytes = b""
    streams: tuple[tuple[StreamName, Stream], ...] = ()
    grouped: bool = False
    in_one: bool = True
    errexit: Errexit = Errexit()


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
    asks = False  # it was seen to wait for the terminal, and nothing was typed since
    question = ""  # what it had printed when it was last seen at the terminal
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
    def own_mark(self) -> Mark | None:
        """The mark, if nothing has kept bash from running the line that asks for it to its end."""
        mark = self.finder.mark
        return None if mark is None or mark.thrown or self.ending is not None or self.mark_requests else mark

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

    def hand_back(self, asks: bool = False) -> None:
        """It runs on, and its caller asks for the rest. The silence that shows a wait for input begins anew.

        ``asks``: it waits for input.
        """
        self.delivery.hand_back()
        self.last_output = time.monotonic()
        self.show_handed_back(asks)

    def show_handed_back(self, asks: bool) -> None:
        """Tell the taps, unless a consumer takes its output piece by piece."""
        if self.pieces is None:
            for tap in self.taps:
                tap.hand_back(self.id, asks)

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
