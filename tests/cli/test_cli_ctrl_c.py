"""Ctrl-C on the command line ends the command, shows its last output, and reports what is lost."""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import sys
import termios
from pathlib import Path
from typing import Final

import pytest
from commands import cli, finish, line, opened, running
from daemons import Daemon
from system import PATIENCE, unique_seconds, wait_until, with_argument

from shellsession import TTY, Result
from shellsession.cli.relay import OutputRelay
from shellsession.daemon.client.admin import stats


@pytest.mark.parametrize("more", [[], ["--no-start"]], ids=["plain", "parsed"])
def test_ctrl_c_ends_the_command_and_keeps_the_state(daemon: Daemon, agent: str, more: list[str]) -> None:
    seconds = unique_seconds()
    with running(daemon.socket, "run", *more, "-s", agent, "--", f"X=kept; echo ready; sleep {seconds}") as process:
        assert line(process) == b"ready\n"
        wait_until(lambda: with_argument(seconds), "the command")
        assert finish(process, signal.SIGINT) == (130, b"")
    assert with_argument(seconds) == []
    assert cli(daemon.socket, "run", "-s", agent, "--", "echo $X").stdout == b"kept\n"


# Counts, more than a pipe takes and less than the daemon keeps, and cleans up once it is interrupted.
_COUNTS: Final = (
    "(trap 'echo cleaned up; exit' INT; for i in {0..60000}; do echo $i; done; while :; do sleep 0.05; done)"
)


def test_after_ctrl_c_the_output_of_the_ending_command_is_shown(daemon: Daemon, agent: str) -> None:
    text = "echo begun; (trap 'echo cleaned up; echo badly >&2; exit' INT; echo on; while :; do sleep 0.05; done)"
    with running(daemon.socket, "run", "-s", agent, "--", text) as process:
        assert (line(process), line(process)) == (b"begun\n", b"on\n")
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=PATIENCE) == (b"cleaned up\n", b"badly\n")
    assert process.returncode == 130


@pytest.mark.parametrize("kind", ["blocking", "unblocking"])
def test_ctrl_c_amid_a_flood_passes_each_byte_once(daemon: Daemon, agent: str, kind: str) -> None:
    """Whose reader stands still just then, so that we wait for it with a piece half written."""
    read, write = os.pipe()
    if kind == "unblocking":
        os.set_blocking(write, False)
    with running(daemon.socket, "run", "-s", agent, "--", _COUNTS, stdout=write) as process, open(read, "rb") as pipe:
        wait_until(lambda: waiting_in(read) and not select.select([], [write], [], 0)[1], "a full pipe")
        os.close(write)
        process.send_signal(signal.SIGINT)
        *numbers, last = pipe.read().splitlines()
        assert finish(process) == (130, b"")
    assert last == b"cleaned up"
    assert numbers == [b"%d" % number for number in range(len(numbers))]


@pytest.mark.parametrize("written", [0, 3, 5, 9, 12, 15, 20, 25])
def test_what_is_left_to_pass_on_has_the_gap_where_it_was(
    capfdbinary: pytest.CaptureFixture[bytes], written: int
) -> None:
    """Of 20 bytes those from 5 to 11 are missing."""
    whole, relay = bytes(range(65, 85)), OutputRelay()
    relay("stdout", (whole + b"more!")[:written])
    kept = whole[:5] + whole[12:]
    relay.write_rest(Result(kept, b"", 130, 2, "/", 0.0, "interrupted", stdout_omitted=7, stdout_cut=5))
    out, said = capfdbinary.readouterr()
    lost = max(0, 12 - max(5, written))
    assert out[written:] == whole[written:5] + whole[max(12, written) :]
    gap = b"shellsession: %d bytes of stdout are missing here, in the middle: see `shellsession output`\n" % lost
    assert said == (gap if lost else b"")


# Its shell does not heed what ends a command, and is killed.
_DEAF: Final = 'trap "" INT; '


@pytest.fixture
def endless(place: Path) -> str:
    """What the shell itself is in until it is interrupted, and it takes no processor from others meanwhile."""
    os.mkfifo(place / "never")
    return f"exec 9<>{place}/never; read -u 9 x"


def test_ctrl_c_that_costs_the_shell_says_so(daemon: Daemon, agent: str, endless: str) -> None:
    with running(daemon.socket, "run", "-s", agent, f"X=1; {_DEAF}echo x; {endless}") as process:
        assert line(process) == b"x\n"
        status, said = finish(process, signal.SIGINT)
    assert status == 130
    assert said.startswith(b"shellsession: ended by Ctrl-C; the shell could not be brought back from it and was killed")
    assert said.endswith(b"; the session's state is lost: the next command starts in a fresh shell\n")
    assert cli(daemon.socket, "run", "-s", agent, "--", "echo ${X-gone}").stdout == b"gone\n"


