"""Nothing is left behind: no descriptor, process, terminal, thread or file."""

from __future__ import annotations

import gc
import os
import resource
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from escapes import ESCAPES, all_escapes, of_host
from system import (
    descendants,
    descriptors,
    descriptors_left,
    is_alive,
    nobody_reads_for_jobs,
    unique_seconds,
    wait_until,
    with_argument,
)

from shellsession import TTY, LimitReached, Limits, Session, ShellUnavailable
from shellsession.engine.bash import watcher as runtime
from shellsession.engine.io import directories

Make = Callable[..., Session]

BUSY = {
    "nothing": "",
    "a command": "echo hi; echo err >&2",
    "a pipe": "seq 100000 | tail -1",
    "a job that holds its streams": "sleep 1000 &",
    "a long command": "# " + "x" * 10_000,
    "an ended shell": "exit 3",
    "a killed shell": "kill -9 $$",
}


@pytest.fixture(scope="module", autouse=True)
def _garbage_of_other_files() -> None:
    """Before the first test here, close what the tests of other files have left to garbage collection."""
    gc.collect()


@pytest.fixture(autouse=True)
def _nothing_is_left() -> Iterator[None]:
    """Around every test here: descriptors, children, threads and files are as before."""
    wait_until(nobody_reads_for_jobs, "the end of the thread that reads for jobs of earlier tests")
    fds, children, threads = descriptors(), descendants(os.getpid()), set(threading.enumerate())
    files = of_host(os.getpid())
    yield
    wait_until(lambda: set(threading.enumerate()) <= threads, "the end of the threads")
    assert descriptors() <= fds  # less: what the tests of other files have left may be collected now
    assert descendants(os.getpid()) <= children
    assert of_host(os.getpid()) == files == set()


@pytest.mark.parametrize("command", BUSY.values(), ids=BUSY)
def test_close_gives_everything_back(place: Path, command: str) -> None:
    with Session(cwd=place) as session:
        for tty in (True, False):
            session.run(command, tty=tty)


@pytest.mark.parametrize("command", BUSY.values(), ids=BUSY)
def test_restart_gives_everything_back(place: Path, command: str) -> None:
    with Session(cwd=place) as session:
        session.run(command)
        fds = len(descriptors())
        for _ in range(3):
            session.restart()
            session.run(command)
        assert len(descriptors()) <= fds + 4  # jobs of the last shell may hold theirs


@pytest.mark.parametrize("way", ["close", "restart", "collection", "kill -9 $$", "exit", "exec true"])
def test_whatever_got_away_is_gone_when_the_call_returns(place: Path, way: str) -> None:
    seconds = unique_seconds()
    session = Session(cwd=place)
    session.run(all_escapes(seconds))
    wait_until(lambda: len(with_argument(seconds)) == len(ESCAPES), "all who get away")
    if way == "collection":
        del session
        gc.collect()
    elif way in ("close", "restart"):
        getattr(session, way)()
    else:
        assert session.run(way).outcome == "shell_exited"
    assert with_argument(seconds) == []
    if way != "collection":
        session.close()


