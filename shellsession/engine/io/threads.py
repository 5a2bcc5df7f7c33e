"""Runs steps in a plain thread; ``loop`` runs them on asyncio.

Steps are generators. They yield a ``Wait``, are sent the descriptors that became ready (none if the time is up), and
return a result. So every operation is written once, and only the two drivers wait: ``drive`` here, ``adrive`` in
``loop``. An exception raised while a driver waits (Ctrl-C, a cancelled task) is thrown into the steps. These may go on
waiting, to clean up after it. Nothing here knows about shells.
"""

from __future__ import annotations

import os
import select
import time
from _thread import (  # `threading` has both, but slows the start of the command line
    _count as other_threads,
    start_new_thread,
)

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Generator
    from typing import TypeVar

    T = TypeVar("T")
    Ready = Collection[int]
    Steps = Generator["Wait", Ready, T]
else:
    Ready = Steps = T = object


class Wait:
    """Yielded by steps: resume me when a descriptor is ready, or when the time is up.

    - ``read``, ``write``: the descriptors to wait for.
    - ``output``: descriptors to read as well, but less urgent: if they are served late, only their writers block.
    - ``until``: the deadline, by ``time.monotonic``.
    - ``within``: the deadline in seconds from now, instead of ``until``. So one Wait can be used again and again.
    - ``spin``: busy-poll for this many seconds before blocking, as an answer is likely by then; at most 0.001.
    - ``shielded``: a cleanup waits. If its task is cancelled, the cancellation is deferred to the end of the cleanup.
    """

    __slots__ = ("output", "read", "shielded", "spin", "until", "within", "write")

    def __init__(
        self,
        read: tuple[int, ...] = (),
        until: float | None = None,
        spin: float = 0.0,
        write: tuple[int, ...] = (),
        shielded: bool = False,
        within: float = 0.0,
        output: tuple[int, ...] = (),
    ) -> None:
        self.read, self.until, self.spin, self.output = read, until, spin, output
        self.write, self.shielded, self.within = write, shielded, within


# The longest single poll(2), in seconds. A Ctrl-C that comes between Python's last check for signals and the system
# call is handled only when the call returns.
_LONGEST = 1.0
_ENDLESS = float("inf")
# How long to busy-poll before blocking, in seconds. Waking a sleeping core costs 20 to 40 us in a virtual machine, as
# much as the command itself: `true` took 87 us instead of 112, `echo hi` 104 instead of 130. Where bash and we share a
# core, spinning costs 4 us, as sched_yield does not always hand over at once. With a longer command all the spinning is
# wasted, so after one of these the next wait blocks at once (`/bin/true` 1.03 ms instead of 1.15).
SOON = 200e-6
# A poll that took longer than this had lost its core. The process that has the core finishes sooner without us.
_PREEMPTED = 50e-6
# Each poll lets other Python threads run. A thread that computes keeps the interpreter for 5 ms: then stop spinning for
# some waits.
_INTERPRETER_TAKEN = 1e-3
_WAITS_WITHOUT_SPIN = 100


# How often the steps of ``apart`` look whether their function has returned.
_TICK = Wait(within=0.002)


