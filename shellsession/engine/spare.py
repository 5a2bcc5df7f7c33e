"""One descriptor that is kept back while there are shells: given up for a look where the host has no other free.

Law: it is closed with the last who wants it, and a forked child begins without one.
"""

from __future__ import annotations

import errno
import os
import time
from _thread import RLock  # what threading has, too; a command line's start does without that

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Final, TypeVar

    T = TypeVar("T")

_FULL: Final = {errno.EMFILE, errno.ENFILE}  # no descriptor is left, for this process or for all
# Another thread may be quicker to take what was given up. One that looks has done so in a moment: in seconds, and how
# often that is waited for.
_MOMENT: Final = 0.0005
_ATTEMPTS: Final = 40


class Spare:
    """Safe from many threads: one at a time has what the spare descriptor makes room for."""

    def __init__(self) -> None:
        self._lock = RLock()  # reentrant: a collection can strike inside and end a session
        self._wanted: set[object] = set()  # by whom
        self._fd = -1
        self._is_lent = False

    def want(self, who: object) -> None:
        """Keep one from now on. Where none can be had just now it is tried again after each use."""
        with self._lock:
            self._wanted.add(who)
            self._keep(1)

    def leave(self, who: object) -> None:
        """With the last the descriptor goes. Done again, after it was struck, it does what is left."""
        with self._lock:
            self._wanted.discard(who)
            if not self._wanted:
                self._give_up()

    def look(self, how: Callable[[], T]) -> T:
        """Do what needs one descriptor, with the spare one's where there is no other. Raises OSError."""
        if not self._is_lent:  # else it would be taken from the thread that looks just now
            try:
                return how()
            except OSError as error:
                if error.errno not in _FULL:
                    raise
        with self._lock:
            if self._is_lent:  # by this very thread: a collection has struck there
                return how()
            attempts = 1
            try:
                self._is_lent = True
                attempts = _ATTEMPTS if self._give_up() else 1
                return _at_last(how, attempts)
            finally:
                try:
                    if self._wanted:
                        self._keep(attempts)
                finally:
                    self._is_lent = False

    def forget(self) -> None:
        """In a forked child: it has no shell yet. Another thread of the parent may have had the lock."""
        self._lock = RLock()
        self._wanted, self._is_lent = set(), False
        self._give_up()

    def _keep(self, attempts: int) -> None:
        if self._fd < 0:
            try:
                self._fd = _at_last(lambda: os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC), attempts)
            except OSError:
                return  # it is tried again after the next use

    def _give_up(self) -> bool:
        """Was there one?"""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)
        return fd >= 0


def _at_last(do: Callable[[], T], attempts: int) -> T:
    """Raises OSError, of a lack of descriptors that of the last attempt."""
    for _ in range(attempts - 1):
        try:
            return do()
        except OSError as error:
            if error.errno not in _FULL:
                raise
        time.sleep(_MOMENT)
    return do()


SPARE: Final = Spare()

os.register_at_fork(after_in_child=SPARE.forget)
