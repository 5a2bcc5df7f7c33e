"""Collects the output of a running command and reports what happened to it.

``pump`` waits until something happens. The reasons that it returns (``What``) are the only things that can happen to a
command. ``drain`` takes what is left of the output after the mark. ``ask`` runs a line of ours while bash is idle.
``UnattendedReader`` reads the output of a command while no caller waits for it.
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
from ..io.nonce import fresh_nonce
from ..io.streams import CHUNK, SMALL, Stream
from ..io.threads import SOON, Steps, Wait
from ..kernel.activity import at_terminal
from ..wire import MarkFinder, mark_line
from .call import LOOK_PLAIN, LOOK_TERMINAL, Call
from .session_job import Reader

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

_LINES_PER_QUESTION: Final = mark_line(b"").count(b"\n")
# If a `read` took the command, the first question may only end the line of that `read`.
_QUESTIONS: Final = 2

# Most commands end within this time. Until then only their mark is waited for, which saves a wake-up for each line of
# output. Not less than 3 ms: a timer that is the next of its processor costs 14 us to set and unset (measured for 1
# ms).
QUICK: Final = 0.005
_LOOK_MOST: Final = 1.0
# A stream that no process holds reports POLLHUP without end, so it is left out for this many seconds.
_HUNG_PAUSE: Final = 0.02
# A process that polls the terminal may wait for something else. After this silence we take it to wait for input.
_POLL_SILENCE: Final = 0.5
# A read from a terminal or pipe that has more gives at least this many bytes. Less means that it is empty now.
_FULL: Final = 2048
_ROUNDS: Final = 32
# An event loop serves other sessions as well. So a command that prints without end is read in portions of this size
# (64 KiB take 30 us).
_PORTION: Final = 1 << 19
# The whole buffer of a pipe or terminal. More than this cannot have been written before the mark.
_DRAIN_MAX: Final = 2 << 20


def pump(shell: Shell, call: Call, until: float | None) -> Steps[What]:
    """Collect output until something happens, and return what.

    Once ``call.ending`` is set, only the mark, the death of bash and the moment ``until`` count.
    """
    if call.finder.mark is not None:
        return MARK
    now = time.monotonic()
    control = shell.control.fd
    quick = now + QUICK if until is None else min(until, now + QUICK)
    while not call.control_closed and (yield Wait((control,), quick, SOON)):
        shell.refuse_forked()
        if _read_control(shell, call):
            return MARK
        if time.monotonic() >= quick:  # endless output on the control socket must not defeat the deadline
            break
    while True:
        urgent, output = _descriptors(shell, call, now)
        ready = yield Wait(urgent, _next_moment(call, until, now), output=output)
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
    return take_message(shell, call, shell.control.receive())


def take_message(shell: Shell, call: Call, data: bytes | None) -> bool:
    """Process what ``ControlSocket.receive`` has returned. Returns True once the mark is complete."""
    if data:
        call.finder.feed(data, shell.control.is_bash)
    if data == b"":
        call.control_closed = True
    elif data and (mark := call.finder.mark) is not None:
        # If we asked for the mark again while it was on its way, bash has yet to read the lines of those questions.
        call.stolen = shell.control.note_mark(mark) > _LINES_PER_QUESTION * call.mark_requests
        return True
    return False


def _read_own_stdout(shell: Shell, call: Call, now: float) -> None:
    for _ in range(_ROUNDS):
        if not (data := shell.read_own_stdout()):
            call.own_stdout_closed = data == b""
            break
        call.feed_own(data, now)


def _descriptors(shell: Shell, call: Call, now: float) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the urgent descriptors (mark, end of bash, wake-up) and those of the output."""
    fds = [] if call.control_closed else [shell.control.fd]
    if shell.pidfd >= 0:
        fds.append(shell.pidfd)
    fds.append(shell.wake_fd)
    output = open_streams(call, now)
    if not call.own_stdout_closed:
        output.append(shell.own_stdout)
    return tuple(fds), tuple(output)


def open_streams(call: Call, now: float) -> list[int]:
    """Return the descriptors of the streams that may be read now."""
    if call.hung_up and now >= call.hung_up_until:
        call.hung_up = frozenset()
    return [] if call.paused else [stream.fd for _, stream in call.streams if stream.fd not in call.hung_up]


def _next_moment(call: Call, until: float | None, now: float) -> float:
    moment = min(call.look_at, call.idle_at)
    if until is not None:
        moment = min(moment, until)
    if call.hung_up:
        moment = min(moment, call.hung_up_until)
    return moment


