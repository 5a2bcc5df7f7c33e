"""attach, with the agent's own clients and other persons beside it: who waits, who looks on, who is told."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from commands import cli
from daemons import Daemon, stopped
from persons import CTRL_C, LEAVE, Sits
from support import PATIENCE, stat_fields, unique_seconds, wait_until

from shellsession import TTY, RemoteSession, Result, SessionBusy, connect
from shellsession.cli.attached import Attached
from shellsession.cli.spectator import Line
from shellsession.cli.terminal import Terminal
from shellsession.daemon import control
from shellsession.daemon.records import from_result
from shellsession.daemon.wire import Message


def test_others_wait(sits: Sits, client: RemoteSession, elsewhere: Callable[..., Future[Any]]) -> None:
    person = sits()
    person.prompt()
    call = elsewhere(client.run, "echo $word")
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


def test_who_leaves_waits_until_the_others_are_let_in_but_not_for_ever(sits: Sits, daemon: Daemon) -> None:
    person = sits()
    person.prompt()
    with stopped(daemon.pid):
        begin = time.monotonic()
        person.leaves()
        assert time.monotonic() - begin >= 1


@pytest.mark.parametrize("typed", ["\r", CTRL_C, "echo par\x15\recho so\r"], ids=ascii)
def test_a_daemon_that_stands_still_keeps_nobody_at_the_prompt(sits: Sits, daemon: Daemon, typed: str) -> None:
    person = sits()
    person.prompt()
    with stopped(daemon.pid):
        person.types(typed)
        person.sees("Ctrl-\\] leaves")
        person.leaves()


def test_what_is_typed_while_the_daemon_stands_still_is_for_the_prompt(sits: Sits, daemon: Daemon) -> None:
    person = sits()
    person.prompt()
    with stopped(daemon.pid):
        person.types("\r")
        person.sees("Ctrl-\\] leaves")
        person.types(f"echo not th''is\r{CTRL_C}echo o''ne\recho t")
        wait_until(lambda: person.reads_nothing, "that the keys are taken")
    person.sees("\none\r\n")
    assert "this" not in (person.screen.before or "")
    person.sees(r"\$ echo t")
    person.types("''wo\r")
    person.sees("\ntwo\r\n")


@pytest.mark.parametrize("options", [[], ["--read-only"]], ids=["", "read-only"])
def test_a_daemon_that_stands_still_keeps_nobody_who_comes(
    options: list[str], sits: Sits, client: RemoteSession, daemon: Daemon, tmp_path: Path
) -> None:
    """It may do so when it has greeted."""
    (tmp_path / "sitecustomize.py").write_text(f"""
import os, signal
from shellsession.cli import spectator
class Line(spectator.Line):
    def __init__(self, *about):
        super().__init__(*about)
        os.kill({daemon.pid}, signal.SIGSTOP)
spectator.Line = Line
""")
    try:
        person = sits(*options, PYTHONPATH=str(tmp_path))
        wait_until(lambda: stat_fields(daemon.pid)[:1] == ["T"], "that it stands still")
        person.leaves()
    finally:
        os.kill(daemon.pid, signal.SIGCONT)


@pytest.mark.parametrize("others", ["wait", "refuse"])
def test_a_second_person_is_next(sits: Sits, client: RemoteSession, others: str) -> None:
    """Those who are refused are the agent's own calls."""
    first = sits("--others", others)
    first.prompt()
    second = sits()
    second.sees("you are next")
    first.leaves()
    second.prompt()
    assert second.runs("echo m''ine") == "mine\r\n"


def test_who_gives_up_his_turn_leaves_no_command_behind(sits: Sits, agent: str) -> None:
    first = sits()
    first.prompt()
    second = sits()
    second.sees("Ctrl-] gives up")
    second.types(LEAVE)
    second.sees(f"left {agent}: `shellsession attach {agent}` comes back to it")
    assert second.ends() == 0


@pytest.mark.parametrize("option", ["", "--read-only"])
def test_nobody_attaches_to_the_session_in_which_he_sits(sits: Sits, daemon: Daemon, agent: str, option: str) -> None:
    person = sits()
    person.prompt()
    person.types(f"{sys.executable} -m shellsession attach {agent} {option} --socket {daemon.socket}\r")
    person.sees("shellsession: attach was asked for inside its own session")


