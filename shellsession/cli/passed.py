"""The output of a command as it comes, passed on to our own streams.

Law: each byte is written once, in its order, whatever Ctrl-C strikes.
"""

from __future__ import annotations

import signal
from typing import Final

from ..engine.waiting import Poller, Wait
from ..models import Result, Stream, streams_of
from . import results

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
                results.write(stream, piece)
                self._written[stream] += len(piece)
            finally:
                signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGINT)

    def gap(self, stream: Stream, missing: int) -> None:
        """So many bytes that nobody has kept come next."""
        results.tell_of_gap(stream, missing)
        self._written[stream] += missing

    def rest(self, result: Result) -> None:
        """Write what the command printed until its end, and nobody was told of: who leaves it hears no more."""
        for stream, data, omitted, cut in streams_of(result):
            written = self._written[stream]
            results.write(stream, data[written:cut] + data[max(cut, written - omitted) :])
            results.tell_of_gap(stream, max(0, cut + omitted - max(written, cut)))
