"""How ``shellsession run`` ends: who waits, what is left, full disks, closed descriptors, Ctrl-C, killed clients."""

from __future__ import annotations

import fcntl
import json
import os
import select
import shlex
import signal
import subprocess
import sys
import termios
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

import pytest
from commands import PROGRAM, cli, environment, finish, line, opened, running
from daemons import Daemon, Raw
from support import PATIENCE, unique_seconds, wait_until, with_argument

from shellsession import TTY, Result, SessionClosed, connect
from shellsession.cli.run import Passed
from shellsession.daemon.control import stats


@contextmanager
def seen_on_stderr(daemon: Daemon, *words: str) -> Iterator[tuple[subprocess.Popen[bytes], BinaryIO]]:
    """It, with a terminal as its stderr, and what can be read there."""
    master, slave = os.openpty()
    with (
        open(master, "rb", buffering=0) as screen,
        open(slave, "wb") as stderr,
        running(daemon.socket, *words, stderr=stderr) as process,
    ):
        yield process, screen


def test_what_a_command_waits_for_is_told_to_a_person(daemon: Daemon, agent: str, place: Path) -> None:
    os.mkfifo(place / "gate")
    text = f"read x <{place}/gate # \33[31mred\n: and more"
    with opened(agent, daemon) as session, running(daemon.socket, "run", "-s", agent, "--", text) as first:
        wait_until(lambda: session.command, "the first command")
        with (
            running(daemon.socket, "run", "-s", agent, "--", "echo of no terminal") as quiet,
            seen_on_stderr(daemon, "run", "-s", agent, "--", "echo second") as (second, screen),
        ):
            told = screen.read(4096).decode()
            shown = f"read x <{place}/gate # \\x1b[31mred"
            assert f"shellsession: waiting for agent '{agent}': `{shown[:50]}" in told
            assert "\33" not in told
            assert "…` has run there for " in told
            (place / "gate").write_text("\n")
            assert (line(second), line(quiet)) == (b"second\n", b"of no terminal\n")
            assert (finish(second)[0], finish(quiet), finish(first)) == (0, (0, b""), (0, b""))


def test_who_gives_up_waiting_has_run_nothing(daemon: Daemon, agent: str, place: Path) -> None:
    with Raw(daemon.socket) as holder, opened(agent, daemon):
        holder.ask("hold", agent=agent, holder="me")
        with seen_on_stderr(daemon, "run", "-s", agent, "--", f"touch {place}/never") as (process, screen):
            told = screen.read(4096)
            assert b"nothing runs there; somebody sits there (`shellsession attach`); Ctrl-C gives up" in told
            assert finish(process, signal.SIGINT)[0] == 130
    assert cli(daemon.socket, "run", "-s", agent, "--", f"echo {place}/*").stdout.decode() == f"{place}/*\n"


@pytest.mark.parametrize(
    "words",
    ["run -s {agent} -- touch ran", "wait {agent}", "attach {agent}", "attach --read-only {agent}"],
)
@pytest.mark.parametrize("within", ["{ours}", "setsid -w {ours}", "{python} -c {nested}"], ids=["", "setsid", "nested"])
def test_inside_its_own_session_nothing_waits_for_itself(
    daemon: Daemon, agent: str, place: Path, words: str, within: str
) -> None:
    ours = shlex.join([*PROGRAM, *(word.format(agent=agent) for word in words.split())])
    nested = shlex.quote(
        "import shellsession\n"
        "sh = shellsession.Session()\n"
        f"r = sh.run({ours!r}, stdin=shellsession.TTY)\n"
        "print(r.stdout, r.stderr)\n"
        "while r.runs_on:\n"  # as below
        "    r = sh.wait()\n"
        "    print(r.stdout, r.stderr)\n"
        "raise SystemExit(r.exit_code)"
    )
    text = within.format(ours=ours, nested=nested, python=sys.executable)
    with connect(agent, daemon.socket, cwd=place, extra_env={"SHELLSESSION_SOCKET": daemon.socket}) as sh:
        result = sh.run(text, timeout=PATIENCE, stdin=TTY, merge_stderr=True)
        said = result.stdout
        while result.outcome == "input":  # under load the inner client is silent for so long that it seems to ask
            result = sh.wait(PATIENCE)
            said += result.stdout
    assert (result.outcome, result.exit_code) == ("exited", 125)
    assert "inside its own session" in said
    assert not (place / "ran").exists()


