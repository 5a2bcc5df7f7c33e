"""Receipts: what is known of the commands with an idempotency key, so that none runs twice.

    (none) --send--> sending --settle--> ended
                        \\--drop--> (none), for a command that was certainly not run

``send`` writes a receipt before bash gets the command, and the caller has the disk sync it. So a command whose receipt
is missing was not run. One whose receipt has no end runs now, or it was lost with its daemon: then nobody knows how far
it came. The receipts are in the store. Here is only which commands run, and how much the store has.

No I/O happens here but that of the store, and memory is bounded.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from typing import Final, NamedTuple, Protocol

from ...engine.io.output import without_output
from ...errors import KeyConflict, OutcomeUnknown, ProtocolError, ReceiptUnavailable
from ...models import Result
from ...store import StoredReceipt
from ...text import ago
from ..protocol.messages import from_result, to_result
from ..protocol.wire import from_json, to_json

# Bytes that are kept of each stream of a command, half of its beginning and half of its end.
OUTPUT: Final = 1 << 16
# How many characters of the last output an error shows.
_SHOWN: Final = 500


class ReceiptStore(Protocol):
    """Where receipts are kept; see ``Store``."""

    def receipt(self, agent: str, key: str) -> StoredReceipt | None: ...
    def receipts(self) -> list[tuple[str, str, int]]: ...
    def put_receipt(self, agent: str, key: str, receipt: StoredReceipt) -> None: ...
    def drop_receipt(self, agent: str, key: str) -> None: ...
    def forget_receipts(self, agent: str) -> None: ...


class Bounds(NamedTuple):
    """How many receipts are kept, and how many bytes of output. Beyond that the oldest are dropped."""

    keys: int
    output: int


OF_AGENT: Final = Bounds(1_000, 8 << 20)
OF_ALL: Final = Bounds(20_000, 64 << 20)

Name = tuple[str, str]  # of an agent, and a key of it


class _Kept:
    """The names of some receipts, and the bytes of output that they have, the oldest first.

    The database would take 80 ms to add up the sizes of 20,000. And if somebody has removed it, no key looks new.
    """

    def __init__(self, bounds: Bounds) -> None:
        self._bounds, self.bytes = bounds, 0
        # Not plain dicts, where finding the first entry walks over all deleted ones.
        self.names: OrderedDict[Name, None] = OrderedDict()
        self.outputs: OrderedDict[Name, int] = OrderedDict()

    def put(self, name: Name, size: int) -> None:
        self.names.setdefault(name)
        self.bytes += size - self.outputs.pop(name, 0)
        if size:
            self.outputs[name] = size

    def drop(self, name: Name) -> None:
        self.put(name, 0)
        self.names.pop(name, None)

    @property
    def too_many(self) -> bool:
        return len(self.names) > self._bounds.keys

    @property
    def too_large(self) -> bool:
        return self.bytes > self._bounds.output


class Receipts:
    """The receipts of one daemon's agents. ``lifetime``: how many seconds one is kept. ``now``: the time of day."""

    def __init__(
        self, store: ReceiptStore, lifetime: float, of_agent: Bounds = OF_AGENT, of_all: Bounds = OF_ALL
    ) -> None:
        self._store, self._lifetime, self._of_agent = store, lifetime, of_agent
        self._running: dict[str, tuple[Name, StoredReceipt]] = {}  # by the request that runs the command
        self._requests: dict[Name, str] = {}
        self._all, self._of = _Kept(of_all), dict[str, _Kept]()  # all that the store has
        self._is_read = False

    def claim(self, agent: str, key: str, digest: bytes, now: float) -> Result | str | None:
        """What is known of that key: the result of its command, the request that runs it, or None: it was not run.

        ``digest``: of the request. Raises KeyConflict, OutcomeUnknown and ReceiptUnavailable.
        """
        try:
            self._read()
            if (agent, key) not in self._all.names:
                return None
            request = self._requests.get((agent, key), "")
            found = self._running[request][1] if request else self._store.receipt(agent, key)
        except OSError as error:
            raise ReceiptUnavailable(unavailable(error)) from error
        if found is None:
            raise OutcomeUnknown(f"the receipt of the key {key!r} was removed from the database: {_advice(key)}")
        if not request and now - found.began > self._lifetime:
            self._drop((agent, key))
            return None
        if found.digest != digest:
            raise KeyConflict(
                f"agent {agent!r} has used the key {key!r} {ago(now - found.began)} for another command, cwd, env or"
                " stdin: nothing was run; each command needs its own key"
            )
        if request:
            return request
        result = _result(found)
        if result is None or not found.ended:
            raise OutcomeUnknown(_unknown(key, found, result, now))
        return result

    def send(self, agent: str, key: str, digest: bytes, request: str, pid: int, now: float) -> None:
        """Note that the command is about to be sent to bash. Raises ReceiptUnavailable."""
        receipt = StoredReceipt(digest, now, pid)
        try:
            self._store.put_receipt(agent, key, receipt)
        except OSError as error:
            raise ReceiptUnavailable(unavailable(error)) from error
        self._running[request], self._requests[agent, key] = ((agent, key), receipt), request
        self._keep((agent, key), 0)

    def runs(self, request: str) -> bool:
        """Is it the request of a command that has a receipt, and runs?"""
        return request in self._running

    def note(self, request: str, result: Result) -> None:
        """Note a result of the command: its end, or what it has printed so far. It has no secrets any more."""
        name, receipt = self._running[request]
        if not result.ran:
            self.drop(request)
            return
        if not result.still_running:
            self._forget_request(request)
        with suppress(OSError):  # its outcome is unknown then
            self._keep(name, self._put(name, receipt, bounded(result, OUTPUT)))

    def so_far(self, agent: str, key: str) -> Result | None:
        """The last result that is noted of the command with that key; None if there is none."""
        with suppress(OSError):
            return None if (found := self._store.receipt(agent, key)) is None else _result(found)
        return None

    def drop(self, request: str) -> None:
        """Note that the command was certainly not run."""
        if (name := self._forget_request(request)) is not None:
            self._drop(name)

    def lose(self, request: str) -> None:
        """Note that nobody waits for the end of the command any more. If none is known, its outcome is unknown."""
        self._forget_request(request)

    def forget(self, agent: str) -> bool:
        """Forget the receipts of an agent. True if it had any."""
        with suppress(OSError):
            self._read()
        if (mine := self._of.pop(agent, None)) is None:
            return False
        for name in mine.names:
            self._all.drop(name)
            self._forget_request(self._requests.get(name, ""))
        self._store.forget_receipts(agent)
        return True

    def forget_after(self, agent: str, moment: float) -> None:
        """Forget the receipts of an agent's commands that began after that moment and have ended."""
        with suppress(OSError):
            self._read()
            for name in [*reversed(self._of[agent].names)] if agent in self._of else ():
                if (found := self._store.receipt(*name)) is None or not found.ended:
                    continue
                if found.began <= moment:
                    break
                self._drop(name)

    @property
    def agents(self) -> tuple[str, ...]:
        """The agents that have receipts."""
        with suppress(OSError):
            self._read()
        return tuple(self._of)

    # -- what the store has

    def _read(self) -> None:
        """Learn what an earlier daemon has left. Raises OSError."""
        if not self._is_read:
            for agent, key, size in self._store.receipts():
                self._count((agent, key), size)
            self._is_read = True

    def _count(self, name: Name, size: int) -> _Kept:
        mine = self._of.setdefault(name[0], _Kept(self._of_agent))
        mine.put(name, size)
        self._all.put(name, size)
        return mine

    def _keep(self, name: Name, size: int) -> None:
        """Count a receipt that was written, and drop what is too much."""
        mine = self._count(name, size)
        for kept in (mine, self._all):
            while kept.too_large:
                self._forget_output(next(iter(kept.outputs)))
            while kept.too_many and (oldest := next((one for one in kept.names if one not in self._requests), None)):
                self._drop(oldest)

    def _put(self, name: Name, before: StoredReceipt, result: Result) -> int:
        """Write a receipt with a result. Returns how many bytes of output it has."""
        header, (stdout, stderr) = from_result(result)
        ended = not result.still_running
        self._store.put_receipt(
            *name, before._replace(ended=ended, result=to_json(header), stdout=stdout, stderr=stderr)
        )
        return len(stdout) + len(stderr)

    def _forget_output(self, name: Name) -> None:
        self._count(name, 0)
        with suppress(OSError):
            if (found := self._store.receipt(*name)) is not None and (result := _result(found)) is not None:
                self._put(name, found, without_output(result))

    def _drop(self, name: Name) -> None:
        self._all.drop(name)
        if (mine := self._of.get(name[0])) is not None:
            mine.drop(name)
            if not mine.names:
                del self._of[name[0]]
        self._store.drop_receipt(*name)

    def _forget_request(self, request: str) -> Name | None:
        if (running := self._running.pop(request, None)) is None:
            return None
        del self._requests[running[0]]
        return running[0]


