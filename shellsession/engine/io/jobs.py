"""``Job`` and ``AsyncJob``, with which threads and tasks wait for a job, in this process or in the daemon.

Waiting polls the job. So it blocks neither the daemon nor the session, which can run commands meanwhile.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Final, Self

from ...models import check_seconds
from ...patterns import Pattern, compiled
from ...signatures import AnyJob
from .threads import Steps, Wait, drive

# Seconds between two polls: at first, and at most. One poll takes about 50 us.
_FIRST_PAUSE: Final = 0.002
_LONGEST_PAUSE: Final = 0.1


def _watch(job: AnyJob, timeout: float | None, until: Pattern | None) -> Steps[bool]:
    """Return the steps of ``Job.wait``. Raises InvalidRequest now."""
    check_seconds("timeout", timeout)
    return _looks(job, timeout, None if until is None else compiled("until", until, re.MULTILINE))


def _looks(job: AnyJob, timeout: float | None, pattern: re.Pattern[str] | None) -> Steps[bool]:
    end, pause = None if timeout is None else time.monotonic() + timeout, _FIRST_PAUSE
    while True:
        running = job.running  # read this first: once the job has ended, all its output is there
        if pattern is not None and pattern.search(job.searched_text()):
            return True
        if not running:
            return pattern is None
        now = time.monotonic()
        if end is not None and now >= end:
            return False
        yield Wait((), now + pause if end is None else min(now + pause, end))
        pause = min(2 * pause, _LONGEST_PAUSE)


async def wait_for(job: AnyJob, timeout: float | None = None, until: Pattern | None = None) -> bool:
    """Wait in a task for a job of any kind; see ``Job.wait``."""
    from .loop import LoopPoller, adrive

    return await adrive(_watch(job, timeout, until), LoopPoller())


class Job(AnyJob):
    """What one call left running, for threads."""

    def wait(self, timeout: float | None = None, until: Pattern | None = None) -> bool:
        """Wait until the job ends or, with ``until``, until its output matches that regular expression.

        Returns True once it does. Returns False after ``timeout`` seconds, and if the job ends without a match. The
        search covers ``stdout``, ``stderr`` and the last 4 KiB of the call's own output, as a server may be ready
        before its call returns. Raises InvalidRequest.
        """
        return drive(_watch(self, timeout, until))

    def on_end(self, callback: Callable[[Self], object]) -> None:
        """Call ``callback(job)`` once, in its own thread, when the job ends, even if the session ends it.

        If the program ends first, the callback may not run.
        """

        def work() -> None:
            self.wait()
            callback(self)

        threading.Thread(target=work, name="shellsession-on-end", daemon=True).start()


class AsyncJob(AnyJob):
    """What one call left running, for asyncio."""

    async def wait(self, timeout: float | None = None, until: Pattern | None = None) -> bool:
        """As ``Job.wait``."""
        return await wait_for(self, timeout, until)

    def on_end(self, callback: Callable[[Self], object]) -> None:
        """As ``Job.on_end``, in a task of the running loop. The callback may be a coroutine function."""
        from .loop import in_task

        async def work() -> None:
            await self.wait()
            if isinstance(answer := callback(self), Awaitable):
                await answer

        in_task(work())
