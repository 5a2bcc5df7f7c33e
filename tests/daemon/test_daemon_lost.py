"""A daemon that ended with its sessions: the next one knows where each agent was, and says what is lost."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from functools import partial
from pathlib import Path
from typing import Final

import pytest
from commands import cli
from daemons import Daemon, Raw, connections, running
from sandboxes import needs_bwrap
from system import wait_until

from shellsession import (
    DaemonUnavailable,
    InvalidRequest,
    NoSuchAgent,
    OutcomeUnknown,
    Policy,
    PolicyRefused,
    RemoteSession,
    Sandbox,
    SessionClosed,
    StateLost,
    aconnect,
    connect,
)
from shellsession.daemon.client import admin
from shellsession.integrations.toolbox import Toolbox

LOST = "this is a new session: the last one ended with its daemon, and its state is lost"


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with running(tmp_path_factory.mktemp("daemon")) as daemon:
        yield daemon


@pytest.fixture
def _own_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Daemons that the test starts have a database of their own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


own_state = pytest.mark.usefixtures("_own_state")


def end(daemon: Daemon, number: int = signal.SIGKILL) -> None:
    daemon.stop(number)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_next_session_starts_where_the_last_one_was_and_says_once_what_is_lost(
    tmp_path: Path, number: signal.Signals
) -> None:
    (there := tmp_path / "there").mkdir()
    with running(tmp_path) as daemon, connect("a", daemon.socket, False) as session:
        session.run(["cd", str(there)])
        session.run("A=1")
        end(daemon, number)
        with pytest.raises(DaemonUnavailable):
            session.run("true")
    with running(tmp_path) as daemon, connect("a", daemon.socket, False) as session:
        results = [session.run("echo ${A-none} $PWD") for _ in range(2)]
        assert [result.stdout for result in results] == [f"none {there}\n"] * 2
        assert [result.reason for result in results] == [f"{LOST}; it starts in {there}", ""]
        assert results[0].ok


def test_command_that_ran_when_the_daemon_was_killed_is_named_without_its_secrets(tmp_path: Path) -> None:
    secret = {"API_TOKEN": "s3cret-value"}
    with running(tmp_path) as daemon:
        words = [
            sys.executable,
            "-m",
            "shellsession",
            "run",
            "--socket",
            daemon.socket,
            "-s",
            "a",
            "sleep 99; echo s3cret-value",
        ]
        with subprocess.Popen(words, env={**os.environ, **secret}, stderr=subprocess.PIPE) as client:
            (line,) = wait_until(lambda: daemon.lines("a"), "the line of its beginning")
            assert line["client"] == client.pid
            end(daemon)
            client.communicate()
    assert (line["command"], line["outcome"], line["id"]) == ("sleep 99; echo ***", "began", "c1")
    shown = cli("", "history", "--audit", str(daemon.audit), "a").stdout.decode().splitlines()[1]
    assert shown.split()[3:7] == ["a", "c1", "began", "-"]
    with running(tmp_path) as daemon:
        done = cli(daemon.socket, "run", "-s", "a", "echo on", env=secret)
        assert done.stdout == b"on\n"
        assert "'sleep 99; echo ***' was running then: check what it has done" in done.stderr.decode()


def test_tool_returns_the_notice_once_instead_of_running(tmp_path: Path) -> None:
    async def call(socket: str, command: str) -> str:
        async with aconnect("a", socket, False) as session:
            return await Toolbox(session).call("bash", {"command": command})

    (there := tmp_path / "there").mkdir()
    with running(tmp_path) as daemon:
        assert asyncio.run(call(daemon.socket, f"cd {there}")) == "[no output]"
        end(daemon)
    with running(tmp_path) as daemon:
        with pytest.raises(StateLost) as told:
            asyncio.run(call(daemon.socket, "touch ran"))
        assert str(told.value).startswith(f"{LOST}; it starts in {there}; nothing was run")
        assert not (there / "ran").exists()
        assert asyncio.run(call(daemon.socket, "pwd")) == str(there)


def test_toolbox_that_met_the_end_of_its_daemon_tells_it_once(tmp_path: Path) -> None:
    async def meet() -> None:
        with running(tmp_path) as daemon:
            session = await aconnect("a", daemon.socket, False)
            toolbox = Toolbox(session)
            await toolbox.call("bash", {"command": "true"})
            end(daemon)
        with running(tmp_path):
            with pytest.raises(DaemonUnavailable, match="its state is lost; nothing was run"):
                await toolbox.call("bash", {"command": "true"})
            assert LOST in await toolbox.call("bash", {"command": "echo on"})
            assert await toolbox.call("bash", {"command": "echo on"}) == "on"
            session.disconnect()

    asyncio.run(meet())


def test_connect_without_create_attaches_only_to_a_live_session(tmp_path: Path) -> None:
    with running(tmp_path) as daemon:
        with pytest.raises(NoSuchAgent):
            connect("a", daemon.socket, False, create=False)
        with connect("a", daemon.socket, False) as first:
            first.run("A=1")
            with connect("a", daemon.socket, False, create=False) as session:
                assert session.run("echo $A").stdout == "1\n"
                end(daemon)
                with pytest.raises(DaemonUnavailable):
                    session.run("true")
                with running(tmp_path), pytest.raises(StateLost, match=LOST):
                    session.run("true")
    with running(tmp_path) as daemon:
        with pytest.raises(StateLost, match=LOST):
            connect("a", daemon.socket, False, create=False)
        with connect("a", daemon.socket, False) as session:
            assert session.run("true").reason.startswith(LOST), "asking has not used up the notice"


def test_directory_that_is_named_or_gone_is_told(tmp_path: Path) -> None:
    (there := tmp_path / "there").mkdir()
    with running(tmp_path) as daemon:
        for agent in ("named", "gone"):
            with connect(agent, daemon.socket, False) as session:
                session.run(["cd", str(there)])
        end(daemon)
    with running(tmp_path) as daemon:
        with connect("named", daemon.socket, False, cwd="/usr") as session:
            result = session.run("pwd")
            assert result.stdout == "/usr\n"
            assert result.reason == f"{LOST}; it starts in /usr, and the last one was in {there}"
        there.rmdir()
        with connect("gone", daemon.socket, False) as session:
            told = f"{LOST}; it starts in {Path.cwd()}, and the last one was in {there}; nothing was run"
            with pytest.raises(StateLost, match=re.escape(told)):
                session.run(["touch", str(tmp_path / "never")])
            assert session.run("pwd").stdout == f"{Path.cwd()}\n"
            assert not (tmp_path / "never").exists()


@pytest.mark.parametrize(
    "way", ["close", "kill", "restart", "forget", "forget --all", "forget without a daemon", "kill without a daemon"]
)
def test_nothing_is_known_of_an_agent_that_was_forgotten(tmp_path: Path, way: str) -> None:
    with running(tmp_path) as daemon:
        with connect("a", daemon.socket, False) as session:
            session.run("cd /usr")
            if way == "restart":
                session.restart()
            elif way == "close":
                session.close()
            elif way == "kill":
                assert cli(daemon.socket, "kill", "a").returncode == 0
        end(daemon)
    if way == "forget without a daemon":
        assert cli(daemon.socket, "forget", "a").returncode == 0
        assert cli(daemon.socket, "forget", "a").returncode == 125
    if way == "kill without a daemon":
        assert cli(daemon.socket, "kill", "a").returncode == 0
        assert cli(daemon.socket, "kill", "a").returncode == 125
    with running(tmp_path) as daemon:
        if way == "forget":
            assert admin.forget("a", daemon.socket) == 1
            assert admin.forget("a", daemon.socket) == 0
        elif way == "forget --all":
            assert cli(daemon.socket, "forget", "--all").stderr == b"shellsession: agents forgotten: 1\n"
        with connect("a", daemon.socket, False) as session:
            result = session.run("pwd")
            assert (result.reason, result.stdout) == ("", f"{Path.cwd()}\n")
            with pytest.raises(InvalidRequest, match="has a session"):
                admin.forget("a", daemon.socket)


def test_status_shows_where_the_records_are_and_how_large(daemon: Daemon) -> None:
    cli(daemon.socket, "run", "-s", "a", "true")
    told = json.loads(cli(daemon.socket, "status", "--json").stdout)
    assert told["state"].startswith(os.environ["XDG_STATE_HOME"])
    assert told["state_size"] >= os.stat(told["state"]).st_size > 0
    assert told["state_fault"] == ""
    assert f"state      {told['state']}, " in cli(daemon.socket, "status").stdout.decode()


@own_state
def test_status_shows_how_old_the_state_of_each_shell_is(tmp_path: Path) -> None:
    for _ in range(2):
        with running(tmp_path) as daemon, connect("a", daemon.socket, False, recover=True) as session:
            with connect("b", daemon.socket, False) as other:
                other.run("true")
            session.run("true")
            wait_until(lambda: is_current(daemon, "a"), "the state")
            (age,) = json.loads(cli(daemon.socket, "status", "--json").stdout)["state_ages"].items()
            assert age[0] == "a"
            assert 0 <= age[1] < 60
            assert "\nshells     kept a " in cli(daemon.socket, "status").stdout.decode()
            session.restart()
            assert json.loads(cli(daemon.socket, "status", "--json").stdout)["state_ages"] == {}
            session.run("true")
            wait_until(lambda: is_current(daemon, "a"), "the state")


@own_state
def test_status_names_agents_that_have_a_state_but_no_session(tmp_path: Path) -> None:
    with running(tmp_path) as daemon:
        for agent in ("kept", "open"):
            with connect(agent, daemon.socket, False, recover=True) as session:
                session.run("true")
        with connect("without", daemon.socket, False) as other:
            other.run("true")
        end(daemon, signal.SIGTERM)
    with running(tmp_path) as daemon, connect("open", daemon.socket, False, recover=True):
        (age,) = json.loads(cli(daemon.socket, "status", "--json").stdout)["stored_ages"].items()
        assert age[0] == "kept"
        assert 0 <= age[1] < 600
        assert (
            "\nstored     1 with a state but no session, last used: kept "
            in cli(daemon.socket, "status").stdout.decode()
        )
        missing = cli(daemon.socket, "forget", "nobody").stderr.decode()
        assert "nothing is recorded about agent 'nobody'" in missing
        assert "shellsession ls" not in missing
        assert cli(daemon.socket, "forget", "kept").returncode == 0
        assert json.loads(cli(daemon.socket, "status", "--json").stdout)["stored_ages"] == {}


@needs_bwrap
def test_agent_stays_confined_after_its_daemon_was_killed(tmp_path: Path) -> None:
    rules = {"policy": Policy(deny_commands=["ls"]), "sandbox": Sandbox(write=[str(tmp_path)]), "redact": True}
    with running(tmp_path) as daemon:
        for agent in ("ran", "only opened"):
            with connect(agent, daemon.socket, False, cwd=tmp_path, **rules) as session:  # type: ignore[arg-type]
                if agent == "ran":
                    session.run("true")
        end(daemon)
    with running(tmp_path) as daemon:
        for agent in ("ran", "only opened"):
            with connect(agent, daemon.socket, False, cwd=tmp_path) as session:
                assert (session.policy, session.redact) == (rules["policy"], True)
                result = session.run("[[ -w / ]]")
                assert (result.ok, result.reason.startswith(LOST)) == (False, agent == "ran")
                with pytest.raises(PolicyRefused):
                    session.run("ls")
                session.close()
        with connect("ran", daemon.socket, False) as session:
            assert session.policy is None


def test_result_of_a_client_that_died_is_named_by_the_next_command(daemon: Daemon, raw: Raw, place: Path) -> None:
    words = [sys.executable, "-m", "shellsession", "run", "--socket", daemon.socket, "-s", "died", "-C", str(place)]
    with subprocess.Popen([*words, "until [ -e go ]; do sleep 0.05; done; (exit 7)"]) as client:
        wait_until(lambda: daemon.lines("died"), "its beginning")
        there = connections(raw)
        client.kill()
    wait_until(lambda: connections(raw) < there, "its death")
    (place / "go").touch()
    wait_until(lambda: daemon.logged("died"), "its end")
    with connect("died", daemon.socket, False) as session:
        reasons = [session.run("true").reason for _ in range(2)]
    assert reasons[0].startswith("nobody has read the result of the earlier command c1 ('until [ -e go ]; do")
    assert reasons[0].endswith("(exit 7)'): exit status 7")
    assert reasons[1] == ""


def test_running_command_is_unknown_to_its_client(tmp_path: Path) -> None:
    with running(tmp_path) as daemon, connect("a", daemon.socket, False) as session:
        result = session.run("sleep 99", timeout=0.1, on_timeout="yield")
        assert (result.runs_on, result.command) == (True, "sleep 99")
        end(daemon)
        with pytest.raises((OutcomeUnknown, DaemonUnavailable)):
            session.wait(5)


def test_session_that_is_opened_while_the_last_one_is_being_closed_keeps_its_record(tmp_path: Path) -> None:
    policy = Policy(deny_commands=["ls"])
    with running(tmp_path) as daemon:
        with connect("a", daemon.socket, False, shutdown=["sleep 1"]) as first:
            first.run("true")
            closing = threading.Thread(target=first.close)
            closing.start()
            wait_until(lambda: "a" not in [one["agent"] for one in admin.agents(daemon.socket)], "its end")
            with connect("a", daemon.socket, False, policy=policy) as second:
                assert second.run("cd /usr").reason == "", "nothing was lost: it was closed"
            closing.join()
        end(daemon)
    with running(tmp_path) as daemon, connect("a", daemon.socket, False) as session:
        assert session.policy == policy
        assert session.run("true").reason == f"{LOST}; it starts in /usr"


@pytest.mark.parametrize("texts", [["sleep 99"], ["cd /usr/lib", "exit 3", "sleep 99"]])
def test_directory_of_the_record_is_where_the_last_bash_was(tmp_path: Path, texts: list[str]) -> None:
    with running(tmp_path) as daemon:
        with connect("a", daemon.socket, False) as session:
            session.run("cd /usr/lib")
        end(daemon)
    with running(tmp_path) as daemon:
        with connect("a", daemon.socket, False, cwd="/srv") as session:
            for text in texts[:-1]:
                session.run(text)
            session.run(texts[-1], timeout=0.1, on_timeout="yield")
            wait_until(lambda: "sleep 99" in [line["command"] for line in daemon.lines("a")], "its beginning")
        end(daemon)
    with running(tmp_path) as daemon, connect("a", daemon.socket, False) as session:
        assert session.run("pwd").stdout == "/srv\n"


def test_person_at_the_session_does_not_take_the_notice_of_the_agent(tmp_path: Path) -> None:
    with running(tmp_path) as daemon:
        with connect("a", daemon.socket, False) as session:
            session.run("cd /usr")
        end(daemon)
    with running(tmp_path) as daemon, connect("a", daemon.socket, False) as session:
        with Raw(daemon.socket) as person:
            person.ask("hold", agent="a", holder="me")
            answer = person.ask("run", b"true", agent="a", holder="me")
            assert answer.header["result"].get("reason", "") == ""
        assert session.run("true").reason.startswith(LOST)


@needs_bwrap
def test_sandboxed_agent_starts_elsewhere_if_its_directory_was_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/usr")  # a directory that the sandbox has, too
    inside = f"/tmp/{tmp_path.name}"
    os.makedirs(inside, exist_ok=True)
    with running(tmp_path) as daemon:
        with connect("a", daemon.socket, False, cwd="/usr", sandbox=Sandbox()) as session:
            session.run(f"mkdir {inside}; cd {inside}")
        end(daemon)
    with running(tmp_path) as daemon, connect("a", daemon.socket, False) as session:
        with pytest.raises(StateLost, match=f", and the last one was in {inside}; nothing was run"):
            session.run("pwd")
        assert session.run("pwd").reason == ""
    os.rmdir(inside)


def test_close_after_the_end_of_the_daemon_forgets_the_agent(tmp_path: Path) -> None:
    with running(tmp_path) as daemon:
        session = connect("a", daemon.socket, False)
        session.run("cd /usr")
        end(daemon)
        session.close()
    with running(tmp_path) as daemon, connect("a", daemon.socket, False) as session:
        assert session.run("true").reason == ""


STATE = "cd /usr; A='a b'; export B=2; f() { echo $A; }; alias ll='ls -l'; set -f; API_TOKEN=abc123456"


def stored(daemon: Daemon, agent: str) -> bool:
    """Whether the daemon has written the state of the agent's shell."""
    with closing(sqlite3.connect(f"file:{database_of(daemon)}?mode=ro", uri=True)) as database:
        return bool(database.execute("SELECT 1 FROM snapshots WHERE agent = ?", (agent.encode(),)).fetchone())


