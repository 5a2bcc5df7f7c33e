"""``Mux``: one end of a pipe that carries many connections (see ``frames``). Client and bridge share it.

Each stream has a local socket. The mux sends what it reads there over the pipe, and writes there what comes for the
stream. It reads at most a window ahead of a slow reader, one piece of each ready stream in turn, and nothing while the
pipe is full. So a flood in one stream delays another by a few pieces at most.
"""

from __future__ import annotations

import os
import select
import time
from collections import deque

from ...errors import ProtocolError
from . import frames
from .frames import PAYLOAD_MAX, WINDOW, FrameDecoder, credit, frame, header, size_of

TYPE_CHECKING = False

if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Sequence
    from typing import Final, Protocol
else:
    Protocol = object


# Bytes waiting for the pipe at which no more are read from the streams.
_FULL: Final = 1 << 17
_PIECES: Final = 16  # of one writev(2)
# While half a window takes longer than this, the way is long: then more may be under way. On a short way that would
# only be a queue in front of the other streams.
_LONG_WAY: Final = 2e-3
_WINDOW_MAX: Final = 1 << 18
_READ_MAX: Final = 1 << 18
_NOTHING: Final = memoryview(b"")
_SENT_AT_ONCE: Final = 0x40 | 0x4000  # MSG_DONTWAIT, MSG_NOSIGNAL: <sys/socket.h>
_NOT_NOW: Final = 0x40


class PipeEnded(Exception):
    """The other end has closed the pipe."""


class Pipe(Protocol):
    """Both directions of a pipe. No call blocks: each raises BlockingIOError instead."""

    source: int | None  # readable when ``receive`` has something; None: its owner calls ``turn`` then
    sink: int | None  # writable when ``send`` has room again; None: ``source`` is readable instead

    def receive(self) -> bytes | memoryview:
        """The next bytes, valid until the next call; none when the other end has closed the pipe. Raises OSError."""

    def send(self, pieces: Sequence[bytes]) -> int:
        """Send the first bytes of the pieces, and return how many. Raises OSError."""


class FilePipe:
    """A pipe of two descriptors."""

    def __init__(self, source: int, sink: int) -> None:
        self.source: int | None = source
        self.sink: int | None = sink
        self._ends = source, sink
        self._room = memoryview(bytearray(_READ_MAX))  # the bytes of one read
        for fd in self._ends:
            os.set_blocking(fd, False)

    def receive(self) -> memoryview:
        return self._room[: os.readv(self._ends[0], [self._room])]

    def send(self, pieces: Sequence[bytes]) -> int:
        return os.writev(self._ends[1], pieces)


class MuxStream:
    """One connection in the pipe, and its local socket."""

    __slots__ = ("credit", "end", "ended", "granted", "mask", "number", "room", "unsent", "window")

    def __init__(self, number: int, end: socket) -> None:
        self.number, self.end = number, end
        self.credit = self.room = WINDOW  # bytes that we may send, and that the peer may
        self.window = WINDOW  # bytes that the peer may have sent and the socket not taken
        self.granted = 0.0  # when the peer got its last room
        self.unsent = bytearray()  # bytes for the socket
        self.ended = False  # the peer has closed it: close the socket once that has all bytes
        self.mask = 0  # the events that the epoll waits for


