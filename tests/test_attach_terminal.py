"""attach and its terminal: how it is given back, what a prompt is when it is disturbed, whole screens in tmux."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest
from daemons import Daemon, running, stopped
from persons import LEAVE, TERMINAL, Sits, Tmux
from support import PATIENCE, wait_until

from shellsession.cli.keys import cut_line


@pytest.mark.parametrize("library", ["asyncio", "pydantic", "pexpect", "subprocess"])
def test_it_loads_nothing_dear(library: str) -> None:
    program = f"import shellsession.cli.attach, sys; sys.exit({library!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_without_a_terminal_it_says_so(daemon: Daemon) -> None:
    words = [sys.executable, "-m", "shellsession", "attach", "nobody", "--socket", daemon.socket]
    done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    assert done.returncode == 125
    assert "terminal" in done.stderr


@pytest.mark.parametrize("command", ["", "echo u''p; sleep 100"], ids=["at the prompt", "while a command runs"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["SIGTERM", "SIGHUP"])
def test_the_terminal_is_given_back_at_a_signal(sits: Sits, command: str, number: signal.Signals) -> None:
    person = sits()
    person.prompt()
    if command:
        person.types(command + "\r")
        person.sees("up\r\n")
    os.kill(person.pid, number)
    assert person.ends() == 128 + number


@pytest.mark.parametrize("command", ["", "echo u''p; sleep 100"], ids=["at the prompt", "while a command runs"])
def test_the_terminal_is_given_back_when_the_daemon_dies(sits: Sits, tmp_path: Path, command: str) -> None:
    with running(tmp_path / "daemon") as daemon:
        person = sits(socket=daemon.socket)
        person.prompt()
        if command:
            person.types(command + "\r")
            person.sees("up\r\n")
        daemon.stop(signal.SIGKILL)
        person.sees("the daemon has ended.*attach again")
        assert person.ends() == 125


def test_what_a_program_set_is_undone_when_he_leaves_it(sits: Sits) -> None:
    person = sits()
    person.prompt()
    person.types("printf '\\e[?1049h\\e[?25l\\e[?1000;1006hu''p'; cat\r")
    person.sees(r"\x1b\[\?1049h.*up")
    person.types(LEAVE)
    left = person.sees(r"((?:\x1b\[\?\d+[hl])+)")
    assert sorted(re.findall(r"\d+[hl]", left)) == ["1000l", "1006l", "1049l", "25h"]
    assert person.ends() == 0


# -- pieces


@pytest.mark.parametrize(
    ("keys", "lines"),
    [
        (b"ls -l", ["ls -l"]),
        (b"ls\rpwd", ["ls\r", "pwd"]),
        (b"ls\n\rpwd\n", ["ls\n", "\r", "pwd\n"]),
        (b"lx\x7fs", ["ls"]),
        (b"\x7f\x7fls", ["ls"]),
        (b"no\x15yes", ["yes"]),
        (b"one\rno\x15two", ["one\r", "two"]),
        (b"one\r\x7f\btwo", ["one\r", "two"]),
        (b"cat\rline\r\x04ls\r", ["cat\r", "line\r", "\x04", "ls\r"]),
        (b"l\x04s\x15\x04", ["\x04"]),
        (b"a\tb", ["a\tb"]),
        *((f"a{key}b".encode(), [f"a{key}b"]) for key in "\xa0\xad\u200d\u200f\u3000\ue000\ufeff\U0001f469"),
        ("Zoë".encode(), ["Zoë"]),
        (b"Zo\xeb", ["Zo\udceb"]),
    ],
)
def test_keys_that_no_command_took_are_lines_of_the_prompt(keys: bytes, lines: list[str]) -> None:
    found = []
    while keys:
        line, end, keys = cut_line(keys)
        found.append(line + end.decode())
        assert end or not keys
    assert found == lines


@pytest.mark.parametrize("key", ["\x1b[A", "\x1bOC", "\x1b", "\0", "\a", "\x01", "\x17", "\x9b"], ids=ascii)
def test_keys_that_edit_are_for_readline(key: str) -> None:
    assert cut_line(f"abx\x7f{key}c\rd".encode()) == ("ab", b"", f"{key}c\rd".encode())


def test_what_was_typed_ahead_goes_on_with_a_line_that_was_disturbed() -> None:
    assert cut_line(b"\x7fc\x04\rd", "a\nb") == ("a\nc", b"\r", b"d")


PROMPT = """
import socket, sys
from shellsession.cli.terminal import Disturbed, Terminal
ours = socket.socket(socket.AF_UNIX)
ours.connect(sys.argv[1])
begun, line = "", None
with Terminal() as terminal:
    while line is None:
        try:
            line = terminal.line("> ", begun, ours.fileno())
        except Disturbed as disturbed:
            begun = disturbed.text
            terminal.say("told " + ours.recv(1000).decode())
    terminal.say("typed " + line)
