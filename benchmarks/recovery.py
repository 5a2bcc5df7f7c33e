"""How many tasks end right although their shell dies: `python -m benchmarks.recovery [PAIRS] [--bash PATH]`.

Each pair is a sequence of commands and a turn, both drawn at random (with a fixed seed). After that turn the shell dies
in one of eight ways. The rest runs in the next shell, and the last command must print what it prints undisturbed. Each
pair runs in a session without recovery, in one whose agent keeps its exports and its directory in files, and in one
with ``recover=True``.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from benchmarks.report import table
from benchmarks.sequences import CANNOT, SEQUENCES, Sequence
from shellsession import Result, Session

# How each shell dies: with one of these commands, or by SIGKILL while it is idle.
_IDLE: Final = "SIGKILL while idle"
_LIMIT: Final = "trap '' INT; while :; do :; done"
DEATHS: Final = {
    "exit": "exit 1",
    "exit in a function": "die() { echo failed >&2; exit 2; }; die",
    "an unset variable": "set -euo pipefail; : $nothing",
    "exec": "exec true",
    "SIGKILL": "kill -9 $$",
    "no memory": "ulimit -v 30000; printf -v big %99999999d 1",
    "a time limit": _LIMIT,
    _IDLE: "",
}
# A model takes at least this many seconds for a turn. The state is kept once a second; more rarely on a busy machine.
_THINKING: Final = 2.0
# Pairs that run at the same time: they wait more than they work.
_AT_ONCE: Final = 24
_KEEP: Final = "export -p >|{0}/exports; pwd >|{0}/cwd"
_BRING_BACK: Final = 'cd "$(<{0}/cwd)"; . {0}/exports'
NOTHING, EXPORTS, RECOVER = "without recovery", "exports and the directory", "recover=True"


def die(session: Session, death: str) -> Result:
    """End the shell. Returns the result that says so."""
    if death != _IDLE:
        limit = {"timeout": 0.2, "on_timeout": "kill"} if death == "a time limit" else {}
        return session.run(DEATHS[death], **limit)  # type: ignore[arg-type]  # a table of options
    pid = session.pid
    assert pid
    os.kill(pid, signal.SIGKILL)
    return session.run(":")  # it reports the death, and is not run


def play(sequence: Sequence, how: str, bash: str, turn: int = -1, death: str = "") -> tuple[str, int | None]:
    """Run the sequence. After that turn its shell dies. Returns what the last command shows."""
    with tempfile.TemporaryDirectory() as top:
        (cwd := Path(top, "work")).mkdir()
        keeps = _KEEP.format(top) if how == EXPORTS else ""
        with Session(cwd=cwd, bash=bash, tty=False, timeout=30, recover=how == RECOVER) as session:
            for number, step in enumerate(sequence.steps):
                if number <= turn and how == RECOVER:
                    time.sleep(_THINKING)
                session.run(step)
                if keeps:
                    session.run(keeps)
                if number == turn:
                    if how == RECOVER:
                        time.sleep(_THINKING)
                    result = die(session, death)
                    assert not result.state_kept, (death, result)
                    if keeps:
                        session.run(_BRING_BACK.format(top))
            last = session.run(sequence.check)
            return last.stdout.replace(str(cwd), "WORK"), last.exit_code


def measure(pairs: int, bash: str, say: Callable[[str], None]) -> dict[str, Counter[bool]]:
    """Return how many of the pairs end right and wrong, for each kind of session."""
    choose = random.Random(37)
    drawn = [
        (one := choose.choice(SEQUENCES), choose.randrange(len(one.steps)), choose.choice([*DEATHS]))
        for _ in range(pairs)
    ]
    right = {one.name: play(one, NOTHING, bash) for one in SEQUENCES}
    for one in SEQUENCES:
        assert play(one, EXPORTS, bash) == play(one, RECOVER, bash) == right[one.name], one.name
    found: dict[str, Counter[bool]] = {how: Counter() for how in (NOTHING, EXPORTS, RECOVER)}

    def outcome(pair: tuple[Sequence, int, str]) -> dict[str, bool]:
        sequence, turn, death = pair
        return {how: play(sequence, how, bash, turn, death) == right[sequence.name] for how in found}

    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for (sequence, turn, death), outcomes in zip(drawn, pool.map(outcome, drawn), strict=True):
            for how, is_right in outcomes.items():
                found[how][is_right] += 1
            if not outcomes[RECOVER] and sequence.name not in CANNOT:
                say(f"not recovered: {sequence.name}, {death} after turn {turn + 1}")
    say(f"{sum(sequence.name in CANNOT for sequence, *_ in drawn)} pairs build on a process or an open file")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pairs", nargs="?", type=int, default=200)
    parser.add_argument("--bash", default="bash")
    args = parser.parse_args()
    found = measure(args.pairs, args.bash, print)
    with Session(bash=args.bash) as session:
        print(f"\nbash {session.run('echo $BASH_VERSION').stdout.strip()}, {args.pairs} pairs\n")
    rows = [(how, str(counts[True]), f"{counts[True] / counts.total():.0%}") for how, counts in found.items()]
    print(table(("the agent's session", "end right", ""), rows))


if __name__ == "__main__":
    main()
