"""Hosts whose descriptors bash cannot open through /proc: commands run through named pipes."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import ordinary
import pytest
from system import PATIENCE, command_line, naps, wait_until

from shellsession.engine.bash import watcher as runtime
from shellsession.engine.kernel import proc

# All modules are there before the host changes: its Python may be where only root looks.
_PROGRAM = """
import ctypes, os, sys
import time
import pexpect, shellsession.engine.verbs.expect, shellsession.session
from shellsession import TTY, Session

{before}
with Session(cwd="/", timeout=20) as sh:
    {after}
    for _ in range(2):  # the second one uses the streams of the first again
        r = sh.run("echo hi; echo oops >&2; exec >/dev/null")
        assert (r.stdout, r.stderr, r.exit_code, r.outcome) == ("hi\\n", "oops\\n", 0, "exited"), r
    sh.run("{{ read -t 20 <> {fifo}; echo late; }} & exec 7>&2")
    r = sh.run("echo saved >&7; echo >{fifo}; wait; echo now", tty=False)
    assert (r.stdout, r.stderr) == ("now\\n", ""), r
    end = time.monotonic() + 20  # another thread reads for it
    while (sh.jobs()[0].stdout, sh.jobs()[0].stderr) != ("late\\n", "saved\\n"):
        assert time.monotonic() < end, sh.jobs()
        time.sleep(0.01)
    assert len(sh.run("cat", stdin="x" * 300_000, tty=False).stdout) == 300_000
    assert sh.run("exit 3").exit_code == 3
    assert sh.run("echo again", tty=False).stdout == "again\\n"
print("all is well")
"""
_NEW_USER = "os.setgroups([]); os.setgid(54321); os.setuid(54321)"
_SHUT_OFF = "ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE: /proc/self belongs to root now"


def run(before: str, after: str, directory: Path, *wrapper: str) -> None:
    directory.chmod(0o777)
    program = _PROGRAM.format(before=before, after=after or "pass", fifo=directory / "fifo")
    runtime = directory / "a 'quoted' place"
    runtime.mkdir()
    runtime.chmod(0o777)
    os.mkfifo(directory / "fifo")
    (directory / "fifo").chmod(0o666)
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(runtime)}
    argv = [*wrapper, sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=50)
    assert (done.stdout, done.stderr) == ("all is well\n", "")
    wait_until(lambda: not list(runtime.iterdir()), "the guard sweeps behind a host that has ended")


@pytest.fixture
def directory() -> Iterator[Path]:
    """A directory outside pytest's own, which every start of a pytest closes to other users."""
    with ordinary.home() as place:
        yield place


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_a_host_that_became_another_user(directory: Path) -> None:
    run(_NEW_USER, "", directory)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_a_host_that_shut_itself_off_before_its_session(directory: Path) -> None:
    run(f"{_NEW_USER}\n{_SHUT_OFF}", "", directory)


@pytest.mark.skipif(os.getuid() != 0, reason="to be an ordinary user first, which bash is with it, takes root here")
def test_a_host_that_shut_itself_off_under_its_session(directory: Path) -> None:
    visible = f"{_NEW_USER}; ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)"
    run(visible, f'assert sh.run("echo before").stdout == "before\\n"; {_SHUT_OFF}', directory)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_a_host_that_became_another_user_under_its_session_can_close_it(tmp_path: Path) -> None:
    """It may no longer kill what it has started: all of that sees its end."""
    tmp_path.chmod(0o777)
    program = f"import os; from shellsession import Session; sh = Session(cwd='/').open(); {_NEW_USER}; sh.close()"
    with subprocess.Popen(
        [sys.executable, "-c", program], env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    ) as host:
        try:
            assert host.wait(PATIENCE) == 0
        finally:
            host.kill()
    left = tmp_path / "shellsession-0"
    wait_until(lambda: not left.exists(), "the watcher sweeps behind it")


@pytest.mark.skipif(os.getuid() != 0, reason="root reads what its umask took from it")
@pytest.mark.parametrize("umask", ["0o777", "0o277"])
def test_a_host_whose_umask_takes_its_own_rights(directory: Path, umask: str) -> None:
    run(f"{_NEW_USER}; os.umask({umask})", "", directory)


