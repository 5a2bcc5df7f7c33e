"""Document 004, REQ-BASH-003 and REQ-BASH-004: commands in the background, their files, ends and groups."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import stat
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import phoenixes
import pytest
from daemons import Daemon
from system import is_alive, stat_fields, wait_until

from shellsession import Agents, AsyncSession, Session, connect
from shellsession.contracts import phoenix
from shellsession.contracts.phoenix import ToolResult

Bash = phoenixes.Bash
temporary = phoenixes.temporary
END = "\n\n[background process completed]\n"


class Started(NamedTuple):
    """What a call in the background answers."""

    pid: int
    path: Path
    reminder: str

    def text(self) -> str:
        return self.path.read_text(errors="replace")

    def ended(self) -> str:
        """The whole file, once it says how the command ended."""
        wait_until(lambda: re.search(r"\n\n\[background process [^\n]*\]\n\Z", self.text()), "the completion line")
        return self.text()


def parse(result: ToolResult) -> Started:
    assert not result.is_error, result
    found = re.fullmatch(
        r"<pid>(\d+)</pid>\n<output_file>(/.*)</output_file>\n<reminder>To stop: (kill -9 -\1)</reminder>",
        result.output,
    )
    assert found, result
    return Started(int(found[1]), Path(found[2]), found[3])


def start(bash: Bash, command: str) -> Started:
    return parse(bash({"command": command, "background": True}))


@pytest.fixture(scope="module", params=["isolated", "persistent", "session"])
def bash(request: pytest.FixtureRequest) -> Iterator[Bash]:
    with Agents() as agents, Session() as session:
        if request.param == "session":
            session.run("set -eu -o pipefail; set -o noclobber; shopt -s nullglob failglob; IFS=-0123456789; umask 022")
            yield phoenix.tool(session)
        else:
            yield phoenix.tool(agents, agent="a1", persistent=request.param == "persistent")


def test_it_comes_back_at_once_and_the_command_goes_on(bash: Bash, tmp_path: Path) -> None:
    os.mkfifo(fifo := tmp_path / "fifo")
    begun = time.monotonic()
    started = start(bash, f"echo begun; read x <{fifo}; echo end $x")
    assert bash({"command": "echo between"}) == ToolResult("between\n"), "it stands in no later call's way"
    assert time.monotonic() - begun < 15
    wait_until(lambda: started.text() == "begun\n", "its first line")
    watcher = Path(f"/proc/{stat_fields(started.pid)[1]}/fd")
    assert {os.readlink(watcher / fd) for fd in "012"} == {os.devnull}, "nothing of the call is held"
    fifo.write_text("here\n")
    assert started.ended() == f"begun\nend here\n{END}"


def test_output_is_combined_in_true_order(bash: Bash) -> None:
    started = start(bash, "for i in 1 2 3 4 5 6; do echo $i; sh -c 'echo x >&2; echo y'; done; cat; cat /dev/fd/0")
    assert started.ended() == "".join(f"{i}\nx\ny\n" for i in range(1, 7)) + END


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("true", "completed"),
        ("", "completed"),
        ("false", "failed: exit status: 1"),
        ("exit 3", "failed: exit status: 3"),
        ("exit 137", "failed: exit status: 137"),
        ("exit 255", "failed: exit status: 255"),
        ("exec sh -c 'exit 4'", "failed: exit status: 4"),
        ("sh -c 'kill -KILL $$'; exit $?", "failed: exit status: 137"),
        ("kill -KILL $BASHPID", "failed: signal: 9 (SIGKILL)"),
        ("kill -TERM $BASHPID", "failed: signal: 15 (SIGTERM)"),
        ("kill -INT $BASHPID; :", "failed: signal: 2 (SIGINT)"),  # bash 5.0 looks for none behind the last one
        ("kill -PIPE $BASHPID", "failed: signal: 13 (SIGPIPE)"),
        ("kill -HUP $BASHPID", "failed: signal: 1 (SIGHUP)"),
        ("kill -RTMIN $BASHPID", "failed: signal: 34"),
        ("ulimit -c 0; kill -SEGV $BASHPID", "failed: signal: 11 (SIGSEGV)"),
        ("trap 'exit 5' TERM; kill -TERM $BASHPID; sleep 100", "failed: exit status: 5"),
        ("trap 'echo bye' EXIT; exit 6", "failed: exit status: 6"),
        ("nonexistent_command", "failed: exit status: 127"),
    ],
)
def test_the_end_is_written_to_the_file(bash: Bash, command: str, line: str) -> None:
    started = start(bash, command)
    assert started.ended().endswith(f"\n\n[background process {line}]\n")
    wait_until(lambda: os.listdir(started.path.parent) == ["output"], "nothing but the output stays")


def test_a_core_dump_is_reported(bash: Bash, tmp_path: Path) -> None:
    command = f"cd {tmp_path}; ulimit -c unlimited; kill -ABRT $BASHPID"
    told = subprocess.run(["bash", "-c", f"({command}); :"], capture_output=True, text=True, check=False).stderr
    dumped = " (core dumped)" if "core dumped" in told else ""
    assert start(bash, command).ended() == f"\n\n[background process failed: signal: 6 (SIGABRT){dumped}]\n"


def test_a_command_that_cannot_be_waited_for_is_an_error_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It outlives that line: a SIGCHLD that reaches bash 5.2 while `wait` complains has its trap hang in libc."""
    os.mkfifo(fifo := tmp_path / "fifo")
    broken = phoenix._WATCH.replace("_phoenix_pid=$!", "_phoenix_pid=1")
    monkeypatch.setattr(phoenix, "_WATCH", broken)
    with Session() as session:
        started = start(phoenix.tool(session), f"read x <{fifo}")
        assert started.ended() == "\n\n[background process error: No child processes (os error 10)]\n"


