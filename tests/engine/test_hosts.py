"""A host process that ends, in any way, leaves nothing after two seconds."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import hosts
import pytest
from escapes import ESCAPES, all_escapes, of_host
from hosts import HOST, start
from system import PYTHON, SOAK, is_alive, unique_seconds, wait_until, with_argument

import shellsession

home, started = hosts.home, hosts.started
# A signal between Python's last look for one and a read(2) without end would not be heard.
WAITS = "import time\nwhile True: time.sleep(0.1)"
# How often the watcher has to find a process that lives for a few milliseconds.
ROUNDS = 200 if SOAK else 5
# What the host does once its session has started what shall not outlive it.
ENDS = {
    "normal end": ("", None),
    "an error": ("raise SystemExit('oops')", None),
    "a traceback": ("1 / 0", None),
    "os._exit": ("import os; os._exit(0)", None),
    "SIGTERM": (WAITS, signal.SIGTERM),
    "SIGKILL": (WAITS, signal.SIGKILL),
    "SIGHUP": (WAITS, signal.SIGHUP),
    "Ctrl-C": (WAITS, signal.SIGINT),
    "SIGKILL in the middle of a command": ("session.run('sleep 1000', timeout=None)", signal.SIGKILL),
    "SIGTERM in the middle of a command": ("session.run('sleep 1000', timeout=None)", signal.SIGTERM),
    "SIGSEGV": (WAITS, signal.SIGSEGV),
    # The watcher hears its pipe close, and has a while to be mistaken about that.
    "SIGKILL a while after closing all descriptors": (
        "import os, select; os.closerange(3, 100); select.select([], [], [], 0.2); os.kill(os.getpid(), 9)",
        None,
    ),
}


@pytest.mark.parametrize(("end", "number"), ENDS.values(), ids=ENDS)
def test_nothing_outlives_the_host(
    started: list[subprocess.Popen[str]], end: str, number: signal.Signals | None
) -> None:
    seconds = unique_seconds()
    patient = f"input()\n{end}"  # waits for our word, so that we see all of it alive first
    host = start(started, HOST + patient, all_escapes(seconds))
    assert host.stdout
    assert host.stdin
    shell = int(host.stdout.readline())
    wait_until(lambda: len(with_argument(seconds)) == len(ESCAPES), "all who get away")
    assert of_host(host.pid)
    host.stdin.write("go\n")
    host.stdin.flush()
    if "session.run" in end:
        wait_until(lambda: with_argument("1000"), "the command")
    if number is not None:
        host.send_signal(number)
    host.wait(20)
    wait_until(lambda: not with_argument(seconds) and not is_alive(shell), "the end of all")
    wait_until(lambda: not of_host(host.pid), "the end of the files")


def test_after_a_normal_end_nothing_is_left_at_once(started: list[subprocess.Popen[str]]) -> None:
    seconds = unique_seconds()
    host = start(started, HOST, all_escapes(seconds))
    host.wait(20)
    assert with_argument(seconds) == []
    assert of_host(host.pid) == set()


def test_an_asyncio_host_leaves_nothing_either(started: list[subprocess.Popen[str]]) -> None:
    seconds = unique_seconds()
    program = """
import asyncio, sys
from shellsession import AsyncSession
async def main():
    global session
    session = AsyncSession(cwd="/")
    await session.run(sys.argv[1])
asyncio.run(main())
"""
    host = start(started, program, all_escapes(seconds))
    assert host.wait(20) == 0
    assert with_argument(seconds) == []
    assert of_host(host.pid) == set()


def test_a_session_inside_a_session(started: list[subprocess.Popen[str]]) -> None:
    outer, inner = unique_seconds(), unique_seconds()
    program = f"""
from shellsession import Session
with Session(cwd="/") as session:
    print(session.run("sleep {inner} & echo inside $((6 * 7))").stdout, end="")
