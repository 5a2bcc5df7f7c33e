"""What is done in a forked child of the tests."""

from __future__ import annotations

import os
import signal
import traceback
import warnings
from collections.abc import Callable

from support import PATIENCE


def fork() -> int:
    """As os.fork, though there are threads: Python 3.12 warns of that."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


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
