"""The heart of waiting for a command: collect its output, and say what happened next.

Law: the reasons that ``pump`` returns are the only things that can happen to a command.
"""

from __future__ import annotations

import select
import signal
import threading
import time
from contextlib import suppress
from functools import partial
from typing import Final, Literal

from ...models import Stream as StreamName
from ..bash.shell import Shell
from ..io.control import fresh_nonce
from ..io.streams import CHUNK, SMALL, Stream
from ..io.threads import SOON, Steps, Wait
from ..kernel.activity import at_terminal
from ..wire import Framer, mark_line
from .command import LOOK_PLAIN, LOOK_TERMINAL, Call, Reader

What = Literal["mark", "dead", "timed_out", "idle", "input", "overflow", "output", "interrupt"]
MARK: Final = "mark"
DEAD: Final = "dead"
TIMED_OUT: Final = "timed_out"
IDLE: Final = "idle"
INPUT: Final = "input"
OVERFLOW: Final = "overflow"
OUTPUT: Final = "output"
INTERRUPT: Final = "interrupt"

BROKEN: Final = (
    "the shell no longer runs what is typed to it, so it was killed: something in this session has changed the words or"
    " descriptors that bash itself works with"
)

STOLEN: Final = (
    "the command was not run: something in this session (a PROMPT_COMMAND, a signal's trap) reads from the shell's own"
    " standard input and has taken what was typed to it; the shell was killed"
)

_ASKED_AGAIN: Final = mark_line(b"").count(b"\n")
# The first may be what ends the `read` that took the command: its line ends there.
_QUESTIONS: Final = 2

# Most commands are over within this: only their mark is waited for, which saves waking up for each line of output.
# Not less than 3 ms: a timer that is the next of its processor costs 14 us to set and unset (measured for 1 ms).
QUICK: Final = 0.005
_LOOK_MOST: Final = 1.0
# A stream nobody holds reports "hung up" without end: leave it out for so long.
_HUNG_PAUSE: Final = 0.02
# A process that polls the terminal may wait for something else: believe it after so long a silence.
_POLL_SILENCE: Final = 0.5
# What a full read of a terminal or pipe gives at least; less means that it is empty now.
_FULL: Final = 2048
_ROUNDS: Final = 32
# A loop is the others' as well: who prints without end is read so much of at a time (64 KiB of it take 30 us).
_PORTION: Final = 1 << 19
# More than this cannot have been written before the mark: it is a pipe's or terminal's whole buffer.
_DRAIN_MAX: Final = 2 << 20


def pump(shell: Shell, call: Call, until: float | None) -> Steps[What]:
    """Collect output until something happens. Once ``call.ending`` is set, only mark, death and moment count."""
    if call.framer.mark is not None:
        return MARK
    now = time.monotonic()
    control = shell.control.fd
    quick = now + QUICK if until is None else min(until, now + QUICK)
    while not call.control_closed and (yield Wait((control,), quick, SOON)):
        shell.refuse_forked()
        if _read_control(shell, call):
            return MARK
        if time.monotonic() >= quick:  # who talks there without end is no reason to forget the time
            break
    while True:
        urgent, output = _listening(shell, call, now)
        ready = yield Wait(urgent, _wake(call, until, now), output=output)
        shell.refuse_forked()
        now = time.monotonic()
        if ready:
            if control in ready and _read_control(shell, call):
                return MARK
            if shell.own_stdout in ready:
                _read_own_stdout(shell, call, now)
            read_streams(shell, call, now)
            if shell.pidfd in ready or (call.control_closed and shell.dead):
                return DEAD
            if shell.wake_fd in ready:
                shell.clear_wake()
                call.raise_fault()
                if call.interrupt_requested and call.ending is None:
                    return INTERRUPT
        what = happened(call, until, now)
        if what is None and now >= call.look_at:
            what = _look(shell, call, now)
        if what is not None:
            return what


def _read_control(shell: Shell, call: Call) -> bool:
    return take_words(shell, call, shell.control.receive())


def take_words(shell: Shell, call: Call, data: bytes | None) -> bool:
    """Bash's socket gave that. Is it the mark, or its end?"""
    if data:
        call.framer.feed(data, shell.control.is_bash)
    if data == b"":
        call.control_closed = True
    elif data and (mark := call.framer.mark) is not None:
        # The mark may have been on its way already when it was asked for again: those lines are still to be read.
        call.stolen = shell.control.lines_taken(mark) > _ASKED_AGAIN * call.idle_looks
        return True
    return False


def _read_own_stdout(shell: Shell, call: Call, now: float) -> None:
    for _ in range(_ROUNDS):
        if not (data := shell.read_own_stdout()):
            call.own_stdout_closed = data == b""
            break
        call.own_output.feed(data)
        call.last_output = now