def is_current(daemon: Daemon, agent: str) -> bool:
    """Whether the daemon has written the state after the last command."""
    with closing(sqlite3.connect(f"file:{database_of(daemon)}?mode=ro", uri=True)) as database:
        row = database.execute("SELECT is_current FROM agents WHERE agent = ?", (agent.encode(),)).fetchone()
        return bool(row == (1,))


async def tool_call(daemon: Daemon, agent: str, command: str) -> str:
    async with aconnect(agent, daemon.socket, False, recover=True) as session:
        return await Toolbox(session).call("bash", {"command": command})


def database_of(daemon: Daemon) -> str:
    (path,) = Path(os.environ["XDG_STATE_HOME"]).glob("shellsession/state-*.db")
    return str(path)


@own_state
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_state_of_a_shell_comes_back_after_the_end_of_its_daemon(tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path) as daemon:
        with connect("a", daemon.socket, False, recover=True) as session:
            session.run(STATE)
            if number == signal.SIGKILL:
                wait_until(lambda: stored(daemon, "a"), "the state")
        end(daemon, number)
    with running(tmp_path) as daemon:
        with connect("a", daemon.socket, False, recover=True) as session:
            result = session.run("f; echo $B $PWD $- [$API_TOKEN]; alias ll")
            assert result.stdout.startswith("a b\n2 /usr ")
            assert "f" in result.stdout.split()[4]
            assert "[]" in result.stdout
            assert result.stdout.endswith("alias ll='ls -l'\n")
            assert "ended with its daemon, and so did any background jobs; it starts in /usr" in result.reason
            assert result.recovered.startswith("a fresh bash continues with the state as it was")
            assert "; not kept, as it may be secret: variable API_TOKEN" in result.recovered
            assert session.run("exit 3").recovered.endswith("from after the last command")
            session.restart()
        end(daemon, signal.SIGTERM)
    with running(tmp_path) as daemon, connect("a", daemon.socket, False, recover=True) as session:
        assert session.run("echo [$A]").stdout == "[]\n"  # a restart forgets it


