"""``shellsession branch``, ``checkpoint`` and ``rollback``."""

from __future__ import annotations

import os
import shlex
from pathlib import Path

import pytest
from commands import cli
from daemons import Daemon, running
from warm import PROGRAM

from shellsession.branch.mounts import fault

if reason := fault():
    pytest.skip(reason, allow_module_level=True)


def test_branch_of_an_agent_is_kept_shown_and_applied(daemon: Daemon, agent: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("base\n")

    def run(text: str) -> bytes:
        return cli(daemon.socket, "run", "-s", agent, "--branch", str(tmp_path), "-C", str(tmp_path), "--", text).stdout

    assert run("echo one >file; cat file") == b"one\n"
    assert cli(daemon.socket, "checkpoint", agent, "one").stdout == b"one\n"
    assert run("echo two >file; echo >new; cat file") == b"two\n"
    assert cli(daemon.socket, "branch", "diff", agent).stdout == b"changed  file\nadded    new\n"
    assert b"+two" in cli(daemon.socket, "branch", "diff", "--patch", agent).stdout
    assert cli(daemon.socket, "rollback", agent, "one").returncode == 0
    for words in ("branch diff", "branch apply", "branch discard", "checkpoint", "rollback"):
        line = shlex.join(
            [*PROGRAM, *words.split(), "--socket", daemon.socket, agent, *["one"] * (words == "rollback")]
        )
        inside = cli(daemon.socket, "run", "-s", agent + "other", "--", line)  # it has no branch itself
        assert b"was asked for inside the session of agent" in inside.stderr, words
        assert (inside.returncode, (tmp_path / "file").read_text()) == (125, "base\n")
    assert run("cat file") == b"one\n"
    assert cli(daemon.socket, "kill", agent + "other").returncode == 0
    assert cli(daemon.socket, "branch", "apply", agent).stdout == b"changed  file\n"
    assert (tmp_path / "file").read_text() == "one\n"
    assert run("cat file; echo more >>file; ls") == b"one\nfile\n"
    assert cli(daemon.socket, "branch", "discard", agent).returncode == 0
    assert run("cat file") == b"one\n"
    assert cli(daemon.socket, "kill", agent).returncode == 0


def test_checkpoints_of_an_agent_are_listed_and_dropped(daemon: Daemon, agent: str, tmp_path: Path) -> None:
    cli(daemon.socket, "run", "-s", agent, "--branch", str(tmp_path), "--", "echo one >file")
    for name in ("first", "second"):
        assert cli(daemon.socket, "checkpoint", agent, name).returncode == 0
    assert cli(daemon.socket, "checkpoint", "--drop", agent, "first").returncode == 0
    title, one = cli(daemon.socket, "checkpoint", "--list", agent).stdout.decode().splitlines()
    assert title.split() == ["NAME", "MADE", "BYTES", "PARENT"]
    assert one.split()[0] == "second"
    for given in (["--drop", agent], ["--list", agent, "x"]):
        assert b"NAME" in cli(daemon.socket, "checkpoint", *given).stderr
    for words in (
        ("apply", "--patch"),
        ("discard", "--patch"),
        ("diff", "--overwrite"),
        ("apply", "--since", "second"),
    ):
        assert f"{words[1]} is for".encode() in cli(daemon.socket, "branch", *words, agent).stderr
    assert cli(daemon.socket, "branch", "diff", agent).stdout == b"added    file\n"
    assert cli(daemon.socket, "kill", agent).returncode == 0
    assert cli(daemon.socket, "branch", "discard", agent).returncode == 0


def test_last_command_of_an_agent_is_taken_back(daemon: Daemon, agent: str, tmp_path: Path) -> None:
    words = ["run", "-s", agent, "--branch", str(tmp_path), "-C", str(tmp_path), "--auto-checkpoints", "2", "--"]
    for text in ("echo one >file", "echo two >file; sleep 100 &"):
        done = cli(daemon.socket, *words, text)
    assert b"no checkpoint: job j1 runs" in done.stderr
    assert cli(daemon.socket, "rollback", agent).returncode == 125
    assert cli(daemon.socket, "rollback", "--end-jobs", agent).returncode == 0
    assert cli(daemon.socket, *words, "cat file").stdout == b"one\n"
    assert cli(daemon.socket, "kill", agent).returncode == 0


def test_branch_without_a_session_is_named_with_what_opens_it_again(daemon: Daemon, agent: str, tmp_path: Path) -> None:
    cli(daemon.socket, "run", "-s", agent, "--branch", str(tmp_path), "--", "echo one >file")
    assert cli(daemon.socket, "kill", agent).returncode == 0
    for words in (["branch", "diff", agent], ["branch", "apply", agent], ["rollback", agent]):
        said = cli(daemon.socket, *words).stderr.decode()
        assert "what it wrote on its branch is kept" in said
    assert cli(daemon.socket, *shlex.split(said.split("`")[1])[1:]).returncode == 0
    assert cli(daemon.socket, "branch", "diff", agent).stdout == b"added    file\n"
    assert cli(daemon.socket, "branch", "discard", agent).returncode == 0
    assert cli(daemon.socket, "kill", agent).returncode == 0
    assert b"is kept" not in cli(daemon.socket, "branch", "diff", agent).stderr


def test_layers_of_an_agent_that_was_killed_are_discarded(tmp_path: Path) -> None:
    (base := tmp_path / "base").mkdir()
    with running(tmp_path / "daemon", env={**os.environ, "XDG_STATE_HOME": str(tmp_path)}) as daemon:
        layers = tmp_path / "shellsession" / "branches"
        words = ["run", "-s", "one", "--branch", str(base), "-C", str(base), "--"]
        cli(daemon.socket, *words, "echo >file")
        assert cli(daemon.socket, "kill", "one").returncode == 0
        assert cli(daemon.socket, *words, "ls").stdout == b"file\n"
        cli(daemon.socket, "fork", "one", "two")
        assert cli(daemon.socket, "kill", "one").returncode == 0
        assert cli(daemon.socket, "branch", "discard", "one").returncode == 0
        assert (
            cli(daemon.socket, "run", "-s", "two", "-C", str(base), "ls").stdout == b"file\n"
        )  # it keeps the layers that it shares
        assert cli(daemon.socket, "kill", "two").returncode == 0
        assert list(layers.iterdir()) == []
        again = cli(daemon.socket, "branch", "discard", "one")
        assert (again.returncode, b"'one' has no session here" in again.stderr) == (125, True)


def test_command_on_a_branch_is_told_that_it_cannot_reach_the_daemon(
    daemon: Daemon, agent: str, tmp_path: Path
) -> None:
    other = ["--socket", str(tmp_path / "other")]
    lines = [shlex.join([*PROGRAM, "ls", *place]) for place in (["--socket", daemon.socket], other)]
    done = cli(daemon.socket, "run", "-s", agent, "--branch", str(tmp_path), "--", "; ".join(lines))
    said = done.stderr.decode().splitlines()
    assert len(said) == 2
    for line in said:
        assert line.startswith("shellsession: a command of a session on a branch cannot reach the daemon at ")
    assert cli(daemon.socket, "kill", agent).returncode == 0


def test_errors_name_the_flags_of_the_command_line(daemon: Daemon, agent: str, tmp_path: Path) -> None:
    def said(*words: str) -> str:
        done = cli(daemon.socket, *words)
        assert done.returncode == 125
        return done.stderr.decode()

    words = ["run", "-s", agent, "--branch", str(tmp_path), "-C", str(tmp_path), "--"]
    cli(daemon.socket, *words, "echo ours >file; sleep 100 &")
    assert "or kill it; nothing was changed" in said("branch", "apply", agent)
    assert "kill it, or add --end-jobs; nothing was changed" in said("checkpoint", agent)
    assert "only a session with --auto-checkpoints can" in said("rollback", "--end-jobs", agent)
    (tmp_path / "file").write_text("theirs")
    assert "or all with --overwrite\n" in said("branch", "apply", agent)
    cli(daemon.socket, "kill", agent)
    cli(daemon.socket, "run", "-s", agent, "true")
    assert "open it with --branch\n" in said("branch", "diff", agent)
    cli(daemon.socket, "kill", agent)


def test_branch_above_its_layers_names_what_moves_these(tmp_path: Path) -> None:
    env = {**os.environ, "XDG_STATE_HOME": str(tmp_path / "state")}
    with running(tmp_path / "daemon", env=env) as daemon:
        done = cli(daemon.socket, "run", "--branch", str(tmp_path), "true")
        assert b"name another directory with XDG_STATE_HOME, and start the daemon anew\n" in done.stderr


def test_fork_of_an_agent_has_its_own_branch(daemon: Daemon, agent: str, tmp_path: Path) -> None:
    there = ("-C", str(tmp_path), "--")
    cli(daemon.socket, "run", "-s", agent, "--branch", str(tmp_path), *there, "echo one >file")
    assert cli(daemon.socket, "fork", agent, f"{agent}-try").returncode == 0
    assert cli(daemon.socket, "run", "-s", f"{agent}-try", *there, "cat file; echo try >file").stdout == b"one\n"
    assert cli(daemon.socket, "branch", "diff", "--since", "fork", f"{agent}-try").stdout == b"changed  file\n"
    assert cli(daemon.socket, "run", "-s", agent, *there, "cat file").stdout == b"one\n"
    assert cli(daemon.socket, "branch", "apply", f"{agent}-try").stdout == b"added    file\n"
    assert (tmp_path / "file").read_text() == "try\n"
    assert cli(daemon.socket, "kill", agent, f"{agent}-try").returncode == 0