def _listening(shell: Shell, call: Call, now: float) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What must not wait (the mark, the end of bash, a wake-up), and output."""
    fds = [] if call.control_closed else [shell.control.fd]
    if shell.pidfd >= 0:
        fds.append(shell.pidfd)
    fds.append(shell.wake_fd)
    output = open_streams(call, now)
    if not call.own_stdout_closed:
        output.append(shell.own_stdout)
    return tuple(fds), tuple(output)


def open_streams(call: Call, now: float) -> list[int]:
    """The descriptors of the streams that are to be read now."""
    if call.hung and now >= call.hung_until:
        call.hung = frozenset()
    return [] if call.paused else [stream.fd for _, stream in call.streams if stream.fd not in call.hung]


def _wake(call: Call, until: float | None, now: float) -> float:
    moment = min(call.look_at, call.idle_at)
    if until is not None:
        moment = min(moment, until)
    if call.hung:
        moment = min(moment, call.hung_until)
    return moment


def read_streams(shell: Shell, call: Call, now: float | None = None) -> None:
    """Take what is there from all streams, without going on for ever."""
    now = time.monotonic() if now is None else now
    for name, stream in call.streams:
        if call.paused or stream.fd in call.hung:
            continue
        pieces, taken = list[bytes](), 0
        while taken < _PORTION and (data := stream.read()):
            pieces.append(data)
            taken += max(len(data), _PORTION // _ROUNDS)
            if len(data) < _FULL:
                break
        if pieces:  # a terminal gives 4 KiB at a time: who hears them live is told of all together
            deliver(call, name, stream is shell.terminal, b"".join(pieces), now)
        if data == b"":
            call.hung |= {stream.fd}
            call.hung_until = now + _HUNG_PAUSE


def deliver(call: Call, name: StreamName, from_terminal: bool, data: bytes, now: float) -> None:
    """Output has come on one of the command's streams."""
    # A call with pipes has no place for what a program tells the terminal; one with a terminal shows what a person saw.
    if not from_terminal or call.request.tty:
        call.feed(name, data, now)


def drain(shell: Shell, call: Call) -> list[tuple[StreamName, Stream]]:
    """After the mark: all that was written before it is there already. The streams that somebody still holds."""
    held: list[tuple[StreamName, Stream]] = []
    events = shell.streams.glance()
    if shell.own_stdout in events:
        _read_own_stdout(shell, call, call.last_output)
    for name, stream in call.streams:
        event = events.get(stream.fd, 0)
        if event == select.POLLHUP or (event & select.POLLIN and not _drain_one(shell, call, name, stream)):
            continue
        if stream is not shell.terminal:
            held.append((name, stream))
    return held


def held_files(shell: Shell, call: Call) -> set[tuple[int, int]]:
    """The files of those streams that somebody still holds, by device and inode; not the controlling terminal."""
    events = shell.streams.glance()
    streams = (stream for _, stream in call.streams if stream is not shell.terminal)
    return {stream.identity for stream in streams if not events.get(stream.fd, 0) & select.POLLHUP}


def _drain_one(shell: Shell, call: Call, name: StreamName, stream: Stream) -> bool:
    """Take what is there; True when somebody holds it still."""
    taken = 0
    while taken < _DRAIN_MAX and (data := stream.read(SMALL if taken < SMALL else CHUNK)):
        taken += len(data)
        deliver(call, name, stream is shell.terminal, data, call.last_output)
    return data != b""


def happened(call: Call, until: float | None, now: float) -> What | None:
    """What its output or the time says of the command."""
    if call.ending is None and call.overflowed:
        return OVERFLOW
    if until is not None and now >= until:  # before its output, which may have no end
        return TIMED_OUT
    if call.ending is None and call.following and call.has_output:
        return OUTPUT
    if call.ending is None and now >= call.idle_at:
        return IDLE
    return None


def _look(shell: Shell, call: Call, now: float) -> What | None:
    """Look what the kernel says of bash and of what it runs, after a while without output."""
    first = LOOK_TERMINAL if call.terminal else LOOK_PLAIN
    silent = now - call.last_output
    call.look_every = first if silent < call.look_every else min(call.look_every * 2, _LOOK_MOST)
    call.look_at = now + call.look_every
    if shell.dead:
        return DEAD
    if not shell.continue_stopped() and not call.control_closed and shell.idle():
        return MARK if _read_control(shell, call) else _rescue(shell, call)  # it may have come since we waited
    if call.ending is None and silent >= first and _wants_input(shell, call, silent):
        if not call.control_closed and _read_control(shell, call):  # bash was seen as it came back to its prompt
            return MARK
        call.hung = frozenset()  # bash may have opened one only now, to ask there
        read_streams(shell, call, now)  # what it asks may have come since we waited
        return INPUT
    return None