_LOOKS_FOR_HIDDEN = f"""
import os, sys, warnings  # execvp loads it, and the new user may not
from shellsession.engine.kernel import proc

pid, start = map(int, sys.argv[2:4])
{_NEW_USER}
assert not proc.start_time(pid)  # it is hidden
assert not proc.is_gone(pid, start)
os.execvp("bash", ["bash", *sys.argv[1:]])
"""


@pytest.mark.skipif(os.getuid() != 0, reason="mounting takes root")
def test_a_host_that_proc_hides_is_not_taken_for_dead(directory: Path) -> None:
    """By its watcher, or by another host of the same user, which sweeps behind those that have ended (hidepid)."""
    hiding = ("unshare", "-m", "sh", "-c", 'mount -t proc -o hidepid=2 proc /proc && exec "$@"', "sh")
    if subprocess.run([*hiding, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no /proc that hides processes can be had here")
    (place := directory / "home" / "host").mkdir(parents=True)
    for path in (place.parent, place):
        os.chown(path, 54321, 54321)
    script = ordinary.copied(directory) / "engine/bash/watcher.bash"
    program = f"import os, sys; {_NEW_USER}; print(flush=True); sys.stdin.read()"
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", program], stdin=pipe, stdout=pipe) as host:
        assert host.stdout
        host.stdout.readline()
        told = (script, host.pid, proc.start_time(host.pid), 1, 0, place)
        argv = [*hiding, sys.executable, "-c", _LOOKS_FOR_HIDDEN, *map(str, told)]
        with subprocess.Popen(argv, stdin=subprocess.DEVNULL) as watcher:
            wait_until(lambda: watcher.poll() is not None or naps(watcher.pid) > 30, "many looks")
            assert watcher.poll() is None
            host.kill()
            host.wait(PATIENCE)
            assert watcher.wait(PATIENCE) is not None
    assert not place.exists()


@pytest.fixture
def without_proc() -> tuple[str, ...]:
    """Runs what follows where /proc is empty."""
    probe = subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", "/proc"], check=False, capture_output=True)
    if probe.returncode != 0:
        pytest.skip("no mount namespaces here")
    return "unshare", "-m", "sh", "-c", 'mount -t tmpfs none /proc && exec "$@"', "sh"


@pytest.mark.skipif(os.getuid() != 0, reason="mounting takes root")
def test_a_host_without_proc(without_proc: tuple[str, ...], tmp_path: Path) -> None:
    # Jobs and escapees are not found without /proc; the streams' promises hold.
    run("", "", tmp_path, *without_proc)


_TIME_LIMITS = """
from shellsession import Session

with Session(cwd="/", timeout=20) as sh:
    sh.run("v=7; sleep 100 & job=$!")
    for text in ("sleep 100", "sleep 100 | cat", "(sleep 100; echo in)", "while sleep 0.01; do :; done"):
        r = sh.run(text + "; echo on", timeout=0.2)
        assert (r.outcome, r.stdout, r.state_kept) == ("timed_out", "", True), r
    assert sh.run("kill -0 $job && echo $v").stdout == "7\\n"
print("all is well")
"""


@pytest.mark.skipif(os.getuid() != 0, reason="mounting takes root")
def test_without_proc_a_time_limit_ends_the_command_and_keeps_the_shell(without_proc: tuple[str, ...]) -> None:
    argv = [*without_proc, sys.executable, "-W", "ignore", "-c", _TIME_LIMITS]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=50)
    assert (done.stdout, done.stderr) == ("all is well\n", "")


@pytest.mark.skipif(os.getuid() != 0, reason="mounting takes root")
def test_without_proc_the_watcher_trusts_its_pipe(without_proc: tuple[str, ...], tmp_path: Path) -> None:
    """It took its living host for dead after a second."""
    script = Path(runtime.__file__).with_name("watcher.bash")
    (place := tmp_path / "home" / "host").mkdir(parents=True)
    told = (os.getpid(), proc.start_time(os.getpid()), 1, 0, place)
    argv = [*without_proc, "bash", str(script), *map(str, told)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as watcher:
        wait_until(lambda: command_line(watcher.pid).startswith(b"bash"), "its beginning")
        before = naps(watcher.pid)
        wait_until(lambda: watcher.poll() is not None or naps(watcher.pid) > before + 2, "a few looks")
        assert watcher.poll() is None
        assert place.exists()
        watcher.communicate()  # closes the pipe
    assert not place.exists()
