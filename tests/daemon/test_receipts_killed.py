"""Client, daemon, bash and bridge are killed at each step of a command with a key, which never runs twice."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

from benchmarks.receipt_kills import RANDOM, STEPS, VICTIMS

_ROUNDS = 200


def test_killed_at_any_step_no_key_runs_twice_and_no_answer_is_wrong() -> None:
    words = [sys.executable, "-m", "benchmarks.receipt_kills", str(_ROUNDS)]
    top = Path(__file__).parents[2]
    played = subprocess.run(words, cwd=top, capture_output=True, text=True, check=False)
    assert played.returncode == 0, played.stdout + played.stderr
    kills: Counter[str] = Counter()
    for line in played.stdout.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] in (*STEPS, RANDOM):
            kills[cells[0]] += int(cells[2])
            kills[cells[1]] += int(cells[2])
    assert all(kills[name] >= 5 for name in (*STEPS, *VICTIMS)), played.stdout
