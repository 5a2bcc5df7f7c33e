"""``PipeTransport``: connections to a daemon elsewhere, through a pipe to `shellsession bridge`.

A ``BridgePipe`` is whatever carries bytes to the bridge and back; ``via`` has the one of a program such as ssh. One
bridge serves all sessions of this process with the same pipe; a thread carries their connections (see ``mux``). The
bridge ends when the last connection has been closed.
"""

from __future__ import annotations

import os
import threading
import time
from _socket import socketpair
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, Final

from ...errors import DaemonUnavailable, ProtocolError, ShellSessionError, VersionMismatch
from ...models import VERSION
from ...text import escaped
from ..protocol import frames
from ..protocol.endpoint import PATIENCE
from ..protocol.frames import FRAMING, frame, read_greeting
from ..protocol.messages import field
from ..protocol.mux import Mux, Pipe, PipeEnded
from ..protocol.wire import PROTOCOL
from .transport import SocketChannel

if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Callable, Hashable


# How many seconds the bridge may take to greet. An ssh through several hosts takes a few.
_GREETING: Final = 30.0
# After this many seconds without a word from the daemon it is asked for one.
_QUIET: Final = 5.0
# A bridge without connections ends after this many seconds: often the next session follows at once.
_LINGER: Final = 1.0
# A pipe that worked before is reopened for this many seconds.
_REOPEN: Final = 20.0
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.1, 2.0


class BridgePipe(Pipe):
    """A pipe to a bridge. ``str`` names the way there in messages."""

    # What to do where there is no bridge.
    advice = f"install Python 3.11 or newer and shellsession {VERSION} there"
    errors: int | None = None  # a descriptor from which text about errors comes

    def read_errors(self) -> bool:
        """Keep the last bytes of the text that has come. False if no more can come."""
        return False

    def why_ended(self) -> str:
        """The text about errors, in one line; may be empty."""
        return ""

    def close(self) -> None:
        """Close the descriptors. A forked child does only this. A second call does nothing."""

    def end(self, failed: bool) -> None:
        """Close the pipe. ``failed``: nobody at the other end may notice that."""
        self.close()


class PipeChannel(SocketChannel):
    """One connection through the pipe. The bridge has checked who listens there."""

    spin = 0.0  # it would take the interpreter from the thread that carries the answer

    def __init__(self, ours: socket, place: str, patience: float, namespaces: str) -> None:
        super().__init__(ours)
        self._place, self.patience, self.namespaces = place, patience, namespaces

    def __str__(self) -> str:
        return self._place

    def check(self) -> None:
        pass


class _Answer:
    """What the bridge says to the opening of one connection."""

    def __init__(self) -> None:
        self.here = threading.Event()
        self.refusal: bytes | None = None
        self.lost = False  # the pipe broke first


