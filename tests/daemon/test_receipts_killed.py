"""Client, daemon, bash and bridge are killed at each step of a command with a key, which never runs twice."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from system import PATIENCE, SOAK

from benchmarks.receipt_kills import RANDOM, STEPS, VICTIMS

# Each pair of a step and a victim has its turn once in 36 rounds. A daemon at a named step is never missed.
_ROUNDS, _LEAST = (200, 5) if SOAK else (36, 1)


@pytest.mark.timeout(15 * PATIENCE)
def test_killed_at_any_step_no_key_runs_twice_and_no_answer_is_wrong() -> None:
    words = [sys.executable, "-m", "benchmarks.receipt_kills", str(_ROUNDS)]
    top = Path(__file__).parents[2]
    played = subprocess.run(words, cwd=top, capture_output=True, text=True, check=False)
    assert played.returncode == 0, played.stdout + played.stderr
    kills: Counter[str] = Counter()
    unknown: dict[str, tuple[int, int]] = {}  # when the daemon was killed: and of these, how many had not run
    for line in played.stdout.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if cells[0] in (*STEPS, RANDOM):
            kills[cells[0]] += int(cells[2])
            kills[cells[1]] += int(cells[2])
            if cells[1] == "daemon":
                unknown[cells[0]] = int(cells[6]), int(cells[7])
    assert all(kills[name] >= _LEAST for name in (*STEPS, *VICTIMS)), played.stdout
    # The disk has the receipt before bash gets the command, and the result before the client gets the answer.
    lost = [unknown[step] for step in ("written", "synced", "typing")]
    assert all(count == had_not_run >= _LEAST for count, had_not_run in lost), played.stdout
    assert all(unknown[step][0] == 0 for step in ("claimed", "recorded", "answered")), played.stdout