@pytest.mark.parametrize("kept", [True, False], ids=["kept", "lost"])
def test_ctrl_c_has_a_result_as_json(daemon: Daemon, agent: str, place: Path, endless: str, kept: bool) -> None:
    text = f"{'' if kept else _DEAF}echo x; touch {place}/begun; {endless}"
    with running(daemon.socket, "run", "--json", "-s", agent, "--", text) as process:
        wait_until((place / "begun").exists, "the command")
        process.send_signal(signal.SIGINT)
        out, said = process.communicate(timeout=PATIENCE)
    assert (process.returncode, said) == (130, b"")
    result = json.loads(out)
    assert (result["outcome"], result["stdout"], result["state_kept"]) == ("interrupted", "x\n", kept)
    assert result["reason"].startswith("ended by Ctrl-C")


@pytest.mark.sampled
@pytest.mark.parametrize("words", [["wait"], ["wait", "--json"], ["send"], ["send", "--json"]], ids=" ".join)
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "lost"])
def test_ctrl_c_in_wait_and_send_shows_the_output(
    daemon: Daemon, agent: str, place: Path, endless: str, words: list[str], kept: bool
) -> None:
    asks = f"X=kept; {'' if kept else _DEAF}echo begun; read line; echo got $line"
    with opened(agent, daemon) as session:
        assert session.run(f"{asks}; touch {place}/on; {endless}", stdin=TTY).outcome == "input"
        answer = ["echoed"]
        if words[0] == "wait":
            session.type("echoed\n")
            answer = []
        with running(daemon.socket, *words, agent, *answer) as process:
            wait_until((place / "on").exists, "the answer")
            wait_until(lambda: stats(daemon.socket)["serving"] == 2, "who stays")
            process.send_signal(signal.SIGINT)
            out, said = process.communicate(timeout=PATIENCE)
        assert process.returncode == 130
        if "--json" in words:
            result = json.loads(out)
            assert (result["outcome"], result["stdout"], result["state_kept"]) == ("interrupted", "got echoed\n", kept)
            assert result["reason"].startswith("ended by Ctrl-C")
        else:
            assert (out, b"state is lost" in said) == (b"got echoed\n", not kept)
        assert session.run("echo ${X-gone}").stdout == ("kept\n" if kept else "gone\n")


@pytest.mark.parametrize("words", [["wait"], ["send"]], ids=" ".join)
def test_leaving_does_not_end_the_command_of_another(daemon: Daemon, agent: str, words: list[str]) -> None:
    """Nor has a line that waits for its turn been typed."""
    with running(daemon.socket, "run", "-s", agent, "--", "echo on; sleep 100") as first:
        assert line(first) == b"on\n"
        with running(daemon.socket, *words, "--json", agent, *(["text"] if words == ["send"] else [])) as process:
            wait_until(lambda: stats(daemon.socket)["serving"] == 3, "who joins it")
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=PATIENCE)
        assert (process.returncode, json.loads(out)["error"]["message"]) == (130, "left by Ctrl-C")
        assert first.poll() is None


def interrupted_twice(daemon: Daemon, agent: str, interrupted: Path) -> tuple[int, bytes]:
    """Status and stderr of a run that two Ctrl-C end, the second while the first one's command is being ended."""
    seconds, read, write = unique_seconds(), *os.pipe()
    command = f"trap 'echo > {interrupted}; sleep 99' INT; head -c 200000 /dev/zero; sleep {seconds}"
    with running(daemon.socket, "run", "-s", agent, "--", command, stdout=write) as process, open(read, "rb"):
        os.close(write)
        wait_until(lambda: with_argument(seconds) and waiting_in(read) >= 1 << 16, "what is stuck in its output")
        process.send_signal(signal.SIGINT)
        wait_until(interrupted.exists, "what ends the command")
        return finish(process, signal.SIGINT)


def test_a_second_ctrl_c_is_quiet_too(daemon: Daemon, agent: str, place: Path) -> None:
    """On a busy machine the first may have ended the command before the second comes, and says so: then once more."""
    for attempt in range(5):
        status, said = interrupted_twice(daemon, agent, place / f"interrupted{attempt}")
        assert status == 130
        if said == b"":
            return
        assert said.splitlines()[-1].startswith(b"shellsession: ended by Ctrl-C")
    pytest.fail("the second Ctrl-C never came in time")


def waiting_in(pipe: int) -> int:
    """The bytes that nobody has read."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)
