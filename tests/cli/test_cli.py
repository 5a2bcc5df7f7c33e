"""The verbs of the command line except ``run``: what each prints and does, and its exit status."""

from __future__ import annotations

import fcntl
import importlib
import json
import os
import re
import struct
import termios
from contextlib import ExitStack
from pathlib import Path

import commands
import pytest
from commands import all_shown, cli, finish, running, session
from daemons import Daemon
from system import is_alive, mentioning, wait_until

from shellsession import TTY, connect
from shellsession.cli.main import main as command_line

agent = commands.agent

# What the name of an agent may hold: it clears the screen, turns the writing around, and ends the line.
NASTY = "\x1b[2Jnas\u202ety\n\x9b"
SHOWN = r"\x1b[2Jnas\u202ety\n\x9b"


def pid_of(agent: str, daemon: Daemon) -> int:
    return int(cli(daemon.socket, "run", "-s", agent, "--", "echo $$").stdout)


def listed(socket: str) -> dict[str, dict[str, object]]:
    return {one["agent"]: one for one in json.loads(cli(socket, "ls", "--json").stdout)}


# -- a daemon's life


def test_run_starts_a_daemon_and_stop_leaves_nothing(tmp_path: Path) -> None:
    socket, state = str(tmp_path / "run" / "socket"), {"XDG_STATE_HOME": str(tmp_path / "state")}
    first = cli(socket, "run", "--", "echo $$", env=state)
    assert (first.returncode, first.stderr) == (0, b"")
    status = json.loads(cli(socket, "status", "--json").stdout)
    assert (status["agents"], status["socket"], is_alive(status["pid"])) == (1, socket, True)
    wait_until(lambda: cli(socket, "log", "--json", env=state).returncode == 0, "the log")
    logged = wait_until(lambda: cli(socket, "log", "--json", env=state).stdout, "its line")
    assert {json.loads(entry)["command"] for entry in logged.splitlines()} == {"echo $$"}  # a slow one has two lines
    stopped = cli(socket, "stop")
    assert stopped.returncode == 0
    assert stopped.stderr.decode() == f"shellsession: the daemon (pid {status['pid']}) has ended\n"
    assert not is_alive(status["pid"])
    assert not os.path.exists(socket)
    assert not is_alive(int(first.stdout))
    wait_until(lambda: mentioning(socket) == [], "the end of all its processes")
    log, records = sorted(one.name for one in (tmp_path / "state" / "shellsession").iterdir())
    assert re.fullmatch(r"audit-[0-9a-f]{8}\.jsonl", log)
    assert re.fullmatch(r"state-[0-9a-f]{12}\.db", records)


@pytest.mark.parametrize(
    ("words", "status"),
    [
        (["ls"], 125),
        (["jobs", "a"], 125),
        (["wait", "a"], 125),
        (["interrupt", "a"], 125),
        (["send", "a", "x"], 125),
        (["restart", "a"], 125),
        (["kill", "a"], 125),
        (["kill", "--all"], 125),
        (["run", "--no-start", "--", "true"], 125),
        (["status"], 3),
        (["stop"], 0),
    ],
)
def test_queries_start_no_daemon(tmp_path: Path, words: list[str], status: int) -> None:
    socket = str(tmp_path / "run" / "socket")
    done = cli("", words[0], "--socket", socket, *words[1:])
    hint = ", so no agent has a session there: `shellsession run` starts one"
    if words == ["stop"]:
        hint = ": nothing to stop"
    assert done.returncode == status
    assert done.stderr.decode() == f"shellsession: no daemon listens at {socket}{hint}\n"
    assert done.stdout == b""
    assert mentioning(socket) == []


@pytest.mark.parametrize(
    "words",
    [
        *(
            ["ls"],
            ["jobs", "a"],
            ["wait", "a"],
            ["interrupt", "a"],
            ["send", "a", "x"],
            ["restart", "a"],
            ["kill", "a"],
        ),
        *(["run", "--", "true"], ["attach", "a"], ["status"], ["serve"], ["stop"]),
    ],
    ids=lambda words: words[0],
)
def test_no_socket_is_not_the_usual_one(daemon: Daemon, words: list[str]) -> None:
    """As of a variable that is not set."""
    done = cli(daemon.socket, words[0], "--socket", "", *words[1:])
    said = "shellsession: the socket's path is empty: leave out --socket (socket=) for the default one\n"
    assert (done.returncode, done.stdout, done.stderr.decode()) == (125, b"", said)


def test_status_prints_text_for_people(daemon: Daemon) -> None:
    done = cli(daemon.socket, "status")
    assert done.returncode == 0
    lines = dict(re.split(r"\s{2,}", entry, maxsplit=1) for entry in done.stdout.decode().splitlines())
    assert f"pid {daemon.pid}, up " in lines["daemon"]
    assert (lines["socket"], lines["audit log"]) == (daemon.socket, str(daemon.audit))