"""


@pytest.fixture
def prompt(tmp_path: Path) -> Iterator[tuple[pexpect.spawn[str], socket.socket]]:
    """A prompt, and the socket that disturbs it."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        words = ["-c", PROMPT, str(tmp_path / "s")]
        screen = pexpect.spawn(sys.executable, words, env=TERMINAL, encoding="utf-8", timeout=PATIENCE)
        screen.delaybeforesend = None
        theirs, _ = listener.accept()
        with theirs:
            screen.expect("> ")
            yield screen, theirs
        screen.close(force=True)


def test_what_is_shown_at_the_prompt_leaves_the_line(prompt: tuple[pexpect.spawn[str], socket.socket]) -> None:
    screen, theirs = prompt
    screen.send("hel")
    screen.expect("hel")
    theirs.send(b"one")
    screen.expect("\r\ntold one\r\n.*> hel")
    screen.send("lo\r")
    screen.expect("typed hello\r\n")


def test_no_key_is_lost_however_often_it_is_disturbed(prompt: tuple[pexpect.spawn[str], socket.socket]) -> None:
    screen, theirs = prompt
    text = "".join(chr(ord("a") + number % 26) for number in range(15))
    for key in text:
        theirs.send(b".")
        screen.send(key)
        screen.expect("told")
    theirs.send(b".")
    screen.send("\r")
    screen.expect(r"typed (\w+)\r\n")
    match: re.Match[str] = screen.match  # type: ignore[assignment]  # as above
    assert match[1] == text


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
@pytest.mark.parametrize("other", [signal.SIGCONT, signal.SIGWINCH], ids=lambda number: number.name)
def test_a_signal_at_the_prompt_is_not_lost_beside_another(
    prompt: tuple[pexpect.spawn[str], socket.socket], number: signal.Signals, other: signal.Signals
) -> None:
    """Both wait when it goes on: what the one raises has the other on top of it."""
    screen, _ = prompt
    pid = screen.pid or 0
    with stopped(pid):
        os.kill(pid, number)
        os.kill(pid, other)
    screen.expect(pexpect.EOF)
    said = screen.before or ""
    assert ("KeyboardInterrupt" in said) == (number == signal.SIGINT)
    assert "SystemError" not in said
    screen.wait()
    assert screen.signalstatus == number or screen.exitstatus == 128 + number


STRUCK_IN_THE_HOOK = """
import functools, os, signal, sys
from shellsession.cli.terminal import Terminal

class Struck(Terminal):
    def _prepare_prompt(self):
        super()._prepare_prompt()
        self._readline = self  # for the hook, which knows nothing else
        self.insert_text = len  # does nothing
        self.redisplay = functools.partial(os.kill, os.getpid(), int(sys.argv[1]))

with Struck() as terminal:
    terminal.line("> ", "begun", os.pipe()[0])
"""


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGTERM, signal.SIGINT], ids=lambda number: number.name)
def test_a_signal_is_not_lost_in_readlines_hook(number: signal.Signals) -> None:
    words = ["-c", STRUCK_IN_THE_HOOK, str(int(number))]
    screen = pexpect.spawn(sys.executable, words, env=TERMINAL, encoding="utf-8", timeout=PATIENCE)
    screen.expect(pexpect.EOF)
    screen.wait()
    assert screen.signalstatus == number or screen.exitstatus == 128 + number


KEYS_BESIDE_A_LINE = """
import os, select, sys
from shellsession.cli.terminal import Terminal

waits, switch = {"before": [True, False], "after": [False, True]}[sys.argv[1]], os.set_blocking

def slow(fd, blocking):  # called before readline has the terminal, and when it has given it back
    switch(fd, blocking)
    if waits.pop(0):
        os.write(1, b"now")
        select.select([0], [], [])

os.set_blocking = slow
with Terminal() as terminal:
    line, keys = terminal.line("> ", "", os.pipe()[0]), b""
    while not keys.endswith(b"!"):
        keys += terminal.keys()
    terminal.say(f"got {line!r} {keys!r}.")
"""


@pytest.mark.parametrize(
    ("moment", "keys", "got"),
    [
        ("before", "\x04!", "None b'!'"),
        ("before", "no\x15a\x7fb\r!", "'b' b'!'"),
        ("after", "\x04!", r"'' b'\x04!'"),
        ("after", "a\x12\x16\x17\x15b\x7f!", r"'' b'a\x12\x16\x17\x15b\x7f!'"),
        ("after", "\x1a\x1c\x13\x11!", r"'' b'\x1a\x1c\x13\x11!'"),
    ],
    ids=ascii,
)
def test_keys_right_before_a_line_and_behind_it_are_themselves(moment: str, keys: str, got: str) -> None:
    words = ["-c", KEYS_BESIDE_A_LINE, moment]
    screen = pexpect.spawn(sys.executable, words, env=TERMINAL, encoding="utf-8", timeout=PATIENCE)
    screen.delaybeforesend = None
    if moment == "after":
        screen.expect("> ")
        screen.send("\r")
    screen.expect("now")
    screen.send(keys)
    screen.expect_exact(f"got {got}.")
    screen.close(force=True)