def test_he_is_told_when_the_session_is_closed_and_types_into_no_other(sits: Sits, client: RemoteSession) -> None:
    person = sits()
    person.prompt()
    person.types("never")
    client.close()
    person.sees("was closed meanwhile")
    assert person.ends() == 125


def test_he_is_told_at_once_when_another_restarts_the_shell_under_his_prompt(
    sits: Sits, client: RemoteSession, tmp_path: Path
) -> None:
    """And so is who looks on. The line that he types is kept, for him to judge."""
    person, onlooker = sits(), sits("--read-only")
    onlooker.sees("looking on")
    person.prompt()
    person.runs("cd /; word=his")
    person.types("echo [$word]")
    person.sees(r"echo \[\$word]")
    client.restart()
    for one in (person, onlooker):
        one.sees("restarted meanwhile")
    person.sees(r"echo \[\$word]")
    person.types("; pwd\r")
    person.sees(rf"\[\]\r\n{tmp_path}\r\n")


@pytest.mark.parametrize("comes_back", [False, True], ids=["", "comes back"])
@pytest.mark.parametrize(
    ("end", "told"),
    [
        (lambda client: client.restart(), "the session was restarted meanwhile"),
        (lambda client: client.interrupt(), "interrupted on request"),
        (lambda client: os.kill(client.pid, signal.SIGKILL), "its shell has ended|person: the session's bash was"),
    ],
    ids=["restart", "interrupt", "kill"],
)
def test_he_is_told_when_another_ends_his_command_and_loses_no_key(
    sits: Sits, daemon: Daemon, agent: str, end: Callable[[RemoteSession], object], told: str, comes_back: bool
) -> None:
    """Nor where commands of a fresh shell's own come first."""
    with connect(agent, daemon.socket, startup=["true"]) as client:
        client.open()
        person = sits()
        person.prompt()
        person.types(f"echo u''p; sleep {unique_seconds()}\r")
        person.sees("up\r\n")
        if comes_back:
            person.leaves()
            person = sits()
            person.sees(r"person\$ echo u''p")
        person.types("echo ah''ead\recho par")
        person.sees("echo ah''ead\r\n.*echo par")  # the terminal's echo: they have arrived
        end(client)
        person.sees(told)
        person.sees("\nahead\r\n")
        person.sees("echo par")
        person.leaves()


def test_the_agents_command_is_seen_to_its_end(
    sits: Sits, client: RemoteSession, tmp_path: Path, elsewhere: Callable[..., Future[Any]]
) -> None:
    call = elsewhere(client.run, "echo begun; while [ ! -e go ]; do sleep .01; done; echo done; (exit 3)")
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


@pytest.mark.parametrize("rows", [1, 24, 65535])
def test_what_draws_on_a_terminal_of_any_height_draws_it_anew_for_him(rows: int) -> None:
    asked: list[int] = []

    def ask(verb: str, **fields: int) -> str:
        asked.extend([fields["rows"]] if verb == "resize" else [])
        return str(len(asked))

    terminal, line = SimpleNamespace(size=(80, rows)), SimpleNamespace(agent="a", ask=ask)
    attached = Attached(cast(Terminal, terminal), cast(Line, line))
    attached.runs = "agent"
    attached._sit_down()
    other, last = asked
    assert last == rows != other
    assert 1 <= other <= 65535


@pytest.mark.parametrize("before", ["", "x", "typed\r"])
@pytest.mark.parametrize("prints", ["", "while sleep 0.05; do echo tick; done & "])
def test_the_agents_command_can_be_ended(
    sits: Sits, client: RemoteSession, elsewhere: Callable[..., Future[Any]], before: str, prints: str
) -> None:
    """Also behind keys that wait for the agent to hand it back."""
    call = elsewhere(client.run, f"{prints}sleep {unique_seconds()}")
    wait_until(lambda: client.state == "running", "the agent's command")
    person = sits()
    person.sees(r"agent\$ ")
    if before:
        person.types(before)
        wait_until(lambda: person.reads_nothing, "that the keys are taken")
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
