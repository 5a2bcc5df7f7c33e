"""``shellsession output``: parts of what a command printed."""

from __future__ import annotations

import json
import shlex

import commands
from commands import cli
from daemons import Daemon

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
    page, _, mark = shown("--max-chars", "300").partition("[... ")
    again = mark.partition("; ")[2].removesuffix(" shows the next ...]\n")
    _, verb, *words = shlex.split(again)
    assert (verb, words[:2]) == ("output", [agent, "c1"])
    last = int(page.splitlines()[-1])
    assert cli(daemon.socket, verb, *words).stdout.decode().splitlines()[0] == str(last + 1)


def test_what_is_not_kept_is_said(daemon: Daemon, agent: str) -> None:
    cli(daemon.socket, "run", "-s", agent, "--", "echo a")
    done = cli(daemon.socket, "output", agent, "c7")
    assert (done.returncode, done.stdout) == (125, b"")
    assert b"output 'c7' is not kept" in done.stderr
    assert b"kept are: c1;" in done.stderr
    assert b"is not a range of numbers" in cli(daemon.socket, "output", agent, "--lines", "7").stderr
    assert b"no session" in cli(daemon.socket, "output", f"{agent}-never").stderr
