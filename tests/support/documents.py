"""The pages of the project: their links, and the programs and commands in them, run as a reader would."""

from __future__ import annotations

import functools
import os
import re
import shlex
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import pytest

TOP: Final = Path(__file__).parent.parent.parent
# The pages of the site; then these and the checkout's.
SITE: Final = tuple(str(path.relative_to(TOP)) for path in sorted((TOP / "docs").rglob("*.md")))
PAGES: Final = (*SITE, "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md", "examples/README.md")
_BLOCK: Final = re.compile(
    r"^(?: *<!-- no-run: (?P<reason>[^\n]+) -->\n+)?(?P<indent> *)```(?P<language>\w+)[^\n]*\n"
    r"(?P<text>.*?)^(?P=indent)```$",
    re.MULTILINE | re.DOTALL,
)
_LINK: Final = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)
_TIME_LIMIT: Final = 50


class Block(NamedTuple):
    """A block of code in a page. ``unrun``: why no test runs it, from the comment ``<!-- no-run: REASON -->`` above."""

    language: str
    text: str
    page: str = ""
    unrun: str = ""

    def __str__(self) -> str:
        """The page and the first line, which name it in a list of tests."""
        return f"{self.page}: {self.text.partition(chr(10))[0]}"


def read(page: str | Path) -> str:
    return (TOP / page).read_text(encoding="utf-8")


def blocks(page: str | Path, *languages: str) -> list[Block]:
    """The code blocks of a page in these languages, or in all."""
    found = [
        Block(one["language"], textwrap.dedent(one["text"]), str(page), one["reason"] or "")
        for one in _BLOCK.finditer(read(page))
    ]
    return [block for block in found if not languages or block.language in languages]


def _without_code(page: str | Path) -> str:
    return _BLOCK.sub("", read(page))


def links(page: str | Path) -> list[str]:
    """The targets of all links."""
    return _LINK.findall(_without_code(page))


def anchors(page: str | Path) -> set[str]:
    """The names by which a link can point at a heading: in lower case, without punctuation, with dashes."""
    headings = _HEADING.findall(_without_code(page))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def cells(line: str) -> list[str]:
    """The cells of a line of a table."""
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip("|"))]


@contextmanager
def own_daemon(directory: Path) -> Iterator[None]:
    """What a page starts is not the daemon of whoever runs the tests."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SHELLSESSION_SOCKET", str(directory / "socket"))
        patch.setenv("XDG_STATE_HOME", str(directory))
        patch.setenv("HOME", str(directory))
        patch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")
        yield
        subprocess.run([sys.executable, "-m", "shellsession", "stop"], check=True, capture_output=True)


@functools.cache
def run_python(program: str, cwd: Path = TOP, limit: float = _TIME_LIMIT) -> subprocess.CompletedProcess[str]:
    """Run a program once, however many tests look at it."""
    command = [sys.executable, "-W", "error", "-c", program]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=limit)


def run_bash(script: str, cwd: Path = TOP) -> subprocess.CompletedProcess[str]:
    """Run commands of a page, with this Python where they name the one in .venv."""
    script = script.replace(".venv/bin/", f"{shlex.quote(str(Path(sys.executable).parent))}/")
    command = ["bash", "-c", script]
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False, timeout=_TIME_LIMIT)


def dialogue(transcript: str) -> Iterator[tuple[str, str]]:
    """The commands of a console block (``$ command``), each with the output that follows it."""
    for part in re.split(r"^\$ ", transcript, flags=re.MULTILINE)[1:]:
        command, _, output = part.partition("\n")
        yield command, output


def prints_as_shown(program: str, output: str) -> bool:
    """True if the output's lines are those that the program's comments show (``# prints: x``), or it shows none."""
    shown = re.findall(r"# prints: (.+)$", program, re.MULTILINE)
    lines = output.splitlines()
    return not shown or (len(lines) == len(shown) and all(map(looks_like, lines, shown)))


def looks_like(output: str, shown: str) -> bool:
    """True if this output is what a page shows, where ``...`` stands for anything."""
    return re.fullmatch(".*?".join(map(re.escape, shown.split("..."))), output, re.DOTALL) is not None
