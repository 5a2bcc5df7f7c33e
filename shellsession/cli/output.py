"""The output of a command as it comes, passed on to our own streams.

Law: each byte is written once, in its order, whatever Ctrl-C strikes.
"""

from __future__ import annotations

import os

from ..engine.io.threads import Poller, Wait
from ..errors import ShellSessionError

TYPE_CHECKING = False

if TYPE_CHECKING:
    import signal
    from typing import Final

    from ..models import Result, Stream
else:
    import _signal as signal


_SIGINT: Final = (signal.SIGINT,)
# No pipe that can be written at all blocks for so few bytes: pipe(7), PIPE_BUF.
_PIECE: Final = 4096


class Passed:
    """What was passed on of each stream as it came, and what is left of it after Ctrl-C. Called as ``on_output`` is."""

    def __init__(self) -> None:
        self._written: dict[Stream, int] = {"stdout": 0, "stderr": 0}
        self._poller = Poller()

    def __call__(self, stream: Stream, data: bytes) -> None:
        """Write it, so that Ctrl-C strikes while we wait for who reads, and not between a byte and its count."""
        ready = Wait(write=(1 if stream == "stdout" else 2,))
        for at in range(0, len(data), _PIECE):
            self._poller.wait(ready)
            piece = data[at : at + _PIECE]
            try:
                signal.pthread_sigmask(signal.SIG_BLOCK, _SIGINT)
                write(stream, piece)
                self._written[stream] += len(piece)
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGINT)

    def gap(self, stream: Stream, missing: int) -> None:
        """So many bytes that nobody has kept come next."""
        tell_of_gap(stream, missing)
        self._written[stream] += missing

    def rest(self, result: Result) -> None:
        """Write what the command printed until its end, and nobody was told of: who leaves it hears no more."""
        from ..models import streams_of

        for stream, data, omitted, cut in streams_of(result):
            written = self._written[stream]
            write(stream, data[written:cut] + data[max(cut, written - omitted) :])
            tell_of_gap(stream, max(0, cut + omitted - max(written, cut)))


def write(stream: Stream, data: bytes) -> None:
    """Write all of it to that stream of ours, now. Raises BrokenPipeError when nobody reads it any more."""
    fd = 1 if stream == "stdout" else 2
    rest = memoryview(data)
    try:
        while rest:
            try:
                rest = rest[os.write(fd, rest) :]
            except BlockingIOError:  # somebody who shares the terminal or pipe with us made it so
                Poller().wait(Wait(write=(fd,)))
    except BrokenPipeError:
        raise
    except OSError as error:
        raise ShellSessionError(f"{stream} cannot be written ({error.strerror}): see where it goes") from error


def tell_of_gap(stream: str, omitted: int) -> None:
    """Say on stderr how many bytes of that stream nobody has kept, if there are any."""
    if omitted:
        from .arguments import talk

        talk(f"{omitted} bytes of {stream} were not kept: they are missing in the middle")