class _Bridge(Mux):
    """The client's end of a pipe, and the thread that carries connections through it."""

    def __init__(self, pipe: BridgePipe, greets_within: float, patience: float) -> None:
        super().__init__(pipe)
        self.pipe: BridgePipe = pipe
        self._greets_within, self._patience = greets_within, patience
        if pipe.errors is not None:
            self.epoll.register(pipe.errors, 1)
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self.epoll.register(self._wake, 1)
        self._lock = threading.Lock()
        self._asked: list[tuple[int, bytes, _Answer, socket]] = []
        self._answers: dict[int, tuple[_Answer, socket]] = {}
        self._number = 0
        self.state: dict[str, Any] = {}
        self.namespaces = ""
        self.greeted = threading.Event()  # or it has failed
        self.failure: ShellSessionError | None = None
        self.ended = False
        self._preamble: bytes | None = b""  # what came of the greeting; None once that is complete
        self._heard = time.monotonic()
        self._probe = 0  # the stream that asks for a word
        self._probed = 0.0  # when
        threading.Thread(target=self._run, name="shellsession-pipe", daemon=True).start()

    # -- called by the sessions' threads

    def open(self, how: bytes) -> socket | None:
        """A new connection; None if no daemon listens. Raises DaemonUnavailable, and PipeEnded."""
        answer = _Answer()
        with ExitStack() as unused:
            with self._lock:
                if self.ended:
                    raise PipeEnded
                ours, theirs = socketpair()
                unused.callback(ours.close)
                theirs.setblocking(False)
                self._number += 1
                self._asked.append((self._number, how, answer, theirs))
                os.eventfd_write(self._wake, 1)
            answer.here.wait()  # the thread gives up when nothing comes
            if answer.lost:
                raise PipeEnded
            if answer.refusal is None:
                unused.pop_all()
                return ours
        if not answer.refusal:
            return None
        raise DaemonUnavailable(f"{escaped(answer.refusal.decode('utf-8', 'replace'))} (reported by {self.pipe})")

    # -- called in the thread

    def _run(self) -> None:
        try:
            self._serve_all()
        except PipeEnded:
            self.failure = DaemonUnavailable(self._why_ended())
        except ShellSessionError as error:
            self.failure = error
        finally:
            self._end()

    def _serve_all(self) -> None:
        self._await_greeting()
        emptied = self._heard = time.monotonic()
        while not self._is_unused(emptied):
            self.turn(min(_LINGER, _QUIET, self._patience) / 2)
            self._take_asked()
            if self.streams or self._answers:
                emptied = time.monotonic()
                self._check_life(emptied)
            else:
                self._heard = time.monotonic()

    def _await_greeting(self) -> None:
        until = time.monotonic() + self._greets_within
        while self._preamble is not None:
            left = until - time.monotonic()
            if left <= 0:
                raise DaemonUnavailable(
                    f"{self.pipe} has sent no greeting for {self._greets_within:.0f} s: nothing was run; try it by hand"
                )
            self.turn(left)

    def _is_unused(self, emptied: float) -> bool:
        """True if no session needs the bridge any more; from then on none gets it."""
        with self._lock:
            self.ended = time.monotonic() - emptied > _LINGER and not self._asked
            return self.ended

    def _check_life(self, now: float) -> None:
        """Ask a silent daemon for a word. Raises DaemonUnavailable if none has come in time."""
        if now - self._heard <= _QUIET:
            return
        if not self._probe:
            self._begin_probe()
            self._probed = now
        elif now - max(self._heard, self._probed) > self._patience:
            raise DaemonUnavailable(f"nothing has come through {self.pipe} for {self._patience:g} s")

    def _begin_probe(self) -> None:
        """Connect to the daemon once more: it greets at once, if it and all between are alive."""
        with self._lock:
            self._number += 1
            self._probe = self._number
        self.put(frame(frames.OPEN, self._probe, frames.LOOK))

    def _take_asked(self) -> None:
        """Ask for the connections that the sessions want."""
        with self._lock:
            asked, self._asked = self._asked, []
        for number, how, answer, end in asked:
            self._answers[number] = answer, end
            self.put(frame(frames.OPEN, number, how))

    def answered(self, number: int, refusal: bytes | None) -> None:
        if number == self._probe:
            if refusal is not None:
                self._heard, self._probe = time.monotonic(), 0
            return
        if (found := self._answers.pop(number, None)) is None:
            raise ProtocolError("the other end of the pipe answered a request that was never made")
        answer, end = found
        if refusal is None:
            self.add(number, end)
        else:
            end.close()
            answer.refusal = refusal
        answer.here.set()

    def heard(self, number: int) -> None:
        self._heard = time.monotonic()
        if number == self._probe:
            self._probe = 0
            self.put(frame(frames.CLOSE, number))

    def take(self, data: bytes | memoryview) -> None:
        if self._preamble is None:
            super().take(data)
            return
        self._preamble += data
        try:
            found = read_greeting(self._preamble)
        except ProtocolError as error:
            raise DaemonUnavailable(f"{self.pipe} is no bridge: {error}; {self.pipe.advice}") from None
        if found is None:
            return
        greeting, rest = found
        if (greeting.get("framing"), greeting.get("protocol")) != (FRAMING, PROTOCOL):
            version = escaped(str(greeting.get("version")))
            raise VersionMismatch(
                f"{self.pipe} is shellsession {version} (protocol {greeting.get('protocol')}), this"
                f" client is {VERSION} ({PROTOCOL}): install shellsession {VERSION} there"
            )
        if not isinstance(state := greeting.get("state"), dict):
            raise ProtocolError(f"{self.pipe} greets without the state of its process: {self.pipe.advice}")
        self.namespaces = field(greeting, "namespaces", str)
        self.state, self._preamble = state, None
        self.greeted.set()
        if rest:
            super().take(rest)

    def other(self, fd: int) -> None:
        if fd == self._wake:
            os.eventfd_read(fd)
        elif fd == self.pipe.errors and not self.pipe.read_errors():  # others are of streams closed in this turn
            self.epoll.unregister(fd)

    def _why_ended(self) -> str:
        """The message when the pipe has ended before the greeting, or later."""
        said = f": {text}" if (text := escaped(self.pipe.why_ended())) else ""
        if self._preamble is None:
            return f"{self.pipe} has ended{said}"
        is_explained = text and "shellsession" not in text  # such as ssh that is refused; not "shellsession: not found"
        return f"{self.pipe} ended without a greeting{said}" + ("" if is_explained else f"; {self.pipe.advice}")

    def _end(self) -> None:
        """End the pipe, and tell all who wait for it."""
        with self._lock:
            self.ended = True
            asked, self._asked = self._asked, []
        for _, _, answer, end in asked:
            self._answers[-len(self._answers) - 1] = answer, end
        self.close()
        os.close(self._wake)
        for answer, end in self._answers.values():
            end.close()
            answer.lost = True
            answer.here.set()
        self.greeted.set()
        self.pipe.end(self.failure is not None)  # last, as it may take a while


