"""``attach`` beside the agent's own clients and other persons: who waits, who watches, and what each sees."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest
from commands import cli
from daemons import Daemon, Raw, refused, stopped
from persons import CTRL_C, LEAVE, Sits
from system import PATIENCE, PYTHON, stat_fields, unique_seconds, wait_until

from shellsession import TTY, RemoteSession, SessionBusy
from shellsession.daemon.client import admin

Elsewhere = Callable[..., Future[Any]]


def test_the_agents_own_calls_wait(sits: Sits, client: RemoteSession, elsewhere: Elsewhere) -> None:
    person = sits()
    person.prompt()
    call = elsewhere(client.run, "echo $word")
    person.runs("word=his")
    assert not call.done()
    person.leaves()
    assert call.result(PATIENCE).stdout == "his\n"


def test_the_agents_own_calls_are_refused(sits: Sits, client: RemoteSession) -> None:
    person = sits("--others", "refuse")
    person.prompt()
    with pytest.raises(SessionBusy, match="attach"):
        client.run("true")
    person.leaves()
    wait_until(lambda: not refused(client), "the end of it")


def test_ls_shows_that_a_person_is_attached(sits: Sits, client: RemoteSession, daemon: Daemon) -> None:
    def seen() -> tuple[object, bool]:
        (listed,) = [one for one in admin.agents(daemon.socket) if one["agent"] == client.agent]
        return listed["attached"], ", attached " in cli(daemon.socket, "ls").stdout.decode()

    assert seen() == (False, False)
    person = sits()
    person.prompt()
    assert seen() == (True, True)
    person.leaves()
    wait_until(lambda: seen() == (False, False), "the person to leave")


def test_others_see_what_the_person_runs(sits: Sits, client: RemoteSession, daemon: Daemon) -> None:
    person, watcher = sits(), sits("--read-only")
    watcher.sees("watching")
    person.prompt()
    person.types("echo it''s; sleep 100\r")
    watcher.sees(r"person\$ echo it''s; sleep 100\r\nits\r\n")
    assert client.command == "echo it''s; sleep 100"
    with Raw(daemon.socket) as raw:
        assert raw.ask("watch", agent=client.agent).header["person"]
    person.types(CTRL_C)
    watcher.sees("person: status 130")
    person.prompt()


# -- the agent's commands


def test_the_agents_command_is_seen_to_its_end(
    sits: Sits, client: RemoteSession, tmp_path: Path, elsewhere: Elsewhere
) -> None:
    call = elsewhere(client.run, "echo begun; touch on; while [ ! -e go ]; do sleep .01; done; echo done; (exit 3)")
    wait_until((tmp_path / "on").exists, "the agent's command")
    person = sits()
    person.sees(r"agent\$ echo begun[^\n]*\nbegun\r\n")
    (tmp_path / "go").touch()
    person.sees("done\r\n")
    person.sees("agent: status 3")
    person.prompt()
    assert call.result(PATIENCE).stdout == "begun\ndone\n"


@pytest.mark.parametrize("typed", ["", "x"], ids=["", "behind other keys"])
def test_ctrl_c_interrupts_the_agents_command(
    sits: Sits, client: RemoteSession, elsewhere: Elsewhere, typed: str
) -> None:
    call = elsewhere(client.run, f"sleep {unique_seconds()}")
    wait_until(lambda: client.state == "running", "the agent's command")
    person = sits()
    person.sees(r"agent\$ ")
    person.types(typed)
    if typed:
        person.sees("does not read the terminal")
    person.types(CTRL_C)
    person.sees("agent: interrupted on request")
    person.prompt()
    assert call.result(PATIENCE).outcome == "interrupted"


def test_ctrl_c_ends_a_flood_of_the_agents(sits: Sits, client: RemoteSession, elsewhere: Elsewhere) -> None:
    call = elsewhere(client.run, "yes")
    wait_until(lambda: client.state == "running", "the agent's command")
    person = sits()
    person.sees("y\r\ny\r\n")
    person.types(CTRL_C)
    person.sees("agent: interrupted on request")
    assert call.result(PATIENCE).outcome == "interrupted"


def test_a_command_that_was_handed_back_without_the_terminal_is_interrupted(sits: Sits, client: RemoteSession) -> None:
    client.run(f"sleep {unique_seconds()}", timeout=0.05, on_timeout="yield")
    person = sits()
    person.sees(r"agent\$ sleep")
    person.types(CTRL_C)
    person.prompt()
    assert client.wait(PATIENCE).outcome == "interrupted"


@pytest.mark.parametrize("options", [[], ["--read-only"]], ids=["", "read-only"])
def test_a_question_of_the_agents_command_is_shown_and_answered(
    sits: Sits, client: RemoteSession, options: list[str]
) -> None:
    asked = client.run("echo begun; read -p 'your name? ' name; echo hello $name", stdin=TTY)
    assert asked.outcome == "input"
    person = sits(*options)
    person.sees(r"agent\$ echo begun[^\n]*\nbegun\r\nyour name\? $")
    if options:
        client.send("Ann\n")
    else:
        person.types("Ann\r")
    person.sees("hello Ann\r\n")


def test_keys_that_the_agents_command_did_not_read_are_not_run(sits: Sits, client: RemoteSession) -> None:
    """They may be a password."""
    client.run("until read -t 0; do sleep .01; done; echo th''ere", stdin=TTY, timeout=0.05, on_timeout="yield")
    person = sits()
    person.sees(r"agent\$ until")
    person.types("echo run\r")
    person.prompt()
    assert person.runs("echo th''is") == "this\r\n"


def test_a_refused_command_of_the_agent_is_shown(sits: Sits, client: RemoteSession) -> None:
    client.run("sleep 100", timeout=0.05, on_timeout="yield")
    watcher = sits("--read-only")
    watcher.sees(r"agent\$ sleep 100")
    with pytest.raises(SessionBusy):
        client.run("never")
    watcher.sees("refused: a command still runs in this session")
    client.interrupt()
    watcher.sees("agent: interrupted on request")


# -- other persons


@pytest.mark.parametrize("others", ["wait", "refuse"])
def test_a_second_person_is_next(sits: Sits, client: RemoteSession, others: str) -> None:
    """Those who are refused are the agent's own calls."""
    first = sits("--others", others)
    first.prompt()
    second = sits()
    second.sees("you are next")
    second.types("echo never\r")
    first.runs("echo se''en")
    second.sees(r"person\$ echo se''en\r\nseen\r\n")
    first.leaves()
    second.prompt()
    assert second.runs("echo m''ine") == "mine\r\n"


