"""The README's programs run as they are, and its figures are the measured ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest
from documents import blocks, own_daemon, prints_as_shown, read, run_bash, run_python

_TEXT: Final = read("README.md")
_WORDS: Final = 1000


@pytest.fixture(scope="module", autouse=True)
def daemon_of_its_own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with own_daemon(tmp_path_factory.mktemp("readme")):
        yield


def test_it_is_short() -> None:
    assert len(_TEXT.split()) <= _WORDS


def test_the_first_program_prints_what_is_shown() -> None:
    (block,) = blocks("README.md", "python")
    done = run_python(block.text)
    assert (done.returncode, done.stderr) == (0, "")
    assert "# prints:" in block.text
    assert prints_as_shown(block.text, done.stdout)


def test_the_command_line_does_what_its_comments_say() -> None:
    commands = blocks("README.md", "sh")[-1].text.splitlines()
    shown = [run_bash(command).stdout for command in commands if " attach " not in command]
    assert shown == ["", "x in /tmp\n"]
