"""Each byte of a handed-back command is delivered once, whoever leaves, returns or asks in between."""

from __future__ import annotations

from itertools import product

import pytest

from shellsession import NotRunning, Result
from shellsession.daemon.server.deliveries import Deliveries

OURS, NEXT = "5f.1.1", "5f.1.2"  # the requests that ran the command, and another after it
BESIDE = "5f.3.1"  # an interrupt() that shares the ending which run() brings


class Command:
    """One that prints a digit before each step, and what came of it. A client may be gone when it asks."""

    def __init__(self) -> None:
        self.deliveries = Deliveries()
        self.delivery = self.deliveries.begin(OURS)
        self.delivery.hand_back()
        self.got = b""
        self.omitted = 0
        self._printed = self._asked = 0
        self._untaken = b""
        self._end: Result | None = None  # seen by a look: the session still has it
        self._gone: tuple[str, Result] | None = None  # who may still come back, and for which answer

    def _print(self, ends: bool = False) -> Result:
        self._untaken += b"%d" % self._printed
        self._printed += 1
        result = Result(self._untaken, b"", 7 if ends else None, None, "/", 0.1, "exited" if ends else "running")
        self._untaken = b""
        return result

    def _get(self, result: Result) -> None:
        self.got += result.stdout_bytes
        self.omitted += result.stdout_omitted

    def _take(self, ends: bool) -> Result:
        result, self._end = self._end or self._print(ends), None
        if not result.runs_on:
            self._note(result)
        return result

    def _note(self, end: Result) -> None:
        self.delivery.end(end)
        self.deliveries.keep(self.delivery)

    def asked(self, ends: bool = False) -> None:
        self._gone = None  # it may still come back, but another one gets it in its place
        if self.delivery.handed_back:
            self._get(self.deliveries.send(self.delivery, self._take(ends)))
        elif (end := self.deliveries.take(None)) is not None:
            self._get(end)

    def missed(self, ends: bool = False) -> None:
        if self.delivery.handed_back:
            self._asked += 1
            request = f"5f.2.{self._asked}"
            self._gone = request, self.deliveries.send(self.delivery, self._take(ends), request)

    def back(self) -> None:
        if self._gone is not None:
            request, answer = self._gone
            self.deliveries.acknowledge(request)
            self._get(answer)
        self._gone = None

    def seen(self) -> None:
        if self.delivery.handed_back and self._end is None:
            self._end = self._print(ends=True)
            self._note(self._end)

    def asked_at_last(self, named: bool) -> None:
        """It ends, if it has not; then who has it asks, or after another one's begin names it."""
        if self.delivery.handed_back and self._end is None:
            self.missed(ends=True)
        if not named:
            self.asked()
            return
        self.deliveries.begin(NEXT)
        end = self.deliveries.take(OURS)
        assert end is not None
        assert end.exit_code == 7
        self._get(end) if end.stdout_bytes else None
        with pytest.raises(NotRunning):
            self.deliveries.take(OURS)


@pytest.mark.parametrize("named", [False, True])
def test_each_byte_is_delivered_once(named: bool) -> None:
    """Every story of six steps, of which the last may end it."""
    for steps in product(("asked", "missed", "back", "seen"), repeat=6):
        command = Command()
        for step in steps:
            getattr(command, step)()
        command.asked_at_last(named)
        printed = "".join(map(str, range(command._printed))).encode()
        assert len(command.got) + command.omitted == len(printed), steps
        if "missed missed" not in " ".join(one for one in steps if one != "seen"):
            assert command.got == printed, steps


def ended(output: bytes) -> Result:
    return Result(output, b"", 0, None, "/", 0.1, "exited")


@pytest.mark.parametrize("gone", [False, True], ids=["there", "gone"])
def test_an_ending_that_is_sent_after_the_next_command_has_begun_changes_nothing_of_that(gone: bool) -> None:
    deliveries = Deliveries()
    ours = deliveries.begin(OURS)
    assert deliveries.send(ours, first := ended(b"first")) is first
    following = deliveries.begin(NEXT)
    assert deliveries.send(ours, first, BESIDE if gone else "") is first
    assert deliveries.take(None) is None
    assert deliveries.send(following, second := ended(b"second")) is second


@pytest.mark.parametrize("runner_gone", [False, True], ids=["runner there", "runner gone"])
@pytest.mark.parametrize("other_gone", [False, True], ids=["other there", "other gone"])
def test_an_ending_that_two_wait_for_is_kept_where_both_have_gone(runner_gone: bool, other_gone: bool) -> None:
    deliveries = Deliveries()
    ours = deliveries.begin(OURS)
    end = ended(b"out")
    deliveries.send(ours, end, OURS if runner_gone else "")
    assert deliveries.send(ours, end, BESIDE if other_gone else "") is end
    assert ours.is_due is (runner_gone and other_gone)
    assert deliveries.take(None) is (end if runner_gone and other_gone else None)


def test_of_many_endings_the_latest_are_known_and_the_last_has_its_output() -> None:
    deliveries = Deliveries()
    for number in range(20):
        delivery = deliveries.begin(f"5f.1.{number}")
        delivery.hand_back()
        delivery.end(ended(b"out"))
        deliveries.keep(delivery)
    deliveries.release()
    with pytest.raises(NotRunning):
        deliveries.take("5f.1.3")
    earlier, last = deliveries.take("5f.1.4"), deliveries.take("5f.1.19")
    assert earlier is not None
    assert last is not None
    assert (earlier.stdout_bytes, earlier.stdout_omitted) == (b"", 3)
    assert last.stdout_bytes == b"out"
