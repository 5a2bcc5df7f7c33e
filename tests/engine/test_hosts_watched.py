"""The watcher of a host spares living processes, is replaced after it was killed, and leaves nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import hosts
from escapes import of_host, runtime_directories
from hosts import HOST, start, watcher_of
from system import PATIENCE, is_alive, naps, stat_fields, unique_seconds, wait_until, with_argument

from shellsession.engine.bash import watcher as runtime
from shellsession.engine.kernel import proc

home, started = hosts.home, hosts.started


def test_the_watcher_leaves_a_living_host_and_strangers_alone(started: list[subprocess.Popen[str]]) -> None:
    """Two hosts: the end of one is no end for the other, nor for a process beside them."""
    mine, yours, nobodys = unique_seconds(), unique_seconds(), unique_seconds()
    started.append(stranger := subprocess.Popen(["sleep", nobodys], text=True))
    first, second = (start(started, HOST + "input()\n", f"sleep {seconds} &") for seconds in (mine, yours))
    for host in (first, second):
        assert host.stdout
        host.stdout.readline()
    wait_until(lambda: with_argument(mine) and with_argument(yours), "both jobs")
    first.kill()
    wait_until(lambda: not with_argument(mine) and not of_host(first.pid), "the end of the first")
    assert len(with_argument(yours)) == 1
    assert stranger.poll() is None


def test_a_watcher_that_was_killed_has_a_successor_from_the_next_shell_on(started: list[subprocess.Popen[str]]) -> None:
    seconds = unique_seconds()
    program = HOST + "input(); other = Session(cwd='/'); other.run(sys.argv[2]); print(flush=True); input()\n"
    host = start(started, program, "true", f"setsid sleep {seconds} &")
    assert host.stdout
    assert host.stdin
    host.stdout.readline()
    os.kill(first := watcher_of(host), signal.SIGKILL)
    wait_until(lambda: not is_alive(first), "its end")
    host.stdin.write("go\n")
    host.stdin.flush()
    host.stdout.readline()
    wait_until(lambda: with_argument(seconds), "the job")
    host.kill()
    wait_until(lambda: not with_argument(seconds) and not of_host(host.pid), "the end of all")


def test_the_only_session_restarted_keeps_its_watcher(started: list[subprocess.Popen[str]]) -> None:
    """A new one takes as long to start as bash."""
    steps = ("restart", "close")
    host = start(started, HOST + "".join(f"input(); session.{step}(); print(flush=True)\n" for step in steps), "true")
    assert host.stdin
    assert host.stdout
    host.stdout.readline()
    watcher = watcher_of(host)
    for remain in (True, False):
        host.stdin.write("go\n")
        host.stdin.flush()
        host.stdout.readline()
        assert is_alive(watcher) == remain


def test_who_kills_all_that_is_called_bash_spares_the_watcher(started: list[subprocess.Popen[str]]) -> None:
    """`pkill bash`, `killall bash`: an agent that wants its own servers ended says so."""
    seconds = unique_seconds()
    host = start(started, HOST + "input()\n", f"setsid sleep {seconds} &")
    assert host.stdout
    host.stdout.readline()
    watcher = watcher_of(host)
    name = wait_until(lambda: Path(f"/proc/{watcher}/comm").read_text(encoding="utf-8") != "bash\n", "another name")
    assert name
    os.kill(watcher, signal.SIGTERM)
    wait_until(lambda: naps(watcher) > 2, "its next looks")
    assert is_alive(watcher)
    wait_until(lambda: with_argument(seconds), "the job")
    host.kill()
    wait_until(lambda: not with_argument(seconds) and not of_host(host.pid), "the end of all")


def test_a_host_whose_name_holds_a_newline_is_not_taken_for_dead(tmp_path: Path) -> None:
    """The watcher's pipe is at its end from the first, so that it looks at the host and at nothing else."""
    program = "import ctypes, sys; ctypes.CDLL(None).prctl(15, b'two\\nlines'); print(flush=True); sys.stdin.read()"
    script = Path(runtime.__file__).with_name("watcher.bash")
    (place := tmp_path / "home" / "host").mkdir(parents=True)
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe) as host:
        assert host.stdout
        host.stdout.readline()
        told = (host.pid, proc.start_time(host.pid), 1, 0, place)
        with subprocess.Popen(["bash", str(script), *map(str, told)], stdin=subprocess.DEVNULL) as watcher:
            wait_until(lambda: watcher.poll() is not None or naps(watcher.pid) > 30, "many looks")
            assert watcher.poll() is None
            host.kill()
            host.wait(PATIENCE)
            assert watcher.wait(PATIENCE) is not None
    assert not place.exists()