# -- in tmux


def test_an_editor_fills_the_screen_and_gives_it_back(tmux: Tmux, tmp_path: Path, agent: str) -> None:
    if shutil.which("vim") is None:
        pytest.skip("vim is not installed")
    tmux.types("vim -u NONE -N $HOME/note", "Enter")
    tmux.shows("~\n~\n")
    tmux.types("ifirst line")
    tmux.shows("first line\n~")
    tmux("resize-window", "-x", "100", "-y", "30")
    wait_until(lambda: tmux("capture-pane", "-p").count("~\n") == 28, "vim on 30 rows")
    tmux.types("C-]")
    assert "~\n~" not in tmux.shows("its command goes on")
    tmux.types("clear; attach", "Enter")
    tmux.shows("first line\n~")
    tmux.types("Enter", "second line", "Escape", ":wq", "Enter")
    tmux.shows(f"{agent}:")
    assert (tmp_path / "note").read_text() == "first line\nsecond line\n"


def test_ctrl_z_at_the_prompt_suspends_it_and_keeps_what_is_typed(tmux: Tmux, agent: str) -> None:
    for _ in range(2):
        tmux.types("echo pa''rt")
        tmux.shows("$ echo pa''rt")
        tmux.types("C-z")
        tmux.shows("Stopped")
        tmux.types("clear; fg", "Enter")
        tmux.shows(f"{agent}:/$ echo pa''rt")
        tmux.types("; clear; echo th''is", "Enter")
        tmux.shows(f"this\n{agent}:/$")


def test_a_shell_that_sets_no_modes_finds_its_own_after_ctrl_z(
    tmux: Tmux, tmp_path: Path, daemon: Daemon, agent: str
) -> None:
    if shutil.which("dash") is None:
        pytest.skip("dash is not installed (bash sets the modes that it wants itself)")
    tmux.types("C-]")
    tmux.shows("outside$")
    tmux.types("clear; PS1='plain> ' dash -i", "Enter")
    tmux.shows("plain>")
    tmux.types("stty -g >$HOME/before; clear", "Enter")
    tmux.types(f"{sys.executable} -m shellsession attach {agent} --socket {daemon.socket}", "Enter")
    tmux.shows(f"{agent}:")
    for _ in range(2):
        tmux.types("echo pa''rt")
        tmux.shows("$ echo pa''rt")
        tmux.types("C-z")
        tmux.shows("Stopped")
        tmux.types("stty -g >$HOME/after; mv $HOME/after $HOME/modes", "Enter")
        wait_until((tmp_path / "modes").exists, "the modes of the terminal")
        assert (tmp_path / "modes").read_text() == (tmp_path / "before").read_text()
        (tmp_path / "modes").unlink()
        tmux.types("clear; fg", "Enter")
        tmux.shows(f"{agent}:/$ echo pa''rt")
        tmux.types("; clear; echo th''is", "Enter")
        tmux.shows(f"this\n{agent}:/$")


def test_what_is_typed_ahead_and_not_read_is_for_the_prompt(tmux: Tmux, tmp_path: Path, agent: str) -> None:
    tmux.types("echo wa''iting; until [ -e $HOME/go ]; do sleep 0.05; done", "Enter")
    tmux.shows("\nwaiting\n")
    tmux.types("echo o''ne", "Enter", "echo t''wo")
    tmux.shows("\necho o''ne\necho t''wo")  # the terminal's echo: the keys have arrived, and nobody reads them
    (tmp_path / "go").touch()
    tmux.shows(f"\none\n{agent}:/$ echo t''wo")
    tmux.types("Enter")
    tmux.shows("\ntwo\n")


def test_a_pager_and_the_end_look_as_they_should(tmux: Tmux, tmp_path: Path, agent: str) -> None:
    (tmp_path / "long").write_text("".join(f"line {number}\n" for number in range(100)))
    tmux.types("less $HOME/long || more $HOME/long", "Enter")
    tmux.shows("line 20\n")
    tmux.types("Space")
    tmux.shows("line 40\n")
    tmux.types("q")
    tmux.shows(f"{agent}:")
    tmux.types("clear", "Enter")
    tmux.types("echo o''ne", "Enter")
    tmux.shows(f"one\n{agent}:/$")  # while the command runs it would be left alone
    tmux.types("C-]")
    screen = tmux.shows("comes back to it\noutside$")
    assert [line for line in screen.split("\n") if line][-5:] == [
        f"{agent}:/$ echo o''ne",
        "one",
        f"{agent}:/$",
        f"left {agent}: `shellsession attach {agent}` comes back to it",
        "outside$",
    ]