CARRIED: Final[dict[str, Callable[[RemoteSession], object]]] = {
    "restored": lambda session: session.restore(session.snapshot()),
    "restarted": lambda session: session.restart(keep_state=True),
}


@own_state
def test_restored_state_outlives_the_daemon_before_any_command(tmp_path: Path) -> None:
    with running(tmp_path) as daemon:
        for agent, restore in CARRIED.items():
            with connect(agent, daemon.socket, False, recover=True) as session:
                session.run("cd /usr; A=1")
                restore(session)
        end(daemon, signal.SIGTERM)
    with running(tmp_path) as daemon:
        for agent in CARRIED:
            with connect(agent, daemon.socket, False, recover=True) as session:
                assert session.run("echo $A $PWD").stdout == "1 /usr\n"


@own_state
def test_fork_outlives_the_daemon_before_any_command(tmp_path: Path) -> None:
    with running(tmp_path) as daemon:
        with connect("a", daemon.socket, False, recover=True) as session:
            session.run("cd /usr; A=1")
            session.fork("b")
        end(daemon, signal.SIGTERM)
    with running(tmp_path) as daemon, connect("b", daemon.socket, False, recover=True) as session:
        assert session.run("echo $A $PWD").stdout == "1 /usr\n"


@own_state
def test_state_that_could_not_be_written_is_written_at_the_end(tmp_path: Path) -> None:
    with running(tmp_path) as daemon, connect("a", daemon.socket, False, recover=True) as session:
        session.run("A=1")
        wait_until(lambda: stored(daemon, "a"), "the state")
        with closing(sqlite3.connect(database_of(daemon), isolation_level=None)) as database:
            database.execute("BEGIN IMMEDIATE")
            session.run("A=2")
            wait_until(lambda: "locked" in admin.stats(daemon.socket)["state_fault"], "the attempt to write")
        end(daemon, signal.SIGTERM)
    with running(tmp_path) as daemon, connect("a", daemon.socket, False, recover=True) as session:
        assert session.run("echo $A").stdout == "2\n"


