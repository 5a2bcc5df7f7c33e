"""``shellsession output``: parts of what a command printed."""

from __future__ import annotations

import json
import os
import re
import shlex
from pathlib import Path

import commands
from clients import hand_back
from commands import cli
from daemons import Daemon

from shellsession import connect

agent = commands.agent


def test_what_a_command_printed_is_shown_in_parts(daemon: Daemon, agent: str) -> None:
    first = json.loads(cli(daemon.socket, "run", "--json", "-s", agent, "--", "seq 50000; echo err >&2").stdout)
    cli(daemon.socket, "run", "-s", agent, "--", "true")

    def shown(*words: str) -> str:
        done = cli(daemon.socket, "output", agent, *words)
        assert (done.returncode, done.stderr) == (0, b"")
        return done.stdout.decode()

    assert shown(first["id"], "--lines", "49999:") == "49999\n50000\n"
    assert shown("--lines", "7:8") == "7\n8\n"  # of the latest result that has any
    assert shown("--stream", "stderr") == "err\n"
    assert shown("--grep", "^9+$", "--lines", "10:1000") == "99:99\n999:999\n"
    assert shown("--bytes", "0:3") == "1\n2"
    page, _, mark = shown("--max-chars", "1000").partition("[... ")
    again = mark.partition("; ")[2].removesuffix(" shows the next ...]\n")
    _, verb, *words = shlex.split(again)
    assert (verb, words[:2]) == ("output", [agent, "c1"])
    last = int(page.splitlines()[-1])
    assert cli(daemon.socket, verb, *words).stdout.decode().splitlines()[0] == str(last + 1)


def test_a_search_goes_on_with_the_words_of_the_mark(daemon: Daemon, agent: str) -> None:
    cli(daemon.socket, "run", "-s", agent, "--", "seq 5000 >&2")
    done = cli(
        daemon.socket, "output", agent, "--stream", "stderr", "--grep", "9 ?[0-4]$", "--max-chars", "1000"
    ).stdout.decode()
    again = done.partition("[... ")[2].partition("; ")[2].removesuffix(" shows the next ...]\n")
    assert "--grep '9 ?[0-4]$'" in again
    shown = cli(daemon.socket, *shlex.split(again)[1:]).stdout.decode()
    numbers = [int(line.split(":")[0]) for line in (done.partition("[... ")[0] + shown).splitlines()]
    assert numbers == [number for number in range(1, 5001) if re.search("9[0-4]$", str(number))]


def test_secrets_of_the_session_are_masked(daemon: Daemon, agent: str) -> None:
    with connect(f"{agent}-masked", daemon.socket, redact=["PIN-[0-9]+"]) as sh:
        sh.run("echo PIN-1234")
        assert sh.read_output("c1") == "PIN-1234\n"
        assert cli(daemon.socket, "output", sh.agent).stdout == b"***\n"
        assert cli(daemon.socket, "output", sh.agent, "--grep", "1").stdout == b""


def test_what_is_not_kept_is_said(daemon: Daemon, agent: str) -> None:
    cli(daemon.socket, "run", "-s", agent, "--", "echo a")
    done = cli(daemon.socket, "output", agent, "c7")
    assert (done.returncode, done.stdout) == (125, b"")
    assert b"output 'c7' is not kept" in done.stderr
    assert b"kept outputs: c1;" in done.stderr
    nothing = cli(daemon.socket, "output", agent, "c1", "--grep", "zzz")
    assert (nothing.returncode, nothing.stdout) == (0, b"")
    assert nothing.stderr == b"shellsession: nothing to show: stdout has no such part, or no line matches\n"
    assert b"is not a range of numbers" in cli(daemon.socket, "output", agent, "--lines", "7").stderr
    assert b"; --tail names the last lines" in cli(daemon.socket, "output", agent, "--lines=-7:").stderr
    assert b"no session" in cli(daemon.socket, "output", f"{agent}-never").stderr


def test_output_of_a_job_is_followed(daemon: Daemon, agent: str, tmp_path: Path) -> None:
    go, on = tmp_path / "go", tmp_path / "on"
    os.mkfifo(go)
    os.mkfifo(on)
    cli(daemon.socket, "run", "-s", agent, "--", f"(read x <{go}; seq 100; seq 3 >&2; read x <{on}; echo end) &")
    go.write_text("\n")
    cli(daemon.socket, "jobs", agent, "j1", "--until", "^3$", "--timeout", "30")
    shown = cli(daemon.socket, "output", agent, "j1", "--tail", "2").stdout
    assert shown == b"99\n100\n[--since 292 shows only what is new]\n"
    done = cli(daemon.socket, "jobs", agent, "j1", "--tail", "2")
    assert (done.stdout, done.stderr) == (b"99\n100\n", b"2\n3\n")
    on.write_text("\n")
    cli(daemon.socket, "jobs", agent, "j1", "--wait", "--timeout", "30")
    assert cli(daemon.socket, "output", agent, "j1", "--since", "292").stdout == b"end\n"


def test_follow_prints_each_line_once_and_goes_on_with_later_commands(daemon: Daemon, agent: str, place: Path) -> None:
    def wait_for(name: str) -> str:
        return f"until [ -e {place / name} ]; do sleep 0.05; done"

    agent += "-masked"
    with connect(agent, daemon.socket, redact=["PIN-[0-9]+"]) as sh:
        hand_back(sh, "seq 100; printf 'asks? '; " + wait_for("go") + "; echo yes PIN-12; sleep 0.3", "asks")
        with commands.running(daemon.socket, "output", agent, "--tail", "2", "--follow") as process:
            assert process.stdout is not None
            assert [process.stdout.readline() for _ in range(2)] == [b"99\n", b"100\n"]
            (place / "go").touch()
            assert process.stdout.readline() == b"asks? yes ***\n"
            assert sh.wait().exit_code == 0
            for command in ("echo next", "true", "echo err >&2", "printf 'end\\033[31m' && echo"):
                sh.run(command)
            assert [process.stdout.readline() for _ in range(2)] == [b"next\n", b"end\n"]
            sh.close()
            assert process.stdout.read() == b""
            assert process.wait(20) == 0


def test_follow_of_one_output_ends_with_it(daemon: Daemon, agent: str, place: Path) -> None:
    with connect(agent, daemon.socket) as sh:
        sh.run("echo first")
        wait = f"until [ -e {place / 'on'} ]; do sleep 0.05; done"
        id = sh.run(f"seq 3; {wait}; seq 50000", timeout=0.05, on_timeout="yield").id
        with commands.running(daemon.socket, "output", agent, id, "--follow") as process:
            assert process.stdout is not None
            assert [process.stdout.readline() for _ in range(3)] == [b"1\n", b"2\n", b"3\n"]
            (place / "on").touch()
            assert process.stdout.read().split() == [b"%d" % number for number in range(1, 50001)]
        sh.wait()
        sh.run(f"(until [ -e {place / 'go'} ]; do sleep 0.05; done; echo job) &")
        with commands.running(daemon.socket, "output", agent, "j1", "--follow") as process:
            (place / "go").touch()
            assert process.stdout is not None
            assert process.stdout.read() == b"job\n"
        refused = cli(daemon.socket, "output", agent, "--follow", "--grep", "x")
        assert b"--follow takes only --tail or --since" in refused.stderr
