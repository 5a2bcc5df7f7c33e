"""attach: a person at a terminal sits down at an agent's session, with the agent's own clients beside him."""

from __future__ import annotations

import os
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pexpect
import pytest
from commands import cli
from daemons import Daemon, Raw, running
from support import PATIENCE, command_line, descendants, unique_seconds, wait_until

from shellsession import TTY, RemoteSession, Result, SessionBusy, connect
from shellsession.cli.attached import Attached
from shellsession.cli.completeness import wants_more
from shellsession.cli.spectator import Line
from shellsession.cli.terminal import ESCAPE, Terminal, as_a_line
from shellsession.daemon import control
from shellsession.daemon.records import from_result
from shellsession.daemon.wire import Message

LEAVE, CTRL_C, CTRL_D = "\x1d", "\x03", "\x04"
_OTHERS = {"NO_COLOR", "SHELLSESSION_SOCKET", "TMUX"}
TERMINAL = {name: value for name, value in os.environ.items() if name not in _OTHERS} | {"TERM": "xterm-256color"}


class Person:
    """Somebody at a terminal of his own, who attaches to one agent."""

    def __init__(self, socket: str, agent: str, home: Path, *options: str, **env: str) -> None:
        self.agent = agent
        words = f"{sys.executable} -m shellsession attach {agent} --socket {socket} {' '.join(options)}"
        self.screen: pexpect.spawn[str] = pexpect.spawn(
            "bash",
            ["-c", f'echo "modes $(stty -g)"; {words}; echo "status $?"; echo "modes $(stty -g)"'],
            env={**TERMINAL, "XDG_STATE_HOME": str(home / "state"), "HOME": str(home), **env},
            cwd=str(home),
            dimensions=(24, 80),
            encoding="utf-8",
            timeout=PATIENCE,
        )
        self.screen.delaybeforesend = None
        self._modes = self.sees(r"modes (\S+)\r\n")

    def sees(self, pattern: str) -> str:
        """Wait for it; its first group, or all of it."""
        self.screen.expect(pattern)
        match: re.Match[str] = self.screen.match  # type: ignore[assignment]  # the stubs leave out that it is one
        return match[1] if match.re.groups else match[0]

    def prompt(self) -> str:
        """Wait for the prompt; what was shown before it."""
        self.sees(rf"{self.agent}:\S*\$ ")
        return ESCAPE_TEXT.sub("", self.screen.before or "")

    def types(self, text: str) -> None:
        self.screen.send(text)

    def runs(self, line: str) -> str:
        """At the prompt: run a line; its output."""
        self.types(line + "\r")
        return self.prompt().partition("\n")[2]

    def ends(self) -> int:
        """Wait for the end; its status. The terminal must be as it was found."""
        status = int(self.sees(r"status (\d+)"))
        assert self.sees(r"modes (\S+)\r\n") == self._modes
        return status

    def leaves(self) -> None:
        self.types(LEAVE)
        assert self.ends() == 0

    @property
    def reads_nothing(self) -> bool:
        """Has attach taken all that was typed?"""
        slave = os.open(f"/proc/{self.screen.pid}/fd/0", os.O_RDWR | os.O_NOCTTY)
        try:
            return not select.select([slave], [], [], 0)[0]
        finally:
            os.close(slave)

    @property
    def pid(self) -> int:
        [pid] = [pid for pid in descendants(self.screen.pid or 0) if b"attach" in command_line(pid)]
        return pid


ESCAPE_TEXT = re.compile(ESCAPE.pattern.decode("latin-1"))
Sits = Callable[..., Person]


@pytest.fixture
def agent(request: pytest.FixtureRequest) -> str:
    """A name of this test's own."""
    return "a" + str(abs(hash(request.node.name)))[:6]


@pytest.fixture
def sits(daemon: Daemon, agent: str, tmp_path: Path) -> Iterator[Sits]:
    """Makes a person sit down at the agent's session."""
    with ExitStack() as seats:

        def sit(*options: str, socket: str = daemon.socket, **env: str) -> Person:
            person = Person(socket, agent, tmp_path, *options, **env)
            seats.callback(person.screen.close, force=True)
            return person

        yield sit