def test_the_pid_leads_a_group_of_its_own_which_the_reminder_ends(bash: Bash, tmp_path: Path) -> None:
    started = start(
        bash, f"(trap '' INT TERM HUP; sleep 1000 & echo $! >>{tmp_path}/pids; wait) & sleep 1000; echo late"
    )
    pids = tmp_path / "pids"
    inner = int(wait_until(lambda: pids.exists() and pids.read_text().strip(), "the inner one"))
    assert os.getpgid(started.pid) == started.pid == os.getpgid(inner)
    assert os.getpgid(0) != started.pid
    assert bash({"command": started.reminder}) == ToolResult("")
    assert started.ended() == "\n\n[background process failed: signal: 9 (SIGKILL)]\n"
    wait_until(lambda: not is_alive(started.pid) and not is_alive(inner), "the whole group's end")


def test_a_stopped_command_has_not_ended(bash: Bash, tmp_path: Path) -> None:
    os.mkfifo(fifo := tmp_path / "fifo")
    started = start(bash, f"read x <{fifo}; exit 3")
    watcher = Path(f"/proc/{stat_fields(started.pid)[1]}/status")
    wait_until(lambda: stat_fields(int(watcher.parent.name))[0] == "S", "its watcher waits")
    turns = re.compile(r"^voluntary_ctxt_switches:\t(.*)", re.MULTILINE)
    before = turns.findall(watcher.read_text())
    os.killpg(started.pid, signal.SIGSTOP)
    wait_until(lambda: turns.findall(watcher.read_text()) != before, "its watcher is told")
    assert started.text() == ""
    os.killpg(started.pid, signal.SIGCONT)
    fifo.write_text("go\n")
    assert started.ended() == "\n\n[background process failed: exit status: 3]\n"


def test_a_single_program_is_the_pid_itself(tmp_path: Path) -> None:
    """As with the document's `bash -c`: a plain `kill PID` reaches a server that was started alone."""
    with Agents() as agents:
        started = start(phoenix.tool(agents, agent="a1"), "sleep 1000")
        wait_until(lambda: Path(f"/proc/{started.pid}/comm").read_text() == "sleep\n", "sleep")
        os.kill(started.pid, signal.SIGTERM)
        assert started.ended() == "\n\n[background process failed: signal: 15 (SIGTERM)]\n"


