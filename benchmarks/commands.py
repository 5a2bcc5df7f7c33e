"""Measures long commands, and timeouts: the cost of the text's length, and how late a timed-out call returns."""

import tempfile
import time
from functools import partial
from pathlib import Path

from benchmarks.floor import Floor
from benchmarks.measure import Row, Spread, duration, number, once, ratios, spread
from shellsession import Session

MEMORY = Path("/dev/shm") if Path("/dev/shm").is_dir() else None
# Bytes of command text, and the bar in milliseconds.
TEXTS = ((1_000, "1 KB", 0.3), (100_000, "100 KB", 8.0), (5_000_000, "5 MB", 400.0))

# Commands that never end by themselves, and how late their call may return after its timeout.
ENDLESS = (
    ("sleep 100 | cat", 0.05),
    ("while :; do :; done", 0.05),
    ("trap '' INT; sleep 100", 0.4),
)


def text(size: int) -> str:
    """Ordinary lines of 80 characters, as in a generated script."""
    line = ": a line of a generated script, as long as such lines are, and quite harmless ok"
    return "\n".join([line] * (size // (len(line) + 1)))


def measure(quick: bool) -> list[Row]:
    return [*_texts(quick), *_timeouts(quick)]


def _texts(quick: bool) -> list[Row]:
    rows = []
    with Floor() as floor, Session() as session, tempfile.TemporaryDirectory(dir=MEMORY) as place:
        path = Path(place, "text")

        def bare(command: str) -> None:
            """How long bash itself takes: the floor writes the text to a file in memory, and bash reads that."""
            path.write_text(command, encoding="ascii")
            floor.run(f". {path}")

        for size, name, bar in TEXTS:
            command = text(size)
            rounds = 3 if quick else 9 if size > 1_000_000 else 100
            ours, theirs = [], []
            for _ in range(rounds):
                ours.append(once(partial(session.run, command)))
                theirs.append(once(partial(bare, command)))
            median = spread(ours).mid
            against = f"the floor's `. FILE` {duration(spread(theirs).mid)}"
            rows.append(_text_row(name, median, against, ratios(ours, theirs), bar))
    return rows


def _text_row(name: str, median: float, against: str, ratio: Spread, bar: float) -> Row:
    what = f"{name} of command text"
    return Row(what, duration(median), against, f"{ratio} x", f"< {bar:g} ms", median * 1e3 < bar)


def _timeouts(quick: bool) -> list[Row]:
    limit, rounds = 0.2, 3 if quick else 15
    rows = []
    for command, bar in ENDLESS:
        late, kept = [], 0
        with Session() as session:
            session.run("cd / && STATE=here; note() { echo noted; }")
            for _ in range(rounds):
                start = time.perf_counter()
                result = session.run(command, timeout=limit)
                late.append(time.perf_counter() - start - limit)
                after = session.run("echo $STATE $PWD $(note)")
                kept += result.outcome == "timed_out" and result.state_kept and after.stdout == "here / noted\n"
                session.run("trap - INT")
        worst = max(late)
        holds = worst <= bar and kept == rounds
        ours = f"{number(spread(late).mid * 1e3)} ms late, worst {number(worst * 1e3)} ms"
        state = f"state kept {kept} of {rounds}"
        rows.append(Row(f"timeout of `{command}`", ours, "its limit", state, f"<= {bar * 1e3:g} ms, kept", holds))
    return rows
