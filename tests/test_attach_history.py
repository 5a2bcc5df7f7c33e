"""attach and its history: the commands of earlier times, whole, in a file that is its owner's alone."""

from __future__ import annotations

import readline
from pathlib import Path

import pytest
from persons import UP, Sits

from shellsession.cli.editing import from_readline
from shellsession.cli.history import History


def test_the_history_is_his_alone_and_lasts(sits: Sits, tmp_path: Path) -> None:
    person = sits()
    person.prompt()
    person.runs("echo removed")
    (tmp_path / "state" / "shellsession" / "attach_history").unlink()
    person.runs("echo remem''bered")
    person.leaves()
    person = sits()
    person.prompt()
    assert person.runs(UP) == "remembered\r\n"
    [file] = (tmp_path / "state" / "shellsession").iterdir()
    assert (file.name, file.stat().st_mode & 0o777) == ("attach_history", 0o600)
    assert file.read_text() == "echo remem''bered\n"


def test_a_command_of_several_lines_stays_one(sits: Sits) -> None:
    for line in ("for i in 1 2\rdo printf %s. $i\rdone\r", UP + "\r", UP + "\r"):
        person = sits()
        person.prompt()
        person.types(line)
        person.sees(r"\n1\.2\.")
        person.prompt()
        person.leaves()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state" / "history"


def remembered(file: Path, *commands: str) -> list[str]:
    """What who comes to the prompt finds, and these then."""
    readline.clear_history()
    history = History(str(file))
    for command in commands:
        history.add(command)
    length = readline.get_current_history_length()
    return [from_readline(readline.get_history_item(number + 1)) for number in range(length)]


COMMANDS = [
    "echo a",
    "cat <<X\n\na\\\nX",
    r"printf 'a\n' \\",
    "echo \r\t\x1b",
    "#1700000000",
    "echo é \udcff",
    "echo b\n",
]


def test_what_was_typed_is_found_again(file: Path) -> None:
    assert remembered(file) == []
    assert remembered(file, *COMMANDS, COMMANDS[-1], " ", "") == COMMANDS
    assert remembered(file, COMMANDS[-1]) == COMMANDS


def test_a_file_of_lines_is_taken_as_it_is(file: Path) -> None:
    file.parent.mkdir()
    lines = [r"printf 'a\n' " + "\\", "for i in 1 2", "not ended"]
    file.write_text("\n".join(lines))
    assert remembered(file) == lines


def test_the_last_2000_are_kept(file: Path) -> None:
    remembered(file, *map(str, range(2600)))
    assert remembered(file) == [str(number) for number in range(600, 2600)]
    assert len(file.read_text().splitlines()) == 2000
    assert [one.name for one in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize("instead", ["/", "/dev/null"])
def test_without_a_file_they_last_as_long_as_he_stays(file: Path, instead: str) -> None:
    file.parent.mkdir()
    file.symlink_to(instead)
    assert remembered(file, "a", "b") == ["a", "b"]
    assert remembered(file) == []