def test_what_a_command_left_in_the_background_may_use_its_session(daemon: Daemon, agent: str, place: Path) -> None:
    later = f"until [ -e go ]; do sleep 0.05; done; {shlex.join(PROGRAM)} run -s {shlex.quote(agent)} -- touch ran"
    with connect(agent, daemon.socket, cwd=place, extra_env={"SHELLSESSION_SOCKET": daemon.socket}) as sh:
        sh.run(f"({later}) & true")
        assert sh.run("touch go; until [ -e waits ]; do sleep 0.05; done", timeout=0.3).outcome == "timed_out"
        wait_until((place / "ran").exists, "its turn")


def test_a_reader_that_leaves_ends_the_command_quietly(daemon: Daemon, agent: str) -> None:
    with running(daemon.socket, "run", "-s", agent, "--", "X=kept; while :; do echo y; done") as process:
        assert line(process) == b"y\n"
        assert process.stdout is not None
        process.stdout.close()
        process.stdout = None
        assert finish(process) == (-signal.SIGPIPE, b"")
    again = cli(daemon.socket, "run", "-s", agent, "--", "echo $X")
    assert (again.stdout, again.stderr) == (b"kept\n", b"")


def test_a_full_disk_is_told_and_ends_the_command(daemon: Daemon, agent: str) -> None:
    with (
        open("/dev/full", "wb") as full,
        running(daemon.socket, "run", "-s", agent, "--", "while :; do echo y; done", stdout=full) as process,
    ):
        assert finish(process) == (
            125,
            b"shellsession: stdout cannot be written (No space left on device): see where it goes\n",
        )
    assert cli(daemon.socket, "run", "-s", agent, "--", "echo there").stdout == b"there\n"


@pytest.mark.parametrize(
    ("words", "status"), [(["run", "--timeout", "0.05", "--", "sleep 99"], 124), (["wait", "nobody"], 125)]
)
def test_talk_that_cannot_be_written_changes_no_status(daemon: Daemon, words: list[str], status: int) -> None:
    read, unread = os.pipe()
    os.close(read)
    with open("/dev/full", "wb") as full, open(unread, "wb") as closed:
        for stderr in (full, closed):
            with running(daemon.socket, *words, stderr=stderr) as process:
                assert process.wait(PATIENCE) == status


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
def test_closed_descriptors_are_nothing_to_write_to(daemon: Daemon, agent: str, closed: str, place: Path) -> None:
    words = [*PROGRAM, "run", "-s", agent, "--", f"echo out; echo err >&2; echo ran > {place}/ran"]
    done = subprocess.run(
        ["bash", "-c", f'"$@" {closed}', "bash", *words],
        capture_output=True,
        env=environment(daemon.socket, {}),
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0
    assert (place / "ran").read_text() == "ran\n"
    assert done.stdout == (b"" if "1>" in closed else b"out\n")
    assert done.stderr == (b"" if "2>" in closed else b"err\n")


def test_a_pipe_that_does_not_block_loses_nothing(daemon: Daemon, agent: str) -> None:
    read, write = os.pipe()
    os.set_blocking(write, False)
    with running(daemon.socket, "run", "-s", agent, "--", "head -c 1000000 /dev/zero", stdout=write) as process:
        os.close(write)
        with open(read, "rb") as pipe:
            assert len(pipe.read()) == 1_000_000
        assert finish(process) == (0, b"")


def test_ctrl_c_ends_the_command_and_keeps_the_state(daemon: Daemon, agent: str) -> None:
    seconds = unique_seconds()
    with running(daemon.socket, "run", "-s", agent, "--", f"X=kept; echo ready; sleep {seconds}") as process:
        assert line(process) == b"ready\n"
        wait_until(lambda: with_argument(seconds), "the command")
        assert finish(process, signal.SIGINT) == (130, b"")
    assert with_argument(seconds) == []
    assert cli(daemon.socket, "run", "-s", agent, "--", "echo $X").stdout == b"kept\n"


# Counts until it is struck, and cleans up then.
_COUNTS: Final = "(trap 'echo cleaned up; exit' INT; i=0; while :; do echo $((i++)); done)"


def test_ctrl_c_brings_what_a_command_prints_while_it_ends(daemon: Daemon, agent: str) -> None:
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
    """Of 20 bytes those from 5 to 11 were not kept."""
    whole, passed = bytes(range(65, 85)), Passed()
    passed("stdout", (whole + b"more!")[:written])
    kept = whole[:5] + whole[12:]
    passed.rest(Result(kept, b"", 130, 2, "/", 0.0, "interrupted", stdout_omitted=7, stdout_cut=5))
    out, said = capfdbinary.readouterr()
    lost = max(0, 12 - max(5, written))
    assert out[written:] == whole[written:5] + whole[max(12, written) :]
    gap = b"shellsession: %d bytes of stdout were not kept: they are missing in the middle\n" % lost
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


@pytest.mark.parametrize("words", [["wait"], ["wait", "--json"], ["send"], ["send", "--json"]], ids=" ".join)
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "lost"])
def test_ctrl_c_on_who_stays_with_a_command_brings_what_it_printed(
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


def test_who_gives_up_waiting_is_told_as_json(daemon: Daemon, agent: str, place: Path) -> None:
    with Raw(daemon.socket) as holder, opened(agent, daemon):
        holder.ask("hold", agent=agent, holder="me")
        words = "run", "--json", "-s", agent, "--", f"touch {place}/never"
        with seen_on_stderr(daemon, *words) as (process, screen):
            assert b"waiting for agent" in screen.read(4096)
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130
    error = json.loads(out)["error"]
    assert (error["code"], error["message"].endswith(": nothing was run")) == ("interrupted", True)
    assert not (place / "never").exists()


@pytest.mark.parametrize("words", [["wait"], ["send"]], ids=" ".join)
def test_who_leaves_what_another_runs_has_not_ended_it(daemon: Daemon, agent: str, words: list[str]) -> None:
    """Nor has a line that waits for its turn been typed."""
    with running(daemon.socket, "run", "-s", agent, "--", "echo on; sleep 100") as first:
        assert line(first) == b"on\n"
        with running(daemon.socket, *words, "--json", agent, *(["text"] if words == ["send"] else [])) as process:
            wait_until(lambda: stats(daemon.socket)["serving"] == 3, "who joins it")
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=PATIENCE)
        assert (process.returncode, json.loads(out)["error"]["message"]) == (130, "left by Ctrl-C")
        assert first.poll() is None