class Poller:
    """Waits for the descriptors of one session. Keeps its poll objects, as building one costs more than using it."""

    def __init__(self) -> None:
        self._polls: dict[tuple[tuple[int, ...], tuple[int, ...]], select.poll] = {}
        self._without_spin = 0  # for this many waits
        self._was_quick = True  # did the last wait with ``spin`` end within that time?

    def wait(self, wait: Wait) -> Ready:
        """Block until a descriptor is ready or the time is up; the ready ones."""
        read, until, spin, write = wait.read + wait.output, wait.until, wait.spin, wait.write
        begun = time.monotonic()
        if spin and self._was_quick and (ready := self.spin(read, spin)):
            return ready
        if wait.within:
            until = begun + wait.within
        poll = self._polls.get((read, write)) or self._new_poll(read, write)
        while True:
            left = _ENDLESS if until is None else until - time.monotonic()
            milliseconds = min(left, _LONGEST) * 1000
            ready = dict(poll.poll(max(0, -int(-milliseconds // 1))))  # rounded up, so that no wait ends early
            if ready or left <= _LONGEST:
                break
        if spin:
            self._was_quick = time.monotonic() < begun + spin
        return ready

    def spin(self, read: tuple[int, ...], seconds: float) -> Ready:
        """Busy-poll for this many seconds; the ready descriptors, none when nothing came."""
        if self._without_spin:
            self._without_spin -= 1
            return ()
        poll = self._polls.get((read, ())) or self._new_poll(read, ())
        now = time.monotonic()
        end = now + seconds
        while now < end:
            os.sched_yield()
            if ready := dict(poll.poll(0)):
                return ready
            before, now = now, time.monotonic()
            if now - before > _PREEMPTED:
                if now - before > _INTERPRETER_TAKEN and other_threads():
                    self._without_spin = _WAITS_WITHOUT_SPIN
                break
        return ()

    def _new_poll(self, read: tuple[int, ...], write: tuple[int, ...]) -> select.poll:
        if len(self._polls) > 8:
            self._polls.clear()
        poll = self._polls[read, write] = select.poll()
        for fds, event in ((read, select.POLLIN), (write, select.POLLOUT)):
            for fd in fds:
                poll.register(fd, event)
        return poll

    def forget_all(self) -> None:
        """Does nothing. ``LoopPoller`` must drop descriptors before they are closed; for poll(2) they are numbers."""


def drive(steps: Steps[T], poller: Poller | None = None) -> T:
    """Run steps to their end in this thread, and return their result."""
    wait_for = (poller or Poller()).wait
    wait: Wait | None = None
    raised: BaseException | None = None
    while True:
        try:
            if raised is not None:
                error, raised = raised, None
                wait = steps.throw(error)
            elif wait is None:
                wait = next(steps)
            while True:  # inside the try: Ctrl-C may also come at the jump back to the loop's start
                wait = steps.send(wait_for(wait))
        except StopIteration as stop:
            result: T = stop.value
            return result
        except BaseException as error:
            # An exception from the steps has ended them. Any other (Ctrl-C comes anywhere) is thrown into them.
            if getattr(steps, "gi_frame", None) is None:
                raise
            raised = error


def apart(call: Callable[[], T], to_its_end: bool = False) -> Steps[T]:
    """Call a function in another thread, and return its result: the other tasks of a loop go on meanwhile.

    ``to_its_end``: if this is interrupted, wait for the thread before the interrupt is raised.
    """
    calls = [call]
    results: list[T] = []
    errors: list[BaseException] = []

    def work() -> None:
        try:
            once = calls.pop()
        except IndexError:  # an interrupt came just after the start, and this is the second one
            return
        try:
            results.append(once())
        except BaseException as error:
            errors.append(error)

    is_started = False
    interrupt: BaseException | None = None
    while True:
        try:
            if not is_started:
                try:
                    start_new_thread(work, ())
                except RuntimeError:  # no more threads
                    work()
                is_started = True
            while not (results or errors):  # inside the try: Ctrl-C comes anywhere
                yield _shielded(_TICK) if to_its_end else _TICK
            break
        except GeneratorExit:
            raise
        except BaseException as error:
            if not to_its_end:
                raise
            interrupt = error
    if interrupt is not None:
        raise interrupt
    if errors:
        raise errors.pop()
    return results.pop()


def _shielded(wait: Wait) -> Wait:
    return Wait(wait.read, wait.until, wait.spin, wait.write, shielded=True, within=wait.within, output=wait.output)


def shielded(steps: Steps[T]) -> Steps[T]:
    """The steps of a cleanup, shielded: if their task is cancelled meanwhile, they still run to their end."""
    try:
        wait = next(steps)
        while True:
            try:
                ready = yield _shielded(wait)
            except BaseException as error:
                wait = steps.throw(error)
            else:
                wait = steps.send(ready)
    except StopIteration as stop:
        result: T = stop.value
        return result
