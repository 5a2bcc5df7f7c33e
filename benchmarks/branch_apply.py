"""`python -m benchmarks.branch_apply [ROUNDS [DIRECTORY]]`: apply of changed files, beside `cp -a` of them.

In turns, as medians; the ratio is the one that has to stay below the bar. ``cp -a`` writes nothing to the disk itself;
the second ratio is to ``cp -a`` and ``sync -f``.

ext4 takes ten times as long to make a file where many were removed in the last minutes: name a DIRECTORY on a file
system that was just made.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from typing import Final

from shellsession.branch.apply import apply, moment

FILES: Final = 1000
BAR: Final = 2.0
_SIZE: Final = 4000


def measure(rounds: int, place: str) -> tuple[float, float, float]:
    """Return the medians: apply, cp -a, and cp -a with sync, in seconds."""
    with tempfile.TemporaryDirectory(dir=place) as directory:  # on a disk: /tmp may be memory
        found = [list(_round(Path(directory), str(number))) for number in range(rounds + 1)]
    mine, copy, synced = (median(column) for column in list(zip(*found[1:], strict=True)))
    return mine, copy, synced


def _round(top: Path, name: str) -> Iterator[float]:
    base, layer, home = (top / f"{part}{name}" for part in ("base", "layer", "home"))
    for one in (base, layer, home):
        one.mkdir()
    _fill(base, b"old ")
    _fill(layer, b"new ")
    os.sync()
    opened = moment(str(base))
    yield _seconds(lambda: apply(str(base), [str(layer)], str(home), opened))
    os.sync()
    yield _seconds(lambda: subprocess.run(["cp", "-a", f"{layer}/.", top / f"copy{name}"], check=True))
    os.sync()
    twice = ["cp", "-a", f"{layer}/.", str(top / f"again{name}")]
    yield _seconds(lambda: (subprocess.run(twice, check=True), subprocess.run(["sync", "-f", str(top)], check=True)))


def _fill(top: Path, word: bytes) -> None:
    for number in range(FILES):
        directory = top / f"d{number // 50}"
        directory.mkdir(exist_ok=True)
        (directory / f"f{number}").write_bytes(word * (_SIZE // len(word)))


def _seconds(do: Callable[[], object]) -> float:
    begin = time.perf_counter()
    do()
    return time.perf_counter() - begin


def main() -> int:
    """Print the figures. Return 1 if the bar does not hold."""
    rounds, place, *_ = [*sys.argv[1:], *("7", "/var/tmp")[len(sys.argv) - 1 :]]
    mine, copy, synced = measure(int(rounds), place)
    print(f"apply of {FILES} files {mine * 1e3:.0f} ms; cp -a {copy * 1e3:.0f} ms; with sync {synced * 1e3:.0f} ms")
    print(f"apply / cp -a: {mine / copy:.2f} (bar {BAR}); apply / (cp -a; sync): {mine / synced:.2f}")
    return int(mine / copy > BAR)


if __name__ == "__main__":
    sys.exit(main())
