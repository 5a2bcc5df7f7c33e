"""The table and the chart: printed, written beside this file, and quoted in the README."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.machine import describe
from benchmarks.measure import Contender, Row

HERE = Path(__file__).parent
README = HERE.parent / "README.md"
MEASURED = re.compile(r"(?<=<!-- measured -->\n)[^\n]*\n(?P<said>.*?)(?=<!-- /measured -->)", re.DOTALL)
HEADER = ("what", "ours", "against", "ratio", "bar", "holds")
PEER_HEADER = (
    *("who", "first answer", "`true`", "`/bin/true`", "1 MB of lines"),
    *("exit code", "stderr", "after a timeout"),
)
ABOUT_ROWS = """\
Everything in a line ran side by side in one run. Latency: median (quartiles) over 25 interleaved bursts of 120,
ratios taken within each round. The floor is `benchmarks/floor.py`: a bare loop on pipes to one bash."""
ABOUT_PEERS = """\
Interleaved bursts of 4, 25 of them; multiples are of the floor in the same round. After a timeout: a variable is
set, `sleep 3` runs out of 0.5 s, and the variable is asked for. The lines go to a terminal in shellsession, replwrap
and swe-rex, to pipes in the others."""
VERDICT = {True: "yes", False: "**NO**", None: ""}


def table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """Markdown that reads well as plain text too: columns of one width."""
    cells = [[cell.replace("|", "\\|") for cell in line] for line in (header, *lines)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    padded = [" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
    padded.insert(1, " | ".join("-" * width for width in widths))
    return "\n".join(f"| {line} |" for line in padded)


def text(rows: Sequence[Row], contenders: Sequence[Contender], quick: bool) -> str:
    """The whole report; a quick one says so, it proves nothing."""
    parts = [
        "# Measured" + (" (a quick taste, not to be quoted)" if quick else ""),
        f"{datetime.now(UTC):%Y-%m-%d}, {describe()}.",
    ]
    if rows:
        ours = [(row.what, row.ours, row.against, row.ratio, row.bar, VERDICT[row.holds]) for row in rows]
        parts += [ABOUT_ROWS, table(HEADER, ours)]
        missed = [row.what for row in rows if row.holds is False]
        parts.append(f"Bars missed: {'; '.join(missed)}." if missed else "Every bar holds.")
    if contenders:
        peers = [_peer(contender) for contender in contenders]
        parts += ["## Beside what users would pick instead", ABOUT_PEERS, table(PEER_HEADER, peers)]
    return "\n\n".join(parts) + "\n"


def _peer(one: Contender) -> tuple[str, ...]:
    return (
        *(one.name, one.first_answer, one.builtin, one.external, one.flood),
        *(one.exit_code, one.stderr, one.after_timeout),
    )


def write(report: str, contenders: Sequence[Contender]) -> None:
    (HERE / "results.md").write_text(report, encoding="utf-8")
    README.write_text(quoted(README.read_text(encoding="utf-8"), report), encoding="utf-8")
    if contenders:
        chart(contenders, HERE / "results.svg")


def quoted(readme: str, report: str) -> str:
    """The README with its lines of the tables, which are known by their first cells, as they are in this report."""
    lines = {cells[0]: f"| {' | '.join(cells)} |" for cells in map(_cells, report.splitlines()) if len(cells) > 1}
    machine = report.split("\n\n")[1]

    def fresh(found: re.Match[str]) -> str:
        said = [lines.get(_cells(line)[0], line) for line in found["said"].splitlines()]
        return "\n".join((machine, *said, ""))

    return MEASURED.sub(fresh, readme)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]


def chart(contenders: Sequence[Contender], path: Path) -> None:
    """One bar each on a logarithmic scale: how many floors a `true` costs."""
    import matplotlib as mpl  # here: half a second that only a chart has to pay

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "shellsession"  # the same figures give the same file
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 3.2), layout="constrained")
    names = [one.name for one in contenders]
    colours = ["#2f7d4f" if name == "shellsession" else "#9aa4ad" for name in names]
    bars = axes.barh(names, [one.over_floor for one in contenders], color=colours)
    axes.bar_label(bars, labels=[one.builtin for one in contenders], padding=4, fontsize=9)
    axes.set_xscale("log")
    axes.set_xlim(0.8, max(one.over_floor for one in contenders) * 12)  # room for the words behind the longest bar
    axes.invert_yaxis()
    axes.set_xlabel("one `true`, in multiples of a bare pipe loop (logarithmic)")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
