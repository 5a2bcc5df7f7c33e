"""Handed-back commands on the command line: ``send``, ``wait``, ``interrupt`` and ``jobs``."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path

import commands
import pytest
from clients import hand_back
from commands import cli, finish, line, running, seen_on_stderr, session
from daemons import Daemon, Raw
from system import PATIENCE, is_alive, unique_seconds, wait_until, with_argument

from shellsession import TTY, Limits

agent = commands.agent


@pytest.fixture
def fifos(tmp_path: Path) -> list[Path]:
    """What a command reads one after the other, as soon as it is written."""
    made = [tmp_path / f"fifo{number}" for number in range(3)]
    for one in made:
        os.mkfifo(one)
    return made


def test_send_types_and_prints_what_comes(daemon: Daemon, agent: str) -> None:
    with session(agent, daemon) as sh:
        sh.run("read -p 'name? ' a; echo hello $a; read -p 'again? ' b; echo bye $b >&2; (exit 5)", stdin=TTY)
    first = cli(daemon.socket, "send", agent, "Ann")
    assert (first.returncode, first.stdout) == (0, b"hello Ann\n")
    assert first.stderr.startswith(
        b"again? shellsession: the command waits for input from the terminal: `shellsession "
    )
    part = cli(daemon.socket, "send", "-n", "--timeout", "0.05", agent, "B")
    assert (part.returncode, part.stdout) == (0, b"")
    last = cli(daemon.socket, "send", agent, "ob")
    assert (last.returncode, last.stdout, last.stderr) == (5, b"", b"bye Bob\n")


def test_send_types_keys_by_name(daemon: Daemon, agent: str) -> None:
    with session(agent, daemon) as sh:
        sh.run("read -r -n 5 keys; printf %q $'|'\"$keys\"; (exit 5)", stdin=TTY)
    unknown = cli(daemon.socket, "send", "--keys", "Entr", agent)
    assert (unknown.returncode, b"there is no key 'Entr'; the names are: C-x" in unknown.stderr) == (125, True)
    assert cli(daemon.socket, "send", agent).returncode == 125
    done = cli(daemon.socket, "send", "-n", "--keys", "Tab Up", agent, "a")
    assert (done.returncode, done.stdout) == (5, b"$'|a\\t\\E[A'")


def test_wait_returns_once_the_output_matches(daemon: Daemon, agent: str, fifos: list[Path]) -> None:
    with session(agent, daemon) as sh:
        sh.run(f"cat {fifos[0]}; sleep 1000", timeout=0.05, on_timeout="yield", tty=False)
    with running(daemon.socket, "wait", "--until", "Ready on [0-9]+", agent) as process:
        fifos[0].write_bytes(b"Ready on 80\n")
        assert line(process) == b"Ready on 80\n"
        status, said = finish(process)
    assert status == 0
    assert b"the output matches 'Ready on [0-9]+'; it is still running" in said
    assert cli(daemon.socket, "wait", "--until", "(", agent).returncode == 125
    cli(daemon.socket, "interrupt", agent)


def test_wait_has_the_rest_and_the_status(daemon: Daemon, agent: str, tmp_path: Path) -> None:
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with session(agent, daemon) as sh:
        hand_back(sh, f"echo told; cat {fifo}; (exit 6)", "told", tty=False)
    still = cli(daemon.socket, "wait", "--timeout", "0.05", agent)
    assert (still.returncode, still.stdout) == (124, b"")
    assert f"it is still running: `shellsession wait {agent}`".encode() in still.stderr
    with running(daemon.socket, "wait", agent) as process:
        fifo.write_bytes(b"\xff\x00rest")
        assert process.stdout is not None
        assert process.stdout.read() == b"\xff\x00rest"
        assert finish(process) == (6, b"")


def test_wait_passes_on_what_is_printed_behind_what_was(
    daemon: Daemon, agent: str, tmp_path: Path, fifos: list[Path]
) -> None:
    """Half a character waits for the other; and what is passed on is subject to no limit."""
    (before, *later), spilled = fifos, tmp_path / "spilled"
    with session(agent, daemon) as sh:
        text = f"cat {' '.join(map(str, fifos))}; (exit 6)"
        limits = Limits(max_output=8, spill=str(spilled))
        sh.run(text, timeout=0.05, on_timeout="yield", tty=False, limits=limits)
        before.write_bytes(b"%020d\n\xc3" % 0)
        wait_until(lambda: spilled.exists() and spilled.stat().st_size == 22, "the daemon to have read it")
    with running(daemon.socket, "wait", agent) as process:
        assert line(process) == b"000000\n"
        later[0].write_bytes(b"\xa9\n")
        assert line(process) == b"\xc3\xa9\n"
        later[1].write_bytes(b"x" * 1000)
        assert process.stdout is not None
        assert process.stdout.read() == b"x" * 1000
        status, said = finish(process)
    assert (status, said) == (
        6,
        b"shellsession: 14 bytes of stdout are missing here, in the middle: see `shellsession output`\n",
    )


def test_send_passes_on_what_is_printed(daemon: Daemon, agent: str, fifos: list[Path]) -> None:
    with session(agent, daemon) as sh:
        sh.run(f"read a; echo hello $a; cat {fifos[0]} {fifos[1]}; (exit 5)", stdin=TTY)
    with running(daemon.socket, "send", agent, "Ann") as process:
        assert line(process) == b"hello Ann\n"
        for fifo, text in zip(fifos, (b"one\n", b"two\n"), strict=False):
            fifo.write_bytes(text)
            assert line(process) == text
        assert finish(process) == (5, b"")


@pytest.mark.parametrize("behind", ["a person", "another client"])
def test_send_tells_a_person_what_it_waits_for(daemon: Daemon, agent: str, behind: str) -> None:
    with Raw(daemon.socket) as other:
        if behind == "a person":
            other.ask("hold", agent=agent, holder="me")
            waits_for = b"nothing runs there; a person is attached (`shellsession attach`)"
        else:
            other.say("run", b"sleep 1000", agent=agent, stdin="tty")
            with session(agent, daemon) as sh:
                wait_until(lambda: sh.state == "running", "the command")
            waits_for = b"`sleep 1000` has run there for "
        with seen_on_stderr(daemon, "send", agent, "never") as (process, screen):
            told = screen.readline()
            assert told.startswith(f"shellsession: waiting for agent '{agent}': ".encode() + waits_for)
            assert told.endswith(b"; Ctrl-C gives up, and nothing was typed\r\n")
            assert finish(process, signal.SIGINT)[0] == 130


def test_the_command_goes_on_when_the_reader_of_wait_is_gone(daemon: Daemon, agent: str) -> None:
    with session(agent, daemon) as sh:
        sh.run("while :; do echo tick; sleep 0.01; done", timeout=0.05, on_timeout="yield", tty=False)
    with running(daemon.socket, "wait", agent) as process:
        assert line(process) == b"tick\n"
        assert process.stdout is not None
        process.stdout.close()
        assert process.wait(PATIENCE) == -signal.SIGPIPE
    with session(agent, daemon) as sh:
        assert sh.state == "running"
        assert sh.interrupt().stdout.startswith("tick\n")


def test_wait_and_interrupt_as_json(daemon: Daemon, agent: str) -> None:
    with session(agent, daemon) as sh:
        sh.run("sleep 99", timeout=0.05, on_timeout="yield", tty=False)
    waited = cli(daemon.socket, "wait", "--json", "--timeout", "0.05", agent)
    assert (waited.returncode, json.loads(waited.stdout)["outcome"], waited.stderr) == (124, "running", b"")
    ended = cli(daemon.socket, "interrupt", "--json", agent)
    assert (ended.returncode, json.loads(ended.stdout)["outcome"], ended.stderr) == (0, "interrupted", b"")


def test_interrupt_ends_what_another_process_waits_for(daemon: Daemon, agent: str) -> None:
    seconds = unique_seconds()
    with running(daemon.socket, "run", "-s", agent, "--", f"X=kept; echo ready; sleep {seconds}") as process:
        assert line(process) == b"ready\n"
        wait_until(lambda: with_argument(seconds), "the command")
        done = cli(daemon.socket, "interrupt", agent)
        assert (done.returncode, done.stdout) == (0, b"ready\n")
        assert done.stderr == b"shellsession: interrupted on request; the session's state is kept\n"
        assert finish(process) == (130, done.stderr)
    assert with_argument(seconds) == []
    assert cli(daemon.socket, "run", "-s", agent, "--", "echo $X").stdout == b"kept\n"


def test_jobs_as_json_have_their_output(daemon: Daemon, agent: str, fifos: list[Path]) -> None:
    assert cli(daemon.socket, "run", "-s", agent, "--", f"(read x <{fifos[0]}; echo later) & true").returncode == 0
    fifos[0].write_text("\n")

    def written() -> str:
        (job,) = json.loads(cli(daemon.socket, "jobs", "--json", agent).stdout)
        return str(job["stdout"])

    assert wait_until(written, "its output") == "later\n"


def test_where_output_of_a_job_is_missing_no_half_character_is_shown(
    daemon: Daemon, agent: str, tmp_path: Path
) -> None:
    go = tmp_path / "go"
    with session(agent, daemon) as sh:
        text = f"(until [ -e {go} ]; do sleep 0.05; done; printf 'é%.0s' {{1..3000}}) & true"
        sh.run(text, tty=False, limits=Limits(max_output=1001))
        go.touch()
        wait_until(lambda: not sh.jobs()[0].running, "its end")
    (job,) = json.loads(cli(daemon.socket, "jobs", "--json", agent).stdout)
    assert set(re.sub(r"\[\.\.\. [\d ]+ bytes omitted \.\.\.\]", "", job["stdout"])) == {"é"}
    assert job["stdout_omitted"] == 6000 - 1001


def test_jobs_are_listed(daemon: Daemon, agent: str) -> None:
    nothing = cli(daemon.socket, "jobs", agent)
    assert (nothing.returncode, nothing.stdout) == (0, b"")
    assert b"left anything running" in nothing.stderr
    pid = int(cli(daemon.socket, "run", "-s", agent, "--", "sleep 99 & echo $!").stdout)
    titles, row = cli(daemon.socket, "jobs", agent).stdout.decode().splitlines()
    assert titles.split() == ["JOB", "STATUS", "EXIT", "PIDS", "COMMAND"]
    assert row.split(maxsplit=4) == ["j1", "running", "-", str(pid), "sleep 99 & echo $!"]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(pid), "the end of the job")
    (job,) = json.loads(cli(daemon.socket, "jobs", "--json", agent).stdout)
    assert (job["pids"], job["alive"], job["running"], job["status"]) == ([pid], [], False, "ended")
    assert (job["stderr"], job["stdout_omitted"]) == ("", 0)
    assert job["exit_code"] == 128 + signal.SIGKILL
    assert " ended " in cli(daemon.socket, "jobs", agent).stdout.decode()


def test_one_job_is_waited_for_released_and_killed(daemon: Daemon, agent: str, tmp_path: Path) -> None:
    go = tmp_path / "go"

    def jobs(*words: str) -> tuple[int, bytes]:
        done = cli(daemon.socket, "jobs", agent, *words)
        return done.returncode, done.stdout

    text = f"(until [ -e {go} ]; do sleep 0.02; done; echo Ready on 80; exit 3) & setsid sleep 99 >/dev/null 2>&1 &"
    first, second = text.split(" & ")
    for one in (f"{first} & true", f"{second} true"):
        assert cli(daemon.socket, "run", "-s", agent, "--", one).returncode == 0
    assert jobs("j1", "--wait", "--timeout", "0.01") == (124, b"")
    go.touch()
    assert jobs("j1", "--until", r"Ready on \d+") == (0, b"Ready on 80\n")
    assert jobs("j1", "--wait") == (3, b"Ready on 80\n")
    assert jobs("j1", "--until", "never")[0] == 1
    assert jobs("j2", "--release") == (0, b"")
    assert "running, released" in jobs()[1].decode()
    assert jobs("j2", "--kill") == (0, b"")
    assert jobs("j9")[0] == jobs("--kill")[0] == 125
