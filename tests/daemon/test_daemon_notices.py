"""``events`` over the daemon: connections break, readers come back, patterns are too slow."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest
from daemons import Daemon, Proxy, Raw, running, served
from gates import Gate
from system import PATIENCE, until, wait_until

from shellsession import DaemonUnavailable, RemoteSession, aconnect, connect


def test_events_reader_whose_connections_break_loses_nothing(daemon: Daemon, place: Path) -> None:
    path = str(place / "proxy")
    with Proxy(path, daemon.socket) as proxy, connect("cut-reader", path, False, cwd="/") as sh:
        events = sh.events(pattern="^[0-9]+$", timeout=PATIENCE)
        os.mkfifo(go := place / "go")
        sh.run(f"for i in {{1..8}}; do until read <{go}; do :; done; echo $i; done &")
        seen = []
        for _ in range(8):
            go.write_text("\n")
            seen.append(next(events))
            proxy.cut()
        seen.append(next(events))
        assert [one.text for one in seen] == [*map(str, range(1, 9)), "exit status 0"]
        assert [one.number for one in seen] == [*range(1, 10)]
        assert proxy.connections > 5
        sh.close()


def test_events_another_client_goes_on_after_a_number(daemon: Daemon) -> None:
    """As a program does that was started anew."""
    with connect("two-readers", daemon.socket, False, cwd="/") as sh:
        events = sh.events(pattern="b", timeout=PATIENCE)
        sh.run("(echo b1; echo b2; echo b3; sleep 9) &")
        number = next(events).number
        with connect("two-readers", daemon.socket, False) as other:
            rest = other.events(pattern="b", after=number, timeout=PATIENCE)
            assert [next(rest).text, next(rest).text] == ["b2", "b3"]
        sh.close()


def test_events_cancelled_reader_leaves_the_command_running(daemon: Daemon, raw: Raw, place: Path) -> None:
    gate = Gate(place)

    async def main() -> str:
        async with aconnect("cancelled-reader", daemon.socket, False, cwd="/") as sh:
            await sh.run(gate.text, timeout=0.1, on_timeout="yield")
            reading = asyncio.ensure_future(anext(sh.events()))
            await until(lambda: served(raw) == 2)
            reading.cancel()
            await asyncio.wait([reading])
            gate.open()
            text = (await sh.wait()).stdout
            await sh.close()
            return text

    assert asyncio.run(main()).endswith("ended\n")


def test_events_of_a_daemon_that_ends_raise(place: Path) -> None:
    with running(place) as daemon, connect("a1", daemon.socket, False, cwd="/") as sh:
        events = sh.events(timeout=PATIENCE)
        sh.run("sleep 99 &")
        daemon.stop()
        with pytest.raises(DaemonUnavailable):
            list(events)


def test_events_slow_pattern_is_given_up_and_the_daemon_lives(remote: RemoteSession) -> None:
    events = remote.events(pattern="(a|a)*$b", timeout=PATIENCE)
    remote.run("(printf 'a%.0s' {1..40}; echo; sleep 9) &")
    notice = next(events)
    assert notice.kind == "limit"
    assert "takes too long: simplify the pattern" in notice.text
    assert list(remote.events(pattern="(a|a)*$b", timeout=0.5)) == []  # it is not tried again
    wait_until(lambda: remote.state == "idle", "an answer")
