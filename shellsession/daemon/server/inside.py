"""Where a client runs: inside a session it is an agent, which must not answer for a person or end another agent.

The kernel names the process that connected. It runs inside a session if it, or one of its ancestors, is the session's
bash or carries a tag (``engine.kernel.family``). A process that cannot be looked at, or has ended, is refused.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from ...engine.kernel import proc
from ...engine.kernel.family import GENERATIONS, LOWEST
from ...errors import InvalidRequest

if TYPE_CHECKING:
    from .connection import Connection
    from .shared import SharedSession

# A parent may end while we look, and its child gets another one: then we look again, this many times.
_LOOKS: Final = 20


def refuse_inside(
    sessions: Iterable[SharedSession], connection: Connection, verb: str, own: str | None = None, strict: bool = False
) -> None:
    """Raise InvalidRequest if the client runs inside one of these sessions, other than that of the agent ``own``.

    ``strict``: or if it carries the tag of any session or released job, also of one that has ended or of another host.
    """
    # 0 is outside our PID namespace, where no session of ours is.
    if connection.pid in (0, os.getpid()) or (connection.is_outside and connection.is_same_process()):
        return
    lineage = _lineage(connection.pid)
    tags = [proc.tag(pid) for pid in lineage]
    if not lineage or not connection.is_same_process():
        raise InvalidRequest(f"{verb}: the process that asked has ended, or hides: it is not known where it ran")
    for shared in sessions:
        if (shell := shared.engine.shell) is not None and _is_of(shell.pid, shell.slot.tag, lineage, tags):
            if shared.agent == own:
                return
            raise InvalidRequest(
                f"{verb} was asked for inside the session of agent {shared.agent!r}: ask from outside the sessions of"
                " this daemon"
            )
    ours = proc.tag(os.getpid()) // GENERATIONS  # somebody may have started this daemon inside a session
    has_tag = any(tag >= LOWEST and tag // GENERATIONS != ours for tag in tags)
    if strict and has_tag:
        raise InvalidRequest(
            f"{verb} was asked for by a process of a session, or that a session has left: ask from outside sessions"
        )
    # For good: a process gets no new ancestors but those of its ancestors. A person's keys come here one by one.
    connection.is_outside = not has_tag


def is_inside(bash: int, first: int, pid: int) -> bool:
    """Does the process run in the session of that bash, whose first tag that is, or in a session inside it?"""
    lineage = proc.lineage(pid)
    return _is_of(bash, first, lineage, map(proc.tag, lineage))


def _is_of(bash: int, first: int, lineage: Iterable[int], tags: Iterable[int]) -> bool:
    return bash in lineage or any(first <= tag < first + GENERATIONS for tag in tags)


def _lineage(pid: int) -> list[int]:
    """The process and its ancestors, all of which live; [] if they cannot be told."""
    found = proc.lineage(pid)
    for _ in range(_LOOKS):
        before, found = found, proc.lineage(pid)
        if found == before and all(map(proc.start_time, found)):
            return found
    return []
