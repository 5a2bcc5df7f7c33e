"""Receipts beside a model: no command runs twice, whatever is lost; and they are bounded."""

from __future__ import annotations

import asyncio
import threading
from typing import Final, Literal

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from shellsession import KeyConflict, OutcomeUnknown, ReceiptUnavailable, Result
from shellsession.daemon.server.receipts import OF_ALL, OUTPUT, Bounds, Name, Receipts, bounded
from shellsession.daemon.server.syncs import Syncs
from shellsession.store import StoredReceipt

LIFETIME: Final = 1000.0


class Disk:
    """A store in memory. ``rows``: what the kernel has; ``synced``: what a crash of the machine leaves."""

    def __init__(self) -> None:
        self.rows: dict[Name, StoredReceipt] = {}
        self.synced: dict[Name, StoredReceipt] = {}
        self.is_full = False

    def receipt(self, agent: str, key: str) -> StoredReceipt | None:
        return self.rows.get((agent, key))

    def receipts(self) -> list[tuple[str, str, int]]:
        oldest_first = sorted(self.rows.items(), key=lambda item: item[1].began)
        return [(*name, len(one.stdout) + len(one.stderr)) for name, one in oldest_first]

    def put_receipt(self, agent: str, key: str, receipt: StoredReceipt) -> None:
        if self.is_full:
            raise OSError("full")
        self.rows[agent, key] = receipt

    def drop_receipt(self, agent: str, key: str) -> None:
        if not self.is_full:
            self.rows.pop((agent, key), None)

    def forget_receipts(self, agent: str) -> None:  # what cannot be deleted now is not shown any more
        self.rows = {name: one for name, one in self.rows.items() if name[0] != agent}


def ended(output: str, **changes: object) -> Result:
    return Result(output.encode(), b"", 0, None, "/", 0.1, "exited").__replace__(**changes)


def running(output: str) -> Result:
    return ended(output, outcome="running", exit_code=None)


Known = Literal["running", "unknown"] | bytes  # bytes: the output of its result


