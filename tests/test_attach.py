"""attach: a person at a terminal runs commands in an agent's session, answers them, leaves and comes back."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from bashes import VERSION
from daemons import Daemon, Raw
from persons import CTRL_C, CTRL_D, LEAVE, Sits
from support import stat_fields, unique_seconds, wait_until, with_argument

from shellsession import RemoteSession, connect
from shellsession.daemon import control


def test_a_command_runs_and_the_state_is_shared(sits: Sits, client: RemoteSession) -> None:
    client.run("word=theirs; mkdir place; cd place")
    person = sits()
    person.prompt()
    assert person.runs("echo $word; word=h''is; cd ..; nosuch") == "theirs\r\nbash: nosuch: command not found\r\n"
    assert person.runs("printf 'no newline'") == "no newline\r\n"
    assert person.runs("echo $TERM") == "xterm-256color\r\n"
    person.leaves()
    assert client.run("echo $word $TERM $PWD").stdout.split() == ["his", "dumb", client.cwd]


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


@pytest.mark.parametrize(("term", "seen"), [("xterm-256color", "xterm-256color"), ("", "dumb")])
def test_others_are_told_what_he_typed(sits: Sits, client: RemoteSession, daemon: Daemon, term: str, seen: str) -> None:
    """And not how his TERM is given to it, which his own terminal may have none of."""
    person = sits(TERM=term)
    person.prompt()
    told = "echo it is $TERM; sleep 100"
    person.types(f"{told}\r")
    person.sees(f"it is {seen}")
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


_TERM = "xterm-256color\r\n"
_TELLS_OF_EVAL = pytest.mark.skipif(VERSION < (5, 1), reason="behind `command` bash tells traces and traps of `eval`")


@pytest.mark.parametrize(
    ("before", "line", "shown"),
    [
        ("eval() { :; }", "echo $TERM; env | grep ^TERM=", f"{_TERM}TERM={_TERM}"),
        ("builtin() { :; }", "echo $TERM; env | grep ^TERM=", f"{_TERM}TERM={_TERM}"),
        ("command() { :; }", "echo $TERM; env | grep ^TERM=", f"{_TERM}TERM={_TERM}"),
        ("enable -n eval", "echo $TERM; env | grep ^TERM=", f"{_TERM}TERM={_TERM}"),
        ("enable -n command", "echo $TERM", "dumb\r\n"),
        ("alias eval=: builtin=: command=:", "echo $TERM; env | grep ^TERM=", f"{_TERM}TERM={_TERM}"),
        ("set -o posix", "echo $TERM; env | grep ^TERM=", f"{_TERM}TERM={_TERM}"),
        ("set -o emacs", "echo $TERM; env | grep ^TERM=", f"{_TERM}TERM={_TERM}"),  # a file runs it
        ("readonly TERM", "echo $TERM", "dumb\r\n"),
        ("set -o posix; readonly TERM", "echo $TERM", "dumb\r\n"),
        ("unset TERM; set -u", "echo ${TERM-none}", None),
        ("(exit 3)", "echo $? $TERM", f"3 {_TERM}"),
        ("set -e", "[ $TERM ] && echo $TERM", _TERM),
        pytest.param("trap 'echo ERR' ERR", "false", "ERR\r\n", marks=_TELLS_OF_EVAL),
        pytest.param("set -x", "echo so", "++ echo so\r\nso\r\n", marks=_TELLS_OF_EVAL),
        ("set -o history", "echo so; history 1 | cut -c 8-", "so\r\necho so; history 1 | cut -c 8-\r\n"),
    ],
)
def test_what_a_line_is_run_by_is_nothing_to_the_shell(
    sits: Sits, client: RemoteSession, before: str, line: str, shown: str | None
) -> None:
    """Nor is his TERM anything to the agent."""
    client.run(before)
    person = sits()
    person.prompt()
    said = person.runs(line)
    assert said == shown if shown else said in ("none\r\n", _TERM)
    person.leaves()
    assert client.run("echo ${TERM-dumb}").stdout == "dumb\n"


def test_his_term_is_nothing_to_what_a_fresh_shell_runs_first(
    sits: Sits, daemon: Daemon, agent: str, tmp_path: Path
) -> None:
    with connect(agent, daemon.socket, cwd=tmp_path, startup=["echo $TERM >started"]) as client:
        person = sits()
        person.prompt()
        assert client.pid is None, "his line is to open it"
        assert person.runs("echo $TERM; cat started") == f"{_TERM}dumb\r\n"
        person.leaves()


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


def test_the_size_is_that_of_his_terminal(sits: Sits) -> None:
    person = sits()
    person.prompt()
    assert person.runs("stty size") == "24 160\r\n"
    # No loop of sleeps in bash: that goes on where Ctrl-C comes just as one ends.
    # No print: the signal may come at the end of the one before, and Python refuses one within another.
    tell = r"signal.signal(signal.SIGWINCH, lambda *_: os.write(1, b'%d %d\n' % os.get_terminal_size()[::-1]))"
    waits, unique = "[signal.pause() for _ in iter(int, 1)]", f"unique={unique_seconds()}"
    person.types(
        f'{sys.executable} -X {unique} -c "import os, signal; {tell}; os.write(1, bytes([117, 112, 10])); {waits}"\r'
    )
    person.sees("up\r\n")
    person.screen.setwinsize(30, 100)
    person.sees("30 100\r\n")
    # Python notes a Ctrl-C that comes just before its pause, and sleeps on.
    wait_until(lambda: [stat_fields(pid)[:1] for pid in with_argument(unique)] == [["S"]], "its pause")
    person.types(CTRL_C)
    person.prompt()
    person.screen.setwinsize(31, 101)
    person.types("stty size\r")  # the prompt was drawn anew, perhaps
    person.sees("31 101\r\n")


def test_a_python_prompt(sits: Sits) -> None:
    """The plain one, which Python 3.13 and newer have beside one that draws its lines itself."""
    person = sits()
    person.prompt()
    unique = f"unique={unique_seconds()}"
    person.types(f"NO_COLOR=1 PYTHON_BASIC_REPL=1 {sys.executable} -q -i -X {unique}\r")
    person.sees(">>> ")
    person.types("6*7\r")
    person.sees("42\r\n>>> ")
    # Between its prompt and its sleep it notes a Ctrl-C, and does nothing about it until the next key.
    wait_until(lambda: [stat_fields(pid)[:1] for pid in with_argument(unique)] == [["S"]], "its sleep")
    person.types(CTRL_C)
    person.sees("KeyboardInterrupt\r\n>>> ")
    person.types(CTRL_D)
    person.prompt()


def test_a_python_prompt_that_draws_its_lines(sits: Sits) -> None:
    """As Python 3.13 and newer do, in colours and with a cursor that moves; on older ones it is the plain one again."""
    person = sits()
    person.prompt()
    person.types(f"{sys.executable} -q\r")
    person.sees(">>> ")
    person.types("6*7\r")
    person.sees(r"\n[^\n]*42\r\n")
    person.sees(">>> ")
    person.types("never")
    person.sees("n.*e.*v.*e.*r")  # with a move of the cursor between two of them, perhaps
    person.types(CTRL_C)
    person.sees("KeyboardInterrupt")
    person.sees(">>> ")
    person.types(CTRL_D)
    person.prompt()
    assert person.runs("echo there") == "there\r\n"


def test_lines_that_come_at_once_are_run_one_after_the_other(sits: Sits) -> None:
    person = sits()
    person.prompt()
    person.types("echo o''ne\recho t''wo\rtrue\r")
    person.sees("one\r\n")
    person.sees("two\r\n")


def test_a_terminal_that_does_not_block_shows_all(sits: Sits, tmp_path: Path) -> None:
    start = tmp_path / "start"
    start.write_text(f"unset BASH_ENV; {sys.executable} -c 'import os; os.set_blocking(0, False)'\n")
    person = sits(BASH_ENV=str(start))
    person.prompt()
    assert person.runs("seq 100000").split() == [str(number) for number in range(1, 100001)]
    person.leaves()


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


@pytest.mark.parametrize("number", [None, signal.SIGHUP, signal.SIGTERM, signal.SIGKILL])
def test_the_agent_has_its_own_size_back_however_he_leaves(
    sits: Sits, client: RemoteSession, number: signal.Signals | None
) -> None:
    person = sits()
    person.prompt()
    assert person.runs("stty size") == "24 160\r\n"
    if number is None:
        person.leaves()
    else:
        os.kill(person.pid, number)
    assert client.run("tput cols; tput lines").stdout == "200\n50\n"
    assert client.size == (200, 50)


def test_what_was_printed_meanwhile_is_shown(sits: Sits, client: RemoteSession, tmp_path: Path) -> None:
    text = "echo first; while [ ! -e go ]; do sleep .01; done; echo la''st; touch ended; (exit 4)"
    assert client.run(text, timeout=0.3, on_timeout="yield").stdout == "first\n"
    (tmp_path / "go").touch()
    wait_until((tmp_path / "ended").exists, "the end of the command")
    person = sits()
    person.sees(r"agent\$ echo first")
    person.sees("last\r\n")
    person.sees("agent: status 4")
    person.prompt()


def test_the_agent_may_wait_for_what_he_left(sits: Sits, client: RemoteSession) -> None:
    person = sits()
    person.prompt()
    person.types("echo h''ere; read word; echo got $word\r")
    person.sees("here\r\n")
    person.leaves()
    assert client.send("theirs\n").stdout.endswith("got theirs\n")
