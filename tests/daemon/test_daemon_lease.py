"""The lease of a daemon: without a renewal it ends, at once, with all that runs in its sessions."""

from __future__ import annotations

import json
import os
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import endings
import pytest
from commands import cli
from daemons import Daemon, Raw, command, running, serving, stopped
from endings import nothing_is_left, session
from system import PATIENCE, unique_seconds, wait_until, with_argument

from shellsession import InvalidRequest, connect
from shellsession.daemon.client import admin
from shellsession.daemon.server.server import Lease

runtime = endings.runtime


def test_without_a_renewal_it_ends_by_itself_and_says_why(tmp_path: Path, runtime: Path) -> None:
    path = str(tmp_path / "daemon" / "socket")
    ended = subprocess.run(command(path, "--audit", "", "--lease", "0.1"), capture_output=True, check=True)
    assert b"no client has renewed the lease for 0.1 s: ending all sessions at once" in ended.stderr
    assert not os.path.exists(path)


def test_stopped_until_its_end_it_serves_nothing_more_and_ends_everything_at_once(
    tmp_path: Path, runtime: Path, place: Path
) -> None:
    """Running commands get none of its patience, and idle sessions run no shutdown commands."""
    seconds, later = unique_seconds(), tmp_path / "later"
    (tmp_path / "sitecustomize.py").write_text(f"""
import os, time
now = time.clock_gettime
time.clock_gettime = lambda clock: now(clock) + 2000 * os.path.exists({str(later)!r})
""")
    options, env = ("--lease", "1000", "--patience", "1000"), {**os.environ, "PYTHONPATH": str(tmp_path)}
    with (
        running(tmp_path / "daemon", *options, env=env) as daemon,
        Raw(daemon.socket) as raw,
        ThreadPoolExecutor(1) as threads,
    ):
        idle = connect("idle", daemon.socket, False, cwd=place, shutdown=["touch ended"])
        idle.run(f"trap 'touch trapped' EXIT; setsid sleep {seconds} & sleep {seconds} &")
        handed_back = connect("handed back", daemon.socket, False)
        assert handed_back.run(f"trap '' TERM INT; sleep {seconds}", timeout=0.01, on_timeout="yield").runs_on
        busy = threads.submit(session(daemon, "busy").run, f"sleep {seconds}")
        wait_until(lambda: len(with_argument(seconds)) == 4, "the commands")
        with stopped(daemon.pid):
            later.touch()
            raw.say("renew")
            raw.say("run", b"touch never", agent="idle")
            raw.say("open", agent="new", cwd=str(place), env={}, inherited=True, umask=0)
        for _ in range(3):
            error = raw.receive().header["error"]
            assert (error["code"], "the daemon's lease is over" in error["message"]) == ("daemon_unavailable", True)
        assert busy.result(PATIENCE).outcome == "shell_exited"
        assert daemon.process.wait(PATIENCE) == 0
        assert nothing_is_left(daemon, runtime, seconds)
    assert list(place.iterdir()) == []


def test_it_is_renewed_and_shown(tmp_path: Path) -> None:
    with running(tmp_path / "daemon", "--lease", "1000") as daemon:

        def left() -> float:
            return float(admin.stats(daemon.socket)["lease"]["left"])

        wait_until(lambda: left() < 999.9, "some of the lease to pass")
        before = time.clock_gettime(time.CLOCK_BOOTTIME)
        admin.renew(daemon.socket)
        seconds = left()
        assert before - time.clock_gettime(time.CLOCK_BOOTTIME) <= seconds - 1000 <= 0
        assert "\nlease      1000 s, of which " in cli(daemon.socket, "status").stdout.decode()
        assert json.loads(cli(daemon.socket, "status", "--json").stdout)["lease"]["seconds"] == 1000


def test_a_daemon_without_one_refuses_to_renew_it(daemon: Daemon) -> None:
    with pytest.raises(InvalidRequest, match="has no lease to renew: it was started without `serve --lease`"):
        admin.renew(daemon.socket)
    assert admin.stats(daemon.socket)["lease"] is None


def test_a_request_that_comes_before_its_timer_ends_it(tmp_path: Path) -> None:
    path = str(tmp_path / "socket")
    with serving(path) as server, Raw(path) as raw:
        raw.open("a")
        raw.run("a", "true")
        server.lease = Lease(0.0)
        for verb, part in (("run", b"true"), ("send", b"x")):
            assert raw.ask(verb, part, agent="a").header["error"]["code"] == "daemon_unavailable"
        assert server.stopping.is_set()


def test_lease_without_time_is_over_at_once(tmp_path: Path) -> None:
    with serving(str(tmp_path / "socket")) as server:
        server.begin_lease(0.0)
        assert server.lease_is_over