# -- a session's life


def test_ls_of_several_agents_is_sorted_by_name(daemon: Daemon, agent: str) -> None:
    names = [f"{agent}-{letter}" for letter in "cab"]
    with ExitStack() as sessions:
        for name in names:
            sessions.enter_context(session(name, daemon)).run("true")
        listed = cli(daemon.socket, "ls", "--names").stdout.decode().splitlines()
        assert [name for name in listed if name in names] == sorted(names)


def test_ls_is_a_table(daemon: Daemon, agent: str) -> None:
    with session(agent, daemon) as sh:
        sh.run("cd /usr; sleep 99 &")
        sh.run("sleep 99\necho never", stdin=TTY, timeout=0.05, on_timeout="yield")
        titles, *rows = cli(daemon.socket, "ls").stdout.decode().splitlines()
        assert titles.split() == ["AGENT", "PID", "STATE", "AGE", "IDLE", "JOBS", "CWD", "RUNS", "COMMAND"]
        row = next(row for row in rows if row.startswith(agent))
        pid, state, age, idle, jobs, cwd, runs, command = row[len(agent) :].split(maxsplit=7)
        assert (int(pid), state, jobs, cwd, command) == (sh.pid, "running", "1", "/usr", r"sleep 99\necho never")
        assert re.fullmatch(r"\d\.\ds \d\.\ds \d\.\ds", f"{age} {idle} {runs}")
        assert listed(daemon.socket)[agent]["running_for"]
        assert titles.index("COMMAND") == row.index("sleep 99")
        assert listed(daemon.socket)[agent]["command"] == "sleep 99\necho never"
        assert agent in cli(daemon.socket, "ls", "--names").stdout.decode().splitlines()
        sh.interrupt()
        assert listed(daemon.socket)[agent]["running_for"] is None


def test_a_long_name_keeps_the_rest_in_sight(daemon: Daemon) -> None:
    main, terminal = os.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("4H", 50, 120, 0, 0))
    with connect("long" * 64, daemon.socket, False, cwd="/usr") as sh:
        sh.open()
        with running(daemon.socket, "ls", stdout=terminal, env={"NO_COLOR": "1"}) as process:
            os.close(terminal)
            status, _ = finish(process)
        rows = all_shown(main).decode().splitlines()
        (row,) = [row for row in rows if row.startswith("long")]
        assert (status, row.split()[0], row.split()[2], row.split()[6]) == (0, "long" * 9 + "lon…", "idle", "/usr")
        assert b"long" * 64 in cli(daemon.socket, "ls").stdout
        sh.close()


def test_foreign_text_does_nothing_to_a_terminal(daemon: Daemon) -> None:
    with connect(NASTY, daemon.socket, False, cwd="/") as sh:
        sh.run("sleep 99 & echo '\x1b]0;title\x07'")
        wait_until(lambda: daemon.logged(NASTY), "the line of the log")
        for words in (["ls"], ["ls", "--names"], ["jobs", "--", NASTY], ["log", "--audit", str(daemon.audit)]):
            done = cli(daemon.socket, *words)
            assert done.stdout.isascii()
            assert re.search(rb"[\x00-\x09\x0b-\x1f\x7f]", done.stdout) is None
            assert (SHOWN if words[0] != "jobs" else r"\x1b]0;title\x07").encode() in done.stdout
        sh.close()
    refused = cli(daemon.socket, "wait", "--", NASTY)
    assert (refused.returncode, refused.stderr.count(b"\n")) == (125, 1)
    assert b"\x1b" not in refused.stderr


@pytest.mark.parametrize(("variables", "coloured"), [({}, True), ({"NO_COLOR": "1"}, False), ({"NO_COLOR": ""}, True)])
def test_colour_only_on_a_terminal_that_wants_it(
    daemon: Daemon, agent: str, variables: dict[str, str], coloured: bool
) -> None:
    main, terminal = os.openpty()
    with running(daemon.socket, "ls", stdout=terminal, env=variables) as process:
        os.close(terminal)
        assert finish(process)[0] == 0
    shown = all_shown(main)
    assert (b"\x1b[2mnew\x1b[0m" in shown) is coloured
    assert b"\x1b" not in cli(daemon.socket, "ls").stdout


def test_restart_gives_a_fresh_bash(daemon: Daemon, agent: str) -> None:
    before = pid_of(agent, daemon)
    assert cli(daemon.socket, "restart", agent).returncode == 0
    assert pid_of(agent, daemon) != before
    assert not is_alive(before)


