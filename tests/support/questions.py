"""The questions of a daemon that wait for a person, and answers to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from daemons import Daemon
from system import wait_until

from shellsession import Daemon as Watcher, Policy, RemoteSession, Result

POLICY = Policy(confirm="queue", confirm_timeout=None)


def waiting(daemon: Daemon, agent: str | None = None) -> list[dict[str, Any]]:
    with Watcher(daemon.socket) as watcher:
        return watcher.approvals(agent)


def decide(daemon: Daemon, id: str, decision: str = "accept", reason: str = "") -> None:
    with Watcher(daemon.socket) as watcher:
        watcher.answer(id, decision, reason)


@contextmanager
def in_thread(run: Callable[[], Result]) -> Iterator[Future[Result]]:
    with ThreadPoolExecutor(1) as pool:
        yield pool.submit(run)


def asked(daemon: Daemon, agent: str, number: int = 1) -> dict[str, Any]:
    """The latest open question of the agent, once there are so many."""
    wait_until(lambda: len(waiting(daemon, agent)) >= number, "the question")
    return waiting(daemon, agent)[-1]


def answered(sh: RemoteSession, daemon: Daemon, decision: str, command: str, reason: str = "") -> Result:
    """The result of a command that is answered so."""
    with in_thread(lambda: sh.run(command)) as result:
        decide(daemon, asked(daemon, sh.agent)["id"], decision, reason)
        return result.result()
