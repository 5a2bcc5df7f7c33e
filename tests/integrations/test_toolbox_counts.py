"""Whatever a verb of the toolbox does not show of the output, it counts: shown and counted is what was printed."""

from __future__ import annotations

import asyncio
import itertools
import json
import re
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from daemons import Daemon
from hypothesis import given, strategies as st
from system import until

from shellsession import AsyncSession, aconnect
from shellsession.integrations.toolbox import Toolbox
from shellsession.paging import LEAST_CHARS
from shellsession.signatures import kept_streams

_MARK: Final = re.compile(
    r"\[\.\.\. ([\d ]+) bytes(?: \(.*? lines?\))? omitted(?:; read_output\(.*?\) shows them)? \.\.\.\]\n?"
)
_BRACKETED: Final = re.compile(r"\[(?!\.\.\. ).*\]")
_numbers = itertools.count()


def counted(answer: str) -> int:
    """How many bytes of output a text for a model shows, or says are missing. The output has no brackets."""
    parts = [list[str]()]
    for line in answer.split("\n"):
        if _BRACKETED.fullmatch(line):  # a label or a note
            parts.append([])
        else:
            parts[-1].append(line)
    text = "".join("\n".join(lines) for lines in parts)
    told = sum(int(mark[1].replace(" ", "")) for mark in _MARK.finditer(text))
    return len(_MARK.sub("", text).encode()) + told


class Tried(NamedTuple):
    """A toolbox, whose commands work in ``place``. There the files ``out`` and ``err`` have what is to be printed."""

    session: Any
    tools: Toolbox
    place: Path


Answers = Callable[[Tried], Awaitable[list[str]]]
_PRINT: Final = "cat out; cat err >&2"


async def followed(tried: Tried, answers: list[str]) -> list[str]:
    while "[still running" in answers[-1]:
        answers.append(await tried.tools.wait())
    return answers


async def by_bash(tried: Tried) -> list[str]:
    return await followed(tried, [await tried.tools.bash(f"{_PRINT}; (exit 3)")])


async def by_wait(tried: Tried) -> list[str]:
    """Half of each stream before the command is handed back, and half after it."""
    for name in ("out", "err"):
        data = (tried.place / name).read_bytes()
        for number, half in enumerate((data[: len(data) // 2], data[len(data) // 2 :])):
            (tried.place / f"{name}{number}").write_bytes(half)
    halves = [f"cat out{number}; cat err{number} >&2" for number in range(2)]
    first = await tried.tools.bash(f"{halves[0]}; until [ -e go ]; do sleep 0.01; done; {halves[1]}")
    (tried.place / "go").touch()
    return await followed(tried, [first])


async def by_interrupt(tried: Tried) -> list[str]:
    first = await tried.tools.bash(f"until [ -e go ]; do sleep 0.01; done; {_PRINT}; touch done; sleep 1000")
    (tried.place / "go").touch()
    await until((tried.place / "done").exists)
    return [first, await tried.tools.interrupt()]


async def by_send(tried: Tried) -> list[str]:
    answers = [await tried.tools.bash("read; tr '\\n' ' ' <out; tr '\\n' ' ' <err >&2", interactive=True)]
    return await followed(tried, [*answers, await tried.tools.send("go")])


async def by_jobs(tried: Tried) -> list[str]:
    job = f"{{ until [ -e go ]; do sleep 0.01; done; {_PRINT}; touch done; sleep 1000; }} &"
    await followed(tried, [await tried.tools.bash(job)])
    (tried.place / "go").touch()
    size = sum((tried.place / name).stat().st_size for name in ("out", "err"))

    def printed() -> int:
        (job,) = tried.session.jobs()
        return sum(len(data) + omitted for _, data, omitted, _ in kept_streams(job))

    await until(lambda: printed() == size)
    every = await tried.tools.jobs()
    one = await tried.tools.jobs("j1")
    assert counted(every) == counted(one)
    return [one]


_printed = st.builds(
    lambda lines, times: "\n".join(lines * times) + "x",
    st.lists(st.text("aé世", max_size=40) | st.integers(0, 500).map("aé世x".__mul__), min_size=1, max_size=20),
    st.integers(1, 60),
)
_limits = st.sampled_from([LEAST_CHARS, 300, 1000, 5000])


def played(answers: Answers, streams: list[str], most: int, daemon: Daemon | None, place: Path) -> list[str]:
    """The answers of a toolbox on a new session: of the daemon, or of this process."""
    for name, text in zip(("out", "err"), streams, strict=True):
        (place / name).write_text(text, encoding="utf-8")

    async def main() -> list[str]:
        opened: Any = AsyncSession(cwd=place)
        if daemon is not None:
            opened = aconnect(f"counted-{next(_numbers)}", daemon.socket, cwd=place)
        async with opened as session:
            texts = await answers(Tried(session, Toolbox(session, max_chars=most, patience=0.1), place))
            await session.close()
            return texts

    texts = asyncio.run(main())
    assert max(map(len, texts)) <= most
    return texts


@pytest.mark.parametrize("verb", [by_bash, by_wait, by_interrupt, by_send, by_jobs], ids=lambda verb: verb.__name__)
@given(out=_printed | st.just(""), err=_printed | st.just(""), most=_limits, is_remote=st.booleans())
def test_shown_and_counted_is_what_was_printed(
    verb: Answers, out: str, err: str, most: int, is_remote: bool, daemon: Daemon, tmp_path_factory: Any
) -> None:
    place = tmp_path_factory.mktemp("counted")
    answers = played(verb, [out, err], most, daemon if is_remote else None, place)
    missing = len((out + err).encode()) - sum(map(counted, answers))
    # A newline that ends an answer's part of a stream is not shown; `jobs` ends each stream with one.
    assert -(verb is by_jobs) <= missing <= 2 * (len(answers) - 1)


async def by_read_output(tried: Tried) -> list[str]:
    """The pages of stderr, for one who makes the calls that the marks name."""
    await followed(tried, [await tried.tools.bash(_PRINT)])
    pages, part = list[str](), {"lines": [1, None]}
    while part:
        pages.append(await tried.tools.call("read_output", {"id": "c1", "stream": "stderr", **part}))
        named = re.search(r"\[\.\.\. more follows.*(lines|bytes)=(\[\d+, null\])", pages[-1])
        part = {named[1]: json.loads(named[2])} if named else {}
    return pages


@given(out=_printed, err=_printed, most=_limits, is_remote=st.booleans())
def test_pages_show_all_that_was_printed(
    out: str, err: str, most: int, is_remote: bool, daemon: Daemon, tmp_path_factory: Any
) -> None:
    pages = played(by_read_output, [out, err], most, daemon if is_remote else None, tmp_path_factory.mktemp("paged"))
    assert "".join(page.partition("[...")[0] for page in pages) == err
