"""A request as it came to the daemon, and the answer to it.

Law: what is not there, and should be, is said by the verb's name.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, NamedTuple

from ..errors import InvalidRequest, LimitReached, ShellUnavailable
from ..models import Result
from .records import from_result
from .wire import PARTS_MAX

if TYPE_CHECKING:
    from .connection import Connection
    from .listener import Listener
    from .shared import SharedSession


class Answer(NamedTuple):
    """The reply's header (``result`` or ``value``) and its parts."""

    header: dict[str, Any]
    parts: tuple[bytes, ...] = ()


class Incoming(NamedTuple):
    """A request, what came with it, and from where."""

    request: Any
    parts: tuple[bytes, ...]
    connection: Connection
    listener: Listener

    @property
    def part(self) -> bytes:
        if not self.parts:
            raise InvalidRequest(f"{self.request.verb}: its bytes are to follow the header as a part")
        return self.parts[0]

    @property
    def second(self) -> bytes:
        if len(self.parts) < 2:
            raise InvalidRequest(f"{self.request.verb}: its stdin is to follow the command as a second part")
        return self.parts[1]

    def outline(self, header: dict[str, Any]) -> str:
        """Who asked for what, and how that ended: never what it was about."""
        request = self.request
        agent = f" of agent {request.agent!r}" if hasattr(request, "agent") else ""
        ended = header.get("error", {}).get("code") or header.get("result", {}).get("outcome") or "done"
        return f"connection {self.connection.number}: {request.verb}{agent} ({request.id}): {ended}"


def answer_with(shared: SharedSession, incoming: Incoming, result: Result, command: str) -> Answer:
    """The answer that brings a result of that command, which one runs on, and what was typed for it in vain."""
    if not result.state_kept and not incoming.listener.connection.is_gone:
        shared.engine.untold = None  # told
    header, parts = from_result(result)
    answer: dict[str, Any] = {"result": header}
    if result.runs_on:
        answer["command"] = shared.outcomes.current
    elif unread := shared.unread(command):
        answer["unread"] = unread.decode("latin-1")
    return Answer(answer, parts)


def of_the_daemon(error: ShellUnavailable) -> ShellUnavailable:
    """What stands in its way, as its clients are to understand it: the limit is not theirs."""
    before, limit, _ = str(error).partition(". Raise the limit")
    if type(error) is not LimitReached or not limit:
        return error
    return LimitReached(
        f"{before.replace('this process', f'the daemon (pid {os.getpid()})', 1)}: close sessions (`shellsession kill`),"
        " or end it (`shellsession stop`) and start it from a shell that may open more (ulimit -Hn, ulimit -n)"
    )


def room_for(count: int) -> int:
    """Characters of a text, so that a list of so many fits into a message (a character may take 12 bytes in JSON)."""
    return min(4096, PARTS_MAX // (32 * max(1, count)))
