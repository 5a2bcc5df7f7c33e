"""The host's signals, while something of ours comes to be.

Law: no handler is ever installed; what is put off strikes at the end.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

SIGNALS: Final = tuple(map(int, signal.valid_signals()))


def changed() -> set[int]:
    """The signals that Python handles, or ignores."""
    return {number for number in SIGNALS if signal.getsignal(number) != signal.SIG_DFL}


@contextmanager
def undisturbed() -> Iterator[None]:
    """Put off what a signal has Python raise here (Ctrl-C, an alarm): it would strike before it is known what to end.

    It does so in a host without threads. With threads the kernel gives the signal to another one, and Python raises
    here all the same: so whatever ends a session can be done again, and does what is left. SIGCHLD is not put off: the
    watcher, which starts with our mask, waits for children.
    """
    raising = [number for number in SIGNALS if number != signal.SIGCHLD and callable(signal.getsignal(number))]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        signal.pthread_sigmask(signal.SIG_BLOCK, raising)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def kill(pids: list[int], number: int = signal.SIGKILL) -> list[int]:
    """Signal processes; those that were. Others have ended meanwhile, or are not ours to signal (setuid programs)."""
    signalled = []
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)
            signalled.append(pid)
    return signalled
