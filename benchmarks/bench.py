"""`make bench`: measures every bar of the project in one run, and prints one table of ratios."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import Any

from benchmarks.measure import Answers, Contender, Row
from benchmarks.report import text, write

# Each section runs in its own process: imports and memory of one must not slow down the next.
SECTIONS = ("latency", "throughput", "limits", "commands", "scale", "daemon", "watch", "ends")
CONTEST = "contest"
BEHAVIOUR = "behaviour"


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="run a smoke test of a minute; print only")
    parser.add_argument("--only", choices=[*SECTIONS, CONTEST, BEHAVIOUR], help="run one section; print only")
    parser.add_argument("--into", type=Path, help=argparse.SUPPRESS)  # for a section's process: writes its rows as JSON
    options = parser.parse_args()
    if options.into:
        found = _measure(options.only)(options.quick)
        options.into.write_text(json.dumps([asdict(one) for one in found]), encoding="utf-8")
        return 0
    return report(options.only, options.quick)


def report(only: str | None, quick: bool) -> int:
    wanted = [only] if only else [*SECTIONS, CONTEST, BEHAVIOUR]
    found = {name: _section(name, quick) for name in wanted}
    rows = [Row(**one) for name in SECTIONS for one in found.get(name, [])]
    contenders = [Contender(**one) for one in found.get(CONTEST, [])]
    behaviour = [Answers(**one) for one in found.get(BEHAVIOUR, [])]
    said = text(rows, contenders, behaviour, quick)
    print(said, end="")
    if not quick and not only:
        write(said, contenders)
        print("\nwritten: benchmarks/results.md, benchmarks/results.svg")
    return 0


def _measure(section: str) -> Callable[[bool], Sequence[Row | Contender | Answers]]:
    measure: Callable[[bool], Sequence[Row | Contender | Answers]] = import_module(f"benchmarks.{section}").measure
    return measure


def _section(name: str, quick: bool) -> list[dict[str, Any]]:
    print(f"measuring: {name}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="shellsession-bench-") as directory:
        into = Path(directory, "rows.json")
        argv = [sys.executable, "-m", "benchmarks.bench", "--only", name, "--into", str(into)]
        # An empty home: some peers read the startup files there, which may take long, or wait for a lock.
        env = {**os.environ, "HOME": directory}
        subprocess.run([*argv, *(["--quick"] if quick else [])], check=True, env=env)
        rows: list[dict[str, Any]] = json.loads(into.read_text(encoding="utf-8"))
        return rows


if __name__ == "__main__":
    sys.exit(main())
