"""``shellsession log`` shows who ran what, from any audit log."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import commands
import pytest
from commands import cli
from daemons import Daemon
from system import wait_until

agent = commands.agent


def test_the_log_shows_who_ran_what(daemon: Daemon, agent: str) -> None:
    for number in (1, 2, 3):
        cli(daemon.socket, "run", "-s", agent, "--", f"echo {number}\n(exit {number})")
    cli(daemon.socket, "run", "-s", agent, "--timeout", "0.05", "--", "sleep 99")
    cli(daemon.socket, "run", "-s", agent, "--", "exit 9")
    log = ["log", "--audit", str(daemon.audit), "-s", agent]
    wait_until(lambda: cli("", *log).stdout.count(b"\n") == 6, "the last line")  # it may come after the answer
    titles, *rows = cli("", *log).stdout.decode().splitlines()
    assert titles.split() == ["ENDED", "AGENT", "ID", "STATUS", "TOOK", "COMMAND"]
    told = [re.sub(r"^ +c\d+", "", row[20:].removeprefix("  " + agent)) for row in rows]
    assert [re.sub(r" +\d+\.\ds +", "|", row).strip() for row in told] == [
        r"1|echo 1\n(exit 1)",
        r"2|echo 2\n(exit 2)",
        r"3|echo 3\n(exit 3)",
        "timed_out|sleep 99",
        "shell_exited 9|exit 9",
    ]
    assert cli("", *log, "-n", "2").stdout.decode().splitlines()[1:] == rows[-2:]
    assert cli("", *log, "-n", "0").stdout.decode().splitlines()[1:] == rows
    assert cli("", "history", *log[1:3], agent).stdout.decode().splitlines()[1:] == rows
    last = json.loads(cli("", *log, "-n", "1", "--json").stdout)
    assert (last["agent"], last["command"], last["outcome"]) == (agent, "exit 9", "shell_exited")
    nobody = cli("", *log[:-1], "nosuch")
    assert (nobody.returncode, nobody.stdout) == (0, b"")
    assert nobody.stderr == b"shellsession: the log has no command of agent 'nosuch'\n"


def test_the_log_shows_what_a_policy_refused(daemon: Daemon) -> None:
    agent = "refusing"
    secret = {"API_KEY": "s3cret-value"}
    cli(daemon.socket, "run", "-s", agent, "--deny", "curl", "--", "curl s3cret-value", env=secret)
    cli(daemon.socket, "run", "-s", agent, "--", "true")
    log = ["log", "--audit", str(daemon.audit), "-s", agent]
    refused, _ = wait_until(lambda: daemon.logged(agent)[1:] and daemon.logged(agent), "the log")
    assert {name: refused[name] for name in refused.keys() - {"time", "client"}} == {
        "agent": agent,
        "command": "curl ***",
        "outcome": "refused",
        "reason": "refused by policy: 'curl' is denied",
        "ran": False,
    }
    assert cli("", *log).stdout.decode().splitlines()[1].split()[-4:] == ["refused", "-", "curl", "***"]
    cli(daemon.socket, "kill", agent)


def test_a_log_of_anything_is_shown(tmp_path: Path) -> None:
    (tmp_path / "log").write_text('{"agent": 7}\n[]\n{half\n{"time": null, "duration": "x", "command": ["\\u001b"]}\n')
    done = cli("", "log", "--audit", str(tmp_path / "log"))
    assert (done.returncode, done.stderr, done.stdout.count(b"\n")) == (0, b"", 3)
    assert b"\x1b" not in done.stdout


@pytest.mark.parametrize("duration", ["1e400", "-1e400", "NaN", "1" + "0" * 400, "-1", "1e300", "true", "[[[]]]"])
def test_a_log_of_any_duration_is_shown(tmp_path: Path, duration: str) -> None:
    (tmp_path / "log").write_text(f'{{"agent": "a", "duration": {duration}, "command": "c"}}\n')
    done = cli("", "log", "--audit", str(tmp_path / "log"))
    assert (done.returncode, done.stderr) == (0, b"")
    shown = "1.0s" if duration == "true" else "-"
    assert done.stdout.decode().splitlines()[1].split() == ["-Z", "a", "-", "-", shown, "c"]


@pytest.mark.parametrize("name", ["missing", ".", "fifo"])
def test_no_log_is_an_error(tmp_path: Path, name: str) -> None:
    os.mkfifo(tmp_path / "fifo")
    done = cli("", "log", "--audit", str(tmp_path / name))
    assert (done.returncode, done.stdout) == (125, b"")
    assert done.stderr.decode().endswith("; use --audit to name another\n")
    assert b"status" not in done.stderr


def test_with_another_home_the_error_says_where_the_log_is(daemon: Daemon, agent: str, tmp_path: Path) -> None:
    assert cli(daemon.socket, "run", "-s", agent, "--", "true").returncode == 0
    wait_until(daemon.audit.exists, "the line")  # it may come after the answer
    elsewhere = cli(daemon.socket, "log", env={"XDG_STATE_HOME": str(tmp_path)})
    assert elsewhere.returncode == 125
    assert elsewhere.stderr.decode().endswith(
        "; `shellsession status` shows where the daemon writes it; use --audit to name another\n"
    )
    told = json.loads(cli(daemon.socket, "status", "--json").stdout)["audit"]
    assert (told, cli("", "log", "--audit", told).returncode) == (str(daemon.audit), 0)