def test_a_host_that_replaces_itself_is_at_its_end(started: list[subprocess.Popen[str]]) -> None:
    """Same number, same start: what it had is out of its reach, and of nobody else's."""
    seconds = unique_seconds()
    another = "import sys; print(flush=True); sys.stdin.read()"
    program = f"{HOST}import os; input(); os.execv(sys.executable, [sys.executable, '-c', '{another}'])"
    host = start(started, program, f"setsid sleep {seconds} &")
    assert host.stdout
    assert host.stdin
    host.stdout.readline()
    wait_until(lambda: with_argument(seconds), "the job")
    host.stdin.write("go\n")
    host.stdin.flush()
    host.stdout.readline()
    wait_until(lambda: not with_argument(seconds) and not of_host(host.pid), "the end of all")
    assert host.poll() is None


def test_a_fork_of_the_host_that_lives_on_does_not_keep_anything_alive(started: list[subprocess.Popen[str]]) -> None:
    seconds, fork = unique_seconds(), unique_seconds()
    program = (
        HOST
        + f"""
import os
if os.fork() == 0:
    os.execvp("sleep", ["sleep", "{fork}"])
sys.stdin.read()
"""
    )
    host = start(started, program, f"sleep {seconds} &")
    assert host.stdout
    host.stdout.readline()
    (forked,) = wait_until(lambda: with_argument(fork), "the fork")
    try:
        host.kill()
        host.wait(10)
        wait_until(lambda: not with_argument(seconds), "the end of the job")
        assert is_alive(forked)
    finally:
        os.kill(forked, signal.SIGKILL)


def test_leftovers_of_hosts_killed_with_their_watchers_are_swept_at_the_next_start(
    started: list[subprocess.Popen[str]],
) -> None:
    seconds = unique_seconds()
    host = start(started, HOST + "sys.stdin.read()\n", f"setsid sleep {seconds} &")
    assert host.stdout
    shell = int(host.stdout.readline())
    # Until then the end of the host's terminal would be its end, too.
    wait_until(lambda: [pid for pid in with_argument(seconds) if stat_fields(pid)[3:4] == [str(pid)]], "its session")
    (directory,) = of_host(host.pid)
    for pid in (watcher_of(host), host.pid):
        os.kill(pid, signal.SIGKILL)
    host.wait(10)
    assert with_argument(seconds)
    assert directory in runtime_directories()
    nxt = start(started, HOST, "true")
    nxt.wait(20)
    wait_until(lambda: not with_argument(seconds) and not is_alive(shell), "the end of the old shell")
    assert directory not in runtime_directories()


# Its first bash is started, and nobody watches over it yet.
_UNWATCHED = """
import os
from shellsession import Session
from shellsession.engine.kernel import proc
from shellsession.engine.bash.watcher import Guard

def killed(*_):
    print(*proc.children(os.getpid()), flush=True)
    os.kill(os.getpid(), 9)

Guard.open_slot = killed
Session(cwd="/").open()
"""


def test_what_was_started_before_the_watcher_ends_with_its_host(started: list[subprocess.Popen[str]]) -> None:
    host = start(started, _UNWATCHED)
    assert host.stdout is not None
    (bash,) = map(int, host.stdout.read().split())
    wait_until(lambda: not is_alive(bash), "the end of its bash")
