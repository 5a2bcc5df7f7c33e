"""Measures a flood of lines: on pipes beside `subprocess.run`, on the terminal beside a bare terminal reader."""

import contextlib
import os
import pty
import subprocess
import tempfile
import tty
from collections.abc import Iterator
from pathlib import Path

from benchmarks.machine import MEBIBYTE, forget_peak, peak_resident, resident
from benchmarks.measure import Row, duration, once, ratios, spread
from shellsession import Limits, Session

LINE = b"2026-11-21 12:00:00 worker 7: compiled module in 0.42 s, no warnings, 3 files written\n"


@contextlib.contextmanager
def lines(size: int) -> Iterator[tuple[str, int]]:
    """A command that prints about this many bytes of lines as fast as possible, and their exact count."""
    with tempfile.TemporaryDirectory(prefix="shellsession-bench-") as directory:
        flood = Path(directory, "lines")
        flood.write_bytes(LINE * (size // len(LINE)))
        yield f"cat {flood}", flood.stat().st_size


def read_terminal(command: str, size: int) -> None:
    """The bare reader: one process on a raw terminal, which is read until everything has come."""
    master, slave = pty.openpty()
    try:
        tty.setraw(slave)
        with subprocess.Popen(["bash", "-c", command], stdin=subprocess.DEVNULL, stdout=slave):
            seen = 0
            while seen < size:
                seen += len(os.read(master, 65536))
    finally:
        os.close(master)
        os.close(slave)


def flood(session: Session, command: str, size: int, terminal: bool) -> None:
    """One flood through a session. Checks the count and both ends: a fast result that is wrong is worth nothing."""
    result = session.run(command, tty=terminal, limits=Limits(max_output=MEBIBYTE))
    kept, ends = result.stdout_bytes, 100 * LINE
    right = len(kept) + result.stdout_omitted == size and kept.startswith(ends) and kept.endswith(ends)
    if result.exit_code != 0 or not right:
        raise AssertionError(f"{len(kept)} + {result.stdout_omitted} of {size} bytes, status {result.exit_code}")


def measure(quick: bool) -> list[Row]:
    size, rounds = (10_000_000, 3) if quick else (100_000_000, 9)
    with lines(size) as (command, exact), Session() as session:
        session.run("true")
        memory = _memory(session, command, exact)
        pipes: tuple[list[float], list[float]] = ([], [])
        terminals: tuple[list[float], list[float]] = ([], [])
        for _ in range(rounds):
            pipes[0].append(once(lambda: flood(session, command, exact, terminal=False)))
            pipes[1].append(once(lambda: subprocess.run(["bash", "-c", command], capture_output=True, check=True)))
            terminals[0].append(once(lambda: flood(session, command, exact, terminal=True)))
            terminals[1].append(once(lambda: read_terminal(command, exact)))
    wall, speed = ratios(*pipes), ratios(terminals[1], terminals[0])
    what = f"{size // 1_000_000} MB of lines"
    return [
        _row(f"{what}, `tty=False`, wall", pipes, "subprocess.run", f"{wall} x", "<= 1.15 x", wall.mid <= 1.15),
        memory,
        _row(f"{what}, terminal, speed", terminals, "bare reader", f"{speed} x", ">= 0.85 x", speed.mid >= 0.85),
    ]


def _memory(session: Session, command: str, size: int) -> Row:
    forget_peak()
    before = resident()
    flood(session, command, size, terminal=False)
    grown = peak_resident() - before
    forget_peak()
    before = resident()
    subprocess.run(["bash", "-c", command], capture_output=True, check=True)
    theirs = peak_resident() - before
    what, bar = f"{round(size / 1e6)} MB of lines, growth of the host", 16 * MEBIBYTE
    mine, other = (f"{value / MEBIBYTE:.1f} MiB" for value in (grown, theirs))
    return Row(what, mine, f"subprocess.run {other}", f"{grown / theirs:.3f} x", "< 16 MiB", grown < bar)


def _row(what: str, pair: tuple[list[float], list[float]], other: str, ratio: str, bar: str, holds: bool) -> Row:
    ours, theirs = (duration(spread(values).mid) for values in pair)
    return Row(what, ours, f"{other} {theirs}", ratio, bar, holds)
