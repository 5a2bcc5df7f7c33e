"""The ledger behaves like a model that forgets nothing: no request is ever taken as new twice."""

from __future__ import annotations

import tracemalloc
from typing import Final, Literal

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shellsession.daemon.server.ledger import OVERHEAD, Claim, Ledger
from shellsession.errors import OutcomeUnknown, ProtocolError, ResultExpired

US: Final = "5f0c"


def name(connection: int, number: int) -> str:
    return f"{US}.{connection}.{number}"


def with_connections(count: int, **bounds: int) -> Ledger:
    ledger = Ledger(US, **bounds)
    assert [ledger.admit() for _ in range(count)] == list(range(1, count + 1))
    return ledger


def done(ledger: Ledger, request: str, reply: bytes = b"reply", now: float = 0, told: bytes = b"") -> None:
    """This request ran, and that was its reply, behind what was told."""
    assert ledger.claim(request, now) is Claim.NEW
    ledger.settle(request, reply, now, told)


def test_a_request_is_new_then_running_then_answered() -> None:
    ledger = with_connections(1)
    assert ledger.claim(name(1, 1), 0) is Claim.NEW
    assert ledger.claim(name(1, 1), 1e6) is Claim.RUNNING
    ledger.settle(name(1, 1), b"", 1e6)
    assert [ledger.claim(name(1, 1), 1e6) for _ in range(3)] == [b""] * 3


def test_each_connection_counts_for_itself() -> None:
    ledger = with_connections(2)
    requests = [name(1, 1), name(2, 1), name(2, 2), name(1, 2), name(1, 9)]
    for request in requests:
        done(ledger, request, request.encode())
    assert [ledger.claim(request, 0) for request in requests] == [request.encode() for request in requests]


def test_a_number_that_was_passed_over_is_not_run_any_more() -> None:
    ledger = with_connections(2)
    done(ledger, name(1, 3))  # 1 and 2 never came; whoever sends them now may have sent them before
    for number in (1, 2):
        with pytest.raises(ResultExpired):
            ledger.claim(name(1, number), 0)
    done(ledger, name(1, 4))


def test_what_was_reported_before_a_reply_is_kept_until_the_next_request() -> None:
    ledger = with_connections(2, keep_bytes=4 * OVERHEAD)
    done(ledger, name(1, 1), b"reply", told=b"output, ")
    done(ledger, name(2, 1))  # another client's: it says nothing of the first
    assert ledger.claim(name(1, 1), 0) == b"output, reply"
    assert ledger.claim(name(1, 2), 0) is Claim.NEW
    assert ledger.claim(name(1, 1), 0) == b"reply"
    ledger.settle(name(1, 2), b"", 0, bytes(OVERHEAD - 2 * len(b"reply")))  # what was heard takes no room any more
    assert ledger.claim(name(1, 1), 0) == b"reply"


MALFORMED = {
    "nothing": "",
    "no numbers": US,
    "one number": f"{US}.1",
    "three numbers": f"{US}.1.1.1",
    "zero": f"{US}.1.0",
    "connection zero": f"{US}.0.1",
    "below zero": f"{US}.1.-1",
    "a sign": f"{US}.1.+1",
    "another spelling of 1": f"{US}.1.01",
    "a fraction": f"{US}.1.1e3",
    "digits of another script": f"{US}.1.\N{ARABIC-INDIC DIGIT ONE}",
    "an underscore": f"{US}.1.1_0",
    "a space": f"{US}.1. 1",
    "a newline": f"{US}.1.1\n",
    "no incarnation": ".1.1",
    "letters of another script": "\N{CYRILLIC SMALL LETTER BE}.1.1",
    "an endless incarnation": "f" * 65 + ".1.1",
    "an endless number": f"{US}.1.{'9' * 5000}",
    "an endless connection": f"{US}.{'9' * 5000}.1",
}