@pytest.fixture
def client(daemon: Daemon, agent: str, tmp_path: Path) -> Iterator[RemoteSession]:
    """One of the agent's own clients."""
    with connect(agent, daemon.socket, cwd=tmp_path, timeout=PATIENCE) as client:
        yield client.open()


@pytest.fixture
def aside() -> Iterator[Callable[..., Future[Any]]]:
    """Calls a function in a thread."""
    with ThreadPoolExecutor() as pool:
        yield pool.submit


# -- commands of his own


def test_a_command_runs_and_the_state_is_shared(sits: Sits, client: RemoteSession) -> None:
    client.run("word=theirs; mkdir place; cd place")
    person = sits()
    person.prompt()
    assert person.runs("echo $word; word=h''is; cd ..; nosuch") == "theirs\r\nbash: nosuch: command not found\r\n"
    assert person.runs("printf 'no newline'") == "no newline\r\n"
    assert person.runs("echo $TERM") == "xterm-256color\r\n"
    person.leaves()
    assert client.run("echo $word $TERM $PWD").stdout.split() == ["his", "dumb", client.cwd]


LINES = [
    *(
        "echo a",
        "",
        " ",
        "# x",
        "# x \\",
        "echo 'a",
        'echo "a',
        "echo 'a\\",
        "echo a \\",
        "echo a \\\\",
        "for i in 1 2",
        "if :; then",
    ),
    *(
        "cat <<X",
        "cat <<X; for i in 1",
        "echo a |",
        "echo a &&",
        "f() {",
        "(",
        "case x in",
        "echo $(",
        "echo ${x",
        "[[ a",
    ),
    *(
        "[[ a &&",
        "echo `x",
        "fi",
        "echo )",
        "echo unexpected EOF )",
        "x=(",
        "echo $((1",
        "while",
        "echo 'unexpected EOF '",
    ),
    *("! :", "{ :;", ": \\# \\", "echo line 1: unexpected EOF here )", "until :", "cat <<'a b'\n\\", "coproc x {"),
]


@pytest.mark.parametrize("text", LINES)
def test_bash_is_believed_about_what_is_no_whole_command(text: str) -> None:
    """It prompts for more where the real one at a terminal does."""
    environment = {"PATH": os.environ["PATH"], "PS1": "<1>", "PS2": "<2>", "TERM": "dumb", "LC_ALL": "C"}
    bash: pexpect.spawn[str] = pexpect.spawn(
        "bash",
        ["--norc", "--noprofile", "--noediting"],
        env=environment,
        echo=False,
        encoding="utf-8",
        timeout=PATIENCE,
    )
    bash.delaybeforesend = None
    try:
        bash.expect_exact("<1>")
        for line in text.split("\n"):
            bash.sendline(line)
            prompt = bash.expect_exact(["<1>", "<2>"])
    finally:
        bash.close(force=True)
    assert wants_more(text) == (prompt == 1)


def test_a_command_of_several_lines(sits: Sits, client: RemoteSession, daemon: Daemon) -> None:
    person = sits()
    person.prompt()
    person.types("for i in 1 2\r")
    person.sees(r"\n\r?> ")
    person.types("do echo $i\r")
    person.sees(r"\n\r?> ")
    assert person.runs("done") == "1\r\n2\r\n"
    person.types("echo 'never\r")
    person.sees(r"\n\r?> ")
    person.types(CTRL_C)
    person.prompt()
    person.types("cat <<X\rpas''ted\rX\recho a \\\rb\r")
    person.sees("a b\r\n")
    person.prompt()
    person.leaves()
    wait_until(lambda: daemon.logged(client.agent)[2:], "the log")
    assert [line["command"] for line in daemon.logged(client.agent)] == [
        *("for i in 1 2\ndo echo $i\ndone", "cat <<X\npas''ted\nX", "echo a \\\nb")
    ]


