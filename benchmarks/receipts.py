"""What an idempotency key costs: `python -m benchmarks.receipts [ROUNDS]`.

Each round runs, in turns, `true` with and without a key, and bare writes of 4 KiB with fdatasync(2) in the directory of
the daemon's database. Then another agent's `true` is timed while agents run commands with keys, and while the same
agents run them without. Each row ends with the bar that it has to pass.
"""

from __future__ import annotations

import itertools
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from statistics import median, quantiles
from typing import Final

from shellsession import RemoteSession, connect

from .served import served

# Commands of each kind in a round, agents that use keys, and commands of the other agent.
_TIMES: Final = 20
_AGENTS: Final = 4
_OTHERS: Final = 1500
_RUN: Final = hex(time.time_ns())
_KEYS: Final = (f"{_RUN}-{number}" for number in itertools.count())


def _seconds(act: Callable[[], object]) -> float:
    begun = time.perf_counter()
    act()
    return time.perf_counter() - begun


def _keyed(session: RemoteSession) -> object:
    return session.run("true", idempotency_key=next(_KEYS))


def _synced(file: int) -> None:
    os.write(file, bytes(4096))
    os.fdatasync(file)


@contextmanager
def _crowd(socket: str, verb: Callable[[RemoteSession], object]) -> Iterator[None]:
    """Agents that run commands, each in a thread, while the block runs."""
    done, begun = threading.Event(), threading.Barrier(_AGENTS + 1)

    def work(agent: str) -> None:
        with connect(agent, socket, False, cwd="/") as session:
            verb(session)
            begun.wait()
            while not done.is_set():
                verb(session)

    threads = [threading.Thread(target=work, args=(f"crowd-{number}",)) for number in range(_AGENTS)]
    for thread in threads:
        thread.start()
    begun.wait()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()


def _p99(session: RemoteSession, socket: str, verb: Callable[[RemoteSession], object]) -> float:
    with _crowd(socket, verb):
        return quantiles([_seconds(lambda: session.run("true")) for _ in range(_OTHERS)], n=100)[98]


def main(rounds: int = 20) -> None:
    """Print the table."""
    with ExitStack() as stack:
        home = stack.enter_context(tempfile.TemporaryDirectory(dir=os.path.expanduser("~")))  # a real disk
        os.environ["XDG_STATE_HOME"] = home
        path = stack.enter_context(served()).socket
        session = stack.enter_context(connect("one", path, False, cwd="/"))
        file = os.open(os.path.join(home, "file"), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        stack.callback(os.close, file)
        verbs: dict[str, Callable[[], object]] = {
            "plain": lambda: session.run("true"),
            "keyed": lambda: _keyed(session),
            "replayed": lambda: session.run("true", idempotency_key=_RUN),
            "sync": lambda: _synced(file),
        }
        for verb in verbs.values():
            verb()
        took: dict[str, list[float]] = {name: [] for name in verbs}
        for _ in range(rounds):
            for name, verb in verbs.items():
                took[name].append(median(_seconds(verb) for _ in range(_TIMES)))
        mid = {name: median(times) for name, times in took.items()}
        for name, seconds in mid.items():
            print(f"{name:10} {seconds * 1e6:8.0f} us")
        more = (mid["keyed"] - mid["plain"]) / mid["sync"]
        print(f"a key costs {more:.2f} of a bare write with fdatasync (bar: 1.5)")
        other = stack.enter_context(connect("other", path, False, cwd="/"))
        other.run("true")
        ratios = []
        for _ in range(max(1, rounds // 4)):
            without, with_keys = _p99(other, path, lambda sh: sh.run("true")), _p99(other, path, _keyed)
            ratios.append(with_keys / without)
            print(f"p99 of another agent's true: {without * 1e6:6.0f} us beside plain ones, {with_keys * 1e6:6.0f} us")
        print(f"another agent's p99 beside commands with keys: {median(ratios):.2f} of that beside others (bar: 1.5)")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:2]))
