"""A killed daemon leaves nothing: its watcher cleans up at once, without harm to the next daemon."""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import endings
import pytest
from daemons import Daemon, answers, running, stopped
from endings import nothing_is_left, session, shut_down
from system import PATIENCE, command_line, descendants, is_alive, unique_seconds, wait_until, with_argument

from shellsession import OutcomeUnknown

runtime, hasty = endings.runtime, endings.hasty


def test_killed_it_leaves_nothing(hasty: Daemon, runtime: Path) -> None:
    seconds = unique_seconds()
    command = f"trap '' HUP TERM; setsid sleep {seconds} & sleep {seconds}"
    with session(hasty) as sh, session(hasty, "b") as other, ThreadPoolExecutor(2) as threads:
        results = [threads.submit(one.run, command) for one in (sh, other)]
        wait_until(lambda: len(with_argument(seconds)) == 4, "the commands")
        bashes = descendants(hasty.pid)
        hasty.process.kill()
        for result in results:
            with pytest.raises(OutcomeUnknown):
                result.result(PATIENCE)
        wait_until(lambda: nothing_is_left(hasty, runtime, seconds), "the end of all that was left")
        wait_until(lambda: not any(map(is_alive, bashes)), "the end of its shells")
        assert os.listdir(os.path.dirname(hasty.socket)) == []  # it may be its user's own


def test_killed_it_makes_room_at_once(hasty: Daemon, runtime: Path) -> None:
    seconds = unique_seconds()
    with session(hasty) as sh:
        sh.run(f"sleep {seconds} &")
    hasty.process.kill()
    hasty.process.wait(PATIENCE)
    with session(hasty, start=True) as sh:
        assert sh.run("echo at once").stdout == "at once\n"
        wait_until(lambda: not with_argument(seconds), "the end of what was left")
        shut_down(hasty)
    wait_until(lambda: nothing_is_left(hasty, runtime), "the end of the second")


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM], ids=["killed", "stopped"])
def test_what_cleans_up_spares_the_next_daemon(tmp_path: Path, runtime: Path, end: signal.Signals) -> None:
    """However late it comes. File systems give a new file the number of one that has just been removed."""
    with running(tmp_path / "daemon", "--patience", "30") as old, session(old) as sh:
        with ThreadPoolExecutor(1) as threads, stopped(watcher(old) if end == signal.SIGKILL else 0):
            result = threads.submit(
                sh.run, f"touch {tmp_path}/begun; until [ -e {tmp_path}/open ]; do sleep 0.05; done"
            )
            wait_until((tmp_path / "begun").exists, "the command")
            old.process.send_signal(end)
            if end == signal.SIGTERM:
                wait_until(lambda: "ending" in old.said, "the end of its hospitality")
                os.unlink(old.socket)
            wait_until(lambda: not answers(old.socket), "room for another")
            fresh = session(old, "fresh", start=True)
            fresh.run("X=1")
            (tmp_path / "open").touch()
            with suppress(OutcomeUnknown):
                result.result(PATIENCE)
        old.process.wait(PATIENCE)
        wait_until(lambda: len(watchers(old.socket)) == 1, "the end of the old watcher")
        assert os.path.exists(old.socket)
        assert fresh.run("echo $X").stdout == "1\n"
        fresh.disconnect()
        shut_down(old)
        wait_until(lambda: nothing_is_left(old, runtime), "the end of the second")


def watchers(socket: str) -> list[int]:
    return [pid for pid in with_argument(socket) if b"watcher.bash" in command_line(pid)]


def watcher(daemon: Daemon) -> int:
    (pid,) = wait_until(lambda: watchers(daemon.socket), "its watcher")
    return pid


def test_killed_after_its_socket_was_made_again_it_leaves_nothing(
    hasty: Daemon, runtime: Path, place: Path, tmp_path: Path
) -> None:
    with session(hasty) as sh:
        sh.run("true")
        (before,) = watchers(hasty.socket)
        os.unlink(hasty.socket)
        wait_until(lambda: watchers(hasty.socket) not in ([before], []), "the watcher of the new one")
        wait_until(lambda: not is_alive(before), "the end of the old watcher")
    hasty.stop(signal.SIGKILL)
    wait_until(lambda: nothing_is_left(hasty, runtime), "the end of what was left")
