"""The table and the chart: printed, written beside this file, and copied into the pages that quote figures."""

import re
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.machine import describe
from benchmarks.measure import Answers, Contender, Row

HERE = Path(__file__).parent
MEASURED = re.compile(r"(?<=<!-- measured -->\n)[^\n]*\n(?P<said>.*?)(?=<!-- /measured -->)", re.DOTALL)
HEADER = ("what", "ours", "against", "ratio", "bar", "holds")
PEER_HEADER = (
    *("who", "first answer", "`true`", "`/bin/true`", "1 MB of lines"),
    *("exit code", "stderr", "after a timeout"),
)
BEHAVIOUR_HEADER = ("command", "shellsession", "langchain", "swe-rex", "pexpect")
FIRST_COLUMNS = (HEADER[0], PEER_HEADER[0], BEHAVIOUR_HEADER[0])
DATED = re.compile(r"\d{4}-\d\d-\d\d, ")  # the line about the machine
ABOUT_ROWS = """\
Everything in a line ran side by side in one run. Latency is the median (quartiles) over 25 interleaved bursts of 120.
Ratios are taken within each round. The floor is `benchmarks/floor.py`: a bare loop on pipes to one bash."""
ABOUT_PEERS = """\
25 interleaved bursts of 4. Multiples are of the floor in the same round. After a timeout: set a variable, let `sleep 3`
exceed a limit of 0.5 s, then print the variable. The lines go to a terminal in shellsession, replwrap and swe-rex, and
to pipes in the others."""
ABOUT_BEHAVIOUR = """\
One shell of each gets nine commands, one after the other, with a time limit of 2 s. An answer in bold is wrong. The
peers: {}. swe-rex gets an interrupt after
each time limit."""
VERDICT = {True: "yes", False: "**NO**", None: ""}


def table(header: Sequence[str], lines: Sequence[Sequence[str]]) -> str:
    """A Markdown table whose columns are aligned, so that it also reads well as plain text."""
    cells = [[cell.replace("|", "\\|") for cell in line] for line in (header, *lines)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    padded = [" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
    padded.insert(1, " | ".join("-" * width for width in widths))
    return "\n".join(f"| {line} |" for line in padded)


def text(rows: Sequence[Row], contenders: Sequence[Contender], behaviour: Sequence[Answers], quick: bool) -> str:
    """The whole report. A quick one says that it is quick, because it proves nothing."""
    parts = [
        "# Measured" + (" (a quick run: do not quote it)" if quick else ""),
        f"{datetime.now(UTC):%Y-%m-%d}, {describe()}.",
    ]
    if rows:
        ours = [(row.what, row.ours, row.against, row.ratio, row.bar, VERDICT[row.holds]) for row in rows]
        parts += [ABOUT_ROWS, table(HEADER, ours)]
        missed = [row.what for row in rows if row.holds is False]
        parts.append(f"Bars missed: {'; '.join(missed)}." if missed else "Every bar holds.")
    if contenders:
        peers = [_peer(contender) for contender in contenders]
        parts += ["## Beside the alternatives", ABOUT_PEERS, table(PEER_HEADER, peers)]
    if behaviour:
        from benchmarks.peers import PEERS  # imported here: the tests read a report where no peer is installed

        about = ABOUT_BEHAVIOUR.format(", ".join(PEERS[place].name for place in (1, 3, 2)))
        lines = [(one.command, *one.answers) for one in behaviour]
        parts += ["## Behaviour", parts[1], about, table(BEHAVIOUR_HEADER, lines)]
    return "\n\n".join(parts) + "\n"


def _peer(one: Contender) -> tuple[str, ...]:
    return (
        *(one.name, one.first_answer, one.builtin, one.external, one.flood),
        *(one.exit_code, one.stderr, one.after_timeout),
    )


def write(report: str, contenders: Sequence[Contender]) -> None:
    (HERE / "results.md").write_text(report, encoding="utf-8")
    for page in pages():
        page.write_text(quoted(page.read_text(encoding="utf-8"), report), encoding="utf-8")
    if contenders:
        chart(contenders, HERE / "results.svg")


def pages() -> list[Path]:
    """The pages that quote figures: those with a place for them."""
    written = [HERE.parent / "README.md", *sorted((HERE.parent / "docs").rglob("*.md"))]
    return [page for page in written if MEASURED.search(page.read_text(encoding="utf-8"))]


def quoted(page: str, report: str) -> str:
    """The page with the figures of this report. A table there may have fewer lines and columns than the report's."""
    header, machine, rows = list[str](), "", dict[str, dict[str, str]]()
    for line in report.splitlines():
        cells = _cells(line)
        if DATED.match(line):
            machine = line
        elif cells[0] in FIRST_COLUMNS:
            header = cells
        elif len(cells) == len(header):
            rows[cells[0]] = {**dict(zip(header, cells, strict=True)), "machine": machine}

    def fresh(found: re.Match[str]) -> str:
        lines, columns = [""], list[str]()
        for line in found["said"].splitlines():
            cells = _cells(line)
            if cells[0] in FIRST_COLUMNS:
                columns = cells
            elif (row := rows.get(cells[0])) is not None:
                lines[0] = row["machine"]
                line = f"| {' | '.join(row[name] for name in columns)} |"
            lines.append(line)
        return "\n".join((*lines, ""))

    return MEASURED.sub(fresh, page)


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]


def chart(contenders: Sequence[Contender], path: Path) -> None:
    """A bar chart on a logarithmic scale: the time of a `true` in multiples of the floor."""
    import matplotlib as mpl  # imported here: it takes half a second, and only the chart needs it

    mpl.use("svg")
    mpl.rcParams["svg.hashsalt"] = "shellsession"  # equal figures give equal files
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 3.2), layout="constrained")
    names = [one.name for one in contenders]
    colours = ["#2f7d4f" if name == "shellsession" else "#9aa4ad" for name in names]
    bars = axes.barh(names, [one.over_floor for one in contenders], color=colours)
    axes.bar_label(bars, labels=[one.builtin for one in contenders], padding=4, fontsize=9)
    axes.set_xscale("log")
    axes.set_xlim(0.8, max(one.over_floor for one in contenders) * 12)  # room for the text after the longest bar
    axes.invert_yaxis()
    axes.set_xlabel("one `true`, in multiples of a bare pipe loop (logarithmic)")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, metadata={"Date": None})
