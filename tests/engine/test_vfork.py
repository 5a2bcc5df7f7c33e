"""Bash starts without a copy of its host, or with one where that is impossible: it is the same bash."""

from __future__ import annotations

import errno
import gc
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from system import SOAK, descendants, process_ids, stat_fields

from shellsession import Session, ShellUnavailable
from shellsession.engine.bash import spawn
from shellsession.engine.io import streams
from shellsession.engine.kernel import vfork

WAYS = pytest.mark.parametrize("copied", [False, True], ids=["vfork", "fork"])
# A host that ignores, handles and blocks signals, lets a descriptor be inherited, and tells what its bash got of it.
HOST = r"""
import ctypes, os, signal, sys
from shellsession import Session
from shellsession.engine.kernel import vfork
if sys.argv[1] == "True":
    vfork.is_possible = lambda: False
signal.signal(signal.SIGHUP, signal.SIG_IGN)
ctypes.CDLL(None).signal(signal.SIGQUIT, ctypes.c_void_p(1))  # ignored, as in system(3), and Python does not know
signal.signal(signal.SIGUSR1, lambda *_: None)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2, signal.SIGTERM})
os.dup2(os.open("/dev/null", os.O_RDONLY), 50, inheritable=True)
with Session(cwd="/usr", size=(91, 17), timeout=20) as sh:
    print(sh.run('''
        grep -E "^(Sig(Blk|Ign|Cgt)|CapEff|NoNewPrivs|Seccomp):" /proc/self/status
        cd /proc/$$/fd && echo *; cd - ; stty -a <&1; ulimit -a | grep -v "file locks"; umask; echo $SHLVL
        IFS=' ' read -r _ _ _ _ group session _ foreground _ < /proc/$$/stat
        echo $((group == $$)) $((session == $$)) $((foreground == $$))
        (setsid sleep 1000 &); while [[ $(ps -o comm= --ppid $$) != *sleep* ]]; do :; done; echo adopted
    ''').stdout)
    print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())))
"""


# Signals 32 and 33 are glibc's own; a child of Python 3.13's subprocess, as this host is, ignores them.
_OF_THE_LIBRARY = 0b11 << 31


def told(program: str, *arguments: str) -> str:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=50).stdout


def refusal(session: Session) -> str:
    try:
        session.open()
    except ShellUnavailable as error:
        return str(error)
    return ""


@pytest.fixture
def way(monkeypatch: pytest.MonkeyPatch, copied: bool) -> None:
    if copied:
        monkeypatch.setattr(vfork, "is_possible", lambda: False)


def test_there_is_a_way_without_a_copy_here() -> None:
    assert vfork.is_possible()


def test_bash_is_the_same_either_way() -> None:
    ours = told(HOST, "False")
    assert ours == told(HOST, "True")
    ignored, blocked = (int(ours.partition(f"{name}:")[2].split()[0], 16) for name in ("SigIgn", "SigBlk"))
    assert ignored & ~_OF_THE_LIBRARY == blocked == 0
    assert "50" not in ours.split("/usr")[0].split()
    assert "rows 17; columns 91" in ours
    assert "1 1 1\nadopted\n" in ours
    assert ours.endswith(f"{sorted([signal.SIGUSR2, signal.SIGTERM])}\n")


def test_warnings_of_libraries_about_a_fork_are_not_shown() -> None:
    program = (
        "import os; from shellsession import Session; os.register_at_fork(before=lambda: print('forked'))\n"
        "with Session(timeout=20) as sh: print(sh.run('echo hi').stdout)"
    )
    assert told(program) == "hi\n\n"


