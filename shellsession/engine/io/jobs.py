"""``Job`` and ``AsyncJob``: how threads and tasks wait for a job, in this process or in the daemon.

Waiting only looks at the job, again and again. So it disturbs neither the session, which may run commands meanwhile,
nor the daemon.
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

# Seconds between two looks at a job: at first, and at most. A look costs about 50 us.
_FIRST_PAUSE: Final = 0.002
_LONGEST_PAUSE: Final = 0.1


def _watch(job: AnyJob, timeout: float | None, until: Pattern | None) -> Steps[bool]:
    """Return the steps of ``Job.wait``. Raises InvalidRequest now."""
    check_seconds("timeout", timeout)
    return _looks(job, timeout, None if until is None else compiled("until", until, re.MULTILINE))


def _looks(job: AnyJob, timeout: float | None, pattern: re.Pattern[str] | None) -> Steps[bool]:
    end, pause = None if timeout is None else time.monotonic() + timeout, _FIRST_PAUSE
    while True:
        running = job.running  # first: once it has ended, all its output is there
        if pattern is not None and pattern.search(job._text()):
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

        Returns True once it does. Returns False after ``timeout`` seconds, and if the job ends without a match.
        The search covers ``stdout`` and ``stderr``, and the last 4 KiB of what the call itself returned: a server may
        say so soon that it is ready. Raises InvalidRequest.
        """
        return drive(_watch(self, timeout, until))

    def on_end(self, callback: Callable[[Self], object]) -> None:
        """Call ``callback(job)`` once, in a thread of its own, when the job ends, also with its session.

        At the end of the program the call may not come.
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
