"""``attach``: a person runs commands in an agent's session, answers them, detaches and attaches again."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pexpect
import pytest
from daemons import Daemon, running
from persons import CTRL_C, CTRL_D, LEAVE, Sits
from system import PATIENCE, PYTHON, stat_fields, unique_seconds, wait_until, with_argument

from shellsession import RemoteSession, connect
from shellsession.daemon.client.admin import agents

# It says "up", and runs until something that the test makes is there.
BUSY = "echo u''p; until [ -e go ]; do sleep 0.05; done"


@pytest.mark.parametrize("library", ["asyncio", "pydantic", "pexpect", "prompt_toolkit", "subprocess"])
def test_it_loads_nothing_that_it_may_not_need(library: str) -> None:
    program = f"import shellsession.cli.attach, sys; sys.exit({library!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


@pytest.mark.parametrize("terminal", ["none", "stdin", "stdout"])
def test_without_a_terminal_on_both_ends_it_says_so(daemon: Daemon, terminal: str) -> None:
    words = [sys.executable, "-m", "shellsession", "attach", "nobody", "--socket", daemon.socket]
    ours, theirs = os.openpty()
    stdin, stdout = (theirs if terminal == name else subprocess.DEVNULL for name in ("stdin", "stdout"))
    try:
        done = subprocess.run(
            words, stdin=stdin, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False, timeout=PATIENCE
        )
    finally:
        os.close(ours)
        os.close(theirs)
    assert done.returncode == 125
    assert "stdin or stdout is not a terminal" in done.stderr


def test_a_session_is_opened_where_the_person_is(sits: Sits, tmp_path: Path) -> None:
    person = sits()
    person.prompt()
    assert person.runs("pwd") == f"{tmp_path}\r\n"


@pytest.mark.parametrize("command", ["", "true"])
def test_a_new_session_is_announced_and_closed_if_no_command_ran(sits: Sits, daemon: Daemon, command: str) -> None:
    person = sits()
    assert "(a new session), whose own calls wait" in person.prompt()
    person.runs(command)
    person.leaves()
    assert (person.agent in {row["agent"] for row in agents(daemon.socket)}) == bool(command)
    if command:
        again = sits()
        assert "(a new session)" not in again.prompt()


def test_commands_share_the_state_of_the_session(sits: Sits, client: RemoteSession) -> None:
    client.run("TERM=theirs; word=theirs; mkdir place; cd place; (exit 3)")
    person = sits()
    person.prompt()
    assert person.runs("echo $? $TERM $word; word=h''is; cd ..; nosuch") == (
        "3 theirs theirs\r\nbash: nosuch: command not found\r\n"
    )
    assert person.runs("printf 'no newline'") == "no newline\r\n"
    assert person.runs("  ") == ""
    assert person.runs("printf %s 'Zoë \udcff' >bytes") == ""
    person.leaves()
    assert client.run("echo $word $PWD").stdout.split() == ["his", client.cwd]
    assert Path(client.cwd, "bytes").read_bytes() == "Zoë ".encode() + b"\xff"


def test_a_command_of_several_lines(sits: Sits, client: RemoteSession, daemon: Daemon) -> None:
    person = sits()
    person.prompt()
    for line in ("for i in 1 2", "do echo $i"):
        person.types(line + "\r")
        person.sees(r"\n> ")
    assert person.runs("done") == "1\r\n2\r\n"
    person.types("echo 'never\r")
    person.sees(r"\n> ")
    person.types(CTRL_C)
    person.prompt()
    person.types("cat <<X\rpas''ted\rX\recho a \\\rb\r")
    person.sees("a b\r\n")
    person.prompt()
    person.leaves()
    logged = wait_until(lambda: daemon.logged(client.agent)[2:], "the log") and daemon.logged(client.agent)
    assert [line["command"] for line in logged] == [
        *("for i in 1 2\ndo echo $i\ndone", "cat <<X\npas''ted\nX", "echo a \\\nb")
    ]


@pytest.mark.parametrize(
    ("question", "shown"),
    [("read -p 'Name? ' x", "Zoë\r\nhello Zoë\r\n"), ("read -s -p 'Name? ' x; echo", "\r\nhello Zoë\r\n")],
    ids=["echoed", "a password"],
)
def test_a_command_that_asks_is_answered(sits: Sits, question: str, shown: str) -> None:
    person = sits()
    person.prompt()
    person.types(f"{question}; echo hello $x\r")
    person.sees(r"\nName\? ")
    person.types("Zoë\r")
    assert person.prompt() == shown


def test_the_size_is_that_of_the_persons_terminal(sits: Sits, client: RemoteSession) -> None:
    person = sits()
    person.prompt()
    assert person.runs("stty size") == "24 160\r\n"
    tell = r"signal.signal(signal.SIGWINCH, lambda *_: os.write(1, b'%d %d\n' % os.get_terminal_size()[::-1]))"
    waits = "os.write(1, bytes([117, 112, 10])); [signal.pause() for _ in iter(int, 1)]"
    person.types(f'{PYTHON} -c "import os, signal; {tell}; {waits}"\r')
    person.sees("up\r\n")
    person.screen.setwinsize(30, 100)
    person.sees("30 100\r\n")
    person.leaves()
    wait_until(lambda: client.size == (200, 50), "the session's own size")


def test_a_python_prompt(sits: Sits) -> None:
    person = sits()
    person.prompt()
    unique = f"unique={unique_seconds()}"
    person.types(f"PYTHON_BASIC_REPL=1 {PYTHON} -q -i -X {unique}\r")
    person.sees(">>> ")
    person.types("6*7\r")
    person.sees("42\r\n>>> ")
    # Between its prompt and its sleep it notes a Ctrl-C, and does nothing about it until the next key.
    wait_until(lambda: [stat_fields(pid)[:1] for pid in with_argument(unique)] == [["S"]], "its sleep")
    person.types(CTRL_C)
    person.sees("KeyboardInterrupt\r\n>>> ")
    person.types(CTRL_D)
    person.prompt()


@pytest.mark.parametrize("command", [f"sleep {unique_seconds()}", "cat"], ids=["sleep", "cat"])
def test_ctrl_c_interrupts_the_command(sits: Sits, command: str) -> None:
    person = sits()
    person.prompt()
    person.types(f"kept=1; echo g''o; {command}\r")
    person.sees("go\r\n")
    person.types(CTRL_C)
    person.prompt()
    assert person.runs("echo $? $kept") == "130 1\r\n"


def test_ctrl_c_at_the_prompt_drops_the_line(sits: Sits) -> None:
    person = sits()
    person.prompt()
    person.types(f"not this{CTRL_C}")
    person.sees(r"not this\^C\r\n")
    person.prompt()
    assert person.runs("echo th''is") == "this\r\n"


def test_ctrl_d_ends_the_input_and_at_the_prompt_it_leaves(sits: Sits) -> None:
    person = sits()
    person.prompt()
    person.types("cat\r")
    person.types("line\r")
    person.sees("line\r\nline\r\n")
    person.types(CTRL_D)
    person.prompt()
    person.types(CTRL_D)
    person.sees(r"left .* comes back")
    assert person.ends() == 0


def test_all_output_is_shown_and_ctrl_c_ends_a_flood(sits: Sits) -> None:
    person = sits()
    person.prompt()
    assert person.runs("seq 100000").split() == [str(number) for number in range(1, 100_001)]
    person.types("yes\r")
    person.sees("y\r\ny\r\n")
    person.types(CTRL_C)
    person.prompt()
    assert person.runs("echo $?") == "130\r\n"


def test_what_a_command_does_not_read_is_for_the_prompt(sits: Sits, tmp_path: Path) -> None:
    person = sits()
    person.prompt()
    person.types(BUSY + "\r")
    person.sees("up\r\n")
    person.types("echo ah''\x1b[Aead\recho par")
    person.sees("\r\necho par")  # the terminal's echo: they have arrived
    (tmp_path / "go").touch()
    person.sees("\nahead\r\n")
    person.sees(r"\$ echo par")
    person.types("t''ial\r")
    person.sees("partial\r\n")


def test_ctrl_c_drops_what_was_typed_ahead(sits: Sits, tmp_path: Path) -> None:
    person = sits()
    person.prompt()
    person.types("echo u''p; sleep 100\recho never >ran\r")
    person.sees("up\r\n")
    person.types(CTRL_C)
    person.prompt()
    assert person.runs("echo th''is") == "this\r\n"
    assert not (tmp_path / "ran").exists()


def test_a_command_that_cannot_be_run_is_reported(sits: Sits, daemon: Daemon, agent: str, tmp_path: Path) -> None:
    bash = tmp_path / "its-bash"
    bash.symlink_to(shutil.which("bash") or "")
    with connect(agent, daemon.socket, cwd=tmp_path, bash=str(bash)):
        person = sits()
        person.prompt()
        person.runs("true")
        person.runs("exit 3")
        bash.unlink()
        assert "its-bash" in person.runs("true")
        bash.symlink_to(shutil.which("bash") or "")
        assert person.runs("echo th''is") == "this\r\n"


def test_exit_alone_is_not_taken_as_meant(sits: Sits) -> None:
    person = sits()
    person.prompt()
    assert "Ctrl-] leaves" in person.runs("exit")
    assert "with exit status 3" in person.runs("exit 3")
    assert person.runs("echo again") == "again\r\n"


# -- leaving, and coming back


def test_what_runs_goes_on_when_the_person_leaves(sits: Sits, client: RemoteSession) -> None:
    person = sits()
    person.prompt()
    person.types("echo h''ere; read word; echo got $word; (exit 3)\r")
    person.sees("here\r\n")
    person.types(LEAVE)
    person.sees(r"its command goes on: .* comes back")
    assert person.ends() == 0
    assert client.state == "running"
    person = sits()
    person.sees(r"person\$ echo h''ere; read word.*\r\nhere\r\n")
    person.types("home\r")
    person.sees("got home\r\n")
    person.sees("person: status 3")
    person.prompt()


def test_the_agent_may_wait_for_what_the_person_left(sits: Sits, client: RemoteSession) -> None:
    person = sits()
    person.prompt()
    person.types("echo h''ere; read word; echo got $word\r")
    person.sees("here\r\n")
    person.leaves()
    assert client.send("theirs\n").stdout.endswith("got theirs\n")


@pytest.mark.parametrize("command", ["", "echo u''p; sleep 100"], ids=["at the prompt", "while a command runs"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["SIGTERM", "SIGHUP"])
def test_the_terminal_is_restored_at_a_signal(
    sits: Sits, client: RemoteSession, command: str, number: signal.Signals
) -> None:
    person = sits()
    person.prompt()
    if command:
        person.types(command + "\r")
        person.sees("up\r\n")
    os.kill(person.pid, number)
    assert person.ends() == 128 + number
    wait_until(lambda: client.size == (200, 50), "the session's own size")


@pytest.mark.parametrize(
    ("body", "number"),
    [
        ("with UserTerminal(), suppress(SystemExit): signal.raise_signal(signal.SIGTERM)", signal.SIGALRM),
        ("with UserTerminal(): pass\nsignal.raise_signal(signal.SIGTERM)", signal.SIGTERM),
    ],
    ids=["the exception is lost", "the terminal is restored"],
)
def test_a_signal_ends_attach_even_if_it_hangs(body: str, number: signal.Signals) -> None:
    program = (
        "import signal\nfrom contextlib import suppress\nfrom shellsession.cli import terminal\n"
        f"from shellsession.cli.terminal import UserTerminal\nterminal._ENDING_MAX = 0.1\n{body}\nsignal.pause()"
    )
    process = pexpect.spawn(sys.executable, ["-c", program], timeout=PATIENCE)
    process.expect(pexpect.EOF)
    process.wait()
    assert process.signalstatus == number


@pytest.mark.parametrize("command", ["", "echo u''p; sleep 100"], ids=["at the prompt", "while a command runs"])
def test_the_terminal_is_restored_when_the_daemon_dies(sits: Sits, tmp_path: Path, command: str) -> None:
    with running(tmp_path / "daemon") as daemon:
        person = sits(socket=daemon.socket)
        person.prompt()
        if command:
            person.types(command + "\r")
            person.sees("up\r\n")
        daemon.stop(signal.SIGKILL)
        person.sees("the daemon has ended.*attach again")
        assert person.ends() == 125


def test_what_a_program_switched_is_undone_when_the_person_leaves(sits: Sits) -> None:
    person = sits()
    person.prompt()
    person.types("printf '\\e[?1049h\\e[?25l\\e[?1000;1006hu''p'; cat\r")
    person.sees(r"\x1b\[\?1049h.*up")
    person.types(LEAVE)
    person.sees("left ")
    switched = re.findall(r"\x1b\[\?(\d+[hl])", person.screen.before or "")
    assert sorted(switched) == ["1000l", "1006l", "1049l", "25h"]
    assert person.ends() == 0


def test_a_person_gets_an_editor_that_opens(sits: Sits, client: RemoteSession) -> None:
    before = client.run("echo $GIT_EDITOR").stdout
    person = sits()  # its environment names none
    person.prompt()
    assert person.runs("echo $GIT_EDITOR $EDITOR; (exit 3)") == "vi vi\r\n"
    assert person.runs("echo $?") == "3\r\n"
    person.leaves()
    assert client.run("echo $GIT_EDITOR").stdout == before == ":\n"