def test_the_file_is_private(bash: Bash) -> None:
    started = start(bash, "umask; true")
    assert stat.S_IMODE(started.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(started.path.parent.stat().st_mode) == 0o700
    assert started.ended() == bash({"command": "umask"}).output + END, "the command's umask is not ours"


def test_a_file_that_was_removed_stays_gone(bash: Bash, tmp_path: Path) -> None:
    os.mkfifo(fifo := tmp_path / "fifo")
    started = start(bash, f"read x <{fifo}")
    watcher = int(stat_fields(started.pid)[1])
    started.path.unlink()
    fifo.write_text("go\n")
    wait_until(lambda: not is_alive(watcher), "the end of who tells the end")
    assert os.listdir(started.path.parent) == []


def test_the_file_is_where_temporary_files_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a b%'c").mkdir()
    monkeypatch.setenv("TMPDIR", f"{tmp_path}/a b%'c")
    with Agents() as agents:
        bash = phoenix.tool(agents, agent="a1")
        started = start(bash, "echo hi")
        assert started.path.is_relative_to(tmp_path / "a b%'c")
        assert started.ended() == f"hi\n{END}"
        monkeypatch.setenv("TMPDIR", f"{tmp_path}/none")
        failed = bash({"command": "echo hi", "background": True})
        assert (failed.is_error, failed.code) == (True, "command_failed")
        assert "mktemp" in failed.output


def test_a_later_timeout_leaves_it_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    for persistent in (False, True):
        with Agents() as agents:
            bash = phoenix.tool(agents, agent="a1", persistent=persistent)
            started = start(bash, "trap 'echo interrupted' INT; echo on; sleep 1000 & wait")
            wait_until(lambda started=started: started.text() == "on\n", "its first line")  # type: ignore[misc]
            monkeypatch.setattr(phoenix, "TIMEOUT", 0.3)
            assert bash({"command": "sleep 1000"}).code == "timed_out"
            monkeypatch.undo()
            assert is_alive(started.pid)
            assert bash({"command": started.reminder}) == ToolResult("")
            assert started.ended() == "on\n\n\n[background process failed: signal: 9 (SIGKILL)]\n"


def test_it_ends_with_the_bash_of_the_session() -> None:
    with Agents() as agents:
        bash = phoenix.tool(agents, agent="a1", persistent=True)
        started = start(bash, "echo on; sleep 1000")
        wait_until(lambda: started.text() == "on\n", "its first line")
        assert "its state is lost" in bash({"command": "exit 0"}).output
        wait_until(lambda: not is_alive(started.pid), "its end")


def test_slow_ok_and_the_time_limit_are_not_its(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    contract = phoenix.Phoenix()
    wanted = phoenix.PhoenixInput(command="true", slow_ok=True, background=True)
    assert contract.request(wanted).timeout == 30, "that is for its start alone"


def test_its_file_outlives_the_session_but_it_does_not() -> None:
    with Agents() as agents:
        started = start(phoenix.tool(agents, agent="a1"), "echo kept; setsid sleep 1000 & sleep 1000")
        wait_until(lambda: started.text() == "kept\n", "its first line")
    assert not is_alive(started.pid)
    assert started.text() == "kept\n"


def test_nothing_else_is_left_of_what_ends_with_the_session() -> None:
    """Who watches a command may be at its end, too, just then."""
    for _ in range(10):
        with Agents() as agents:
            bash = phoenix.tool(agents, agent="a1")
            places = [start(bash, "exit 3").path.parent for _ in range(6)]
        assert [os.listdir(place) for place in places] == [["output"]] * 6


def test_signals_are_as_a_shell_gives_them(bash: Bash) -> None:
    plain = subprocess.run(["grep", "SigIgn", "/proc/self/status"], capture_output=True, text=True, check=True).stdout
    assert start(bash, "grep SigIgn /proc/self/status").ended() == plain.replace("1001000", "0000000") + END


def test_it_knows_what_the_session_knows(tmp_path: Path) -> None:
    with Agents() as agents:
        bash = phoenix.tool(agents, agent="a1", persistent=True)
        bash({"command": f"cd {tmp_path}; V=var; f() {{ echo func; }}; (exit 7)"})
        assert start(bash, "pwd; echo $V; f; V=lost").ended() == f"{tmp_path}\nvar\nfunc\n{END}"
        assert bash({"command": "echo $V"}) == ToolResult("var\n")


# A trace has one "+" for each level; what the session traces is the command alone.
TRACE: Final = "+ echo hi\nhi\n+ exit 4\n"
COMMAND: Final = "echo hi; exit 4"


@pytest.mark.parametrize(
    ("state", "output"),
    [
        ("set -x", TRACE),
        ("set -v", f"{COMMAND}\nhi\n"),
        ("set -xv", f"{COMMAND}\n{TRACE}"),
        ("set -e", "hi\n"),
        ("set -a", "hi\n"),
        ("set -o posix", "hi\n"),
        ("readonly SHLVL", "hi\n"),
        ("trap 'echo T; echo T >&2' DEBUG", "hi\n"),
        ("trap 'echo T; echo T >&2' DEBUG; set -T", "hi\n"),
        ("trap 'echo bye' EXIT ERR", "hi\n"),
    ],
)
def test_what_the_session_is_set_to_is_the_commands_alone(state: str, output: str) -> None:
    with Agents() as agents:
        bash = phoenix.tool(agents, agent="a1", persistent=True)
        bash({"command": state})
        ended = start(bash, COMMAND).ended()
    assert (
        re.sub(r"^\++ ", "+ ", ended, flags=re.MULTILINE)
        == f"{output}{END.replace('completed', 'failed: exit status: 4')}"
    )


def test_long_commands_and_strange_text(bash: Bash) -> None:
    long = "x" * 300_000
    started = start(bash, f": {long}; echo $BASHPID")
    assert started.ended() == f"{started.pid}\n{END}"
    odd = "'\"\\$`{}%s%%\n\t€!~"
    assert start(bash, f"cat <<'_END_'\n{odd}\n_END_").ended() == f"{odd}\n{END}"


def test_many_at_once(bash: Bash) -> None:
    started = [start(bash, f"echo {number}; exit {number}") for number in range(8)]
    assert len({one.path for one in started}) == len({one.pid for one in started}) == 8
    for number, one in enumerate(started):
        line = "completed" if number == 0 else f"failed: exit status: {number}"
        assert one.ended() == f"{number}\n\n\n[background process {line}]\n"


def test_sessions_of_other_kinds(daemon: Daemon, new_session: Callable[..., Session]) -> None:
    with connect("background", socket=daemon.socket) as remote:
        assert start(phoenix.tool(remote), "echo hi").ended() == f"hi\n{END}"

    async def main() -> None:
        async with AsyncSession() as session:
            found = await phoenix.tool(session)({"command": "echo hi", "background": True})
            assert parse(found).ended() == f"hi\n{END}"

    asyncio.run(main())
