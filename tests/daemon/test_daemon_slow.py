"""Slow clients, and clients with endless requests: no other client waits, and memory stays bounded."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import clients
import pytest
from daemons import Daemon, Raw, settled
from system import PATIENCE, wait_until

from shellsession import RemoteSession, connect
from shellsession.daemon.protocol.wire import encode

sh = clients.sh
MIB = 1 << 20


def resident(daemon: Daemon) -> int:
    """Bytes of memory that the daemon has."""
    status = Path(f"/proc/{daemon.pid}/status").read_text(encoding="ascii")
    return int(status.partition("VmRSS:")[2].split()[0]) * 1024


def test_a_slow_client_slows_its_command_and_nothing_else(daemon: Daemon, sh: RemoteSession, place: Path) -> None:
    size = 80 * MIB
    with Raw(daemon.socket) as slow:
        slow.open("slow", place)
        assert slow.run("slow", "true")["exit_code"] == 0
        before = resident(daemon)
        slow.say("run", f"head -c {size} /dev/zero; echo >done".encode(), agent="slow", live=True, timeout=None)
        settled(lambda: resident(daemon) >> 20, lambda: sh.run("true"))
        assert resident(daemon) - before < 32 * MIB
        assert not (place / "done").exists()
        came = 0
        while "event" in (message := slow.receive()).header:
            came += len(message.parts[0])
        assert (came, message.header["result"]["outcome"]) == (size, "exited")
        assert resident(daemon) - before < 32 * MIB


def test_a_client_that_takes_nothing_keeps_the_session_no_longer_than_its_command(
    daemon: Daemon, sh: RemoteSession
) -> None:
    sh.open()
    with Raw(daemon.socket) as slow:
        slow.say("run", b"yes", agent=sh.agent, live=True, timeout=0.5)
        wait_until(lambda: daemon.lines(sh.agent), "the beginning of the command")
        assert sh.run("echo next", timeout=10).stdout == "next\n"
        came = 0
        while "event" in (message := slow.receive()).header:
            assert message.header["at"] == came
            came += len(message.parts[0])
        assert message.header["result"]["outcome"] == "timed_out"
        assert came


def test_output_that_nobody_wants_live_costs_no_memory(daemon: Daemon, sh: RemoteSession) -> None:
    sh.run("true")
    before = resident(daemon)
    result = sh.run(f"head -c {80 * MIB} /dev/zero")
    assert len(result.stdout_bytes) + result.stdout_omitted == 80 * MIB
    assert resident(daemon) - before < 32 * MIB


def test_answers_that_nobody_takes_are_not_piled_up(daemon: Daemon, sh: RemoteSession, place: Path) -> None:
    """The ledger may keep 64 MiB of them; what is asked for here is 300."""
    with Raw(daemon.socket) as slow:
        slow.open("piled", place)
        text = b"sleep 100 #" + b"x" * 200_000
        slow.ask("run", text, agent="piled", timeout=0.05, on_timeout="yield")
        before = resident(daemon)
        requests = [slow.header("info", agent="piled") for _ in range(1500)]
        with ThreadPoolExecutor(1) as sender:
            sending = sender.submit(slow.socket.sendall, b"".join(map(encode, requests)))
            settled(lambda: resident(daemon) >> 20, lambda: sh.run("true"))
            grown = resident(daemon) - before
            replies = [slow.receive().header["id"] for _ in requests]
            sending.result()
        slow.ask("close", agent="piled")
    assert replies == [request["id"] for request in requests]
    assert grown < 128 * MIB


@pytest.mark.parametrize("verb", ["fly", "poll", "stats"])
def test_a_flood_of_requests_is_answered_one_by_one(raw: Raw, sh: RemoteSession, verb: str) -> None:
    """Whether each is refused at once, or answered at once, or later."""
    agent = {"agent": sh.agent} if verb == "poll" else {}
    requests = [raw.header(verb, **agent) for _ in range(5000)]
    with ThreadPoolExecutor(1) as sender:
        sender.submit(raw.socket.sendall, b"".join(map(encode, requests)))
        replies = [raw.receive().header for _ in requests]
    assert {reply["id"] for reply in replies} == {request["id"] for request in requests}
    assert sh.run("echo served").stdout == "served\n"


def test_a_command_of_who_does_not_read_the_last_answer_waits_until_he_does(
    daemon: Daemon, sh: RemoteSession, place: Path
) -> None:
    limits = {"max_output": 16 * MIB, "spill": None, "spill_max": 0, "on_overflow": "truncate"}
    with Raw(daemon.socket) as idle:
        idle.say("run", f"echo >{place}/first; head -c {8 * MIB} /dev/zero".encode(), agent=sh.agent, limits=limits)
        idle.say("run", f"echo >{place}/second".encode(), agent=sh.agent)
        wait_until((place / "first").exists, "the first")
        assert sh.run(f"ls -1 {place}").stdout == "first\n"  # behind both of them
        assert len(idle.receive().parts[0]) == 8 * MIB
        assert idle.receive().header["result"]["exit_code"] == 0
        assert sh.run(f"ls -1 {place}").stdout == "first\nsecond\n"


def test_a_command_that_prints_without_end_delays_nobody(daemon: Daemon, sh: RemoteSession, place: Path) -> None:
    with connect("endless", daemon.socket, False, cwd=place) as endless, ThreadPoolExecutor(1) as threads:
        result = threads.submit(endless.run, "yes", timeout=None)
        wait_until(lambda: endless.state == "running", "the command")
        for number in range(50):
            assert sh.run(f"echo {number}").stdout == f"{number}\n"
        assert not result.done()
        endless.interrupt()
        assert result.result(PATIENCE).outcome == "interrupted"
        endless.close()
