"""The end of ``shellsession run``: what remains, full disks, closed descriptors and killed clients."""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from commands import cli, environment, finish, line, opened, running, seen_on_stderr
from daemons import Daemon, Raw
from system import PATIENCE, PYTHON, unique_seconds, wait_until, with_argument
from warm import PROGRAM

from shellsession import TTY, SessionClosed, connect
from shellsession.daemon.client.admin import stats


def test_run_tells_on_stderr_what_it_waits_for(daemon: Daemon, agent: str, place: Path) -> None:
    os.mkfifo(place / "gate")
    text = f"read x <{place}/gate # \33[31mred\n: and more"
    with opened(agent, daemon) as session, running(daemon.socket, "run", "-s", agent, "--", text) as first:
        wait_until(lambda: session.command, "the first command")
        with (
            running(daemon.socket, "run", "-s", agent, "--", "echo of no terminal") as piped,
            seen_on_stderr(daemon, "run", "-s", agent, "--", "echo second") as (second, screen),
        ):
            shown = f"read x <{place}/gate # \\x1b[31mred"
            assert piped.stderr is not None
            for told in (screen.readline().decode(), piped.stderr.readline().decode()):
                assert f"shellsession: waiting for agent '{agent}': `{shown[:50]}" in told
                assert "\33" not in told
                assert "…` has run there for " in told
            (place / "gate").write_text("\n")
            assert (line(second), line(piped)) == (b"second\n", b"of no terminal\n")
            assert (finish(second)[0], finish(piped), finish(first)) == (0, (0, b""), (0, b""))


def test_ctrl_c_while_queued_runs_nothing(daemon: Daemon, agent: str, place: Path) -> None:
    with Raw(daemon.socket) as holder, opened(agent, daemon):
        holder.ask("hold", agent=agent, holder="me")
        with seen_on_stderr(daemon, "run", "-s", agent, "--", f"touch {place}/never") as (process, screen):
            told = screen.readline()
            assert b"nothing runs there; a person is attached (`shellsession attach`); Ctrl-C gives up" in told
            assert finish(process, signal.SIGINT)[0] == 130
    assert cli(daemon.socket, "run", "-s", agent, "--", f"echo {place}/*").stdout.decode() == f"{place}/*\n"


@pytest.mark.sampled
@pytest.mark.parametrize(
    "words", ["run -s {agent} -- touch ran", "wait {agent}", "attach {agent}", "attach --read-only {agent}"]
)
@pytest.mark.parametrize("within", ["{ours}", "setsid -w {ours}", "{python} -c {nested}"], ids=["", "setsid", "nested"])
def test_inside_its_own_session_nothing_waits_for_itself(
    daemon: Daemon, agent: str, place: Path, words: str, within: str
) -> None:
    ours = shlex.join([*PROGRAM, *(word.format(agent=agent) for word in words.split())])
    nested = shlex.quote(
        "import shellsession\n"
        "sh = shellsession.Session()\n"
        f"r = sh.run({ours!r}, stdin=shellsession.TTY)\n"
        "print(r.stdout, r.stderr)\n"
        "while r.runs_on:\n"  # as below
        "    r = sh.wait()\n"
        "    print(r.stdout, r.stderr)\n"
        "raise SystemExit(r.exit_code)"
    )
    text = within.format(ours=ours, nested=nested, python=PYTHON)
    with connect(agent, daemon.socket, cwd=place, extra_env={"SHELLSESSION_SOCKET": daemon.socket}) as sh:
        result = sh.run(text, timeout=PATIENCE, stdin=TTY, merge_stderr=True)
        said = result.stdout
        while result.outcome == "input":  # under load the inner client is silent for so long that it seems to ask
            result = sh.wait(PATIENCE)
            said += result.stdout
    assert (result.outcome, result.exit_code) == ("exited", 125)
    assert "inside its own session" in said
    assert not (place / "ran").exists()


def test_what_a_command_left_in_the_background_may_use_its_session(daemon: Daemon, agent: str, place: Path) -> None:
    later = f"until [ -e go ]; do sleep 0.05; done; {shlex.join(PROGRAM)} run -s {shlex.quote(agent)} -- touch ran"
    with connect(agent, daemon.socket, cwd=place, extra_env={"SHELLSESSION_SOCKET": daemon.socket}) as sh:
        sh.run(f"({later}) & true")
        assert sh.run("touch go; until [ -e waits ]; do sleep 0.05; done", timeout=0.3).outcome == "timed_out"
        wait_until((place / "ran").exists, "its turn")


