"""attach and its keys: Ctrl-C, Ctrl-D and the others, in a command and at the prompt."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest
from persons import CTRL_C, CTRL_D, LEAVE, Sits
from support import unique_seconds, wait_until

from shellsession import TTY, RemoteSession


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


@pytest.mark.parametrize("mode", ["emacs", "vi"])
@pytest.mark.parametrize("keys", ["", "par", "\x1b", "par\x1b"], ids=ascii)
def test_ctrl_bracket_leaves_whatever_keys_his_editor_has(sits: Sits, tmp_path: Path, mode: str, keys: str) -> None:
    (tmp_path / "inputrc").write_text(f"set editing-mode {mode}\nset keyseq-timeout 1\n")
    person = sits(INPUTRC=str(tmp_path / "inputrc"))
    person.prompt()
    assert person.runs("echo th''is") == "this\r\n"
    person.types(keys)
    wait_until(lambda: person.reads_nothing, "that the keys are taken")
    person.leaves()


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


def test_keys_that_the_agents_command_did_not_read_are_not_run(sits: Sits, client: RemoteSession) -> None:
    """They may be a password."""
    client.run("until read -t 0; do sleep .01; done; echo th''ere", stdin=TTY, timeout=0.05, on_timeout="yield")
    person = sits()
    person.sees(r"agent\$ until")
    person.types("echo run\r")
    person.prompt()
    assert person.runs("echo th''is") == "this\r\n"


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


@pytest.mark.parametrize(
    ("command", "keys", "shown"),
    [
        ("read x; echo got $x", "word\r", "got word\r\n"),
        ("read -s x; echo got ${#x}", "secret\r", r"\$ read -s x; echo got \${#x}\r\ngot 6\r\n"),  # and no echo
        ("read -n 3 x; echo; echo got $x", "abc", "got abc\r\n"),
        ("cat; echo ended", f"line\r{CTRL_D}", "line\r\nended\r\n"),
        ("if read x\rthen echo got $x\rfi", "word\r", "got word\r\n"),
        ("sleep 0.5; read x; echo got $x", "word\r", "got word\r\n"),
        (f"{sys.executable} -c 'print(6*int(input()))'", "7\r", "42\r\n"),
        (f"{sys.executable} -c 'import select; select.select([0], [], []); print(6*int(input()))'", "7\r", "42\r\n"),
        ("read x; read y; echo got $y$x", "a\rb\r", "got ba\r\n"),
    ],
    ids=lambda given: None if "\n" in given else given.replace("\r", ";"),
)
def test_what_is_typed_ahead_of_a_command_is_for_that(
    sits: Sits, tmp_path: Path, command: str, keys: str, shown: str
) -> None:
    """And what it does not read is for the next, in the order in which it was typed."""
    person = sits()
    person.prompt()
    person.types("echo u''p; until [ -e go ]; do sleep 0.05; done\r")
    person.sees("up\r\n")
    person.types(f"{command}\r{keys}echo ne''xt\recho la")
    person.sees("echo la")  # the terminal's echo: they have arrived
    (tmp_path / "go").touch()
    person.sees(shown)
    person.sees("next\r\n")
    person.sees(r"\$ echo la")
    person.types("''st\r")
    person.sees("last\r\n")


@pytest.mark.parametrize(
    ("keys", "later", "shown"),
    [
        ("ho go''ne\x01ec\r", "", "gone"),
        ("echo no''t this\x01# \recho bu''t\r", "", "but"),
        ("echo a''bc\x1b[DX\r", "", "abXc"),
        ("\x1b[A\x1b[A\r", "", "first"),
        ("ho ha''lf\x01", "ec\r", "half"),
        ("cat <<X\rtow\x01\x1b[C\x06\x14\rX\r", "", "two"),
        ("echo lo''ng\x01\x05" + "\x02\x06" * 900 + "er\r", "", "longer"),
    ],
    ids=lambda given: ascii(given[:20]),
)
def test_keys_that_edit_are_keys_also_when_typed_ahead(
    sits: Sits, tmp_path: Path, keys: str, later: str, shown: str
) -> None:
    """And lines behind them are lines of their own."""
    person = sits()
    person.prompt()
    person.runs("echo fi''rst")
    # Neither edited by the kernel nor shown.
    person.types("stty -icanon -echo; echo u''p; until [ -e go ]; do sleep 0.05; done; stty sane\r")
    person.sees("up\r\n")
    person.types(keys + ("" if later else "echo la''st\r"))
    wait_until(lambda: person.reads_nothing, "that the keys are taken")
    (tmp_path / "go").touch()
    if later:
        person.sees("ha''lf")
        person.types(later)
    person.sees(rf"\n{shown}\r\n")
    assert "not this\r\n" not in (person.screen.before or "").replace("no''t", "")
    if not later:
        person.sees("\nlast\r\n")
    person.prompt()
    person.leaves()


@pytest.mark.parametrize("leaves", [False, True])
def test_what_is_typed_later_does_not_overtake_it(sits: Sits, tmp_path: Path, leaves: bool) -> None:
    """Also when he leaves a command that did not ask for it, and comes back."""
    person = sits()
    person.prompt()
    person.types("echo u''p; until [ -e go ]; do sleep 0.05; done\r")
    person.sees("up\r\n")
    person.types("echo o''n; until [ -e on ]; do sleep 0.05; done\rread x; echo got $x\r")
    person.sees(r"got \$x\r\n")
    (tmp_path / "go").touch()
    person.sees(r"\non\r\n")
    if leaves:
        person.leaves()
        person = sits()
        person.sees(r"person\$ echo o''n")
    person.types("later\r")
    person.sees("later\r\n")
    (tmp_path / "on").touch()
    person.sees("\ngot later\r\n")
    person.prompt()


def test_ctrl_d_that_is_typed_ahead_of_the_prompt_is_one_there(sits: Sits, tmp_path: Path) -> None:
    person = sits()
    person.prompt()
    person.types("echo u''p; until [ -e go ]; do sleep 0.05; done\r")
    person.sees("up\r\n")
    person.types(f"echo th{CTRL_D}is\recho 'ha\r{CTRL_D}")
    person.types(CTRL_D)
    wait_until(lambda: person.reads_nothing, "that the keys are taken")
    (tmp_path / "go").touch()
    person.sees("\nthis\r\n")
    person.sees("nothing was run")
    person.sees(r"left .* comes back to it")
    assert person.ends() == 0