@own_state
def test_session_without_recover_leaves_the_state_of_the_last_one(tmp_path: Path) -> None:
    with running(tmp_path) as daemon:
        with connect("a", daemon.socket, False) as session:
            session.run(STATE)
        end(daemon, signal.SIGTERM)
        assert not stored(daemon, "a")
    with running(tmp_path) as daemon, connect("a", daemon.socket, False) as session:
        result = session.run("echo [$A]")
        assert (result.stdout, result.recovered) == ("[]\n", "")
        assert LOST in result.reason


@needs_bwrap
def test_state_of_a_confined_shell_comes_back_confined(tmp_path: Path) -> None:
    (place := tmp_path / "place").mkdir()
    box = Sandbox(write=[str(place)])
    with running(tmp_path) as daemon:
        with connect("a", daemon.socket, False, recover=True, cwd=place, sandbox=box) as session:
            session.run("A=1; f() { touch /usr/never; echo tried; }")
        end(daemon, signal.SIGTERM)
    with running(tmp_path) as daemon, connect("a", daemon.socket, False, recover=True) as session:
        result = session.run("echo $A; f")
        assert result.stdout == "1\ntried\n"
        assert "Read-only" in result.stderr


def test_the_command_line_recovers_unless_told_not_to(daemon: Daemon) -> None:
    for flags, stdout in (([], b"1\n"), (["--no-recover"], b"\n")):
        agent = f"recover{len(flags)}"
        assert cli(daemon.socket, "run", "-s", agent, *flags, "--", "A=1").returncode == 0
        ended = cli(daemon.socket, "run", "-s", agent, "--", "exit 3")
        assert (b"a fresh bash continues in" in ended.stderr) == (not flags)
        assert cli(daemon.socket, "run", "-s", agent, "--", "echo $A").stdout == stdout