def test_a_second_ctrl_c_is_quiet_too(daemon: Daemon, agent: str, place: Path) -> None:
    seconds, read, write = unique_seconds(), *os.pipe()
    command = f"trap 'echo > {place}/struck; sleep 99' INT; head -c 200000 /dev/zero; sleep {seconds}"
    with running(daemon.socket, "run", "-s", agent, "--", command, stdout=write) as process, open(read, "rb"):
        os.close(write)
        wait_until(lambda: with_argument(seconds) and waiting_in(read) >= 1 << 16, "what is stuck in its output")
        process.send_signal(signal.SIGINT)
        wait_until(lambda: (place / "struck").exists(), "what ends the command")
        assert finish(process, signal.SIGINT) == (130, b"")


def waiting_in(pipe: int) -> int:
    """The bytes that nobody has read."""
    return int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)


def test_a_command_whose_session_is_killed_before_its_turn_says_what_to_do(daemon: Daemon, agent: str) -> None:
    with (
        running(daemon.socket, "run", "-s", agent, "--", "echo first; sleep 100") as first,
        connect(agent, daemon.socket, False) as client,
    ):
        assert line(first) == b"first\n"
        with (
            running(daemon.socket, "run", "-s", agent, "--", "true") as second,
            ThreadPoolExecutor(1) as threads,
        ):
            third = threads.submit(client.run, "true")
            wait_until(lambda: stats(daemon.socket)["serving"] == 4, "both in the queue")
            assert cli(daemon.socket, "kill", agent).returncode == 0
            status, said = finish(second)
            assert (status, said.endswith(b"was closed meanwhile: `shellsession run` opens a new one\n")) == (125, True)
            with pytest.raises(SessionClosed, match=f"{agent}' was closed meanwhile: connect again"):
                third.result(PATIENCE)


def test_a_killed_client_leaves_the_command_alone(daemon: Daemon, agent: str) -> None:
    seconds = unique_seconds()
    with running(daemon.socket, "run", "-s", agent, "--", f"echo ready; sleep {seconds}") as process:
        assert line(process) == b"ready\n"
        wait_until(lambda: with_argument(seconds), "the command")
        assert finish(process, signal.SIGKILL)[0] == -signal.SIGKILL
    assert with_argument(seconds) != []
    assert cli(daemon.socket, "interrupt", agent).returncode == 0
    assert with_argument(seconds) == []