def read_streams(shell: Shell, call: Call, now: float | None = None) -> None:
    """Read what all streams have now; at most one portion of each, so that endless output does not block here."""
    now = time.monotonic() if now is None else now
    for name, stream in call.streams:
        if call.paused or stream.fd in call.hung_up:
            continue
        pieces, taken = list[bytes](), 0
        while taken < _PORTION and (data := stream.read()):
            pieces.append(data)
            taken += max(len(data), _PORTION // _ROUNDS)
            if len(data) < _FULL:
                break
        if pieces:  # a terminal gives 4 KiB at a time: a callback gets all of them together
            add_output(call, name, stream is shell.terminal, b"".join(pieces), now)
        if data == b"":
            call.hung_up |= {stream.fd}
            call.hung_up_until = now + _HUNG_PAUSE


def add_output(call: Call, name: StreamName, from_terminal: bool, data: bytes, now: float) -> None:
    """Add data from one of the command's streams to its output."""
    # The output of a call with pipes has no place for what a program prints to the terminal. That of a call with a
    # terminal shows what a person would see.
    if not from_terminal or call.request.tty:
        call.feed(name, data, now)


def drain(shell: Shell, call: Call) -> list[tuple[StreamName, Stream]]:
    """Read the rest of the output after the mark, and return the streams that a process still holds.

    All that was written before the mark can be read by now.
    """
    held: list[tuple[StreamName, Stream]] = []
    events = shell.streams.events()
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
    """Return device and inode of each stream that a process still holds, except the controlling terminal."""
    events = shell.streams.events()
    streams = (stream for _, stream in call.streams if stream is not shell.terminal)
    return {stream.identity for stream in streams if not events.get(stream.fd, 0) & select.POLLHUP}


def _drain_one(shell: Shell, call: Call, name: StreamName, stream: Stream) -> bool:
    """Read what the stream has. Returns True if a process still holds it."""
    taken = 0
    while taken < _DRAIN_MAX and (data := stream.read(SMALL if taken < SMALL else CHUNK)):
        taken += len(data)
        add_output(call, name, stream is shell.terminal, data, call.last_output)
    return data != b""


def happened(call: Call, until: float | None, now: float) -> What | None:
    """Return what the output or the time says about the command, or None."""
    if call.ending is None and call.overflowed:
        return OVERFLOW
    if until is not None and now >= until:  # checked before the output, which may be endless
        return TIMED_OUT
    if call.ending is None and call.following and call.has_output:
        return OUTPUT
    if call.ending is None and now >= call.idle_at:
        return IDLE
    return None


def _look(shell: Shell, call: Call, now: float) -> What | None:
    """Ask the kernel about bash and its processes. This happens after some time without output."""
    first = LOOK_TERMINAL if call.terminal else LOOK_PLAIN
    silent = now - call.last_output
    call.look_again(first if silent < call.look_every else min(call.look_every * 2, _LOOK_MOST))
    if shell.dead:
        return DEAD
    if not shell.continue_stopped() and not call.control_closed and shell.idle():
        if _read_control(shell, call):  # it may have come since we waited
            return MARK
        # A frozen bash (`docker pause`, a debugger) seems to be reading, too, but has not read our lines.
        return None if shell.control.has_unread else _ask_for_mark_again(shell, call)
    if call.ending is None and silent >= first and _wants_input(shell, call, silent):
        if not call.control_closed and _read_control(shell, call):  # that was bash, returning to its prompt
            return MARK
        call.hung_up = frozenset()  # bash may have opened a stream only now, to print its question there
        read_streams(shell, call, now)  # the question may have come since we waited
        return INPUT
    return None


def _ask_for_mark_again(shell: Shell, call: Call) -> What | None:
    """Ask for the mark again: bash is at its prompt without one, because an interrupt hit our line.

    If two questions bring no mark, kill the shell.
    """
    call.mark_requests += 1
    call.look_again(LOOK_PLAIN)
    if call.mark_requests <= _QUESTIONS:
        shell.control.send(mark_line(call.finder.nonce))
    else:
        kill_unusable(shell, call, BROKEN)
    return None


def kill_unusable(shell: Shell, call: Call, why: str, ran: bool = True) -> None:
    """Kill a shell that can run nothing any more; its end is then noticed. ``ran``: the command has begun."""
    call.fail(why, ran)
    call.note_killed([shell.pid])
    shell.signal(signal.SIGKILL)


def waits_for_input(shell: Shell, call: Call) -> bool:
    """Return whether a command with the terminal waits for input there, by a single look."""
    silent = time.monotonic() - call.last_output
    return silent >= LOOK_TERMINAL and _wants_input(shell, call, silent)


def _wants_input(shell: Shell, call: Call, silent: float) -> bool:
    """Return whether the command waits for input from the terminal. ``silent``: for so long it has printed nothing."""
    # Check this first. A process that we see reading may have been woken by this input already; if we checked
    # afterwards, it might have read it by then.
    if call.terminal and shell.keyboard.has_input():
        return False  # typed and not read yet, so the command will continue
    seen = _seen_at_terminal(shell, call)
    return _reads(call, seen) or (silent >= _POLL_SILENCE and _polls_for_input(shell, call, seen))


def _seen_at_terminal(shell: Shell, call: Call) -> dict[int, str]:
    """Return what bash and the processes of the command do at the terminal, as ``at_terminal`` names it."""
    terminal = shell.terminal.path.decode()
    # No input can be typed at the terminal that is the command's stdout.
    others = [stream.path.decode() for _, stream in call.streams if stream.is_terminal]
    pids = [shell.pid, *shell.family.newer(call.older)]
    seen = {pid: at_terminal(pid, terminal, others) for pid in pids}
    # A process may also read bash's own input, which never has anything for it. One case is a trap's command after
    # `set -e` undid our redirections. Another is `read -u 10`: it finds the descriptor that bash keeps.
    ours = (shell.control_name,)
    at_ours = {pid for pid in pids if at_terminal(pid, terminal, ours) == "reads"}
    if shell.idle():
        at_ours.discard(shell.pid)
    return seen | dict.fromkeys(at_ours, "reads")


def _reads(call: Call, seen: dict[int, str]) -> bool:
    """Return whether a process of the command reads the terminal."""
    # If the command was given the terminal, its background processes may be stopped at it. Otherwise nothing may read
    # it at all, and a stopped process counts as well.
    wanting = ("reads",) if call.terminal else ("reads", "stopped")
    readers = {pid for pid, what in seen.items() if what in wanting}
    # A command that was not given the terminal is ended for reading it. So it must be seen there twice.
    seen_twice, call.readers = readers & call.readers, readers
    if seen_twice or (readers and call.terminal):
        return True
    if readers:
        call.look_again(LOOK_PLAIN)
    return False


def _polls_for_input(shell: Shell, call: Call, seen: dict[int, str]) -> bool:
    """Return whether a process that polls the terminal, or hides what it does, probably waits for input there."""
    if not {"polls", "hidden"} & set(seen.values()):
        return False
    if shell.keyboard.modes() != call.modes:  # it has switched echo or line mode off, so it asks for input
        return True
    # Bash itself polls only in `read -t`, which ends by itself. So that counts only with a terminal.
    lone = [what for pid, what in seen.items() if pid != shell.pid or (what == "polls" and call.terminal)]
    return lone == ["polls"] or (lone == ["hidden"] and call.terminal)


def ask(shell: Shell, line: bytes, patience: float = 1.0) -> Steps[bytes | None]:
    """Make an idle bash run ``line``. Returns what bash printed, or None if it gave no mark within ``patience``."""
    finder = yield from asked(shell, line, patience)
    return None if finder is None else finder.noise_without_prompts


def asked(shell: Shell, line: bytes, patience: float) -> Steps[MarkFinder | None]:
    """Make an idle bash run ``line``. Returns the finder with its mark, or None if none came within ``patience``."""
    finder = MarkFinder(fresh_nonce(), shell.prompt)
    shell.control.send(b"\n" + line + mark_line(finder.nonce))
    shell.continue_stopped()
    until = time.monotonic() + patience
    while finder.mark is None:
        data = shell.control.read(finder) if (yield Wait((shell.control.fd,), until)) else b""
        if data == b"" or (finder.mark is None and time.monotonic() >= until):
            return None
    shell.control.note_mark(finder.mark)
    return finder


class UnattendedReader:
    """Lets ``reader`` read the streams of one command into its output, from ``read_on`` until ``stop``."""

    def __init__(self, call: Call, terminal: Stream, reader: Reader) -> None:
        self._call, self._terminal, self._reader = call, terminal, reader
        self._lock = threading.RLock()  # reentrant: see drainer.Drainer
        self.stopped = False
        self.thread = 0  # the thread that runs the callback now; it cannot use the session
        self._reads = [(stream.fd, partial(self._read, name, stream)) for name, stream in call.streams]

    def read_on(self) -> None:
        """Begin to read the streams, or continue after the call was paused."""
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
                    add_output(self._call, name, stream is self._terminal, data, time.monotonic())
                except BaseException as error:  # the callback failed
                    self._call.note_fault(error)
                finally:
                    self.thread = 0
            return data != b""

    def stop(self, until: float | None = None) -> bool:
        """Stop reading. Then no other thread uses the streams.

        Returns False if the callback has not returned by the moment ``until``.
        """
        left = -1 if until is None else min(max(0.0, until - time.monotonic()), threading.TIMEOUT_MAX)
        try:  # not `with`, which has no timeout
            if not self._lock.acquire(timeout=left):
                return False
            self.stopped = True
        finally:
            with suppress(RuntimeError):  # this thread does not hold the lock
                self._lock.release()
        self.abandon()
        return True

    def abandon(self) -> None:
        """Stop reading without waiting for the callback, which may never return. It gets no more output."""
        self.stopped = True
        for fd, read in self._reads:
            self._reader.remove(fd, read)
