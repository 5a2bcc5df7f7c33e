"""The waiter on an asyncio loop: which descriptors stay registered, and what is found ready afterwards."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any, TypeVar, TypeVarTuple

import pytest
from system import PATIENCE, descriptors, descriptors_left

from shellsession.engine.io.loop import LoopPoller
from shellsession.engine.io.threads import Ready, Wait

T = TypeVar("T")
Given = TypeVarTuple("Given")


class Watched(asyncio.SelectorEventLoop):
    """A loop that notes what is put in and out of it."""

    def __init__(self) -> None:
        super().__init__()
        self.notes: list[tuple[str, int]] = []

    def add_reader(self, fd: Any, callback: Callable[[*Given], Any], *args: *Given) -> None:
        self.notes.append(("in", fd))
        super().add_reader(fd, callback, *args)

    def remove_reader(self, fd: Any) -> bool:
        self.notes.append(("out", fd))
        return super().remove_reader(fd)

    def took(self) -> list[tuple[str, int]]:
        notes, self.notes = self.notes, []
        return notes


class Bell:
    """Something that can be read from when it was rung."""

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self.fd = self._ours.fileno()
        self._ours.setblocking(False)

    def ring(self) -> None:
        self._theirs.send(b"!")

    def quiet(self) -> None:
        with suppress(BlockingIOError):
            self._ours.recv(100)

    def fill(self) -> None:
        """Have it take no more."""
        with suppress(BlockingIOError):
            while True:
                self._ours.send(bytes(1 << 16))

    def empty(self) -> None:
        """Have it take more."""
        self._theirs.recv(1 << 20)

    def close(self) -> None:
        self._ours.close()
        self._theirs.close()


@pytest.fixture
def bells() -> Iterator[list[Bell]]:
    made = [Bell() for _ in range(3)]
    yield made
    for bell in made:
        bell.close()


@pytest.fixture
def loop() -> Iterator[Watched]:
    loop = Watched()
    yield loop
    loop.close()


def run(loop: Watched, work: Coroutine[Any, Any, T]) -> T:
    return loop.run_until_complete(asyncio.wait_for(work, PATIENCE))


def told(ready: Ready) -> list[int]:
    return sorted(ready)


def soon() -> float:
    return time.monotonic() + 0.005


def to_read(fd: int, until: float | None = None) -> Wait:
    return Wait((fd,), until)


def output(fd: int, until: float | None = None) -> Wait:
    return Wait((), until, output=(fd,))


either_kind = pytest.mark.parametrize("kind", [to_read, output])
Kind = Callable[[int, float | None], Wait]


def test_what_was_waited_for_stays_registered(loop: Watched, bells: list[Bell]) -> None:
    """As a command is first waited for by its mark alone, then by all that can happen to it."""
    first, *others = [bell.fd for bell in bells]

    async def main() -> None:
        poller = LoopPoller()
        for _ in range(3):
            assert not await poller.wait(Wait((first,), soon()))
            assert not await poller.wait(Wait((first, *others), soon()))
        poller.forget_all()

    run(loop, main())
    assert sorted(note for note in loop.took() if note[1] in (first, *others)) == sorted(
        (what, fd) for what in ("in", "out") for fd in (first, *others)
    )


def test_what_is_ready_while_another_is_awaited_is_put_out_and_found_later(loop: Watched, bells: list[Bell]) -> None:
    awaited, other, _ = bells
    unawaited = list[int]()

    async def main() -> tuple[list[int], list[int]]:
        poller = LoopPoller()
        poller.on_unawaited = lambda: unawaited.append(1)
        assert not await poller.wait(Wait((awaited.fd, other.fd), soon()))
        other.ring()
        loop.took()
        waiting = asyncio.ensure_future(poller.wait(Wait((awaited.fd,))))
        while ("out", other.fd) not in loop.notes:  # noqa: ASYNC110 - the loop's own turns
            await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)
        assert loop.took() == [("out", other.fd)]  # once, and the loop sleeps
        assert not unawaited  # somebody waits
        awaited.ring()
        return told(await waiting), told(await poller.wait(Wait((other.fd,))))

    assert run(loop, main()) == ([awaited.fd], [other.fd])


@either_kind
def test_what_is_ready_while_nobody_waits_is_reported_once_and_found_later(
    loop: Watched, bells: list[Bell], kind: Kind
) -> None:
    unawaited = list[int]()

    async def main() -> list[int]:
        poller = LoopPoller()
        poller.on_unawaited = lambda: unawaited.append(1)
        assert not await poller.wait(kind(bells[0].fd, soon()))
        bells[0].ring()
        while not unawaited:  # noqa: ASYNC110 - the loop's own turns
            await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)
        assert unawaited == [1]
        return told(await poller.wait(kind(bells[0].fd, None)))

    assert run(loop, main()) == [bells[0].fd]


def test_what_was_read_when_the_loop_tells_of_it_again_is_not_unawaited(loop: Watched, bells: list[Bell]) -> None:
    """It tells of it once more before who waited comes to read it."""
    unawaited = list[int]()

    async def main() -> None:
        poller = LoopPoller()
        poller.on_unawaited = lambda: unawaited.append(1)
        for _ in range(3):
            asyncio.get_running_loop().call_later(0.001, bells[0].ring)
            assert await poller.wait(Wait((bells[0].fd,)))
            bells[0].quiet()
            for _ in range(10):
                await asyncio.sleep(0)

    run(loop, main())
    assert not unawaited
    assert ("out", bells[0].fd) not in loop.took()


def test_all_that_is_ready_at_once_is_reported_at_once(loop: Watched, bells: list[Bell]) -> None:
    async def main() -> list[int]:
        for bell in bells:
            bell.ring()
        return told(await LoopPoller().wait(Wait(tuple(bell.fd for bell in bells))))

    assert run(loop, main()) == sorted(bell.fd for bell in bells)


def test_who_waits_to_write_is_not_notified_of_what_could_be_read(loop: Watched, bells: list[Bell]) -> None:
    """It would try again and again."""
    bell = bells[0]

    async def main() -> tuple[list[int], list[int]]:
        poller = LoopPoller()
        assert not await poller.wait(Wait((bell.fd,), soon()))
        bell.ring()
        bell.fill()
        waiting = asyncio.ensure_future(poller.wait(Wait(write=(bell.fd,))))
        while ("out", bell.fd) not in loop.notes:  # noqa: ASYNC110 - the loop's own turns
            await asyncio.sleep(0)
        for _ in range(10):
            await asyncio.sleep(0)
        assert not waiting.done()
        bell.empty()
        return told(await waiting), told(await poller.wait(Wait((bell.fd,))))

    assert run(loop, main()) == ([bell.fd], [bell.fd])


@either_kind
def test_a_number_that_has_a_new_owner_is_waited_for_anew(loop: Watched, bells: list[Bell], kind: Kind) -> None:
    async def main() -> list[int]:
        poller = LoopPoller()
        before = bells.pop()
        assert not await poller.wait(kind(before.fd, soon()))
        poller.forget(before.fd)
        number = before.fd
        before.close()
        bells.append(after := Bell())
        assert after.fd == number
        after.ring()
        return told(await poller.wait(kind(number, None)))

    number = bells[-1].fd
    assert run(loop, main()) == [number]


def test_another_loop_gets_what_the_first_one_had(loop: Watched, bells: list[Bell]) -> None:
    poller = LoopPoller()

    async def quiet() -> None:
        assert not await poller.wait(Wait((bells[0].fd,), soon()))

    async def rung() -> list[int]:
        bells[0].ring()
        return told(await poller.wait(Wait((bells[0].fd,))))

    run(loop, quiet())
    assert asyncio.run(rung()) == [bells[0].fd]
    assert ("out", bells[0].fd) in loop.took()
    bells[0].quiet()
    run(loop, quiet())  # and the first one again, when the second is closed


@either_kind
def test_a_forked_child_puts_nothing_out_of_its_parents_loop(loop: Watched, bells: list[Bell], kind: Kind) -> None:
    poller = LoopPoller()

    async def quiet() -> None:
        assert not await poller.wait(kind(bells[0].fd, soon()))

    async def rung() -> list[int]:
        bells[0].ring()
        return told(await poller.wait(kind(bells[0].fd, None)))

    run(loop, quiet())
    if (child := os.fork()) == 0:
        poller.forget_all()
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert run(loop, rung()) == [bells[0].fd]


def test_output_waits_for_all_else_and_is_read_in_rotation(loop: Watched) -> None:
    """What is always ready must not keep the loop from what is late: a time limit, or the end of a command."""
    loud, quiet, reads = [Bell() for _ in range(20)], Bell(), list[int]()

    async def listen(bell: Bell) -> None:
        poller = LoopPoller()
        while True:
            reads.extend(await poller.wait(output(bell.fd)))

    async def main() -> None:
        for bell in (*loud, quiet):
            bell.ring()
        listening = [asyncio.ensure_future(listen(bell)) for bell in loud]
        while len(reads) < 2 * len(loud):  # noqa: ASYNC110 - the loop's own turns
            await asyncio.sleep(0)
        assert len(set(reads[: len(loud)])) == len(loud)
        poller = LoopPoller()
        for wait in (Wait(until=time.monotonic()), to_read(quiet.fd)):
            before = len(reads)
            await poller.wait(wait)
            assert len(reads) - before <= 3
        for task in listening:
            task.cancel()

    run(loop, main())
    for bell in (*loud, quiet):
        bell.close()


def test_output_is_read_where_no_descriptor_is_free(loop: Watched, bells: list[Bell]) -> None:
    async def main() -> list[int]:
        bells[0].ring()
        with descriptors_left(0):
            return told(await LoopPoller().wait(output(bells[0].fd)))

    assert run(loop, main()) == [bells[0].fd]


def test_the_epoll_for_output_ends_with_the_last_stream(loop: Watched, bells: list[Bell]) -> None:
    """At once, though the poller lives on, and a loop may have many after another."""
    poller = LoopPoller()

    async def main() -> None:
        before = descriptors()
        await poller.wait(Wait(until=time.monotonic(), output=(bells[0].fd, bells[1].fd)))
        poller.forget(bells[0].fd)
        assert descriptors() > before
        poller.forget(bells[1].fd)
        assert descriptors() == before

    run(loop, main())