def test_a_reader_that_leaves_ends_the_command_quietly(daemon: Daemon, agent: str) -> None:
    with running(daemon.socket, "run", "-s", agent, "--", "X=kept; while :; do echo y; done") as process:
        assert line(process) == b"y\n"
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        assert finish(process) == (-signal.SIGPIPE, b"")
    again = cli(daemon.socket, "run", "-s", agent, "--", "echo $X")
    assert (again.stdout, again.stderr) == (b"kept\n", b"")


def test_a_full_disk_is_reported_and_ends_the_command(daemon: Daemon, agent: str) -> None:
    with (
        open("/dev/full", "wb") as full,
        running(daemon.socket, "run", "-s", agent, "--", "while :; do echo y; done", stdout=full) as process,
    ):
        assert finish(process) == (
            125,
            b"shellsession: stdout cannot be written (No space left on device): check where it goes\n",
        )
    assert cli(daemon.socket, "run", "-s", agent, "--", "echo there").stdout == b"there\n"


@pytest.mark.parametrize(
    ("words", "status"), [(["run", "--timeout", "0.05", "--", "sleep 99"], 124), (["wait", "nobody"], 125)]
)
def test_talk_that_cannot_be_written_changes_no_status(daemon: Daemon, words: list[str], status: int) -> None:
    read, unread = os.pipe()
    os.close(read)
    with open("/dev/full", "wb") as full, open(unread, "wb") as closed:
        for stderr in (full, closed):
            with running(daemon.socket, *words, stderr=stderr) as process:
                assert process.wait(PATIENCE) == status


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_closed_descriptors_are_nothing_to_write_to(daemon: Daemon, agent: str, closed: str, place: Path) -> None:
    words = [*PROGRAM, "run", "-s", agent, "--", f"echo out; echo err >&2; echo ran > {place}/ran"]
    done = subprocess.run(
        ["bash", "-c", f'"$@" {closed}', "bash", *words],
        capture_output=True,
        env=environment(daemon.socket, {}),
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0
    assert (place / "ran").read_text() == "ran\n"
    assert done.stdout == (b"" if "1>" in closed else b"out\n")
    assert done.stderr == (b"" if "2>" in closed else b"err\n")


def test_a_pipe_that_does_not_block_loses_nothing(daemon: Daemon, agent: str) -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    with running(daemon.socket, "run", "-s", agent, "--", "head -c 1000000 /dev/zero", stdout=write) as process:
        os.close(write)
        with open(read, "rb") as pipe:
            assert len(pipe.read()) == 1_000_000
        assert finish(process) == (0, b"")


def test_ctrl_c_while_queued_is_reported_as_json(daemon: Daemon, agent: str, place: Path) -> None:
    with Raw(daemon.socket) as holder, opened(agent, daemon):
        holder.ask("hold", agent=agent, holder="me")
        words = "run", "--json", "-s", agent, "--", f"touch {place}/never"
        with seen_on_stderr(daemon, *words) as (process, screen):
            assert b"waiting for agent" in screen.readline()
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    error = json.loads(out)["error"]
    assert (error["code"], error["message"].endswith(": nothing was run")) == ("interrupted", True)
    assert not (place / "never").exists()


def test_a_queued_command_whose_session_is_killed_says_what_to_do(daemon: Daemon, agent: str) -> None:
    with (
        running(daemon.socket, "run", "-s", agent, "--", "echo first; sleep 100") as first,
        connect(agent, daemon.socket, False) as client,
    ):
        assert line(first) == b"first\n"
        with running(daemon.socket, "run", "-s", agent, "--", "true") as second, ThreadPoolExecutor(1) as threads:
            third = threads.submit(client.run, "true")
            wait_until(lambda: stats(daemon.socket)["serving"] == 4, "both in the queue")
            assert cli(daemon.socket, "kill", agent).returncode == 0
            status, said = finish(second)
            assert (status, said.endswith(b"was closed meanwhile: `shellsession run` opens a new one\n")) == (125, True)
            with pytest.raises(SessionClosed, match=f"{agent}' was closed meanwhile: connect again"):
                third.result(PATIENCE)


def test_a_killed_client_leaves_the_command_alone(daemon: Daemon, agent: str) -> None:
    seconds = unique_seconds()
    with running(daemon.socket, "run", "-s", agent, "--", f"echo ready; sleep {seconds}") as process:
        assert line(process) == b"ready\n"
        wait_until(lambda: with_argument(seconds), "the command")
        assert finish(process, signal.SIGKILL)[0] == -signal.SIGKILL
    assert with_argument(seconds) != []
    assert cli(daemon.socket, "interrupt", agent).returncode == 0
    assert with_argument(seconds) == []