def test_restart_keeps_the_state_with_a_flag(daemon: Daemon, agent: str) -> None:
    before = pid_of(agent, daemon)
    cli(daemon.socket, "run", "-s", agent, "cd /usr; X=kept")
    assert cli(daemon.socket, "restart", "--keep-state", agent).returncode == 0
    assert cli(daemon.socket, "run", "-s", agent, "echo $X $PWD").stdout == b"kept /usr\n"
    assert pid_of(agent, daemon) != before


def test_kill_closes_one_session_or_all(daemon: Daemon) -> None:
    pids = {name: pid_of(name, daemon) for name in ("k1", "k2", "k3", "k4")}
    some = cli(daemon.socket, "kill", "k1", "not there", "k2", "k1")
    assert (some.returncode, b"agent 'not there' has no session" in some.stderr) == (125, True)
    assert [is_alive(pid) for pid in pids.values()] == [False, False, True, True]
    assert {"k3", "k4"} <= set(listed(daemon.socket))
    assert not {"k1", "k2"} & set(listed(daemon.socket))
    assert cli(daemon.socket, "kill", "--all").returncode == 0
    assert listed(daemon.socket) == {}
    assert not any(map(is_alive, pids.values()))
    empty = cli(daemon.socket, "ls")
    assert (empty.stdout, empty.returncode) == (b"", 0)
    assert b"no agent has a session" in empty.stderr


@pytest.mark.parametrize(
    "words", [["kill"], ["kill", "--all", "a"], ["wait"], ["send", "a"], ["log", "-n", "-1"], ["ls", "x"]]
)
def test_a_usage_error_exits_with_125(daemon: Daemon, words: list[str]) -> None:
    done = cli(daemon.socket, *words)
    assert (done.returncode, done.stdout) == (125, b"")
    assert done.stderr.startswith(f"usage: shellsession {words[0]} ".encode())


# Of each verb that has --json, and of each kind of error.
FAILURES: dict[str, tuple[list[str], int, str]] = {
    "run": (["run", "--json", "-s", "", "true"], 125, "invalid_request"),
    "run, a usage error": (["run", "--timeout", "soon", "--json", "true"], 125, "invalid_request"),
    "run, its command's word": (["run", "--cwd", "/nowhere", "echo", "--json"], 125, ""),
    "wait": (["wait", "nobody", "--json"], 125, "no_such_agent"),
    "interrupt": (["interrupt", "--json", "nobody"], 125, "no_such_agent"),
    "send": (["send", "--json", "nobody", "x"], 125, "no_such_agent"),
    "jobs": (["jobs", "--json", "nobody"], 125, "no_such_agent"),
    "ls": (["ls", "--json", "--socket", "/nowhere/socket"], 125, "daemon_unavailable"),
    "status": (["status", "--json", "--socket", "/nowhere/socket"], 3, "daemon_unavailable"),
    "log": (["log", "--json", "--audit", "/nowhere"], 125, "error"),
    "log, a usage error": (["log", "--frob", "--json"], 125, "invalid_request"),
    "no verb": (["frob", "--json"], 125, "invalid_request"),
}


@pytest.mark.parametrize(("words", "status", "code"), FAILURES.values(), ids=FAILURES)
def test_errors_are_also_printed_as_json(daemon: Daemon, words: list[str], status: int, code: str) -> None:
    done = cli(daemon.socket, *words)
    assert done.returncode == status
    told = json.loads(done.stdout)["error"] if code else {}
    assert told.get("code", "") == code
    assert done.stderr.decode().endswith(f"shellsession: {told['message']}\n" if told else "\n")
    assert told or not done.stdout


@pytest.mark.parametrize("words", [["wait"], ["interrupt"], ["send"], ["jobs"], ["restart"], ["kill"]])
def test_a_query_makes_no_agent(daemon: Daemon, words: list[str]) -> None:
    done = cli(daemon.socket, *words, "nobody", *(["x"] if words == ["send"] else []))
    assert (done.returncode, done.stdout) == (125, b"")
    assert done.stderr.startswith(b"shellsession: agent 'nobody' has no session")
    assert done.stderr.endswith(b"; `shellsession ls` shows the agents that have one\n")
    assert "nobody" not in listed(daemon.socket)


@pytest.mark.parametrize("words", [["wait"], ["interrupt"], ["send"]])
def test_nothing_runs(daemon: Daemon, agent: str, words: list[str]) -> None:
    done = cli(daemon.socket, *words, agent, *(["x"] if words == ["send"] else []))
    assert (done.returncode, done.stdout) == (125, b"")
    assert done.stderr.endswith(b"; `shellsession ls` shows what runs, `shellsession log` how commands ended\n")


def test_ctrl_c_before_the_verb_is_known_is_reported_as_json(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(importlib, "import_module", interrupted)
    assert command_line(["run", "--json", "--", "true"]) == 130
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "interrupted"