@pytest.mark.parametrize("key", [LEAVE, CTRL_C], ids=ascii)
def test_a_person_who_is_next_may_give_up(sits: Sits, key: str) -> None:
    first = sits()
    first.prompt()
    second = sits()
    second.sees("Ctrl-] gives up")
    second.types(key)
    second.sees("left ")
    assert second.ends() == 0
    assert first.runs("echo o''n") == "on\r\n"


def test_watchers_see_all_and_type_nothing(sits: Sits, client: RemoteSession) -> None:
    watchers = [sits("--read-only"), sits("--read-only")]
    for one in watchers:
        one.sees("watching")
        one.types("echo typed\r")
    assert client.run("echo se''en; (exit 3)").exit_code == 3
    client.run("echo one\necho two", stdin=None)
    for one in watchers:
        one.sees(r"agent\$ echo se''en; \(exit 3\)\r\nseen\r\nagent: status 3\r\n")
        one.sees(r"agent\$ echo one\r\nagent> echo two\r\none\r\ntwo\r\n")
        assert "typed" not in (one.screen.before or "")
        one.types(CTRL_C)
        one.sees("left")
        assert one.ends() == 0


def test_a_watcher_opens_no_session(sits: Sits, agent: str) -> None:
    person = sits("--read-only")
    person.sees("has no session")
    assert person.ends() == 125


@pytest.mark.parametrize("option", ["", "--read-only"])
def test_nobody_attaches_from_inside_the_session(sits: Sits, daemon: Daemon, agent: str, option: str) -> None:
    person = sits()
    person.prompt()
    person.types(f"{PYTHON} -m shellsession attach {agent} {option} --socket {daemon.socket}\r")
    person.sees("shellsession: attach was asked for inside its own session")