def _rescue(shell: Shell, call: Call) -> What | None:
    """Bash is back at its prompt and gave no mark (an interrupt struck our line): ask again, then give it up."""
    call.idle_looks += 1
    call.look_at = time.monotonic() + LOOK_PLAIN
    if call.idle_looks <= _QUESTIONS:
        shell.control.send(mark_line(call.framer.nonce))
    else:
        call.reason = BROKEN
        call.note_killed([shell.pid])
        shell.signal(signal.SIGKILL)
    return None


def _wants_input(shell: Shell, call: Call, silent: float) -> bool:
    terminal = shell.terminal.path.decode()
    # Nobody types at the terminal that is its stdout.
    others = [stream.path.decode() for _, stream in call.streams if stream.modes]
    # First: who is seen to read may have been woken for this already, and have taken it when we come to ask.
    if call.terminal and shell.keyboard.has_input():
        return False  # typed, and not read yet: it will go on
    pids = [shell.pid, *shell.family.newer(call.older)]
    seen = {pid: at_terminal(pid, terminal, others) for pid in pids}
    # A trap's command has bash's own input after `set -e` undid our redirections, and where bash keeps it `read -u 10`
    # finds it: there is nothing for them to read.
    ours = (shell.control_name,)
    at_ours = {pid for pid in pids if at_terminal(pid, terminal, ours) == "reads"}
    if shell.idle():
        at_ours.discard(shell.pid)
    seen.update(dict.fromkeys(at_ours, "reads"))
    # Of who was given the terminal one in the background may be stopped at it; nobody else is given it at all.
    wanting = ("reads",) if call.terminal else ("reads", "stopped")
    readers = {pid for pid, what in seen.items() if what in wanting}
    # Who was not given the terminal is ended for it: only one that is still at it at the second look.
    patient, call.readers = readers & call.readers, readers
    if patient or (readers and call.terminal):
        return True
    if readers:
        call.look_every, call.look_at = LOOK_PLAIN, time.monotonic() + LOOK_PLAIN
    if silent < _POLL_SILENCE or not ({"polls", "hidden"} & set(seen.values())):
        return False
    if shell.keyboard.modes() != call.modes:  # it has switched echo or lines off: it asks
        return True
    # Bash itself polls in `read -t` alone, which ends by itself: it is nobody's to end.
    lone = [what for pid, what in seen.items() if pid != shell.pid or (what == "polls" and call.terminal)]
    return lone == ["polls"] or (lone == ["hidden"] and call.terminal)


def ask(shell: Shell, line: bytes, patience: float = 1.0) -> Steps[bytes | None]:
    """Have bash, at its prompt, run a line of ours; what it said, or None when it gave no mark."""
    framer = Framer(fresh_nonce(), shell.prompt)
    shell.control.send(b"\n" + line + mark_line(framer.nonce))
    shell.continue_stopped()
    until = time.monotonic() + patience
    while framer.mark is None:
        data = shell.control.read(framer) if (yield Wait((shell.control.fd,), until)) else b""
        if data == b"" or (framer.mark is None and time.monotonic() >= until):
            return None
    shell.control.lines_taken(framer.mark)
    return framer.noise_without_prompts


class UnattendedReader:
    """Has one command's streams read into it, from ``read_on`` until ``stop``."""

    def __init__(self, call: Call, terminal: Stream, reader: Reader) -> None:
        self._call, self._terminal, self._reader = call, terminal, reader
        self._lock = threading.RLock()  # reentrant: see background.Drainer
        self.stopped = False
        self.thread = 0  # in whose callback it is just now: that one cannot use the session
        self._reads = [(stream.fd, partial(self._read, name, stream)) for name, stream in call.streams]

    def read_on(self) -> None:
        """Have the streams read (again, after the call was paused)."""
        calls_back = self._call.request.on_output is not None
        for fd, read in self._reads:
            self._reader.add(fd, read, calls_back)

    def _read(self, name: StreamName, stream: Stream) -> bool:
        with self._lock:
            if self.stopped or self._call.paused:
                return False
            data = stream.read()
            if data:
                self.thread = threading.get_ident()
                try:
                    deliver(self._call, name, stream is self._terminal, data, time.monotonic())
                except (
                    BaseException
                ) as error:  # a faulty callback: the next verb raises that, in the caller's own thread
                    self._call.mute()
                    self._call.fault = error
                finally:
                    self.thread = 0
            return data != b""

    def stop(self, until: float | None = None) -> bool:
        """Read no more: then no other thread is at the streams. False: its callback had not returned by that moment."""
        left = -1 if until is None else min(max(0.0, until - time.monotonic()), threading.TIMEOUT_MAX)
        try:  # no `with`: that has no limit
            if not self._lock.acquire(timeout=left):
                return False
            self.stopped = True
        finally:
            with suppress(RuntimeError):  # it does not have it
                self._lock.release()
        self.abandon()
        return True

    def abandon(self) -> None:
        """Read no more, though its callback may never return: what that was given was the last."""
        self.stopped = True
        for fd, read in self._reads:
            self._reader.remove(fd, read)