def bounded(result: Result, size: int) -> Result:
    """The result with at most ``size`` bytes of each stream: its beginning and its end."""
    changes: dict[str, bytes | int] = {}
    for name in ("stdout", "stderr"):
        data, omitted, cut = (getattr(result, f"{name}_{what}") for what in ("bytes", "omitted", "cut"))
        if len(data) > size:
            head = data[: min(cut, size // 2) if omitted else size // 2]
            tail = data[max(cut if omitted else 0, len(data) - (size - len(head))) :]
            dropped = data[len(head) : len(data) - len(tail)]
            changes[f"{name}_bytes"] = head + tail
            changes[f"{name}_omitted"] = omitted + len(dropped)
            changes[f"{name}_omitted_lines"] = getattr(result, f"{name}_omitted_lines") + dropped.count(b"\n")
            changes[f"{name}_cut"] = len(head)
    return result.__replace__(**changes) if changes else result


def _result(found: StoredReceipt) -> Result | None:
    """The result of a receipt; None if it has none that can be read."""
    with suppress(ProtocolError, ValueError):
        if found.result:
            return to_result(from_json(found.result), (found.stdout, found.stderr))
    return None


def unavailable(error: OSError) -> str:
    """The message of ReceiptUnavailable."""
    return (
        f"no receipt can be written, so a command with an idempotency key was not run ({error}): mend that, or run it"
        " without a key"
    )


def _advice(key: str) -> str:
    return f"it was not run again; check what the command has done, and run it with another key than {key!r} if need be"


def _unknown(key: str, found: StoredReceipt, result: Result | None, now: float) -> str:
    where = f" in bash {found.pid}" if found.pid else ""
    printed = "" if result is None else (result.stdout + result.stderr)[-_SHOWN:]
    said = f"; what it had printed last, as far as that is known: {printed!r}" if printed else ""
    return (
        f"the command with the key {key!r} was begun {ago(now - found.began)}{where}, and how it ended is not known:"
        f" {_advice(key)}{said}"
    )