def test_a_session_that_is_collected_while_another_takes_its_place_takes_nothing_with_it(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was the last one before: what all share is not to be given up just then."""
    make = directories.make_private
    session = Session(cwd=place)
    session.run("true")
    circle: list[object] = [session]
    circle.append(circle)

    def make_as_all_is_collected(*arguments: Any, **options: Any) -> None:
        make(*arguments, **options)
        gc.collect()

    monkeypatch.setattr(runtime, "make_private", make_as_all_is_collected)
    gc.disable()
    try:
        del session, circle
        with Session(cwd=place) as other:
            assert other.run("cat", stdin="x" * 10_000).stdout == "x" * 10_000
            assert len(of_host(os.getpid())) == 1
            watcher = runtime.the_guard()._watcher
            assert watcher is not None
            assert watcher.poll() is None
    finally:
        gc.enable()


def test_a_slot_is_nobody_elses_once_all_numbers_have_come_round(place: Path) -> None:
    with Session(cwd=place) as first, Session(cwd=place) as second:
        first.run("x=kept")
        taken = first.engine.live().slot
        runtime.the_guard()._next -= 1  # as after a million others
        assert second.run("exit 3").killed == ()
        assert second.open().engine.live().slot != taken
        assert first.run("echo $x").stdout == "kept\n"


def test_an_interrupt_reaches_whatever_got_away(place: Path) -> None:
    seconds = unique_seconds()
    with Session(cwd=place) as session:
        session.run(all_escapes(seconds) + "\nsleep 1000", timeout=0.1, on_timeout="yield")
        wait_until(lambda: len(with_argument(seconds)) == len(ESCAPES), "all who get away")
        result = session.interrupt()
        assert (result.outcome, result.state_kept) == ("interrupted", True)
        assert with_argument(seconds) == []


def test_a_running_command_is_gone_with_its_collected_session(place: Path) -> None:
    seconds = unique_seconds()
    session = Session(cwd=place)
    session.run(f"sleep {seconds}", timeout=0.1, on_timeout="yield", stdin=TTY)
    del session
    gc.collect()
    assert with_argument(seconds) == []


def test_bash_itself_is_reaped(place: Path) -> None:
    with Session(cwd=place) as session:
        session.run("true")
        shell = session.pid or 0
        assert is_alive(shell)
    assert not Path(f"/proc/{shell}").exists()


def test_the_private_files_are_private(place: Path) -> None:
    with Session(cwd=place) as session:
        session.run("cat", stdin=b"secret")
        session.run("# " + "x" * 10_000)
        directories = of_host(os.getpid())
        assert directories
        for top in directories:
            for root, _, files in os.walk(top):
                assert os.stat(root).st_mode & 0o077 == 0
                for name in files:
                    assert os.lstat(os.path.join(root, name)).st_mode & 0o177 == 0


@pytest.mark.parametrize("kind", ["good", "loose", "a link", "a file", "missing", "relative"])
def test_the_runtime_directory_is_used_when_it_is_safe(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Where others may write, somebody could have made our directory before us; what is ours is made private."""
    base, mine = tmp_path / "run", tmp_path / "run" / f"shellsession-{os.getuid()}"
    if kind != "missing":
        base.mkdir()
    if kind == "loose":
        mine.mkdir()
        mine.chmod(0o777)
    elif kind == "a link":
        (tmp_path / "elsewhere").mkdir(mode=0o700)
        mine.symlink_to(tmp_path / "elsewhere")
    elif kind == "a file":
        mine.write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_RUNTIME_DIR", "run" if kind == "relative" else str(base))
    with Session(cwd=place) as session:
        assert session.run("echo hi >&2").stderr == "hi\n"
        (directory,) = of_host(os.getpid())
        assert directory.startswith(str(base)) == (kind in ("good", "loose"))
        assert os.stat(os.path.dirname(directory)).st_mode & 0o777 == 0o700
    assert not (tmp_path / "elsewhere").is_dir() or not list((tmp_path / "elsewhere").iterdir())


def test_what_was_fed_to_stdin_does_not_lie_about(place: Path) -> None:
    with Session(cwd=place) as session:
        session.run("cat >/dev/null", stdin=b"top secret")
        tops = of_host(os.getpid())
        assert tops
        for path in (path for top in tops for path in Path(top).rglob("*") if not path.is_dir()):
            assert path.is_fifo() or b"top secret" not in path.read_bytes()


def test_a_spill_keeps_no_descriptor(place: Path) -> None:
    with Session(cwd=place) as session:
        session.run("true")
        before = len(descriptors())
        session.run("seq 10000", limits=Limits(max_output=5, spill=str(place)), timeout=5)
        assert len(descriptors()) <= before + 3  # the streams of the call


def test_a_hundred_sessions(place: Path) -> None:
    sessions = [Session(cwd=place) for _ in range(100)]
    answers = [session.run(f"echo {number}").stdout for number, session in enumerate(sessions)]
    assert answers == [f"{number}\n" for number in range(100)]
    assert len({session.pid for session in sessions}) == 100
    for session in sessions:
        session.close()


def open_many(opened: ExitStack, place: Path) -> None:
    for _ in range(60):
        opened.enter_context(Session(cwd=place)).run("true")


@pytest.mark.sampled
@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize(
    "options",
    [{}, {"tty": False}, {"stdin": "x"}, {"stdin": TTY}, {"stdin": TTY, "merge_stderr": True}, {"isolated": True}],
    ids=str,
)
def test_with_few_free_descriptors_a_command_runs_or_is_refused_and_nothing_has_changed(
    options: dict[str, Any], number: int, sh: Session
) -> None:
    sh.run("v=7; sleep 100 &")  # it holds the streams of its call: the next call needs new ones
    with descriptors_left(number), suppress(LimitReached):
        assert sh.run("echo $v", **options).stdout == "7\n"
    result = sh.run("echo $v; stty -a -F /dev/tty | grep -c -e -icanon")
    assert result.stdout == "7\n1\n", "the state is there, and the terminal is raw"


def test_too_few_descriptors_are_reported_before_they_are_used_up(place: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    highest = max(int(fd) for fd, _ in descriptors())
    with ExitStack() as opened:
        resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 60, hard))
        try:
            with pytest.raises(LimitReached, match=r"RLIMIT_NOFILE.*[Rr]aise the limit") as caught:
                open_many(opened, place)
            assert str(highest + 60) in str(caught.value)
            os.close(os.open("/dev/null", os.O_RDONLY))  # the host can still open files
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_hosts_own_children_are_left_alone(place: Path) -> None:
    import subprocess

    with subprocess.Popen(["sleep", unique_seconds()]) as mine:
        with Session(cwd=place) as session:
            session.run("kill -9 $$")
        ended = mine.poll()
        mine.kill()
    assert ended is None


def test_signal_handlers_are_as_before(place: Path) -> None:
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    with Session(cwd=place) as session:
        session.run("sleep 1000 &")
        session.run("sleep 100", timeout=0.1)
        assert {number: signal.getsignal(number) for number in signal.valid_signals()} == before


def test_the_host_is_made_no_subreaper(place: Path) -> None:
    import ctypes

    with Session(cwd=place) as session:
        session.run("true")
        answer = ctypes.c_int(-1)
        assert ctypes.CDLL(None).prctl(37, ctypes.byref(answer), 0, 0, 0) == 0  # PR_GET_CHILD_SUBREAPER
        assert answer.value == 0


def test_a_restart_that_cannot_be_leaves_the_old_shell(new_session: Callable[..., Session], tmp_path: Path) -> None:
    (first := tmp_path / "first").mkdir()
    session = new_session(cwd=first)
    session.run("kept=1; cd /")
    first.rmdir()
    with pytest.raises(ShellUnavailable, match="first' is not a directory"):
        session.restart()
    assert session.run("echo $kept").stdout == "1\n"


def test_a_fresh_shell_starts_where_the_first_did(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where no cwd was given, and the host has moved on since."""
    monkeypatch.chdir(tmp_path)
    with Session() as session:
        assert session.run("pwd; cd /usr").stdout == f"{tmp_path}\n"
        monkeypatch.chdir("/")
        session.restart()
        assert session.cwd == str(tmp_path)
        assert session.run("exit 3").cwd == str(tmp_path)
        assert session.cwd == session.run("pwd").stdout.strip() == str(tmp_path)
