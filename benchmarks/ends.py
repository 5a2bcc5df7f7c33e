"""Measures what the end of a shell costs the daemon and another agent, beside many unrelated processes."""

import contextlib
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Iterator
from multiprocessing.synchronize import Event

from benchmarks.daemon import percentile
from benchmarks.machine import process_count, processor_time
from benchmarks.measure import Row, duration, number, ratios, spread, timed
from benchmarks.served import Served, served
from shellsession import RemoteSession, connect

FEW, MANY = 100, 2_000
# Forks this many processes, which live until its stdin ends. With "orphans" it ends first, and init adopts them.
_FORKS = """
import os, sys
for _ in range(int(sys.argv[1])):
    if os.fork() == 0:
        os.close(1)
        os.read(0, 1)
        os._exit(0)
os.close(1)
if sys.argv[2] != "orphans":
    os.read(0, 1)
"""


def measure(quick: bool) -> list[Row]:
    with served() as daemon, connect("ending", daemon.socket, start=False) as ending:
        rows = [_processor_time(daemon, ending, kind, quick) for kind in ("children", "orphans")]
        return [*rows, _latency(daemon, quick)]


@contextlib.contextmanager
def others(count: int, kind: str) -> Iterator[None]:
    """Run this many processes: children of one that lives, or "orphans"."""
    pipe, before = subprocess.PIPE, process_count()
    with subprocess.Popen([sys.executable, "-ISc", _FORKS, str(count), kind], stdin=pipe, stdout=pipe) as parent:
        assert parent.stdout is not None
        parent.stdout.read()  # until all of them have closed it
        if kind == "orphans":
            parent.wait()
        yield
    while process_count() > before + FEW / 2:  # they take a while to end
        time.sleep(0.05)


def _processor_time(daemon: Served, ending: RemoteSession, kind: str, quick: bool) -> Row:
    rounds, ends = (2, 10) if quick else (5, 50)
    took: dict[int, list[float]] = {FEW: [], MANY: []}
    for _ in range(rounds):
        for count, found in took.items():
            with others(count, kind):
                _end(ending)  # this shell is older than they are
                before = processor_time(daemon.pid)
                for _ in range(ends):
                    _end(ending)
                found.append((processor_time(daemon.pid) - before) / ends)
    ratio, (few, many) = ratios(took[MANY], took[FEW]), (duration(spread(found).mid) for found in took.values())
    what = f"the daemon's CPU for `exit 3` and the next shell, {MANY} foreign {kind}"
    return Row(what, many, f"{FEW} of them {few}", f"{ratio} x", "<= 3 x", ratio.mid <= 3)


def _end(session: RemoteSession) -> None:
    if (result := session.run("exit 3")).exit_code != 3:
        raise AssertionError(result)


def _latency(daemon: Served, quick: bool) -> Row:
    """Measure an agent alone, and beside one whose shell ends twenty times a second."""
    context = multiprocessing.get_context("spawn")
    runs = context.Event()
    process = context.Process(target=_end_again_and_again, args=(daemon.socket, runs), daemon=True)
    process.start()
    took: dict[bool, list[float]] = {False: [], True: []}
    with others(MANY, "orphans"), connect("other", daemon.socket, start=False) as other:
        burst = timed(other.run)
        burst("true", 100)
        for _ in range(4 if quick else 30):
            for beside, found in took.items():
                (runs.set if beside else runs.clear)()
                time.sleep(0.1)  # let earlier work finish
                found += burst("true", 200)
    if not process.is_alive():
        raise AssertionError("no shell ended meanwhile")
    process.kill()
    process.join()
    theirs, mine = (percentile(found, 0.99) for found in took.values())
    ours = f"{duration(mine)}, p50 {duration(spread(took[True]).mid)}"
    against = f"alone {duration(theirs)}, p50 {duration(spread(took[False]).mid)}"
    ratio, what = mine / theirs, f"`true` while another agent's shells end, {MANY} foreign orphans, p99"
    return Row(what, ours, against, f"{number(ratio)} x", "<= 2 x", ratio <= 2)


def _end_again_and_again(socket: str, runs: Event) -> None:
    with connect("another", socket, start=False) as session:
        while True:
            runs.wait()
            _end(session)
            time.sleep(0.05)