@pytest.mark.parametrize("request_id", MALFORMED.values(), ids=MALFORMED)
def test_what_is_no_request_id_is_refused(request_id: str) -> None:
    with pytest.raises(ProtocolError, match="not a request id"):
        with_connections(1).claim(request_id, 0)


def test_a_connection_that_was_never_admitted_is_refused() -> None:
    ledger = with_connections(2)
    with pytest.raises(ProtocolError, match="never accepted"):
        ledger.claim(name(3, 1), 0)
    ledger.admit()
    assert ledger.claim(name(3, 1), 0) is Claim.NEW


@pytest.mark.parametrize("other", ["5f0d", "5f0", "5F0C"])
def test_another_daemons_request_is_not_run_again(other: str) -> None:
    with pytest.raises(OutcomeUnknown, match="has ended"):
        with_connections(1).claim(f"{other}.7.1", 0)


def test_only_what_is_running_can_be_settled() -> None:
    ledger = with_connections(1)
    with pytest.raises(KeyError):
        ledger.settle(name(1, 1), b"reply", 0)
    done(ledger, name(1, 1))
    with pytest.raises(KeyError):
        ledger.settle(name(1, 1), b"another", 0)
    assert ledger.claim(name(1, 1), 0) == b"reply"


def test_a_reply_is_kept_for_its_time_and_no_longer() -> None:
    ledger = Ledger(US, keep_seconds=10)
    ledger.admit()
    done(ledger, name(1, 1), now=5)
    assert ledger.claim(name(1, 1), 15) == b"reply"
    with pytest.raises(ResultExpired, match="no longer kept"):
        ledger.claim(name(1, 1), 15.1)


def test_the_oldest_replies_go_first_when_there_are_too_many_bytes() -> None:
    ledger = with_connections(1, keep_bytes=3 * (OVERHEAD + 100))
    for number in (1, 2, 3):
        done(ledger, name(1, number), bytes(100))
    done(ledger, name(1, 4), bytes(101))
    for number in (1, 2):
        with pytest.raises(ResultExpired):
            ledger.claim(name(1, number), 0)
    assert [ledger.claim(name(1, number), 0) for number in (3, 4)] == [bytes(100), bytes(101)]


def test_a_reply_that_is_too_large_is_not_kept_and_drives_no_other_out() -> None:
    ledger = with_connections(1, keep_bytes=2 * OVERHEAD)
    done(ledger, name(1, 1), b"")
    done(ledger, name(1, 2), bytes(OVERHEAD + 1))
    assert ledger.claim(name(1, 1), 0) == b""
    with pytest.raises(ResultExpired):
        ledger.claim(name(1, 2), 0)
    done(ledger, name(1, 3), bytes(OVERHEAD))
    assert ledger.claim(name(1, 3), 0) == bytes(OVERHEAD)


def test_of_a_forgotten_connection_what_is_known_is_answered_and_the_rest_is_not_run() -> None:
    ledger = with_connections(2, connections_kept=1)
    assert ledger.claim(name(1, 1), 0) is Claim.NEW
    done(ledger, name(1, 2))
    ledger.leave(1)
    done(ledger, name(1, 3))
    ledger.leave(ledger.admit())
    assert ledger.claim(name(1, 1), 0) is Claim.RUNNING
    assert ledger.claim(name(1, 2), 0) == b"reply"
    with pytest.raises(ResultExpired):
        ledger.claim(name(1, 4), 0)
    ledger.settle(name(1, 1), b"at last", 0)
    assert ledger.claim(name(1, 1), 0) == b"at last"
    assert ledger.claim(name(2, 1), 0) is Claim.NEW


def test_an_open_connection_is_never_forgotten() -> None:
    ledger = with_connections(1, connections_kept=2)
    for _ in range(10):
        ledger.leave(ledger.admit())
    assert ledger.claim(name(1, 1), 0) is Claim.NEW