def test_others_are_told_what_he_typed(sits: Sits, client: RemoteSession, daemon: Daemon) -> None:
    """And not how his TERM is given to it."""
    person = sits()
    person.prompt()
    person.types("echo $TERM; sleep 100\r")
    person.sees("xterm-256color")
    told = "echo $TERM; sleep 100"
    assert client.command == told
    assert [one["command"] for one in control.agents(daemon.socket) if one["agent"] == client.agent] == [told]
    with Raw(daemon.socket) as raw:
        watched = raw.ask("watch", agent=client.agent).header
        assert (watched["value"], watched["person"]) == (told, True)
    person.types(CTRL_C)
    person.prompt()
    person.leaves()
    logged = wait_until(lambda: daemon.logged(client.agent), "the log")
    assert [line["command"] for line in logged] == [told]


def test_a_session_is_opened_where_he_is(sits: Sits, tmp_path: Path) -> None:
    person = sits()
    person.prompt()
    assert person.runs("pwd") == f"{tmp_path}\r\n"


def test_a_dialogue(sits: Sits) -> None:
    person = sits()
    person.prompt()
    person.types("read -p 'Name? ' name; echo hello $name\r")
    person.sees(r"\nName\? ")
    person.types("Zoë\r")
    assert person.prompt().split() == ["Zoë", "hello", "Zoë"]


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


def test_a_terminal_that_does_not_block_shows_all(sits: Sits, tmp_path: Path) -> None:
    start = tmp_path / "start"
    start.write_text(f"unset BASH_ENV; {sys.executable} -c 'import os; os.set_blocking(0, False)'\n")
    person = sits(BASH_ENV=str(start))
    person.prompt()
    assert person.runs("seq 100000").split() == [str(number) for number in range(1, 100001)]
    person.leaves()


def test_ctrl_c_at_the_prompt_drops_the_line(sits: Sits) -> None:
    person = sits()
    person.prompt()
    person.types("not this")
    person.sees("not this")
    person.types(CTRL_C)
    person.prompt()
    assert person.runs("echo th''is") == "this\r\n"


def test_ctrl_backslash_at_the_prompt_does_nothing(sits: Sits) -> None:
    person = sits()
    person.prompt()
    person.types("\x1c")
    wait_until(lambda: person.reads_nothing, "attach to take it")
    assert person.runs("echo there") == "there\r\n"
    person.leaves()


def test_the_size_is_that_of_his_terminal(sits: Sits) -> None:
    person = sits()
    person.prompt()
    assert person.runs("stty size") == "24 80\r\n"
    # No loop of sleeps in bash: that goes on where Ctrl-C comes just as one ends.
    tell = "signal.signal(signal.SIGWINCH, lambda *_: os.system('stty size'))"
    waits = "[signal.pause() for _ in iter(int, 1)]"
    person.types(f'{sys.executable} -c "import os, signal; {tell}; print(chr(117) + chr(112)); {waits}"\r')
    person.sees("up\r\n")
    person.screen.setwinsize(30, 100)
    person.sees("30 100\r\n")
    person.types(CTRL_C)
    person.prompt()
    person.screen.setwinsize(31, 101)
    person.types("stty size\r")  # the prompt was drawn anew, perhaps
    person.sees("31 101\r\n")


def test_a_python_prompt(sits: Sits) -> None:
    person = sits()
    person.prompt()
    person.types(f"{sys.executable} -q -i\r")
    person.sees(">>> ")
    person.types("6*7\r")
    person.sees("42\r\n>>> ")
    person.types(CTRL_C)
    person.sees("KeyboardInterrupt\r\n>>> ")
    person.types(CTRL_D)
    person.prompt()


def test_lines_that_come_at_once_are_run_one_after_the_other(sits: Sits) -> None:
    person = sits()
    person.prompt()
    person.types("echo o''ne\recho t''wo\rtrue\r")
    person.sees("one\r\n")
    person.sees("two\r\n")