"""
    with shellsession.Session(timeout=20) as session:
        session.run(f"sleep {outer} &")
        result = session.run(f"{PYTHON} -", stdin=program)
        assert (result.stdout, result.stderr, result.exit_code) == ("inside 42\n", "", 0)
        assert with_argument(inner) == []
        assert len(with_argument(outer)) == 1


def test_a_session_inside_a_session_ends_with_the_outer_one() -> None:
    inner = unique_seconds()
    program = f"from shellsession import Session\ns = Session(cwd='/')\ns.run('setsid sleep {inner} &')\ninput()\n"
    with shellsession.Session(timeout=20) as session:
        session.run(f"{PYTHON} -c '{program.replace(chr(39), chr(34))}'", stdin=shellsession.TTY, timeout=20)
        wait_until(lambda: with_argument(inner), "the inner job")
    wait_until(lambda: not with_argument(inner), "the end of the inner job")


# Each process lives for 5 ms, then forks and ends. It notes how long it has run, and gives up long after the test has.
CHAIN = """
import os, sys, time
os.setsid()
end = time.time() + 100
while time.time() < end:
    if os.fork():
        os._exit(0)
    os.utime(sys.argv[1])
    time.sleep(0.005)
"""


def test_a_chain_of_forks_ends_with_the_killed_host(started: list[subprocess.Popen[str]], tmp_path: Path) -> None:
    alive, program = tmp_path / "alive", tmp_path / "chain.py"
    has_moved = partial(changes, alive)
    program.write_text(CHAIN)
    for _ in range(ROUNDS):
        alive.touch()
        command = f"{shlex.join([sys.executable, str(program), str(alive)])} >/dev/null 2>&1 &"
        host = start(started, f"{HOST}session.run({command!r})\nprint('begun', flush=True)\n{WAITS}", "")
        assert host.stdout
        while "begun" not in host.stdout.readline():
            assert host.poll() is None
        wait_until(has_moved, "the chain")
        host.kill()
        host.wait()
        wait_until(lambda: not has_moved(), "the end of the chain")


def changes(file: Path) -> bool:
    """True if the chain of forks still touches its file."""
    before = file.stat().st_mtime_ns
    time.sleep(0.5)
    return file.stat().st_mtime_ns != before


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become an ordinary user; an ordinary user is one already")
def test_it_works_for_an_ordinary_user(tmp_path_factory: pytest.TempPathFactory) -> None:
    """In a copy of the package that nobody (65534) may read, with what nobody has: no XDG_RUNTIME_DIR, no home."""
    seconds = unique_seconds()
    program = f"""
import os, sys
from shellsession import Session, TTY
assert os.getuid() == 65534
with Session(timeout=20) as session:
    assert session.run("id -u; cd /; X=1").stdout == "65534\\n"
    assert session.run("echo $X; (exit 3)").stdout == "1\\n"
    assert session.run("sleep 1000", timeout=0.2).state_kept
    heeds = "sh -c 'trap \\"exit 0\\" INT; sleep 1000 & wait'"
    assert session.run(heeds + "; echo went on", timeout=0.2).stdout == ""
    session.run("setsid sleep {seconds} & (env -i setsid sleep {seconds} &)")
    assert session.run("read x; echo got $x", stdin=TTY).outcome == "input"
    assert session.send("hello\\n").stdout == "got hello\\n"
    assert session.run("kill -9 $$").exit_code == 137
    assert session.run("echo fresh", tty=False).stdout == "fresh\\n"
print("all well")
"""
    with tempfile.TemporaryDirectory(dir="/tmp", prefix="ordinary-") as place:
        import ptyprocess

        libraries = [Path(shellsession.__file__).parent, Path(ptyprocess.__file__).parent]
        import pexpect

        libraries.append(Path(pexpect.__file__).parent)
        for library in libraries:
            subprocess.run(["cp", "-rL", str(library), place], check=True)
        subprocess.run(["chmod", "-R", "a+rX", place], check=True)
        interpreter = next((path for path in ("/usr/bin/python3", sys.executable) if usable(path)), None)
        if interpreter is None:
            pytest.skip("no Python 3.11 here that an ordinary user may run")
        done = subprocess.run(
            [
                interpreter,
                "-I",
                "-c",
                f"import sys; sys.path.insert(0, {place!r}); sys.dont_write_bytecode = True\n{program}",
            ],
            user=65534,
            group=65534,
            extra_groups=[],
            cwd="/",
            env={"PATH": os.defpath},
            capture_output=True,
            text=True,
            timeout=50,
            check=False,
        )
    assert (done.stdout, done.stderr) == ("all well\n", "")
    assert with_argument(seconds) == []


def usable(interpreter: str) -> bool:
    """May an ordinary user run it, and is it new enough?"""
    question = "import sys; sys.exit(sys.version_info < (3, 11))"
    try:
        return (
            subprocess.run(
                [interpreter, "-I", "-c", question], user=65534, group=65534, cwd="/", check=False
            ).returncode
            == 0
        )
    except OSError:
        return False