def test_memory_is_bounded() -> None:
    ledger = Ledger(US, keep_bytes=50 * OVERHEAD, connections_kept=50)
    running: list[str] = []
    tracemalloc.start()
    try:
        for _ in range(30):
            for _ in range(200):
                running.append(name(ledger.admit(), 1))
                assert ledger.claim(running[-1], 0) is Claim.NEW
            for number in range(1, 201):
                ledger.leave(int(running[0].split(".")[1]) - 1 + number)
            while running:
                ledger.settle(running.pop(), bytes(len(running) % 2 * OVERHEAD), 0)
        assert tracemalloc.get_traced_memory()[0] < 100 * OVERHEAD
    finally:
        tracemalloc.stop()


Told = Literal["new", "running", "expired"] | bytes


class Model(RuleBasedStateMachine):
    """The ledger beside one that keeps every request, its reply and when that came."""

    SECONDS: Final = 10
    BYTES: Final = 4 * OVERHEAD
    CONNECTIONS: Final = 3

    def __init__(self) -> None:
        super().__init__()
        self.ledger = Ledger(US, self.SECONDS, self.BYTES, self.CONNECTIONS)
        self.now = 0.0
        self.admitted = self.ledger.admit()
        self.left: list[int] = []
        self.taken: set[tuple[int, int]] = set()
        self.running: list[tuple[int, int]] = []
        self.kept: list[tuple[tuple[int, int], bytes, float]] = []
        self.before: dict[tuple[int, int], bytes] = {}  # what was told before the reply

    @rule()
    def admit(self) -> None:
        self.admitted += 1
        assert self.ledger.admit() == self.admitted

    @rule(back=st.integers(0, 4))
    def leave(self, back: int) -> None:
        connection = max(1, self.admitted - back)
        if connection not in self.left:
            self.left.append(connection)
            self.ledger.leave(connection)

    @rule(seconds=st.sampled_from([0.5, 4, 11]))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @rule(back=st.integers(0, 4), number=st.integers(1, 8))
    def claim(self, back: int, number: int) -> None:
        key = (max(1, self.admitted - back), number)
        expected = self.expected(key)
        assert self.told(key) == expected
        if expected == "new":
            assert key not in self.taken
            self.taken.add(key)
            self.running.append(key)
            self.before[key[0], key[1] - 1] = b""

    @precondition(lambda self: self.running)
    @rule(
        data=st.data(),
        size=st.sampled_from([0, 1, OVERHEAD, 2 * OVERHEAD, 3 * OVERHEAD, 3 * OVERHEAD + 1]),
        told=st.sampled_from([0, 1, OVERHEAD]),
    )
    def settle(self, data: st.DataObject, size: int, told: int) -> None:
        key = self.running.pop(data.draw(st.integers(0, len(self.running) - 1)))
        reply = repr(key).encode().ljust(size)[:size]
        self.ledger.settle(name(*key), reply, self.now, bytes(told))
        if told + size + OVERHEAD <= self.BYTES:
            self.kept.append((key, reply, self.now))
            self.before[key] = bytes(told)
        while sum(len(self.before[key]) + len(reply) + OVERHEAD for key, reply, _ in self.kept) > self.BYTES:
            self.kept.pop(0)

    @invariant()
    def whatever_was_taken_is_told_as_it_is(self) -> None:
        for key in self.taken:
            assert self.told(key) == self.expected(key) != "new"

    def told(self, key: tuple[int, int]) -> Told:
        try:
            claim = self.ledger.claim(name(*key), self.now)
        except ResultExpired:
            return "expired"
        return claim if isinstance(claim, bytes) else claim.value

    def expected(self, key: tuple[int, int]) -> Told:
        if key in self.running:
            return "running"
        for other, reply, settled in self.kept:
            if other == key and self.now - settled <= self.SECONDS:
                return self.before[key] + reply
        old = key[0] in self.left[: -self.CONNECTIONS]
        return "expired" if old or any(one[0] == key[0] and one[1] >= key[1] for one in self.taken) else "new"


TestModel = Model.TestCase