@own_state
@pytest.mark.sampled(2)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_tool_runs_its_first_command_where_the_last_state_came_back(tmp_path: Path, number: signal.Signals) -> None:
    with running(tmp_path) as daemon:
        asyncio.run(tool_call(daemon, "a", "cd /usr; A=1"))
        asyncio.run(tool_call(daemon, "a", "A=2"))
        if number == signal.SIGKILL:
            wait_until(lambda: is_current(daemon, "a"), "the state")
        end(daemon, number)
    with running(tmp_path) as daemon:
        told = asyncio.run(tool_call(daemon, "a", "echo $A $PWD"))
        assert told.startswith("2 /usr\n")
        assert "a fresh bash continues with the state as it was" in told
        assert asyncio.run(tool_call(daemon, "a", "echo $A")) == "2"


@own_state
@pytest.mark.parametrize("last", ["echo 2", "A=2; sleep 99", "without recover"])
def test_tool_gets_the_notice_once_where_the_state_is_older_than_the_last_command(tmp_path: Path, last: str) -> None:
    with running(tmp_path, "--patience", "0") as daemon:
        with connect("a", daemon.socket, False, recover=True) as session:
            session.run("cd /usr; A=1")
            wait_until(lambda: is_current(daemon, "a"), "the state")
            if "sleep" in last:
                session.run(last, timeout=0.1, on_timeout="yield")
        end(daemon, signal.SIGTERM)
    if last == "echo 2":
        text = "from shellsession.daemon.server import shared; shared._KEEP_AFTER = 1000.0"
        (tmp_path / "sitecustomize.py").write_text(text)
        with running(tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)}) as daemon:
            with connect("a", daemon.socket, False, recover=True) as session:
                session.run(last)
            end(daemon)
    if last == "without recover":
        with running(tmp_path) as daemon:
            with connect("a", daemon.socket, False) as session:
                assert LOST in session.run("A=2").reason
            end(daemon, signal.SIGTERM)
    with running(tmp_path) as daemon:
        never = tmp_path / "never"
        with pytest.raises(StateLost, match=r"state that was kept is older than its last command.*come back as they"):
            asyncio.run(tool_call(daemon, "a", f"touch {never}"))
        told = asyncio.run(tool_call(daemon, "a", "echo $A $PWD"))
        assert told.startswith("1 /usr\n")
        assert "with the state as it was" in told
        assert not never.exists()


