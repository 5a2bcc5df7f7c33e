"""Signals: which ones Python handles, deferring those that raise, and sending them to processes.

No handler is ever installed here: signal handling belongs to the host program.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import signal
else:
    import _signal as signal  # ``signal`` makes an enum of each number: 250 for each session that opens, 0.1 ms

SIGNALS: Final = tuple(map(int, signal.valid_signals()))


def changed() -> set[int]:
    """The signals that this process handles or ignores, as far as Python knows."""
    return {number for number in SIGNALS if signal.getsignal(number) != signal.SIG_DFL}


@contextmanager
def signals_deferred() -> Iterator[None]:
    """Defer signals whose handlers could raise here (Ctrl-C, an alarm) to the end of the block.

    Raised between the creation of something and the assignment that keeps it, they would leak it. This works in a host
    without threads. With threads the kernel may deliver the signal to another one, and Python raises here all the same.
    So every clean-up can be repeated after an interruption, and then does the rest. SIGCHLD is not blocked: the watcher
    starts with our mask, and waits for children.
    """
    raising = {number for number in SIGNALS if number != signal.SIGCHLD and callable(signal.getsignal(number))}
    # A block within another changes nothing. So it does no harm if an exception has the inner one end last.
    raising -= signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, raising)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, raising)


def kill(pids: list[int], number: int = signal.SIGKILL) -> list[int]:
    """Signal processes, and return those that were signalled.

    The others have ended, or may not be signalled by us (setuid programs).
    """
    signalled = []
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
            signalled.append(pid)
    return signalled