def test_the_text_of_a_command_does_nothing_to_the_terminal(sits: Sits, client: RemoteSession) -> None:
    person = sits("--read-only")
    person.sees("watching")
    client.run("echo o''k # \x1b]0;title\x07 \u202e \r")
    person.sees("ok\r\n")
    assert r"# \x1b]0;title\x07 \u202e \r" in (person.screen.before or "")


@pytest.mark.parametrize("env", [{}, {"NO_COLOR": "1"}], ids=["colour", "NO_COLOR"])
def test_our_own_lines_are_dim_where_colour_is_wanted(sits: Sits, client: RemoteSession, env: dict[str, str]) -> None:
    person = sits("--read-only", TERM="xterm-256color", **env)
    person.sees("watching")
    client.run("true")
    assert person.sees(r"(\x1b\[2m|)agent\$ true") == ("" if env else "\x1b[2m")


# -- who ends something


def test_a_restart_is_shown_at_once(sits: Sits, client: RemoteSession, tmp_path: Path) -> None:
    """At the prompt, where the line that is being typed is kept, and to watchers."""
    person, watcher = sits(), sits("--read-only")
    watcher.sees("watching")
    person.prompt()
    person.runs("cd /; word=his")
    person.types("echo [$word]")
    person.sees(r"echo \[\$word]")
    client.restart()
    for one in (person, watcher):
        one.sees("was restarted: a fresh shell")
    person.prompt()
    person.types("; pwd\r")
    person.sees(rf"\[\]\r\n{tmp_path}\r\n")


@pytest.mark.parametrize("command", ["", "echo u''p; sleep 100"], ids=["at the prompt", "while a command runs"])
def test_a_session_that_is_closed_ends_it(sits: Sits, client: RemoteSession, command: str) -> None:
    person = sits()
    person.prompt()
    if command:
        person.types(command + "\r")
        person.sees("up\r\n")
    client.close()
    person.sees("was closed")
    assert person.ends() == 125


@pytest.mark.parametrize("comes_back", [False, True], ids=["", "comes back"])
@pytest.mark.parametrize(
    ("end", "told"),
    [
        (lambda client: client.restart(), "the session was restarted meanwhile"),
        (lambda client: client.interrupt(), "interrupted on request"),
        (lambda client: os.kill(client.pid, signal.SIGKILL), "the session's bash was"),
    ],
    ids=["restart", "interrupt", "kill"],
)
def test_a_command_that_another_client_ended_says_so(
    sits: Sits, client: RemoteSession, end: Callable[[RemoteSession], object], told: str, comes_back: bool
) -> None:
    person = sits()
    person.prompt()
    person.types(f"echo u''p; sleep {unique_seconds()}\r")
    person.sees("up\r\n")
    if comes_back:
        person.leaves()
        person = sits()
        person.sees(r"person\$ echo u''p")
    end(client)
    person.sees(told)
    person.prompt()


# -- a daemon that does not answer


def test_a_daemon_that_is_stopped_traps_nobody(sits: Sits, daemon: Daemon) -> None:
    person = sits()
    person.prompt()
    watcher = sits("--read-only")
    watcher.sees("watching")
    with stopped(daemon.pid):
        person.types("echo la''ter\r")
        person.sees("has not replied yet: Ctrl-\\] leaves")
        watcher.leaves()
    person.sees("later\r\n")
    person.prompt()
    with stopped(daemon.pid):
        begin = time.monotonic()
        person.leaves()
        assert time.monotonic() - begin < PATIENCE / 2  # other clients give it 15 s


@pytest.mark.parametrize("options", [[], ["--read-only"]], ids=["", "read-only"])
def test_a_daemon_that_is_stopped_traps_nobody_who_comes(
    options: list[str], sits: Sits, client: RemoteSession, daemon: Daemon, tmp_path: Path
) -> None:
    """It may stop when it has greeted."""
    (tmp_path / "sitecustomize.py").write_text(f"""
import os, signal
from shellsession.cli import attach
class Connection(attach.AgentConnection):
    def __init__(self, *about):
        super().__init__(*about)
        os.kill({daemon.pid}, signal.SIGSTOP)
attach.AgentConnection = Connection
""")
    try:
        person = sits(*options, PYTHONPATH=str(tmp_path))
        wait_until(lambda: stat_fields(daemon.pid)[:1] == ["T"], "it to stop")
        person.leaves()
    finally:
        os.kill(daemon.pid, signal.SIGCONT)
