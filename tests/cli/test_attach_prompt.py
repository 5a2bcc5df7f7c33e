"""The prompt of ``attach``: when a command is complete, and how prompt_toolkit edits it, as seen in tmux."""

from __future__ import annotations

import os
import shutil
import signal
from pathlib import Path

import pexpect
import pytest
from daemons import Daemon
from persons import Sits, Tmux
from system import PATIENCE, wait_until

from shellsession import connect
from shellsession.cli.prompt import is_complete

TEXTS = [
    *("echo a", "", " ", "# x", "echo 'a", 'echo "a', "echo 'a\\", "echo a \\", "echo a \\\\", "for i in 1 2"),
    *("if :; then", "cat <<X", "cat <<X; for i in 1", "echo a |", "echo a &&", "f() {", "(", "case x in", "echo $("),
    *("echo ${x", "[[ a", "[[ a &&", "echo `x", "fi", "echo )", "echo unexpected EOF )", "x=(", "echo $((1", "while"),
    *("echo 'unexpected EOF '", "! :", "{ :;", ": \\# \\", "echo line 1: unexpected EOF here )", "coproc x {"),
    *("cat <<XY\na\nXYZ\nXY", "cat <<A <<B\nB\nA\nA\nB", "cat <<-'X)'\nX\n\tX)", "cat <<''\na\n", "x() (\n:\n)"),
    *("if :; then cat <<X\nfi\nX\nfi", "echo 'a\n\"\nb' \"'\nc\"", "echo $((\n1 +\n(1)\n))", "cat <<'a b'\n\\"),
]


@pytest.mark.parametrize("text", TEXTS)
def test_a_command_is_whole_where_bash_at_a_terminal_runs_it(text: str) -> None:
    environment = {"PATH": os.environ["PATH"], "PS1": "<1>", "PS2": "<2>", "TERM": "dumb", "LC_ALL": "C"}
    words = ["--norc", "--noprofile", "--noediting"]
    bash: pexpect.spawn[str] = pexpect.spawn(
        "bash", words, env=environment, echo=False, encoding="utf-8", timeout=PATIENCE
    )
    bash.delaybeforesend = None
    lines: list[str] = []
    try:
        bash.expect_exact("<1>")
        for line in text.split("\n"):
            bash.sendline(line)
            lines.append(line)
            assert is_complete("\n".join(lines).encode()) == (bash.expect_exact(["<1>", "<2>"]) == 0), line
    finally:
        bash.kill(signal.SIGKILL)
        bash.wait()  # close would give it 0.1 s to end
        bash.close()


def test_without_prompt_toolkit_the_prompt_is_the_plain_one(sits: Sits, tmp_path: Path) -> None:
    (tmp_path / "prompt_toolkit.py").write_text("raise ImportError")
    person = sits(TERM="xterm-256color", PYTHONPATH=str(tmp_path))
    person.prompt()
    assert person.runs("echo pl''ain") == "plain\r\n"


def test_commands_are_edited_and_remembered(tmux: Tmux, tmp_path: Path, agent: str) -> None:
    tmux.types("for i in 1 2", "Enter", "do echo $i.", "Enter", "done", "Enter")
    tmux.shows(f"\n> do echo $i.\n> done\n1.\n2.\n{agent}:/$")
    tmux.types("never", "C-c")
    tmux.shows(f"{agent}:/$ never\n{agent}:/$")
    tmux.types("C-]")
    tmux.shows("comes back\noutside$")
    tmux.types("clear; echo a''gain; attach", "Enter")
    tmux.shows(f"again\nattached to {agent}, whose own calls wait up to their patience: Ctrl-] leaves\n{agent}:/$")
    tmux.types("Up")
    tmux.shows("\n> done")
    tmux.types("Enter")
    tmux.shows(f"{agent}:/$ for i in 1 2\n> do echo $i.\n> done\n1.\n2.\n{agent}:/$")
    assert (tmp_path / "shellsession" / "attach_history").stat().st_mode & 0o777 == 0o600


def test_what_is_pasted_is_one_command(tmux: Tmux, agent: str) -> None:
    tmux("set-buffer", "echo o''ne\ncat <<X\nt''wo\nX")
    tmux("paste-buffer", "-p")
    tmux.shows(f"{agent}:/$ echo o''ne\n> cat <<X\n> t''wo\n> X")
    tmux.types("Enter")
    tmux.shows(f"\n> X\none\nt''wo\n{agent}:/$")


def test_what_is_typed_ahead_is_there_to_be_edited(tmux: Tmux, tmp_path: Path, agent: str) -> None:
    tmux.types("echo wa''iting; until [ -e $HOME/go ]; do sleep 0.05; done", "Enter")
    tmux.shows("\nwaiting\n")
    tmux.types("echo o''nX")
    tmux.shows("\necho o''nX")  # the terminal's echo: the keys have arrived
    (tmp_path / "go").touch()
    tmux.shows(f"\n{agent}:/$ echo o''nX")
    tmux.types("BSpace", "e", "Enter")
    tmux.shows(f"\none\n{agent}:/$")


def test_what_happens_is_shown_above_the_line_that_is_typed(tmux: Tmux, agent: str, daemon: Daemon) -> None:
    tmux.types("echo o''n", "Enter")
    tmux.shows(f"\non\n{agent}:/$")
    tmux.types("echo th''is")
    tmux.shows("$ echo th''is")
    with connect(agent, daemon.socket, start=False) as client:
        client.restart()
        tmux.shows(f"a fresh shell, in its first directory\n{agent}:/$ echo th''is")
        tmux.types("Enter")
        tmux.shows(f"\nthis\n{agent}:/$")
        client.close()
    tmux.shows("was closed: attach again")


def test_an_editor_fills_the_screen_and_gives_it_back(tmux: Tmux, tmp_path: Path, agent: str) -> None:
    if shutil.which("vim") is None:
        pytest.skip("vim is not installed")
    tmux.types("export TERM=screen; vim -u NONE -N $HOME/note", "Enter")
    tmux.shows("~\n~\n")
    tmux.types("ifirst line")
    tmux.shows("first line\n~")
    tmux("resize-window", "-x", "100", "-y", "30")
    wait_until(lambda: tmux("capture-pane", "-p").count("~\n") == 28, "vim on 30 rows")
    tmux.types("C-]")
    assert "~\n~" not in tmux.shows("its command goes on")
    tmux.types("clear; attach", "Enter")
    tmux.shows("first line\n~")
    tmux.types("Enter", "second line", "Escape")
    tmux.types(":wq", "Enter")
    tmux.shows(f"{agent}:")
    assert (tmp_path / "note").read_text() == "first line\nsecond line\n"
