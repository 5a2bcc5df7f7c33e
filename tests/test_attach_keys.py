"""attach and its keys: Ctrl-C, Ctrl-D and the others, in a command and at the prompt."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from persons import CTRL_C, CTRL_D, LEAVE, Sits
from support import unique_seconds, wait_until

from shellsession import RemoteSession


@pytest.mark.parametrize("command", [f"sleep {unique_seconds()}", "cat"], ids=["sleep", "cat"])
def test_ctrl_c_strikes_the_command(sits: Sits, command: str) -> None:
    person = sits()
    person.prompt()
    person.types(f"kept=1; echo g''o; {command}\r")
    person.sees("go\r\n")
    person.types(CTRL_C)
    person.prompt()
    assert person.runs("echo $? $kept") == "130 1\r\n"


def test_ctrl_d_ends_the_input_and_at_the_prompt_the_attachment(sits: Sits) -> None:
    person = sits()
    person.prompt()
    person.types("cat\r")
    person.types("line\r")
    person.sees("line\r\nline\r\n")
    person.types(CTRL_D)
    person.prompt()
    person.types(CTRL_D)
    person.sees(r"left .* comes back to it")
    assert person.ends() == 0


def test_ctrl_d_within_a_command_drops_that_and_ctrl_bracket_leaves(sits: Sits, client: RemoteSession) -> None:
    person = sits()
    person.prompt()
    person.types("echo 'ha\r")
    person.sees("\n> ")
    person.types(CTRL_D)
    person.sees("nothing was run")
    person.prompt()
    assert person.runs("echo o''ne") == "one\r\n"
    person.types("echo 'ha\r")
    person.sees("\n> ")
    person.types("par" + LEAVE)
    person.sees(r"left .* comes back to it")
    assert person.ends() == 0


def test_what_ignores_ctrl_c_is_ended_by_a_second_one(sits: Sits) -> None:
    person = sits()
    person.prompt()
    person.types("trap '' INT; echo u''p; sleep 100; sleep 100\r")
    person.sees("up\r\n")
    person.types(CTRL_C)
    person.sees("once more ends it by force")
    person.types(CTRL_C)
    person.sees("interrupted on request")
    person.prompt()


def test_ctrl_c_ends_a_flood_at_once(sits: Sits) -> None:
    person = sits()
    person.prompt()
    person.types("yes\r")
    person.sees("y\r\ny\r\n")
    person.types(CTRL_C)
    person.prompt()
    assert person.runs("echo $?") == "130\r\n"


def test_ctrl_c_at_the_prompt_drops_the_line(sits: Sits) -> None:
    person = sits()
    person.prompt()
    person.types("not this")
    person.sees("not this")
    person.types(CTRL_C)
    person.prompt()
    assert person.runs("echo th''is") == "this\r\n"


def test_ctrl_c_between_two_lines_drops_what_was_pasted(sits: Sits, tmp_path: Path) -> None:
    """While bash is asked whether the first line is all."""
    asked = tmp_path / "bin" / "bash"
    asked.parent.mkdir()
    asked.write_text(f"""#!/bin/sh
case "$*" in *" -n "*) mkdir {tmp_path}/asked && exec sleep 100 ;; esac
exec {shutil.which("bash")} "$@"
""")
    asked.chmod(0o700)
    person = sits(PATH=f"{asked.parent}:{os.environ['PATH']}")
    person.prompt()
    person.types("cat <<X\rline\rX\rtouch ran\r")
    wait_until((tmp_path / "asked").exists, "it to be asked")
    person.types(CTRL_C)
    person.sees(r"\^C")
    person.prompt()
    assert person.runs("echo th''is") == "this\r\n"
    assert not (tmp_path / "ran").exists()


def test_ctrl_c_drops_what_was_typed_ahead(sits: Sits, tmp_path: Path) -> None:
    person = sits()
    person.prompt()
    person.types("echo u''p; until [ -e go ]; do sleep 0.05; done\r")
    person.sees("up\r\n")
    person.types("echo o''n; sleep 100\rtouch ran\r")
    person.sees("touch ran\r\n")
    (tmp_path / "go").touch()
    person.sees("on\r\n")
    person.types(CTRL_C)
    person.prompt()
    assert person.runs("echo th''is") == "this\r\n"
    assert not (tmp_path / "ran").exists()


def test_ctrl_backslash_at_the_prompt_does_nothing(sits: Sits) -> None:
    person = sits()
    person.prompt()
    person.types("\x1c")
    wait_until(lambda: person.reads_nothing, "attach to take it")
    assert person.runs("echo there") == "there\r\n"
    person.leaves()


def test_exit_alone_is_not_taken_as_meant(sits: Sits) -> None:
    person = sits()
    person.prompt()
    assert "Ctrl-] leaves" in person.runs("kept=1; exit".partition("; ")[2])
    assert "its shell has ended" in person.runs("exit 3")
    assert person.runs("echo again") == "again\r\n"


def test_keys_that_a_command_cannot_take_are_for_the_prompt(sits: Sits, client: RemoteSession, tmp_path: Path) -> None:
    client.run("while [ ! -e go ]; do sleep .01; done", timeout=0.05, on_timeout="yield")
    person = sits()
    person.sees(r"agent\$ while")
    person.types("echo ah''ead\recho par")
    wait_until(lambda: person.reads_nothing, "that the keys are taken")
    (tmp_path / "go").touch()
    person.sees("\nahead\r\n")
    person.sees("echo par")
    person.types("t''ial\r")
    person.sees("partial\r\n")


def test_keys_that_a_command_of_his_did_not_read_are_for_the_prompt(sits: Sits, tmp_path: Path) -> None:
    """Also when he has left it, and come back."""
    person = sits()
    person.prompt()
    person.types("echo h''ere; until [ -e go ]; do sleep 0.05; done; (exit 3)\r")
    person.sees("here\r\n")
    person.leaves()
    person = sits()
    person.sees(r"person\$ echo h''ere")
    person.types("echo ah''ead\recho par")
    person.sees("echo ah''ead\r\n.*echo par")  # the terminal's echo: they have arrived
    (tmp_path / "go").touch()
    person.sees("person: status 3")
    person.sees("\nahead\r\n")
    person.sees("echo par")
    person.types("t''ial\r")
    person.sees("partial\r\n")
