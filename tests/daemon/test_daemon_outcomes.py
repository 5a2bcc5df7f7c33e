"""What is told of a command that was handed back: each byte once, whoever leaves, comes back, or asks in between."""

from __future__ import annotations

from itertools import product

import pytest

from shellsession import NotRunning, Result
from shellsession.daemon.server.outcomes import Outcomes

OURS, NEXT = "5f.1.1", "5f.1.2"  # the requests that ran the command, and another after it
BESIDE = "5f.3.1"  # an interrupt() that is told of the end which run() brings


class Command:
    """One that prints a digit before each step, and what came of it. Who asks may be gone when it is to be told."""

    def __init__(self) -> None:
        self.outcomes = Outcomes()
        self.outcomes.begin(OURS)
        self.outcomes.current = OURS
        self.heard = b""
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

    def _hear(self, result: Result) -> None:
        self.heard += result.stdout_bytes
        self.omitted += result.stdout_omitted

    def _take(self, ends: bool) -> Result:
        result, self._end = self._end or self._print(ends), None
        if not result.runs_on:
            self.outcomes.keep(OURS, result)
        return result

    def asked(self, ends: bool = False) -> None:
        self._gone = None  # it may still come back, but another one is told in its place
        if self.outcomes.current:
            self._hear(self.outcomes.tell(OURS, self._take(ends)))
        elif (end := self.outcomes.end_of(None)) is not None:
            self._hear(end)

    def missed(self, ends: bool = False) -> None:
        if self.outcomes.current:
            self._asked += 1
            request = f"5f.2.{self._asked}"
            self._gone = request, self.outcomes.tell(OURS, self._take(ends), request)

    def back(self) -> None:
        if self._gone is not None:
            request, answer = self._gone
            self.outcomes.hear(request)
            self._hear(answer)
        self._gone = None

    def seen(self) -> None:
        if self.outcomes.current and self._end is None:
            self._end = self._print(ends=True)
            self.outcomes.keep(OURS, self._end)

    def told_at_last(self, named: bool) -> None:
        """It ends, if it has not; then who has it asks, or after another one's begin names it."""
        if self.outcomes.current and self._end is None:
            self.missed(ends=True)
        if not named:
            self.asked()
            return
        self.outcomes.begin(NEXT)
        end = self.outcomes.end_of(OURS)
        assert end is not None
        assert end.exit_code == 7
        self._hear(end) if end.stdout_bytes else None
        with pytest.raises(NotRunning):
            self.outcomes.end_of(OURS)


@pytest.mark.parametrize("named", [False, True])
def test_each_byte_is_told_once(named: bool) -> None:
    """Every story of six steps, of which the last may end it."""
    for steps in product(("asked", "missed", "back", "seen"), repeat=6):
        command = Command()
        for step in steps:
            getattr(command, step)()
        command.told_at_last(named)
        printed = "".join(map(str, range(command._printed))).encode()
        assert len(command.heard) + command.omitted == len(printed), steps
        if "missed missed" not in " ".join(one for one in steps if one != "seen"):
            assert command.heard == printed, steps


def ended(output: bytes) -> Result:
    return Result(output, b"", 0, None, "/", 0.1, "exited")


@pytest.mark.parametrize("gone", [False, True], ids=["there", "gone"])
def test_who_is_told_of_an_end_after_the_next_command_has_begun_changes_nothing_of_that(gone: bool) -> None:
    outcomes = Outcomes()
    outcomes.begin(OURS)
    assert outcomes.tell(OURS, first := ended(b"first")) is first
    outcomes.begin(NEXT)
    assert outcomes.tell(OURS, first, BESIDE if gone else "") is first
    assert outcomes.end_of(None) is None
    assert outcomes.tell(NEXT, second := ended(b"second")) is second


@pytest.mark.parametrize("runner_gone", [False, True], ids=["runner there", "runner gone"])
@pytest.mark.parametrize("other_gone", [False, True], ids=["other there", "other gone"])
def test_an_end_that_two_are_told_of_is_kept_where_both_have_gone(runner_gone: bool, other_gone: bool) -> None:
    outcomes = Outcomes()
    outcomes.begin(OURS)
    end = ended(b"out")
    outcomes.tell(OURS, end, OURS if runner_gone else "")
    assert outcomes.tell(OURS, end, BESIDE if other_gone else "") is end
    assert outcomes.misses(end) is (runner_gone and other_gone)
    assert outcomes.end_of(None) is (end if runner_gone and other_gone else None)
