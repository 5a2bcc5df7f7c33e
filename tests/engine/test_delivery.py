"""An ending is delivered once, not before the command has ended, and never lost."""

from __future__ import annotations

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shellsession import NotRunning, Result
from shellsession.engine.verbs.delivery import DELIVERED, ENDED, PENDING, Delivery

GONE = st.booleans()  # has the client gone to which something is sent?
ORDER = (PENDING, ENDED, DELIVERED)


class Model(RuleBasedStateMachine):
    """One command, which prints a digit before each of its results, and all that anybody got of it."""

    def __init__(self) -> None:
        super().__init__()
        self.delivery = Delivery()
        self.printed = self.got = b""
        self.omitted = 0
        self.endings = 0  # that somebody got
        self.requests = 0
        self.ending: Result | None = None
        self.missed: tuple[str, Result] | None = None  # the request whose client went last, and its answer
        self.before = 0

    def result(self, ends: bool = False, state_kept: bool = True) -> Result:
        digit = b"%d" % (len(self.printed) % 10)
        self.printed += digit
        outcome = "running" if not ends else "exited" if state_kept else "shell_exited"
        return Result(digit, b"", 7 if ends else None, None, "/", 0.1, outcome, state_kept)  # type: ignore[arg-type]

    def sent(self, gone: bool, request: str, result: Result) -> None:
        if gone:
            self.missed = request, result
        else:
            self.get(result)

    def get(self, result: Result) -> None:
        self.missed = None
        self.got += result.stdout_bytes
        self.omitted += result.stdout_omitted
        self.endings += not result.runs_on

    def request(self, gone: bool) -> str:
        self.requests += 1
        return str(self.requests) if gone else ""

    # -- what the session does

    @precondition(lambda self: self.delivery.state == PENDING)
    @rule()
    def hand_back(self) -> None:
        self.delivery.hand_back()
        assert self.delivery.runs_on

    @rule()
    def withdraw(self) -> None:
        self.delivery.withdraw()
        assert not self.delivery.runs_on

    @precondition(lambda self: self.delivery.state == PENDING)
    @rule(state_kept=st.booleans())
    def end(self, state_kept: bool) -> None:
        self.ending = self.result(True, state_kept)
        self.delivery.end(self.ending)
        self.delivery.end(Result(b"another", b"", 0, None, "/", 0.1, "exited"))

    # -- who gets it

    @precondition(lambda self: self.delivery.state == PENDING)
    @rule(gone=GONE)
    def send_piece(self, gone: bool) -> None:
        request = self.request(gone)
        self.sent(gone, request, self.delivery.send(self.result(), request))
        assert self.delivery.state == PENDING

    @precondition(lambda self: self.delivery.state == PENDING)
    @rule(gone=GONE, state_kept=st.booleans())
    def send_ending(self, gone: bool, state_kept: bool) -> None:
        request = self.request(gone)
        self.ending = self.result(True, state_kept)
        self.sent(gone, request, self.delivery.send(self.ending, request))

    @precondition(lambda self: self.delivery.state == PENDING)
    @rule(gone=GONE)
    def ask_too_early(self, gone: bool) -> None:
        with pytest.raises(NotRunning):
            self.delivery.deliver(self.request(gone))

    @precondition(lambda self: self.delivery.state == ENDED)
    @rule(gone=GONE)
    def deliver(self, gone: bool) -> None:
        request = self.request(gone)
        self.sent(gone, request, self.delivery.deliver(request))
        assert self.delivery.state == (ENDED if gone else DELIVERED)

    @precondition(lambda self: self.missed is not None)
    @rule()
    def come_back(self) -> None:
        """The client that missed the last answer gets it: nothing else has been sent since."""
        assert self.missed is not None
        request, result = self.missed
        self.delivery.acknowledge(request)
        self.get(result)

    @rule()
    def come_back_in_vain(self) -> None:
        """Another client got in its place what this one had missed."""
        before = vars(self.delivery).copy()
        self.delivery.acknowledge("0")
        assert vars(self.delivery) == before

    @precondition(lambda self: self.delivery.state == DELIVERED and self.ending is not None)
    @rule(gone=GONE)
    def wait_beside(self, gone: bool) -> None:
        """A second caller that waited for the same ending gets it, too, and that changes nothing."""
        assert self.ending is not None
        before = vars(self.delivery).copy()
        assert self.delivery.send(self.ending, self.request(gone)) is self.ending
        assert vars(self.delivery) == before

    @precondition(lambda self: self.delivery.state == DELIVERED)
    @rule()
    def lose_on_the_way(self) -> None:
        """What it was delivered to could not hand it on, and asks again."""
        self.delivery.take_back()
        self.before = ORDER.index(ENDED)
        assert self.delivery.result is not None
        self.got = self.got[: len(self.got) - len(self.delivery.result.stdout_bytes)]
        self.omitted -= self.delivery.result.stdout_omitted
        self.endings -= 1

    @rule()
    def abandon(self) -> None:
        self.delivery.abandon()
        assert not self.delivery.is_due

    # -- the law

    @invariant()
    def states_go_forward(self) -> None:
        now = ORDER.index(self.delivery.state)
        assert now >= self.before
        self.before = now

    @invariant()
    def an_ending_is_delivered_once(self) -> None:
        assert self.endings == (self.delivery.state == DELIVERED)
        assert (self.delivery.state == PENDING) == (self.delivery.result is None)
        assert self.delivery.state == PENDING or not self.delivery.runs_on

    @invariant()
    def no_byte_comes_twice(self) -> None:
        assert len(self.got) + self.omitted <= len(self.printed)

    @invariant()
    def a_lost_shell_is_reported_until_its_ending_is_delivered(self) -> None:
        cost = self.ending is not None and not self.ending.state_kept
        assert (self.delivery.loss is not None) == (cost and self.delivery.state == ENDED)

    @invariant()
    def a_copy_keeps_no_output(self) -> None:
        light = self.delivery.without_output()
        assert light.result is None or not light.result.stdout_bytes

    def teardown(self) -> None:
        """Whatever went before, who asks at last completes it."""
        if self.delivery.state == PENDING:
            self.end(state_kept=True)
        if self.delivery.state == ENDED:
            self.deliver(gone=False)
        assert len(self.got) + self.omitted == len(self.printed)


test_the_law = Model.TestCase
test_the_law.settings = settings(stateful_step_count=20)


def test_of_pieces_that_nobody_got_the_last_is_kept_and_the_others_are_counted() -> None:
    delivery = Delivery()
    for at, data in enumerate((b"one ", b"two ", b"three ")):
        delivery.send(Result(data, b"", None, None, "/", 0.1, "running"), f"gone {at}")
    came = delivery.send(Result(b"end", b"", 0, None, "/", 0.1, "exited"))
    assert (came.stdout_bytes, came.stdout_omitted) == (b"three end", 8)
