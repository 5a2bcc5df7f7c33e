"""``RelayPipe``: the driver's end of a pipe to the relay of a node. ``NodeTransport`` connects to its daemon."""

from __future__ import annotations

import os
import secrets
import threading
import weakref
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from ray.exceptions import ActorDiedError, ActorUnschedulableError

from ..daemon.client.link import Pool
from ..daemon.client.pipe import BridgePipe, PipeTransport
from ..errors import DaemonUnavailable
from .relay import PIECE

# This many calls are under way at most. One always is, so that the relay can answer.
_CALLS_MAX: Final = 16
# Idle connections that a driver keeps to each node.
_CONNECTIONS: Final = 64


class RelayPipe(BridgePipe):
    """Calls of a relay, whose arguments and answers are the bytes of a pipe. They are numbered, and taken in order."""

    advice = "install the same version of shellsession on every node"

    def __init__(self, place: str, relay: Any, on_lost: Callable[[], None]) -> None:
        self._place, self._relay, self._on_lost = place, relay, on_lost
        self._name = secrets.token_hex(8)
        self.source, self.sink = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK), None
        self._closed, self._lock = False, threading.Lock()
        self._answers: dict[int, Any] = {}  # futures that are done
        self._sent = self._taken = 0
        self._why = ""
        self._call(b"")

    def __str__(self) -> str:
        return self._place

    def _call(self, data: bytes) -> None:
        number, self._sent = self._sent, self._sent + 1
        self._relay.carry.remote(self._name, number, data).future().add_done_callback(partial(self._keep, number))

    def _keep(self, number: int, answer: Any) -> None:
        """Take an answer, in a thread of Ray."""
        self._answers[number] = answer
        self._wake()

    def _wake(self) -> None:
        with self._lock:  # else the descriptor could be another file's by now
            if not self._closed:
                os.eventfd_write(self.source, 1)

    def receive(self) -> bytes:
        with suppress(BlockingIOError):
            os.eventfd_read(self.source)
        if (answer := self._answers.pop(self._taken, None)) is None:
            raise BlockingIOError
        if self._answers:
            self._wake()  # for the next one
        self._taken += 1
        try:
            data: bytes | None = answer.result()
        except (ActorDiedError, ActorUnschedulableError) as error:  # for good, as when the node is dead
            self._why = str(error)
            self._on_lost()
            return b""
        except Exception as error:  # whatever Ray raises: the relay does not answer any more
            self._why = str(error)
            return b""
        if data is None:
            return b""
        if self._sent == self._taken:
            self._call(b"")
        if not data:
            raise BlockingIOError
        return data

    def send(self, pieces: Sequence[bytes]) -> int:
        if self._sent - self._taken >= _CALLS_MAX:
            raise BlockingIOError
        data = b"".join(pieces)[:PIECE]
        self._call(data)
        return len(data)

    def why_ended(self) -> str:
        return self._why.strip().partition("\n")[0]

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            os.close(self.source)

    def end(self, failed: bool) -> None:
        with self._lock:  # not in ``close``: in a forked child, a thread of the parent may hold it for ever
            self.close()


class NodeTransport(PipeTransport):
    """Connects to the daemon of one node. ``pool``: the idle connections."""

    def __init__(self, name: str, address: str, relay: Any, patience: float) -> None:
        self.name, self.address, self.relay = name, address, relay
        self.is_lost = False
        self.pool = Pool(_CONNECTIONS)
        weakref.finalize(self, self.pool.close)
        self.patience = patience
        super().__init__(f"node {address} ({name[:8]})", (relay._actor_id, patience), self._pipe)

    def _pipe(self) -> RelayPipe:
        if self.is_lost:
            raise DaemonUnavailable(f"{self} was lost, with all its sessions")
        return RelayPipe(str(self), self.relay, self._lose)

    def _lose(self) -> None:
        self.is_lost = True
