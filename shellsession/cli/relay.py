"""``OutputRelay``: write a command's output to our own stdout and stderr as it arrives.

Each byte is written exactly once and in order, even if Ctrl-C interrupts the writing.
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
# A pipe that is ready for writing takes this many bytes without blocking: pipe(7), PIPE_BUF.
_PIECE: Final = 4096


class OutputRelay:
    """Writes output as it arrives, when called as ``on_output``, and the rest of a result after Ctrl-C."""

    def __init__(self) -> None:
        self._written: dict[Stream, int] = {"stdout": 0, "stderr": 0}
        self._poller = Poller()

    def __call__(self, stream: Stream, data: bytes) -> None:
        """Write the data. Ctrl-C can interrupt the wait for the reader, but not come between a write and its count."""
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

    def skip(self, stream: Stream, missing: int) -> None:
        """Report that the next ``missing`` bytes are not in the output."""
        report_gap(stream, missing)
        self._written[stream] += missing

    @property
    def has_written(self) -> bool:
        return any(self._written.values())

    def report_missing(self, result: Result) -> None:
        """Report how many bytes of the result were not written, if it lacks some itself."""
        from ..models import streams_of

        for stream, data, omitted, _ in streams_of(result):
            report_gap(stream, max(0, len(data) + omitted - self._written[stream]) if omitted else 0)

    def write_rest(self, result: Result) -> None:
        """Write the part of the result that has not been written: after Ctrl-C no more output arrives."""
        from ..models import streams_of

        for stream, data, omitted, cut in streams_of(result):
            written = self._written[stream]
            write(stream, data[written:cut] + data[max(cut, written - omitted) :])
            report_gap(stream, max(0, cut + omitted - max(written, cut)))


def write(stream: Stream, data: bytes) -> None:
    """Write all data to our stream now. Raises BrokenPipeError if its reader has gone."""
    fd = 1 if stream == "stdout" else 2
    rest = memoryview(data)
    try:
        while rest:
            try:
                rest = rest[os.write(fd, rest) :]
            except BlockingIOError:  # another process that shares the terminal or pipe made it non-blocking
                Poller().wait(Wait(write=(fd,)))
    except BrokenPipeError:
        raise
    except OSError as error:
        raise ShellSessionError(f"{stream} cannot be written ({error.strerror}): check where it goes") from error


def report_gap(stream: str, omitted: int) -> None:
    """Say on stderr how many bytes of the stream are not in the output, if any."""
    if omitted:
        from .arguments import talk

        talk(f"{omitted} bytes of {stream} are missing here, in the middle: see `shellsession output`")