def test_exit_alone_is_not_taken_as_meant(sits: Sits) -> None:
    person = sits()
    person.prompt()
    assert "Ctrl-] leaves" in person.runs("kept=1; exit".partition("; ")[2])
    assert "its shell has ended" in person.runs("exit 3")
    assert person.runs("echo again") == "again\r\n"


def test_the_history_is_his_alone_and_lasts(sits: Sits, tmp_path: Path) -> None:
    person = sits()
    person.prompt()
    person.runs("echo remem''bered")
    person.leaves()
    person = sits()
    person.prompt()
    assert person.runs("\x1b[A") == "remembered\r\n"
    [file] = (tmp_path / "state" / "shellsession").iterdir()
    assert (file.name, file.stat().st_mode & 0o777) == ("attach_history", 0o600)
    assert file.read_text() == "echo remem''bered\n"


# -- leaving, and coming back


def test_what_runs_goes_on_when_he_leaves(sits: Sits, client: RemoteSession) -> None:
    person = sits()
    person.prompt()
    person.types("echo h''ere; read word; echo got $word; (exit 3)\r")
    person.sees("here\r\n")
    person.types(LEAVE)
    person.sees(r"its command goes on, and .* comes back to it")
    assert person.ends() == 0
    assert client.state == "running"
    person = sits()
    person.sees(r"person\$ echo h''ere; read word")
    person.types("home\r")
    person.sees("got home\r\n")
    person.sees("person: status 3")
    person.prompt()


def test_what_was_printed_meanwhile_is_shown(sits: Sits, client: RemoteSession, tmp_path: Path) -> None:
    text = "echo first; while [ ! -e go ]; do sleep .01; done; echo la''st; touch ended; (exit 4)"
    assert client.run(text, timeout=0.05, on_timeout="yield").stdout == "first\n"
    (tmp_path / "go").touch()
    wait_until((tmp_path / "ended").exists, "the end of the command")
    person = sits()
    person.sees(r"agent\$ echo first")
    person.sees("last\r\n")
    person.sees("agent: status 4")
    person.prompt()


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


def test_the_agent_may_wait_for_what_he_left(sits: Sits, client: RemoteSession) -> None:
    person = sits()
    person.prompt()
    person.types("echo h''ere; read word; echo got $word\r")
    person.sees("here\r\n")
    person.leaves()
    assert client.send("theirs\n").stdout.endswith("got theirs\n")


# -- others


def test_others_wait(sits: Sits, client: RemoteSession, aside: Callable[..., Future[Any]]) -> None:
    person = sits()
    person.prompt()
    call = aside(client.run, "echo $word")
    person.runs("word=his")
    assert not call.done()
    person.leaves()
    assert call.result(PATIENCE).stdout == "his\n"


def test_others_are_refused(sits: Sits, client: RemoteSession) -> None:
    person = sits("--others", "refuse")
    person.prompt()
    with pytest.raises(SessionBusy, match="attach"):
        client.run("true")
    person.leaves()
    assert client.run("true").ok


def test_a_second_person_is_next(sits: Sits, client: RemoteSession) -> None:
    first = sits()
    first.prompt()
    second = sits()
    second.sees("you are next")
    first.leaves()
    second.prompt()
    assert second.runs("echo m''ine") == "mine\r\n"


def test_the_agents_command_is_seen_to_its_end(
    sits: Sits, client: RemoteSession, tmp_path: Path, aside: Callable[..., Future[Any]]
) -> None:
    call = aside(client.run, "echo begun; while [ ! -e go ]; do sleep .01; done; echo done; (exit 3)")
    wait_until(lambda: client.state == "running", "the agent's command")
    person = sits()
    person.sees(r"agent\$ echo begun")
    (tmp_path / "go").touch()
    person.sees("done\r\n")
    person.sees("agent: status 3")
    person.prompt()
    assert call.result(PATIENCE).stdout == "begun\ndone\n"


