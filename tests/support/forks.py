"""Runs parts of the tests in a forked child."""

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
    """``os.fork`` without the warning of Python 3.12 about threads."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


class Fork:
    """A callback that forks the host once. The child goes no further than the block, and leaves it by ``leaves_by``.

    It raises that exception at once, or goes on like its parent until the session refuses it (SessionClosed).
    """

    def __init__(self, leaves_by: type[BaseException]) -> None:
        self._leaves_by = leaves_by
        self._host, self._is_done = os.getpid(), False

    def __enter__(self) -> Fork:
        return self

    def __call__(self) -> bool:
        """Fork. True in the child; False in the parent, once the child has ended."""
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
    """Call the function in a forked child, and wait for its end. Returns the child's process id."""
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