@WAYS
@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("what", ["too much environment", "no interpreter", "no directory"])
def test_what_fails_after_the_start_is_reported_and_leaves_nothing(
    what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bash, number = "bash", errno.ENOENT
    env = {"PATH": os.environ["PATH"]}
    if what == "too much environment":
        env["BIG"], number = "x" * (1 << 20), errno.E2BIG
    elif what == "no interpreter":
        bash = str(tmp_path / "bash")
        Path(bash).write_text("#!/no/such/program\n")
        Path(bash).chmod(0o755)
    else:
        monkeypatch.setattr(spawn, "first_directory", lambda _: str(tmp_path / "gone"))
    gc.collect()  # of what earlier tests have left
    before = sorted(os.listdir("/proc/self/fd")), descendants(os.getpid()), ended_children()
    assert os.strerror(number) in refusal(Session(env=env, bash=bash))
    assert (sorted(os.listdir("/proc/self/fd")), descendants(os.getpid()), ended_children()) == before


def ended_children() -> list[int]:
    """Those that nobody has waited for."""
    return [pid for pid in process_ids() if stat_fields(pid)[:2] == ["Z", str(os.getpid())]]


@WAYS
@pytest.mark.usefixtures("way")
def test_what_may_fail_is_forgiven_and_nothing_else() -> None:
    nowhere: vfork.SystemCall = ("chdir", (b"/no/such/place",))
    pid = vfork.spawn([nowhere, vfork.FORGIVE], "/bin/sh", ["sh", "-c", "exit 7"], {})
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
    with pytest.raises(FileNotFoundError):
        vfork.spawn([vfork.FORGIVE, nowhere], "/bin/true", ["true"], {})


@WAYS
def test_one_more_descriptor_is_kept_wherever_it_was(copied: bool) -> None:
    program = r"""
import os, sys
from shellsession.engine.kernel import vfork
if sys.argv[1] == "True":
    vfork.is_possible = lambda: False
reader, writer = os.pipe()  # 3 and 4
os.write(writer, b"12")
os.set_inheritable(writer, True)
for kept in reader, os.dup2(reader, 60, inheritable=False):
    said = "head -c 1 <&3; for fd in 3 4 60; do [ -e /proc/$$/fd/$fd ] && echo \" $fd\"; done"
    os.waitpid(vfork.spawn([], "/bin/sh", ["sh", "-c", said], {}, kept), 0)
print(reader)
"""
    assert told(program, str(copied)) == f"1 3\n2 3\n{vfork.KEPT}\n"


@WAYS
@pytest.mark.usefixtures("way")
def test_without_a_terminal_of_its_own_no_bash_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    real = streams.open_terminal

    def with_another(size: tuple[int, int]) -> tuple[int, int]:
        master, slave = real(size)
        os.close(slave)
        return master, os.open(os.devnull, os.O_RDWR)

    monkeypatch.setattr(spawn, "open_terminal", with_another)
    assert os.strerror(errno.ENOTTY) in refusal(Session())


@WAYS
@pytest.mark.usefixtures("way")
def test_a_host_that_ignores_its_children_hears_what_failed() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with pytest.raises(FileNotFoundError):
            vfork.spawn([], "/no/such/program", ["true"], {})
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_whenever_an_alarm_strikes_while_a_session_opens_nothing_is_left() -> None:
    program = r"""
import os, signal, sys
from shellsession import Session
from shellsession.engine.kernel import vfork
if sys.argv[1] == "True":
    vfork.is_possible = lambda: False
def mine():
    with open(f"/proc/self/task/{os.getpid()}/children") as file:
        return sorted(file.read().split()), len(os.listdir("/proc/self/fd"))
signal.signal(signal.SIGALRM, signal.default_int_handler)
interrupted = 0
with Session(timeout=20) as beside:
    beside.run("true")
    before = mine()
    for i in range(0, 150, int(sys.argv[2])):
        with Session(timeout=20) as session:
            try:
                try:
                    signal.setitimer(signal.ITIMER_REAL, 0.00004 * (i + 1))
                    session.open()
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupted += 1
        assert mine() == before, (i, before, mine())
    print(interrupted > 6, beside.run("echo well").stdout)
"""
    step = 1 if SOAK else 3
    for copied in ("False", "True"):
        assert told(program, copied, str(step)) == "True well\n\n"


@WAYS
@pytest.mark.usefixtures("way")
def test_signals_and_threads_of_the_host_do_not_disturb(new_session: Callable[..., Session]) -> None:
    came, over = [0], threading.Event()

    def disturb() -> None:
        while not over.wait(0.0002):
            os.kill(os.getpid(), signal.SIGUSR1)

    def count(*_: object) -> None:
        came[0] += 1

    before = signal.signal(signal.SIGUSR1, count)
    disturber = threading.Thread(target=disturb)
    disturber.start()
    try:
        sessions = [new_session() for _ in range(20)]
        workers = [threading.Thread(target=sh.open) for sh in sessions]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert [sh.run("echo $((6 * 7))").stdout for sh in sessions] == ["42\n"] * 20
    finally:
        over.set()
        disturber.join()
        signal.signal(signal.SIGUSR1, before)
    assert came[0] > 0


def test_calls_apart_change_nothing_here_and_send_no_signal() -> None:
    seen, before = list[int](), os.getcwd()
    handler = signal.signal(signal.SIGCHLD, lambda *_: seen.append(1))
    try:
        vfork.perform_apart([("chdir", (b"/usr",))])
        with pytest.raises(OSError, match="Bad file descriptor"):
            vfork.perform_apart([("close", (-1,)), ("chdir", (b"/usr",))])
    finally:
        signal.signal(signal.SIGCHLD, handler)
    assert (seen, os.getcwd()) == ([], before)