def test_what_another_client_runs_is_shown_also_while_he_sits_down() -> None:
    shown: list[bytes] = []
    terminal, line = SimpleNamespace(show=shown.append), SimpleNamespace(agent="a")
    attached = Attached(cast(Terminal, terminal), cast(Line, line))
    attached.runs, attached._kept = "agent", [Message({"event": "output"}, (b"done\n",))]
    header, parts = from_result(Result(b"", b"", None, None, "/", 0.0, "running"))
    attached._stands("poll", Message({"result": header}, parts))
    assert b"".join(shown) == b"done\n"


def test_the_agents_command_can_be_ended(sits: Sits, client: RemoteSession, aside: Callable[..., Future[Any]]) -> None:
    call = aside(client.run, f"sleep {unique_seconds()}")
    wait_until(lambda: client.state == "running", "the agent's command")
    person = sits()
    person.sees(r"agent\$ sleep")
    person.types(CTRL_C)
    person.sees("agent: interrupted on request")
    person.prompt()
    assert call.result(PATIENCE).outcome == "interrupted"


def test_it_is_seen_that_somebody_sits_there(sits: Sits, client: RemoteSession, daemon: Daemon, agent: str) -> None:
    def seen() -> tuple[object, bool]:
        (listed,) = [one for one in control.agents(daemon.socket) if one["agent"] == agent]
        return listed["attached"], ", attached " in cli(daemon.socket, "ls").stdout.decode()

    assert seen() == (False, False)
    person = sits()
    person.prompt()
    assert seen() == (True, True)
    person.leaves()
    wait_until(lambda: seen() == (False, False), "his leave")


def test_what_a_line_left_running_is_told_by_what_was_typed(
    sits: Sits, client: RemoteSession, daemon: Daemon, agent: str
) -> None:
    person = sits(TERM="xterm-256color")
    person.prompt()
    person.runs("sleep 100 & true")
    person.types("read x; sleep 101 &\r")
    person.sees("read x")
    wait_until(lambda: client.state == "running", "the question")
    person.types("it\r")
    person.prompt()
    wait_until(lambda: len(client.jobs()) == 2, "the second job")
    assert [job.command for job in client.jobs()] == ["sleep 100 & true", "read x; sleep 101 &"]
    assert "TERM=" not in cli(daemon.socket, "jobs", agent).stdout.decode()


def test_what_was_handed_back_without_the_terminal_can_be_ended(sits: Sits, client: RemoteSession) -> None:
    client.run(f"sleep {unique_seconds()}", timeout=0.05, on_timeout="yield")
    person = sits()
    person.sees(r"agent\$ sleep")
    person.types(CTRL_C)
    person.prompt()
    assert client.wait(PATIENCE).outcome == "interrupted"


@pytest.mark.parametrize("options", [[], ["--read-only"]], ids=["", "read-only"])
def test_the_question_is_shown_to_who_comes_after_it(sits: Sits, client: RemoteSession, options: list[str]) -> None:
    asked = client.run("echo begun; read -p 'your name? ' name; echo hello $name", stdin=TTY)
    assert asked.outcome == "input"
    person = sits(*options)
    person.sees(r"agent\$ echo begun")
    person.sees("begun\r\nyour name\\? $")
    if options:
        client.send("Ann\n")
    else:
        person.types("Ann\r")
    person.sees("hello Ann\r\n")


def test_who_only_looks_on_sees_all_and_types_nothing(sits: Sits, client: RemoteSession) -> None:
    person = sits("--read-only")
    person.sees("looking on")
    assert client.run("echo se''en; (exit 3)").exit_code == 3
    person.sees(r"agent\$ echo se''en; \(exit 3\)")
    person.sees("seen\r\n")
    person.sees("agent: status 3")
    person.types("echo typed\r")
    client.run("echo one\necho two", stdin=None)
    person.sees(r"agent\$ echo one\S*\r\n\S*agent> echo two")
    assert "typed" not in (person.screen.before or "")
    person.types(CTRL_C)
    person.sees("left")
    assert person.ends() == 0


