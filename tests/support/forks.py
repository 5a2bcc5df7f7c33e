"""What is done in a forked child of the tests."""

from __future__ import annotations

import os
import signal
import traceback
import warnings
from collections.abc import Callable
from types import TracebackType

from system import PATIENCE

from shellsession import SessionClosed


def fork() -> int:
    """As os.fork, though there are threads: Python 3.12 warns of that."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


class Fork:
    """Forks the host when it is called, once. The child goes no further than the block, and leaves that by this.

    At once; or it goes on as if it were its parent, until it is refused (SessionClosed).
    """

    def __init__(self, leaves_by: type[BaseException]) -> None:
        self._leaves_by = leaves_by
        self._host, self._is_done = os.getpid(), False

    def __enter__(self) -> Fork:
        return self

    def __call__(self) -> bool:
        """Is this the child, which goes on? The parent goes on when that has ended."""
        if self._is_done:
            return False
        self._is_done = True
        if (child := fork()) == 0:
            signal.alarm(int(PATIENCE))
            if self._leaves_by is not SessionClosed:
                raise self._leaves_by
            return True
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        return False

    def __exit__(self, _: type[BaseException] | None, error: BaseException | None, __: TracebackType | None) -> None:
        if os.getpid() != self._host:
            if not (as_meant := isinstance(error, self._leaves_by)):
                traceback.print_exception(error)
            os._exit(not as_meant)


def in_child(do: Callable[[], object]) -> int:
    """Have it done in a forked child, to its end; that one's process id."""
    if (child := fork()) == 0:
        signal.alarm(int(PATIENCE))
        status = 1
        try:
            do()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    return child