@own_state
def test_tool_gets_the_notice_where_the_state_cannot_be_brought_back(tmp_path: Path) -> None:
    with running(tmp_path) as daemon:
        asyncio.run(tool_call(daemon, "a", f"A=1; PROMPT_COMMAND='[[ -e {tmp_path}/deadly ]] && exit 4'"))
        end(daemon, signal.SIGTERM)
    (tmp_path / "deadly").touch()
    with running(tmp_path) as daemon:
        with pytest.raises(StateLost, match="and the state that was kept could not be brought back; nothing was run"):
            asyncio.run(tool_call(daemon, "a", f"touch {tmp_path}/never"))
        assert "bash ended while it was given the state" in asyncio.run(tool_call(daemon, "a", "ls never 2>&1"))
        assert not (tmp_path / "never").exists()


@own_state
def test_state_that_comes_back_in_another_directory_has_its_name(tmp_path: Path) -> None:
    with running(tmp_path) as daemon:
        with connect("a", daemon.socket, False, recover=True) as session:
            session.run("cd /usr; A=1")
        end(daemon, signal.SIGTERM)
    with running(tmp_path) as daemon, connect("a", daemon.socket, False, recover=True, cwd="/srv") as session:
        result = session.run("echo $A $PWD; pwd")
        assert result.stdout == "1 /srv\n/srv\n"
        assert "not restored" not in result.recovered