class Model(RuleBasedStateMachine):
    """The receipts of two agents beside a model that knows what each command did.

    ``known``: what a claim has to tell. ``on_disk``: the same after a crash of the machine. ``ran``: the commands that
    bash got, since their agent was forgotten last.
    """

    def __init__(self) -> None:
        super().__init__()
        self.disk = Disk()
        self.receipts = Receipts(self.disk, LIFETIME)
        self.now = 1e9
        self.requests = 0
        self.known: dict[Name, Known] = {}
        self.on_disk: dict[Name, Known] = {}
        self.began: dict[Name, float] = {}
        self.running: dict[str, Name] = {}
        self.ran: set[Name] = set()

    names = st.tuples(st.sampled_from("ab"), st.sampled_from(["k1", "k2"]))
    seldom = st.sampled_from([False] * 4 + [True])

    @rule(name=names, after=st.sampled_from([*["typed"] * 4, "refused", "not synced"]), is_full=seldom)
    def run(self, name: Name, after: str, is_full: bool) -> None:
        """What the daemon does with a request: claim, write, sync, and only then type the command."""
        self.disk.is_full = is_full
        if self.told(name) is not None:
            return
        self.requests += 1
        request = f"r{self.requests}"
        try:
            self.receipts.send(*name, b"digest", request, 7, self.now)
        except ReceiptUnavailable:
            assert is_full
            return
        assert not is_full
        self.began[name] = self.now
        self.known[name] = "running"
        self.running[request] = name
        if after == "not synced":  # the sync failed: nothing is typed
            self.end(request, lambda: self.receipts.drop(request), None)
            return
        self.disk.synced = dict(self.disk.rows)
        self.on_disk = {one: "unknown" if known == "running" else known for one, known in self.known.items()}
        if after == "refused":
            self.end(request, lambda: self.receipts.drop(request), None)
            return
        assert name not in self.ran, "a command ran twice"
        self.ran.add(name)

    def end(self, request: str, act: object, known: Known | None) -> None:
        name = self.running.pop(request)
        act()  # type: ignore[operator]
        if known is None:
            del self.known[name]
        else:
            self.known[name] = known

    @precondition(lambda self: self.running)
    @rule(
        data=st.data(),
        how=st.sampled_from(["ends", "ends", "not run", "is lost", *["is handed back"] * 3]),
        is_full=seldom,
    )
    def go_on(self, data: st.DataObject, how: str, is_full: bool) -> None:
        self.disk.is_full = is_full
        request = data.draw(st.sampled_from(sorted(self.running)))
        output = f"output of {request}"
        if how == "is handed back":
            self.receipts.note(request, running("so far"))
        elif how == "is lost":
            self.end(request, lambda: self.receipts.lose(request), "unknown")
        elif how == "not run":
            self.ran.discard(self.running[request])
            self.end(request, lambda: self.receipts.note(request, ended("", ran=False)), None)
        else:
            known: Known = "unknown" if self.disk.is_full else output.encode()
            self.end(request, lambda: self.receipts.note(request, ended(output)), known)

    @precondition(lambda self: self.known)
    @rule(is_power_cut=st.booleans())
    def daemon_is_killed(self, is_power_cut: bool) -> None:
        if is_power_cut:
            self.disk.rows = dict(self.disk.synced)
            self.known = self.on_disk
        # What could not be deleted from a full disk is found again.
        self.known = {name: self.known.get(name, "unknown") for name in self.disk.rows}
        self.began = {name: row.began for name, row in self.disk.rows.items()}
        self.known = {name: "unknown" if known == "running" else known for name, known in self.known.items()}
        self.running.clear()
        self.receipts = Receipts(self.disk, LIFETIME)

    @precondition(lambda self: self.known)
    @rule(agent=st.sampled_from("ab"))
    def agent_is_forgotten(self, agent: str) -> None:
        had = any(name[0] == agent for name in self.known)
        assert self.receipts.forget(agent) == had
        for kept in (self.known, self.on_disk, self.disk.synced):
            for name in [name for name in kept if name[0] == agent]:
                del kept[name]
        self.ran = {name for name in self.ran if name[0] != agent}
        self.running = {request: name for request, name in self.running.items() if name[0] != agent}

    @precondition(lambda self: self.known)
    @rule(agent=st.sampled_from("ab"), back=st.sampled_from([0.0, LIFETIME / 4, LIFETIME / 2]))
    def agent_is_rolled_back(self, agent: str, back: float) -> None:
        self.disk.is_full, moment = False, self.now - back
        self.receipts.forget_after(agent, moment)
        for name in [one for one, known in self.known.items() if one[0] == agent and isinstance(known, bytes)]:
            if self.began[name] > moment:
                for kept in (self.known, self.on_disk, self.disk.synced):
                    kept.pop(name, None)
                self.ran.discard(name)

    @precondition(lambda self: self.known)
    @rule()
    def time_passes(self) -> None:
        self.now += LIFETIME / 3

    @rule(name=names)
    def another_command_conflicts(self, name: Name) -> None:
        if self.told(name) is not None:
            with pytest.raises(KeyConflict):
                self.receipts.claim(*name, b"another", self.now)

    @invariant()
    def each_key_gives_what_is_known(self) -> None:
        for name in ((agent, key) for agent in "ab" for key in ("k1", "k2")):
            known = self.told(name)
            assert known == self.known.get(name), name
            assert known is not None or name not in self.ran, "what had run was called not taken"

    def told(self, name: Name) -> Known | None:
        if name in self.known and self.known[name] != "running" and self.now - self.began[name] > LIFETIME:
            for kept in (self.known, self.on_disk):
                kept.pop(name, None)
            self.disk.synced.pop(name, None)
            self.ran.discard(name)
            assert self.receipts.claim(*name, b"digest", self.now) is None
            self.disk.rows.pop(name, None)
        try:
            claim = self.receipts.claim(*name, b"digest", self.now)
        except OutcomeUnknown:
            return "unknown"
        if isinstance(claim, str):
            assert self.running[claim] == name
            return "running"
        return None if claim is None else claim.stdout_bytes


Model.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestModel = Model.TestCase


def kept(receipts: Receipts, count: int, output: int = 0, agent: str = "a") -> None:
    for number in range(count):
        receipts.send(agent, f"k{number}", b"d", f"{agent}{number}", 7, float(number))
        receipts.note(f"{agent}{number}", ended("x" * output))


def test_oldest_receipts_of_an_agent_go_first_when_there_are_too_many() -> None:
    disk = Disk()
    receipts = Receipts(disk, LIFETIME, Bounds(3, 1000))
    receipts.send("a", "runs", b"d", "r", 7, 0.0)
    kept(receipts, 5)
    assert sorted(disk.rows) == [("a", "k3"), ("a", "k4"), ("a", "runs")]
    kept(receipts, 1, agent="b")
    assert ("b", "k0") in disk.rows
    assert receipts.claim("a", "k0", b"d", 9.0) is None


