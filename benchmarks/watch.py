"""Measures what watchers cost the daemon and another agent, while many agents print."""

import contextlib
import multiprocessing
import os
import resource
import signal
import time
from collections.abc import Iterator
from itertools import pairwise
from multiprocessing.process import BaseProcess
from multiprocessing.synchronize import Event

from benchmarks.daemon import percentile
from benchmarks.measure import Row, duration, timed
from benchmarks.served import Served, served
from shellsession import Daemon, RemoteSession, connect

AGENTS, LINES = 200, 20
# The last two are slow: one reads a few events a second, and one is stopped.
WATCHERS = 5
# Seconds after which the daemon has forgotten its last watcher, see ``daemon/server/board.py``.
FORGOTTEN = 25.0


def measure(quick: bool) -> list[Row]:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    seconds, count, pairs = (4.0, 1_000, 1) if quick else (10.0, 2_000, 3)
    off, on = list[tuple[float, float]](), list[tuple[float, float]]()
    with served() as daemon, connect("other", daemon.socket, start=False) as other:
        for number in range(AGENTS):
            _print_lines(daemon, number)
        for _ in range(pairs):
            off.append(_look(daemon, other, seconds, count))
            with _watchers(daemon):
                on.append(_look(daemon, other, seconds, count))
            time.sleep(FORGOTTEN)
        off.append(_look(daemon, other, seconds, count))
    # Each look with watchers is compared with those before and after it.
    between = [((a[0] + b[0]) / 2, (a[1] + b[1]) / 2) for a, b in pairwise(off)]
    more = sum(one[0] - beside[0] for one, beside in zip(on, between, strict=True)) / pairs
    ratio = sum(one[1] / beside[1] for one, beside in zip(on, between, strict=True)) / pairs
    what = f"{WATCHERS} watchers of {AGENTS} agents at {LINES} lines/s"
    cpu, alone = (f"{100 * sum(one[0] for one in found) / len(found):.0f} %" for found in (on, off))
    mine, theirs = (duration(sum(one[1] for one in found) / len(found)) for found in (on, off))
    more_of, true = f"{100 * more:+.0f} %", "beside that: `true`, p99"
    return [
        Row(f"{what}: the daemon", f"{cpu} of a core", f"unwatched {alone}", more_of, "<= 15 %", more <= 0.15),
        Row(true, mine, f"unwatched {theirs}", f"{ratio:.2f} x", "<= 1.5 x", ratio <= 1.5),
    ]


def _print_lines(daemon: Served, number: int) -> None:
    fifo = f"{daemon.directory}/fifo"
    loop = f"while ! read -rt {1 / LINES} -u 9; do echo $((n++)) $PWD; done"
    script = f"[ -e {fifo} ] || mkfifo {fifo}; exec 9<>{fifo}; {loop}"
    with connect(f"printer-{number}", daemon.socket, start=False) as agent:
        agent.run(script, timeout=0.1, on_timeout="yield", tty=False)


def _look(daemon: Served, other: RemoteSession, seconds: float, count: int) -> tuple[float, float]:
    """The part of a core that the daemon takes, and the 99th percentile of `true`."""
    before, begun = _processor_time(daemon.pid), time.monotonic()
    time.sleep(seconds)
    part = (_processor_time(daemon.pid) - before) / (time.monotonic() - begun)
    return part, percentile(timed(other.run)("true", count), 0.99)


def _processor_time(pid: int) -> float:
    with open(f"/proc/{pid}/stat", encoding="ascii") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def _watchers(daemon: Served) -> Iterator[None]:
    context = multiprocessing.get_context("spawn")
    processes = list[BaseProcess]()
    for number in range(WATCHERS):
        sees = context.Event()
        processes.append(
            context.Process(target=_watch, args=(daemon.socket, number == WATCHERS - 2, sees), daemon=True)
        )
        processes[-1].start()
        sees.wait()
    os.kill(processes[-1].pid or 0, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.join()


def _watch(socket: str, is_slow: bool, sees: Event) -> None:
    for _ in Daemon(socket).watch():
        sees.set()
        if is_slow:
            time.sleep(0.3)
