"""``shellsession snapshot`` and ``restore``: the state of an agent's shell in a file."""

from __future__ import annotations

from pathlib import Path

from commands import cli
from daemons import Daemon


def test_state_of_an_agent_goes_to_a_file_and_back(daemon: Daemon, agent: str, tmp_path: Path) -> None:
    file = str(tmp_path / "state")
    assert cli(daemon.socket, "run", "-s", agent, "--", "cd /usr; A=1; f() { echo $A; }; API_TOKEN=abc").returncode == 0
    taken = cli(daemon.socket, "snapshot", agent, file)
    assert (taken.returncode, taken.stderr) == (0, b"shellsession: left out: variable API_TOKEN\n")
    cli(daemon.socket, "run", "-s", agent, "--", "cd /; A=2; unset -f f")
    restored = cli(daemon.socket, "restore", agent, file)
    assert (restored.returncode, restored.stderr) == (0, b"")
    assert cli(daemon.socket, "run", "-s", agent, "--", "f; pwd; echo [$API_TOKEN]").stdout == b"1\n/usr\n[]\n"


def test_file_that_is_no_snapshot_is_refused_and_changes_nothing(daemon: Daemon, agent: str, tmp_path: Path) -> None:
    (file := tmp_path / "state").write_bytes(b"no snapshot")
    cli(daemon.socket, "run", "-s", agent, "--", "A=1")
    refused = cli(daemon.socket, "restore", agent, str(file))
    assert refused.returncode == 125
    assert cli(daemon.socket, "run", "-s", agent, "--", "echo $A").stdout == b"1\n"


def test_what_was_not_restored_is_listed(daemon: Daemon, agent: str, tmp_path: Path) -> None:
    (gone := tmp_path / "gone").mkdir()
    file = str(tmp_path / "state")
    cli(daemon.socket, "run", "-s", agent, "--", f"cd {gone}")
    cli(daemon.socket, "snapshot", agent, file)
    cli(daemon.socket, "run", "-s", agent, "--", "cd /")
    gone.rmdir()
    restored = cli(daemon.socket, "restore", agent, file)
    assert restored.returncode == 1
    assert b"not restored: directory" in restored.stderr or b"the directory is gone" in restored.stderr


def test_fork_copies_an_agent(daemon: Daemon, agent: str) -> None:
    cli(daemon.socket, "run", "-s", agent, "--", "cd /usr; A=1")
    assert cli(daemon.socket, "fork", agent, f"{agent}-try").returncode == 0
    assert cli(daemon.socket, "run", "-s", f"{agent}-try", "--", "echo $A; pwd").stdout == b"1\n/usr\n"
    refused = cli(daemon.socket, "fork", agent, f"{agent}-try")
    assert (refused.returncode, b"use another name" in refused.stderr) == (125, True)
    assert cli(daemon.socket, "kill", f"{agent}-try").returncode == 0