def test_oldest_output_goes_first_and_is_counted() -> None:
    disk = Disk()
    kept(Receipts(disk, LIFETIME, Bounds(10, 30)), 5, output=10)
    receipts = Receipts(disk, LIFETIME, Bounds(10, 30))  # the next daemon counts what is there
    kept(receipts, 1, output=10, agent="b")
    sizes = {name: len(one.stdout) for name, one in disk.rows.items()}
    assert sizes == {**{("a", f"k{n}"): 10 * (n > 1) for n in range(5)}, ("b", "k0"): 10}
    first = receipts.claim("a", "k0", b"d", 9.0)
    assert isinstance(first, Result)
    assert (first.stdout_bytes, first.stdout_omitted, first.exit_code) == (b"", 10, 0)


def test_large_output_in_place_of_many_small_ones_is_kept() -> None:
    disk = Disk()
    receipts = Receipts(disk, LIFETIME, Bounds(2000, 1200), OF_ALL)
    kept(receipts, 1200, output=1)
    receipts.send("a", "large", b"d", "large", 1, 2000.0)
    receipts.note("large", ended("x" * 1100))
    assert sum(len(one.stdout) for one in disk.rows.values()) == 1200
    assert len(disk.rows["a", "large"].stdout) == 1100


def test_receipts_of_all_agents_are_bounded_together() -> None:
    disk = Disk()
    receipts = Receipts(disk, LIFETIME, OF_ALL, Bounds(3, 25))
    for agent in "abcde":
        kept(receipts, 1, output=10, agent=agent)
    assert {name[0]: len(one.stdout) for name, one in disk.rows.items()} == {"c": 0, "d": 10, "e": 10}


def test_output_of_one_receipt_is_bounded_at_both_ends() -> None:
    cut = ended("0123456789", stdout_omitted=5, stdout_cut=3)
    assert bounded(ended("0123456789"), 10) == ended("0123456789")
    small = bounded(ended("0123\n56789"), 4)
    assert (small.stdout_bytes, small.stdout_omitted, small.stdout_cut) == (b"0189", 6, 2)
    assert small.stdout_omitted_lines == 1
    assert (bounded(cut, 8).stdout_bytes, bounded(cut, 8).stdout_omitted) == (b"01256789", 7)
    assert bounded(cut, 8).stdout_cut == 3
    assert len(bounded(ended("x" * 3 * OUTPUT), OUTPUT).stdout_bytes) == OUTPUT


def test_whoever_waits_at_one_time_shares_one_sync_that_begins_after_that() -> None:
    written, synced, began = 0, list[int](), threading.Semaphore(0)
    go_on = threading.Semaphore(0)

    def sync() -> None:
        present = written
        began.release()
        assert go_on.acquire(timeout=30)
        synced.append(present)

    async def write(syncs: Syncs) -> None:
        nonlocal written
        written += 1
        ours = written
        await syncs.synced()
        assert max(synced) >= ours, "the disk does not have it"

    async def main() -> None:
        syncs = Syncs(sync)
        first = asyncio.create_task(write(syncs))
        assert await asyncio.to_thread(began.acquire)
        others = [asyncio.create_task(write(syncs)) for _ in range(20)]
        await asyncio.sleep(0)
        go_on.release(2)
        await asyncio.gather(first, *others)

    asyncio.run(main())
    assert synced == [1, 21]


def test_sync_that_fails_fails_for_all_that_wait() -> None:
    def fail() -> None:
        raise OSError("the disk is gone")

    async def main() -> None:
        syncs = Syncs(fail)
        done = await asyncio.gather(*(syncs.synced() for _ in range(3)), return_exceptions=True)
        assert [str(one) for one in done] == ["the disk is gone"] * 3
        with pytest.raises(OSError, match="is gone"):
            await syncs.synced()

    asyncio.run(main())


def test_receipt_of_a_result_that_cannot_be_read_is_an_unknown_outcome() -> None:
    disk = Disk()
    disk.rows["a", "k"] = StoredReceipt(b"d", 0.0, 7, True, '{"outcome": "of a later version"}')
    with pytest.raises(OutcomeUnknown):
        Receipts(disk, LIFETIME).claim("a", "k", b"d", 1.0)
