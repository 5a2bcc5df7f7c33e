"""``stdin=TTY``: an ordinary terminal for that call, and a raw one afterwards."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
from system import PYTHON, descendants, is_alive, wait_until

from shellsession import TTY, InvalidRequest, NotRunning, Session
from shellsession.engine.io.streams import get_modes
from shellsession.engine.kernel import proc
from shellsession.engine.verbs import submit

pytestmark = pytest.mark.usefixtures("company")

Make = Callable[..., Session]


def test_it_is_a_terminal_in_ordinary_mode(sh: Session) -> None:
    said = sh.run("[ -t 0 ] && [ -t 1 ] && echo both; stty -a", stdin=TTY).stdout
    assert said.startswith("both\n")
    words = said.replace(";", " ").split()
    assert {"icanon", "isig", "icrnl", "-echo"} <= set(words)


def test_echo_comes_when_asked_for(sh: Session) -> None:
    sh.run("read x; echo got $x", stdin=TTY, echo=True)
    assert sh.send("hello\n").stdout == "hello\ngot hello\n"
    sh.run("read x; echo got $x", stdin=TTY)
    assert sh.send("hello\n").stdout == "got hello\n"


def test_it_is_raw_again_afterwards(sh: Session) -> None:
    sh.run("stty sane; stty echo", stdin=TTY)
    assert sh.run("printf 'a\\nb\\r\\n'").stdout_bytes == b"a\nb\r\n"
    assert sh.run("stty -a </dev/tty", timeout=5).stdout.replace(";", " ").split().count("-icanon") == 1


def test_a_terminal_spoilt_by_a_command_is_put_right(sh: Session) -> None:
    sh.run("stty raw -echo", stdin=TTY)
    sh.run("read x; echo got $x", stdin=TTY)
    assert sh.send("cooked\r").stdout == "got cooked\n"


def test_output_on_the_terminal_keeps_its_line_ends(sh: Session) -> None:
    assert sh.run("printf 'a\\nb\\r\\n'", stdin=TTY).stdout_bytes == b"a\nb\r\n"


@pytest.mark.parametrize("enter", ["\n", "\r"], ids=["newline", "return"])
def test_both_ends_of_a_line_are_enter(sh: Session, enter: str) -> None:
    sh.run("read x; echo got $x", stdin=TTY)
    assert sh.send(f"hello{enter}").stdout == "got hello\n"


def test_ctrl_d_is_the_end_of_input(sh: Session) -> None:
    assert sh.run("cat; echo end $?", stdin=TTY).outcome == "input"
    assert sh.send("line\n").stdout == "line\n"
    last = sh.send("\x04")
    assert (last.stdout, last.outcome) == ("end 0\n", "exited")


def test_ctrl_c_interrupts_the_command(sh: Session) -> None:
    assert sh.run("X=1; cat; echo after $?", stdin=TTY).outcome == "input"
    last = sh.send("\x03")
    assert last.outcome == "exited"
    assert last.exit_code == 130
    assert sh.run("echo $X alive").stdout == "1 alive\n"


def test_ctrl_c_can_be_trapped(sh: Session) -> None:
    sh.run(f"{PYTHON} -c 'try: input()\nexcept KeyboardInterrupt: print(\"caught\")'", stdin=TTY)
    assert "caught\n" in sh.send("\x03").stdout


def test_backspace_edits_the_line(sh: Session) -> None:
    sh.run("read x; echo got $x", stdin=TTY)
    assert sh.send("helpp\x7flo\n").stdout == "got helplo\n"
    sh.run("read x; echo got $x", stdin=TTY)
    assert sh.send("aé\x7fb\n").stdout == "got ab\n"


def test_a_password_is_asked_without_echo_and_answered(sh: Session) -> None:
    program = "import getpass; print('got', getpass.getpass('Password: '))"
    first = sh.run(f'{PYTHON} -c "{program}"', stdin=TTY, echo=True)
    assert first.outcome == "input"
    assert "Password: " in first.stdout + first.stderr
    last = sh.send("secret\n")
    assert (last.stdout.replace("\n", ""), last.outcome) == ("got secret", "exited")


def test_what_was_typed_ahead_is_not_for_the_next_command(sh: Session) -> None:
    sh.run("read x; echo got $x", stdin=TTY)
    assert sh.send("one\ntwo\nthree").stdout == "got one\n"
    second = sh.run("read y; echo got $y", stdin=TTY)
    assert (second.outcome, second.stdout) == ("input", "")
    assert sh.send("four\n").stdout == "got four\n"
    assert sh.run("read -t 0.05 z </dev/tty; echo [$z]").stdout == "[]\n"


def test_a_child_that_died_of_a_signal_leaves_the_terminal_as_it_was(sh: Session) -> None:
    """Bash then puts back the modes that it knows."""
    first = sh.run("sh -c 'kill -9 $$'; echo over; read x; echo $x", stdin=TTY)
    last = sh.send("answer\n")
    assert (first.stdout_bytes, last.stdout_bytes) == (b"over\n", b"answer\n")
    assert sh.run("sh -c 'kill -9 $$'; echo over >/dev/tty").stdout_bytes == b"over\n"


def test_typing_without_waiting(sh: Session) -> None:
    sh.run("read a; read b; echo $a-$b", stdin=TTY)
    sh.type("1\n")
    sh.type("2\n")
    assert sh.wait().stdout == "1-2\n"


def test_much_can_be_typed(sh: Session) -> None:
    lines = 3000
    sh.run("wc -lc", stdin=TTY)
    sh.type("".join(f"line {i:06d}\n" for i in range(lines)))
    assert sh.send("\x04").stdout.split() == [str(lines), str(lines * 12)]


def test_a_command_without_the_terminal_cannot_be_typed_to(sh: Session) -> None:
    sh.run("sleep 100", timeout=0.1, on_timeout="yield")
    with pytest.raises(InvalidRequest, match="stdin=TTY"):
        sh.send("x\n")
    with pytest.raises(InvalidRequest, match="stdin=TTY"):
        sh.expect("x")
    assert sh.interrupt().outcome == "interrupted"
    with pytest.raises(NotRunning):
        sh.type("x")


def test_the_terminal_implies_tty_and_contradicts_tty_false(new_session: Make) -> None:
    session = new_session(tty=False)
    assert session.run("[ -t 1 ] && echo terminal", stdin=TTY).stdout == "terminal\n"
    assert session.run("[ -t 1 ] || echo pipe").stdout == "pipe\n"
    with pytest.raises(InvalidRequest, match="tty=False"):
        session.run("true", stdin=TTY, tty=False)


def test_stderr_is_apart_on_the_terminal_too(sh: Session) -> None:
    result = sh.run("echo out; echo err >&2", stdin=TTY)
    assert (result.stdout, result.stderr) == ("out\n", "err\n")
    assert sh.run("echo out; echo err >&2", stdin=TTY, merge_stderr=True).stdout == "out\nerr\n"


def test_state_and_status_live_on_the_terminal_too(sh: Session) -> None:
    sh.run("X=1; (exit 3)", stdin=TTY)
    assert sh.run("echo $X $?", stdin=TTY).stdout == "1 3\n"


@pytest.mark.parametrize("tty", [True, False], ids=["terminal", "pipe"])
def test_what_is_said_to_dev_tty(sh: Session, tty: bool) -> None:
    """On a terminal a person sees it; a call with pipes has no place for it."""
    result = sh.run("echo to the terminal >/dev/tty; echo out", tty=tty)
    assert (result.stdout == "out\n") == (not tty)
    assert ("to the terminal\n" in result.stdout) == tty
    assert sh.run("echo next").stdout == "next\n"


def test_the_terminals_size_is_as_asked(new_session: Make) -> None:
    session = new_session(size=(123, 45))
    assert session.run("stty size <&1; stty size", stdin=TTY).stdout == "45 123\n" * 2
    assert session.run("stty size <&1").stdout == "45 123\n"
    session.resize(80, 24)
    assert session.run("stty size <&1; stty size", stdin=TTY).stdout == "24 80\n" * 2
    assert session.run("stty size <&1").stdout == "24 80\n"
    session.restart()
    assert session.run("stty size <&1").stdout == "24 80\n"


def test_a_new_size_reaches_the_running_command(sh: Session) -> None:
    sh.run("trap 'stty size' WINCH; while :; do read -t 0.01; done", stdin=TTY, timeout=0.2, on_timeout="yield")
    sh.resize(99, 33)
    assert sh.expect_exact("33 99", timeout=10) == 0
    assert sh.interrupt().outcome == "interrupted"


def test_a_timeout_on_the_terminal_kills_and_keeps(sh: Session) -> None:
    result = sh.run("trap '' INT; X=1; cat >/dev/null & sleep 100", stdin=TTY, timeout=0.2)
    assert (result.outcome, result.state_kept) == ("timed_out", True)
    wait_until(lambda: not any(map(is_alive, result.killed)), "the end of all")
    assert sh.run("echo $X").stdout == "1\n"


def test_job_control_keys_do_not_hang_the_session(sh: Session) -> None:
    sh.run("cat", stdin=TTY)
    result = sh.send("\x1a", timeout=1)
    if result.outcome in ("running", "input"):
        result = sh.interrupt()
    assert sh.run("echo alive").stdout == "alive\n"


def test_a_reader_that_is_killed_from_outside_ends_its_step_only(sh: Session) -> None:
    sh.run("cat; echo over $?", stdin=TTY)
    for pid in descendants(sh.pid or 0):
        os.kill(pid, signal.SIGKILL)
    last = wait_until(lambda: (heard := sh.wait()).outcome != "input" and heard, "the end of the command")
    assert last
    assert last.stdout.split() == ["over", "137"]


def test_each_descriptor_is_the_whole_terminal(sh: Session) -> None:
    """As at a login: `more` reads its keys from stderr, and some write to their stdin."""
    asked = sh.run("read a <&2; read b <&1; echo $a $b >&0", stdin=TTY, merge_stderr=True)
    assert asked.outcome == "input"
    assert sh.send("one\n").outcome == "input"
    assert sh.send("two\n").stdout == "one two\n"


@pytest.mark.parametrize("end", ["time limit", "interrupt", "kill"])
def test_the_terminal_comes_back_from_a_shell_with_job_control(sh: Session, end: str) -> None:
    """It had put itself into the foreground: every later read of the terminal failed."""
    if end == "kill":
        sh.run("bash --norc -i -c 'kill -9 $$'", stdin=TTY)
    else:
        sh.run(
            "bash --norc -i -c 'sleep 100'", stdin=TTY, timeout=0.2, on_timeout="yield" if end == "interrupt" else None
        )
    if end == "interrupt":
        sh.interrupt()
    sh.run("(exit 3)")
    assert sh.run("read x; echo $? $x", stdin=TTY).outcome == "input"
    assert sh.send("it\n").stdout == "0 it\n"
    assert "m" not in sh.run("echo $-").stdout.replace("\n", "")


@pytest.mark.parametrize("where", ["_prepare", "spills_of", "_send"])
def test_who_is_interrupted_before_the_command_is_typed_leaves_the_terminal_raw(
    sh: Session, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    def ctrl_c(*_: object) -> None:
        raise KeyboardInterrupt

    sh.run("true", stdin=TTY)
    terminal = sh.engine.live().terminal
    monkeypatch.setattr(submit, where, ctrl_c)
    with pytest.raises(KeyboardInterrupt):
        sh.run("cat", stdin=TTY)
    monkeypatch.undo()
    assert get_modes(terminal.fd) == terminal.modes
    assert sh.run("read x; echo $x", stdin=TTY).outcome == "input"
    assert sh.send("hi\n").stdout == "hi\n"


def test_a_session_with_pipes_makes_its_second_terminal_when_a_call_needs_it(new_session: Make) -> None:
    def terminals() -> int:
        return sum(proc.link(f"/proc/self/fd/{fd}").endswith("/ptmx") for fd in os.listdir("/proc/self/fd"))

    before = terminals()
    sh = new_session(tty=False)
    sh.run("true")
    assert terminals() == before + 1
    sh.resize(99, 33)
    assert sh.run("stty size <&1", tty=True).stdout == "33 99\n"
    assert terminals() == before + 2