@own_state
@pytest.mark.parametrize("ending", ["the daemon", "an idle time", "a kill"])
def test_connected_tool_goes_on_where_the_last_state_came_back(tmp_path: Path, ending: str) -> None:

    async def meet() -> None:
        with running(tmp_path) as daemon:
            reconnect = partial(aconnect, "a", daemon.socket, False, recover=True)
            session = await reconnect()
            toolbox = Toolbox(session, connect=reconnect)
            await toolbox.call("bash", {"command": "cd /usr; A=1"})
            wait_until(lambda: is_current(daemon, "a"), "the state")
            if ending == "the daemon":
                end(daemon)
            elif ending == "a kill":
                cli(daemon.socket, "kill", "a")
            else:
                connect("a", daemon.socket, False, idle_ttl=0.01).disconnect()
                wait_until(lambda: not admin.agents(daemon.socket), "its end")
            with running(tmp_path) if ending == "the daemon" else nullcontext():
                if ending == "a kill":
                    with pytest.raises(SessionClosed, match="variables and jobs are lost"):
                        await toolbox.call("bash", {"command": f"touch {tmp_path}/never"})
                    assert admin.agents(daemon.socket) == []
                    assert session.closed
                    assert await toolbox.call("bash", {"command": "echo [$A]"}) == "[]"
                else:
                    told = await toolbox.call("bash", {"command": "echo $A $PWD"})
                    assert told.startswith("1 /usr\n")
                    assert "a fresh bash continues with the state as it was" in told
                    assert await toolbox.call("bash", {"command": "echo $A"}) == "1"
                assert not (tmp_path / "never").exists()
                session.disconnect()

    asyncio.run(meet())


@own_state
def test_connect_without_create_says_that_the_state_can_come_back(tmp_path: Path) -> None:
    with running(tmp_path) as daemon:
        with connect("a", daemon.socket, False, recover=True) as session:
            session.run("A=1")
        end(daemon, signal.SIGTERM)
    with running(tmp_path) as daemon:
        with pytest.raises(StateLost) as told:
            connect("a", daemon.socket, False, create=False)
        assert str(told.value) == (
            "this is a new session: the last one ended with its daemon, and so did any background jobs; recover=True"
            " brings its variables and functions back"
        )
        with connect("a", daemon.socket, False, recover=True) as session:
            assert session.run("echo $A").stdout == "1\n"


@own_state
def test_state_of_an_agent_that_was_forgotten_is_not_that_of_the_next_one(tmp_path: Path) -> None:
    with running(tmp_path) as daemon:
        with connect("a", daemon.socket, False, recover=True) as session:
            session.run("A=1")
        connect("a", daemon.socket, False, idle_ttl=0.01).disconnect()
        wait_until(lambda: not admin.agents(daemon.socket), "its end")
        assert admin.forget("a", daemon.socket) == 1
        with connect("a", daemon.socket, False) as session:
            session.run("true")
        with connect("b", daemon.socket, False, recover=True) as session:
            session.run("A=1")
        wait_until(lambda: stored(daemon, "b"), "the state of a later command")
        assert not stored(daemon, "a")
