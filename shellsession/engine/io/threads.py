"""How steps are driven and waited for in a plain thread; ``loop_waiting`` does it on an asyncio loop.

Law: it knows what to wait for and nothing of shells. Steps are generators: they yield a ``Wait``, are sent the
descriptors that became ready (none: the moment passed), and return the answer. An exception that strikes while
waiting (Ctrl-C, a cancelled task) is thrown into the steps, which may go on waiting to clean up after it.
"""

from __future__ import annotations

import os
import select
import time
from _thread import _count as threads_beside  # threading counts them too; a command line's start does without that

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Collection, Generator
    from typing import TypeVar

    T = TypeVar("T")
    Ready = Collection[int]
    Steps = Generator["Wait", Ready, T]
else:
    Ready = Steps = T = object


class Wait:
    """Resume me when one of these can be read (or written), or at the moment ``until`` (``time.monotonic``).

    ``keen``: it is to be expected within so many seconds, a thousandth at the most. ``shielded``: by who puts things in
    order, after whatever it was that struck; a task's cancellation is told behind that. ``within``: in place of
    ``until``, in seconds from now, so that one and the same Wait can be used again. ``output``: as ``read``, but it may
    be left for later: whoever writes it stands still meanwhile.
    """

    __slots__ = ("keen", "output", "read", "shielded", "until", "within", "write")

    def __init__(
        self,
        read: tuple[int, ...] = (),
        until: float | None = None,
        keen: float = 0.0,
        write: tuple[int, ...] = (),
        shielded: bool = False,
        within: float = 0.0,
        output: tuple[int, ...] = (),
    ) -> None:
        self.read, self.until, self.keen, self.output = read, until, keen, output
        self.write, self.shielded, self.within = write, shielded, within


# One poll(2) is no longer than this, in seconds: Ctrl-C between Python's last look for signals and the system call is
# only heard when that returns.
_LONGEST = 1.0
_ENDLESS = float("inf")
# How long to look again and again before going to sleep, in seconds. To wake a core that has gone to sleep costs 20 to
# 40 us in a virtual machine, as much as the command itself: `true` took 87 us instead of 112, `echo hi` 104 instead of
# 130. Where bash and we share a core it costs 4 us instead, as sched_yield does not always hand over at once; and all
# of it where the command takes longer: after such a one we sleep at once (`/bin/true` 1.03 ms instead of 1.15).
SOON = 200e-6
# A look that took longer than this was away from its core: what runs there comes to its end sooner without us.
_AWAY = 50e-6
# Each look lets other Python threads run, and one that computes keeps the interpreter for 5 ms: leave it for a while.
_TAKEN = 1e-3
_CALM = 100


class Poller:
    """Waits for one session; keeps its poll objects, as building one costs more than using it."""

    def __init__(self) -> None:
        self._known: dict[tuple[tuple[int, ...], tuple[int, ...]], select.poll] = {}
        self._calm = 0  # for how many waits we do not look again and again
        self._was_quick = True  # what came the last time it was to be expected soon

    def wait(self, wait: Wait) -> Ready:
        read, until, keen, write = wait.read + wait.output, wait.until, wait.keen, wait.write
        begun = time.monotonic()
        if keen and self._was_quick and (ready := self.look(read, keen)):
            return ready
        if wait.within:
            until = begun + wait.within
        poll = self._known.get((read, write)) or self._learn(read, write)
        while True:
            left = _ENDLESS if until is None else until - time.monotonic()
            came = dict(poll.poll(max(0, -int(-min(left, _LONGEST) * 1000 // 1))))  # rounded up, not to look too soon
            if came or left <= _LONGEST:
                break
        if keen:
            self._was_quick = time.monotonic() < begun + keen
        return came

    def look(self, read: tuple[int, ...], keen: float) -> Ready:
        """Look again and again for so many seconds; empty when nothing came."""
        if self._calm:
            self._calm -= 1
            return ()
        poll = self._known.get((read, ())) or self._learn(read, ())
        now = time.monotonic()
        give_up = now + keen
        while now < give_up:
            os.sched_yield()
            if ready := dict(poll.poll(0)):
                return ready
            before, now = now, time.monotonic()
            if now - before > _AWAY:
                if now - before > _TAKEN and threads_beside():
                    self._calm = _CALM
                break
        return ()

    def _learn(self, read: tuple[int, ...], write: tuple[int, ...]) -> select.poll:
        if len(self._known) > 8:
            self._known.clear()
        poll = self._known[read, write] = select.poll()
        for fds, event in ((read, select.POLLIN), (write, select.POLLOUT)):
            for fd in fds:
                poll.register(fd, event)
        return poll

    def forget_all(self) -> None:
        """As ``LoopPoller``, before descriptors are closed: for poll(2) they are numbers, whoever has them."""


def drive(steps: Steps[T], poller: Poller | None = None) -> T:
    """Run steps to their end in this thread."""
    wait_for = (poller or Poller()).wait
    wait: Wait | None = None
    struck: BaseException | None = None
    while True:
        try:
            if struck is not None:
                told, struck = struck, None
                wait = steps.throw(told)
            elif wait is None:
                wait = next(steps)
            while True:  # in here, as Ctrl-C strikes where a loop begins again, too
                wait = steps.send(wait_for(wait))
        except StopIteration as stop:
            result: T = stop.value
            return result
        except BaseException as error:
            # Ctrl-C strikes anywhere. What came out of the steps has ended them; anything else they must hear of.
            if getattr(steps, "gi_frame", None) is None:
                raise
            struck = error


def shielded(steps: Steps[T]) -> Steps[T]:
    """Steps that put things in order: a task that is cancelled meanwhile lets them end."""
    try:
        wait = next(steps)
        while True:
            try:
                ready = yield Wait(wait.read, wait.until, wait.keen, wait.write, True, wait.within, wait.output)
            except BaseException as error:
                wait = steps.throw(error)
            else:
                wait = steps.send(ready)
    except StopIteration as stop:
        result: T = stop.value
        return result