class _Running:
    """The bridges of this process, by the key of their transport."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.bridges: dict[Hashable, _Bridge] = {}
        self.worked: set[Hashable] = set()  # those that have greeted once


_running = _Running()


def _forget() -> None:
    """In a forked child: its parent's pipes are not its own. Those of a bridge that has ended are closed already."""
    global _running
    for bridge in _running.bridges.values():
        bridge.pipe.close()
    _running = _Running()


os.register_at_fork(after_in_child=_forget)


class PipeTransport:
    """Connects to the daemon at the other end of a pipe. ``place`` names it.

    ``key``: transports with the same key share a bridge. ``start``: begins a pipe, and returns at once. Raises
    DaemonUnavailable.
    """

    is_local = False
    patience = PATIENCE  # seconds that a silent daemon has to answer a probe

    def __init__(self, place: str, key: Hashable, start: Callable[[], BridgePipe]) -> None:
        self._place, self._key, self._start = place, key, start

    def __str__(self) -> str:
        return self._place

    def inherited(self) -> dict[str, Any]:
        return self._bridge().state

    def reach(self) -> PipeChannel | None:
        return self._open(frames.LOOK)

    def connect(self, start: bool) -> PipeChannel:
        channel = self._open(frames.START if start else frames.FIND)
        if channel is None:
            raise DaemonUnavailable(f"the daemon that {self} leads to ended at once: try again")
        return channel

    def _open(self, how: bytes) -> PipeChannel | None:
        until = time.monotonic() + _REOPEN
        while True:
            bridge = self._bridge()
            try:
                end = bridge.open(how)
            except PipeEnded:
                if time.monotonic() >= until:
                    raise bridge.failure or DaemonUnavailable(f"{self} ends again and again") from None
                continue
            return None if end is None else PipeChannel(end, str(self), self.patience, bridge.namespaces)

    def _bridge(self) -> _Bridge:
        """A bridge that has greeted. Raises DaemonUnavailable, VersionMismatch.

        If one worked before, the pipe is only broken: then it is tried again for a while.
        """
        running = _running
        until, pause = time.monotonic() + _REOPEN, _SHORTEST_PAUSE
        while True:
            with running.lock:
                bridge = running.bridges.get(self._key)
                if bridge is None or bridge.ended:
                    within = until - time.monotonic() if self._key in running.worked else _GREETING
                    bridge = running.bridges[self._key] = _Bridge(self._start(), within, self.patience)
            bridge.greeted.wait()
            if bridge.state:
                running.worked.add(self._key)
                return bridge
            failure = bridge.failure or DaemonUnavailable(f"{self} has ended")
            if not isinstance(failure, DaemonUnavailable) or self._key not in running.worked:
                raise failure
            if time.monotonic() + pause >= until:
                raise failure
            threading.Event().wait(pause)
            pause = min(_LONGEST_PAUSE, 2 * pause)