def test_who_only_looks_on_opens_no_session(sits: Sits, daemon: Daemon, agent: str) -> None:
    person = sits("--read-only")
    person.sees("has no session")
    assert person.ends() == 125


@pytest.mark.parametrize("env", [{}, {"NO_COLOR": "1"}], ids=["colour", "NO_COLOR"])
def test_our_own_lines_are_dim_where_colour_is_wanted(sits: Sits, client: RemoteSession, env: dict[str, str]) -> None:
    person = sits("--read-only", **env)
    person.sees("looking on")
    client.run("true")
    assert person.sees(r"(\x1b\[2m|)agent\$ true") == ("" if env else "\x1b[2m")


def test_a_foreign_command_does_nothing_to_the_terminal(sits: Sits, client: RemoteSession) -> None:
    person = sits("--read-only")
    person.sees("looking on")
    client.run("echo o''k # \x1b]0;title\x07 \u202e \r")
    person.sees("ok\r\n")
    assert r"# \x1b]0;title\x07 \u202e \r" in (person.screen.before or "")


# -- ends of other kinds


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
    ("keys", "line"),
    [
        (b"ls -l", "ls -l"),
        (b"ls\rpwd", "ls\npwd"),
        (b"lx\x7fs", "ls"),
        (b"\x7f\x7fls", "ls"),
        (b"no\x03yes", "yes"),
        (b"no\x15yes", "yes"),
        (b"a\x1b[Ab\x1bOCc", "abc"),
        ("Zoë".encode(), "Zoë"),
    ],
)
def test_keys_that_no_command_took_begin_the_next_line(keys: bytes, line: str) -> None:
    assert as_a_line(keys) == line


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


# -- in tmux


class Tmux:
    """A terminal in a tmux server of its own."""

    def __init__(self, name: str, home: Path) -> None:
        self._words = ["tmux", "-L", name, "-f", "/dev/null"]
        self._env = {**TERMINAL, "HOME": str(home), "XDG_STATE_HOME": str(home), "TMUX_TMPDIR": str(home)}
        self("new-session", "-d", "-x", "80", "-y", "24", "-c", "/", "env PS1='outside$ ' bash --norc --noprofile")

    def __call__(self, *words: str) -> str:
        done = subprocess.run([*self._words, *words], env=self._env, check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout

    def shows(self, text: str) -> str:
        """Wait until the screen has it; the screen."""
        screens = [""]

        def look() -> bool:
            screens.append(self("capture-pane", "-p"))
            return text in screens[-1]

        try:
            wait_until(look, repr(text))
        except AssertionError as error:
            raise AssertionError(f"{error}; the screen is\n{screens[-1]}") from None
        return screens[-1]

    def types(self, *keys: str) -> None:
        self("send-keys", *keys)


@pytest.fixture
def tmux(tmp_path: Path, daemon: Daemon, agent: str) -> Iterator[Tmux]:
    """A terminal in which a person has attached."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed (all but whole screens is tested without it, too)")
    terminal = Tmux("t", tmp_path)
    try:
        attach = f"{sys.executable} -m shellsession attach {agent} --socket {daemon.socket}"
        terminal.types(f"alias attach='{attach}'; clear", "Enter")
        terminal.types("attach", "Enter")
        terminal.shows(f"{agent}:")
        yield terminal
    finally:
        terminal("kill-server")


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


def test_what_is_typed_ahead_and_not_read_is_for_the_prompt(tmux: Tmux, tmp_path: Path, agent: str) -> None:
    tmux.types("echo wa''iting; until [ -e $HOME/go ]; do sleep 0.01; done", "Enter")
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
    tmux.types("echo o''ne", "Enter", "C-]")  # it leaves the prompt that comes after the command
    screen = tmux.shows("comes back to it\noutside$")
    assert [line for line in screen.split("\n") if line][-5:] == [
        f"{agent}:/$ echo o''ne",
        "one",
        f"{agent}:/$",
        f"left {agent}: `shellsession attach {agent}` comes back to it",
        "outside$",
    ]
