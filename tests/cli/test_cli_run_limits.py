"""``shellsession run`` ends or hands back a command that takes too long or asks for input, and prints a hint."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import pytest
from commands import cli, opened
from daemons import Daemon, Raw
from system import wait_until

from shellsession.cli.small import VERBS


def test_a_command_that_is_handed_back_is_124(daemon: Daemon, agent: str) -> None:
    with opened(agent, daemon, on_timeout="yield"):
        done = cli(daemon.socket, "run", "-s", agent, "--timeout", "0.2", "--", "sleep 99")
    assert (done.returncode, done.stdout) == (124, b"")
    assert f"it is still running: `shellsession wait {agent}` waits for it" in done.stderr.decode()


@pytest.mark.parametrize(
    ("then", "said"),
    [
        ("interrupt", "; the session's state is kept"),
        ("kill", "; the session's state is lost"),
        ("yield", "it is still running: `shellsession wait "),
    ],
)
def test_what_a_time_limit_does(daemon: Daemon, agent: str, then: str, said: str) -> None:
    for limit in ("0.2", "10"):  # the second one for a machine that has printed nothing by then
        words = ["--timeout", limit, "--on-timeout", then, "--", "echo on; sleep 99"]
        done = cli(daemon.socket, "run", "-s", agent, *words)
        if done.stdout:
            break
        cli(daemon.socket, "kill", agent)
    assert (done.returncode, done.stdout) == (124, b"on\n")
    assert said in done.stderr.decode()


def test_a_silent_command_that_is_handed_back_is_not_over(daemon: Daemon, agent: str, place: Path) -> None:
    os.mkfifo(place / "gate")
    words = ["--idle-timeout", "0.2", "--on-timeout", "yield", "--", f"echo on; read word <{place}/gate; (exit 3)"]
    done = cli(daemon.socket, "run", "-s", agent, *words)
    assert (done.returncode, done.stdout) == (124, b"on\n")
    assert f"it is still running: `shellsession wait {agent}` waits for it" in done.stderr.decode()
    (place / "gate").write_text("go\n")
    assert cli(daemon.socket, "wait", agent).returncode == 3
    logged = wait_until(lambda: daemon.logged(agent), "the line of the log")
    assert [(entry["outcome"], entry["exit_code"]) for entry in logged] == [("exited", 3)]


@pytest.mark.parametrize("options", [["--timeout", "2"], ["--patience", "2"]], ids=["timeout", "patience"])
def test_a_command_whose_patience_ends_while_a_person_is_attached_is_refused(
    daemon: Daemon, agent: str, options: list[str]
) -> None:
    with opened(agent, daemon), Raw(daemon.socket) as person:
        person.ask("hold", agent=agent, holder="me")
        done = cli(daemon.socket, "run", "-s", agent, *options, "--", "echo never")
    assert (done.returncode, done.stdout) == (125, b"")
    waits, refused = done.stderr.decode().splitlines()
    assert waits.startswith(f"shellsession: waiting for agent '{agent}': nothing runs there; a person is attached")
    assert "a person holds this session" in refused


def test_a_command_that_asks_is_handed_back_and_answered(daemon: Daemon, agent: str) -> None:
    asks = "read -p 'name? ' name; echo hello $name; (exit 3)"
    first = cli(daemon.socket, "run", "-i", "-s", agent, "--", asks)
    assert (first.returncode, first.stdout) == (124, b"")
    assert first.stderr.startswith(b"name? shellsession: the command waits for input from the terminal: `shellsession ")
    busy = cli(daemon.socket, "run", "-s", agent, "--", "true")
    assert busy.returncode == 125
    assert b"`shellsession wait`, `send` or `interrupt`" in busy.stderr
    hint = re.search(r"`shellsession (send .*) TEXT`", first.stderr.decode())
    assert hint is not None
    last = cli(daemon.socket, *shlex.split(hint[1]), "Ann")
    assert (last.returncode, last.stdout, last.stderr) == (3, b"hello Ann\n", b"")


def test_what_cannot_be_answered_says_how_it_could_be(daemon: Daemon, agent: str) -> None:
    done = cli(daemon.socket, "run", "-s", agent, "--", "read answer </dev/tty")
    assert done.returncode == 130
    assert done.stderr.decode().endswith("with `shellsession run -i` it can be answered\n")
    cli(daemon.socket, "run", "-s", agent, "--timeout", "0.05", "--on-timeout", "yield", "--", "sleep 99")
    refused = cli(daemon.socket, "send", agent, "text")
    assert (refused.returncode, b"`shellsession run -i`" in refused.stderr) == (125, True)


def test_the_examples_of_send_do_what_they_say(daemon: Daemon) -> None:
    asks = VERBS["send"].examples[0][1].partition(": ")[2]
    done = [
        cli(daemon.socket, *shlex.split(one)[1:])
        for one in (asks, *(example for example, _ in VERBS["send"].examples[:2]))
    ]
    assert [one.returncode for one in done] == [124, 0, 0]
    assert done[-1].stdout == b"Ann y\n"
    assert cli(daemon.socket, "kill", "builder").returncode == 0


def test_a_hint_can_be_typed_as_it_is(daemon: Daemon) -> None:
    words = ["--timeout", "0.05", "--on-timeout", "yield", "--", "sleep 99"]
    done = cli(daemon.socket, "run", "-s", "the agent", *words)
    hint = done.stderr.decode().split("`")[1]
    assert shlex.split(hint) == ["shellsession", "wait", "the agent"]
    assert cli(daemon.socket, "kill", "the agent").returncode == 0