class Mux:
    """The streams of a pipe."""

    def __init__(self, pipe: Pipe) -> None:
        self.pipe = pipe
        self.streams: dict[int, MuxStream] = {}
        self._of_end: dict[int, MuxStream] = {}
        self._waiting: set[MuxStream] = set()  # streams with something to read, while the pipe is full
        self._out: deque[bytes] = deque()
        self._unsent = 0  # bytes in it
        self._decoder = FrameDecoder()
        self._sink_watched = False
        self.epoll = select.epoll()
        if pipe.source is not None:
            self.epoll.register(pipe.source, select.EPOLLIN)

    # -- for the two ends to define

    def opening(self, number: int, how: bytes) -> None:
        """The peer asks for a stream."""
        raise ProtocolError("the other end of the pipe opened a stream, which only a client does")

    def answered(self, number: int, refusal: bytes | None) -> None:
        """The peer has opened the stream, or refused it."""
        raise ProtocolError("the other end of the pipe answered a request that was never made")

    def heard(self, number: int) -> None:
        """The daemon behind this stream has sent something."""

    # -- streams

    def add(self, number: int, end: socket) -> None:
        stream = MuxStream(number, end)
        self.streams[number] = self._of_end[end.fileno()] = stream
        self._watch(stream)

    def put(self, *pieces: bytes) -> None:
        """Send a frame as soon as the pipe has room."""
        self._out.extend(pieces)
        self._unsent += sum(map(len, pieces))

    def _watch(self, stream: MuxStream) -> None:
        """Wait for what the stream can use now. With no event at all, epoll would still report a hang-up."""
        mask = select.EPOLLOUT if stream.unsent else 0
        if stream.credit and not stream.ended and stream not in self._waiting:
            mask |= select.EPOLLIN
        if mask != stream.mask:
            fd = stream.end.fileno()
            if not mask:
                self.epoll.unregister(fd)
            elif stream.mask:
                self.epoll.modify(fd, mask)
            else:
                self.epoll.register(fd, mask)
            stream.mask = mask

    def _drop(self, stream: MuxStream) -> None:
        if stream.mask:
            self.epoll.unregister(stream.end.fileno())
        self._waiting.discard(stream)
        del self.streams[stream.number], self._of_end[stream.end.fileno()]
        stream.end.close()

    def _close(self, stream: MuxStream) -> None:
        """The local socket is closed: so is the stream."""
        if not stream.ended:
            self.put(frame(frames.CLOSE, stream.number))
        self._drop(stream)

    def close(self) -> None:
        """Close every stream; those who use them find their connections lost."""
        for stream in [*self.streams.values()]:
            self._drop(stream)
        self.epoll.close()

    # -- one turn

    def turn(self, timeout: float | None) -> None:
        """Wait for something to do, and do it. Raises PipeEnded, ProtocolError."""
        self._flush()
        for fd, event in self.epoll.poll(timeout):
            if fd == self.pipe.source:
                self.receive()
            elif fd == self.pipe.sink:
                pass  # flushed below
            elif (stream := self._of_end.get(fd)) is None:
                self.other(fd)
            else:
                self._serve(stream, event)
        self._flush()

    def other(self, fd: int) -> None:
        """A descriptor is ready that ``epoll`` got from a subclass."""

    def _serve(self, stream: MuxStream, event: int) -> None:
        if event & select.EPOLLOUT and not self._feed(stream, _NOTHING):
            return
        if not event & ~select.EPOLLOUT or not stream.credit or stream.ended:
            return
        if self._unsent >= _FULL:
            self._waiting.add(stream)
            self._watch(stream)
            return
        try:
            data = stream.end.recv(min(PAYLOAD_MAX, stream.credit), _NOT_NOW)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close(stream)
            return
        stream.credit -= len(data)
        self.put(header(frames.DATA, stream.number, len(data)), data)
        if not stream.credit:
            self._watch(stream)

    def _feed(self, stream: MuxStream, data: memoryview) -> bool:
        """Write the kept bytes and ``data`` to the local socket, and keep the rest. False if the stream has ended."""
        unsent = stream.unsent
        if unsent:
            unsent += data
        try:
            with memoryview(unsent or data) as ready:
                size = stream.end.send(ready, _SENT_AT_ONCE)
        except BlockingIOError:
            size = 0
        except OSError:  # its user has closed it
            self._close(stream)
            return False
        if unsent:
            del unsent[:size]
        else:
            unsent += data[size:]
        if stream.ended and not unsent:
            self._drop(stream)
            return False
        if not stream.ended and stream.window - stream.room - len(unsent) >= stream.window // 2:
            self._grant(stream)
        self._watch(stream)
        return True

    def _grant(self, stream: MuxStream) -> None:
        """Give the peer room for what the socket has taken."""
        now = time.monotonic()
        stream.window = WINDOW if now - stream.granted < _LONG_WAY else _WINDOW_MAX
        stream.granted = now
        size = stream.window - stream.room - len(stream.unsent)
        if size > 0:
            stream.room += size
            self.put(credit(stream.number, size))

    def receive(self) -> None:
        """Take the next bytes of the pipe. Raises PipeEnded, ProtocolError."""
        try:
            data = self.pipe.receive()
        except BlockingIOError:
            return
        except OSError as error:
            raise PipeEnded from error
        if not data:
            raise PipeEnded
        self.take(data)

    def take(self, data: bytes | memoryview) -> None:
        """Take bytes that came over the pipe. Raises ProtocolError."""
        for kind, number, payload in self._decoder.feed(data):
            if kind == frames.OPEN:
                self.opening(number, bytes(payload))
                continue
            if kind in (frames.OPENED, frames.REFUSED):
                self.answered(number, bytes(payload) if kind == frames.REFUSED else None)
                continue
            if kind == frames.DATA:
                self.heard(number)
            if (stream := self.streams.get(number)) is None:
                continue  # we have closed it meanwhile
            if kind == frames.DATA:
                stream.room -= len(payload)
                if stream.room < 0 or stream.ended:
                    raise ProtocolError("the other end of the pipe sent more than there was room for")
                self._feed(stream, payload)
            elif kind == frames.CREDIT:
                stream.credit += size_of(payload)
                self._watch(stream)
            elif stream.unsent:
                stream.ended = True
                self._watch(stream)
            else:
                self._drop(stream)

    def _flush(self) -> None:
        """Write to the pipe what it takes."""
        try:
            while self._out:
                pieces = [self._out[i] for i in range(min(_PIECES, len(self._out)))]
                size = self.pipe.send(pieces)
                self._unsent -= size
                while size and size >= len(self._out[0]):
                    size -= len(self._out.popleft())
                if size:
                    self._out[0] = self._out[0][size:]
        except BlockingIOError:
            pass
        except OSError as error:
            raise PipeEnded from error
        if self.pipe.sink is not None and bool(self._out) != self._sink_watched:
            self._sink_watched = bool(self._out)
            if self._sink_watched:
                self.epoll.register(self.pipe.sink, select.EPOLLOUT)
            else:
                self.epoll.unregister(self.pipe.sink)
        if self._waiting and self._unsent < _FULL:
            waiting, self._waiting = self._waiting, set()
            for stream in waiting:
                self._watch(stream)
