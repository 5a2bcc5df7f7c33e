"""A sandboxed session: what it may not do fails, what it may do works, and the session lives and keeps its state."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from daemons import Daemon
from sandboxes import USERS, needs_bwrap, open_place, run_as
from support import descendants, is_alive, unique_seconds, wait_until, with_argument

from shellsession import (
    TTY,
    Agents,
    AsyncSession,
    InvalidRequest,
    Limits,
    Sandbox,
    SandboxUnavailable,
    Session,
    ShellUnavailable,
    connect,
)
from shellsession.engine import processes

pytestmark = needs_bwrap


@pytest.fixture(params=USERS)
def user(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def mine(user: str) -> Iterator[Path]:
    """A directory that the user of the test can write."""
    with open_place(user) as place:
        yield place


@pytest.fixture
def ours() -> Iterator[Path]:
    """A directory of who we are."""
    with open_place("as who we are") as place:
        yield place


def sandboxed(place: Path, **options: Any) -> Session:
    return Session(cwd=place, timeout=20, sandbox=Sandbox(write=[place], **options))


# What is tried; a file written that must not be is PLACE-outside/file. Each must fail.
FORBIDDEN = {
    "a write outside": "echo x >OUTSIDE/file",
    "a directory outside": "mkdir OUTSIDE/file",
    "a write through a link": "ln -s OUTSIDE/file link && echo x >link",
    "a read in a hidden directory": "cat hidden/secret",
    "a listing of a hidden directory": "ls -A hidden | grep .",
    "a read of a hidden file": "cat key",
    "a hidden file moved away": "mv key other",
    "a hidden file made readable": "chmod 644 key",
    "a write to a hidden directory": "echo x >hidden/new",
    "a connection": "exec 3<>/dev/tcp/127.0.0.1/PORT",
    "a read-only file system made writable": "mount -o remount,bind,rw / && echo x >OUTSIDE/file",
    "a hidden directory uncovered": "umount hidden && cat hidden/secret",
    "a hidden directory uncovered by a new root": "unshare -Urm umount hidden && cat hidden/secret",
    "a setting of the kernel": ": >/proc/sys/kernel/core_pattern",
    "a disk": "find /dev -type b | grep .",
    "a terminal of somebody else": "ls /dev/pts | grep -vx -e ptmx -e 0 -e 1",
    "the host's /tmp": "cat OUTSIDE/secret",
    "the sockets of services": "ls -A /run | grep .",
    "the files of other sessions": 'ls -A "${SEAT%/*}/.." | grep .. | grep -v -x "$(basename "${SEAT%/*}")"',
    "our own files": 'echo x >"$SEAT/new"',
    "our own streams removed": 'rm -f "$SEAT"/*',
    "a process of the host": "kill -0 HOST && [[ $(tr '\\0' ' ' </proc/HOST/cmdline) == *pytest* ]]",
    "the first process killed": "kill -9 1; kill -0 1 && [[ ! -e /proc/1/cmdline ]]",
}


@pytest.mark.parametrize("command", FORBIDDEN.values(), ids=FORBIDDEN)
def test_what_is_forbidden_fails_and_the_session_lives(user: str, mine: Path, command: str) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        tempfile.TemporaryDirectory(dir="/tmp") as outside,
        open_place(user) as elsewhere,
    ):
        (elsewhere / "secret").write_text("secret")
        (mine / "hidden").mkdir()
        for secret in (mine / "key", mine / "hidden" / "secret"):
            secret.write_text("secret")
        for path in (mine / "hidden", mine / "key"):
            shutil.chown(path, mine.stat().st_uid)
        target = "/var/tmp" if "secret" not in command else str(elsewhere)
        text = command.replace("OUTSIDE/file", f"{target}/{os.path.basename(outside)}").replace("OUTSIDE", target)
        text = text.replace("PORT", str(server.getsockname()[1])).replace("HOST", str(os.getpid()))

        def scenario() -> None:
            with sandboxed(mine, hide=[mine / "hidden", mine / "key"]) as sh:
                sh.open()
                seat = sh._engine.live().seat.directory
                sh.run(f"kept=7; SEAT='{seat}'; [[ -d $SEAT ]]", check=True)
                result = sh.run(text)
                assert result.outcome == "exited"
                assert result.exit_code != 0, result
                assert "secret" not in result.stdout
                assert sh.run("echo $kept >kept && cat kept").stdout == "7\n"

        run_as(user, scenario)
        assert (mine / "kept").read_text() == "7\n"
        assert not os.path.lexists(f"/var/tmp/{os.path.basename(outside)}")


ALLOWED = {
    "a write": ("echo x >file && cat file", "x\n"),
    "a private /tmp": ("echo x >/tmp/mine && cat /tmp/mine", "x\n"),
    "shared memory": ("echo x >/dev/shm/mine && cat /dev/shm/mine", "x\n"),
    "devices": ("echo x >/dev/null; head -c 3 /dev/zero | wc -c", "3\n"),
    "a terminal as stdout": ("[[ -t 1 ]] && tty <&1 && [[ -c /dev/pts/0 ]] && echo seen", "/dev/pts/0\nseen\n"),
    "its controlling terminal": ("tty </dev/tty", "/dev/tty\n"),
    "a terminal of its own": ("script -qec 'tty; stty size' /dev/null </dev/null | grep -c /dev/pts/", "1\n"),
    "its name": ("echo $0; sh -c 'echo $SHLVL'", "bash\n6\n"),
    "its process ids": ("echo $$; ps -o comm= -p 1", "2\nbash\n"),
    "its environment": ('echo "$BASH_ENV"; exported', "/nonexistent\nexported\n"),
    "a server of its own": ("ip -o link 2>/dev/null | grep -c LOOPBACK.*UP || grep -c lo: /proc/net/dev", "1\n"),
}


@pytest.mark.parametrize(("command", "expected"), ALLOWED.values(), ids=ALLOWED)
def test_what_is_allowed_works(
    user: str, mine: Path, command: str, expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BASH_ENV", "/nonexistent")
    monkeypatch.setenv("BASH_FUNC_exported%%", "() { echo exported; }")
    monkeypatch.setenv("SHLVL", "5")

    def scenario() -> None:
        with sandboxed(mine) as sh:
            result = sh.run(command)
            assert (result.stdout, result.exit_code) == (expected, 0), result

    run_as(user, scenario)


def test_the_same_environment_as_without(user: str, mine: Path) -> None:
    def scenario() -> None:
        with sandboxed(mine) as sh, Session(cwd=mine) as plain:
            texts = [set(one.run("env -0", tty=False).stdout.split("\0")) for one in (sh, plain)]
            assert {name for name in texts[0] ^ texts[1] if not name.startswith("_=")} == set()

    run_as(user, scenario)


def test_nothing_reads_the_users_files_at_the_start(user: str, mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (mine / "env").write_text(f"echo read >>{mine}/log")
    monkeypatch.setenv("BASH_ENV", f"{mine}/env")

    def scenario() -> None:
        with sandboxed(mine) as sh:
            assert sh.run("cat log").exit_code == 1
            assert sh.run("bash -c :; cat log").stdout == "read\n"

    run_as(user, scenario)


def test_other_sessions_are_not_to_be_seen(user: str, mine: Path) -> None:
    """Nor the daemon's socket beside them; wherever their directory is, in a place that can be written too."""

    def scenario() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("XDG_RUNTIME_DIR", str(mine))
            with Session() as other, sandboxed(mine) as sh:
                other.run("true")
                sh.run("true")
                theirs, ours = (Path(one._engine.live().seat.directory) for one in (other, sh))
                home = ours.parent.parent
                (home / "socket").touch()
                assert sh.run(f"find {home} -mindepth 1 -type d", tty=False).stdout == f"{ours.parent}\n{ours}\n"
                assert sh.run(f"echo x >{home}/new || echo x >{theirs}/new || cat {home}/socket").exit_code == 1
                (home / "socket").unlink()

    run_as(user, scenario)


def test_the_network_when_asked_for(user: str, mine: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        command = f"exec 3<>/dev/tcp/127.0.0.1/{server.getsockname()[1]} && echo connected"

        def scenario() -> None:
            with sandboxed(mine, network=True) as sh:
                assert sh.run(command).stdout == "connected\n"

        run_as(user, scenario)


def test_paths_within_paths(user: str, mine: Path) -> None:
    """The more deeply nested one wins, whatever the order."""
    for path in (mine / "a", mine / "a" / "b", mine / "a" / "b" / "c"):
        path.mkdir()
        (path / "file").write_text(path.name)
        shutil.chown(path, mine.stat().st_uid)

    def scenario() -> None:
        sandbox = Sandbox(write=[mine / "a" / "b", mine], hide=[mine / "a" / "b" / "c", mine / "a"])
        with Session(cwd=mine, sandbox=sandbox) as sh:
            assert sh.run("ls a a/b a/b/c; echo x >a/b/new", tty=False).stdout == "a:\nb\n\na/b:\nc\nfile\n\na/b/c:\n"
            assert sh.run("echo x >a/new").exit_code == 1

    run_as(user, scenario)
    assert (mine / "a" / "b" / "new").read_text() == "x\n"


# -- limits


def limited(place: Path, **limits: Any) -> Session:
    """A session with limits; where root may make no control group, that is said, and nothing is run."""
    session = sandboxed(place, **limits)
    try:
        session.open()
    except SandboxUnavailable as error:
        held = {controller for group in processes.own_groups() for controller in group.controllers}
        if held & {"pids", "memory", "cpu"} and os.getuid() == 0:
            raise
        pytest.skip(str(error))
    return session


def test_a_storm_of_forks_is_bounded(user: str, mine: Path) -> None:
    seconds = unique_seconds()

    def scenario() -> None:
        with limited(mine, processes=20) as sh:
            sh.run("kept=7")
            result = sh.run(f"for i in {{1..60}}; do sleep {seconds} & done 2>/dev/null; wait", timeout=1)
            assert result.outcome == "timed_out"
            assert 10 <= len(result.killed) <= 20
            assert with_argument(seconds) == []
            sh.run("f() { f & f & wait; }; f & f", timeout=1)
            assert len(descendants(sh.pid or 0)) <= 20
            assert sh.run("echo $kept").stdout == "7\n"

    run_as(user, scenario)


def test_what_runs_outside_does_not_count(user: str, mine: Path) -> None:
    def scenario() -> None:
        others = [subprocess.Popen(["sleep", "50"]) for _ in range(12)]
        try:
            with limited(mine, processes=10) as sh:
                assert sh.run("sleep 0.01 & sleep 0.01 & wait; echo fine").stdout == "fine\n"
        finally:
            for one in others:
                one.kill()
                one.wait()

    run_as(user, scenario)


def test_a_hog_of_memory_dies_and_the_session_lives(user: str, mine: Path) -> None:
    def scenario() -> None:
        with limited(mine, memory="128M") as sh:
            sh.run("kept=7")
            assert sh.run("head -c 400000000 /dev/zero | tail -n 1 | wc -c; echo ${PIPESTATUS[1]}").stdout[:2] == "0\n"
            assert sh.run("head -c 400000000 /dev/zero >/tmp/full").exit_code == 1
            assert sh.run("echo $kept; ls -s /tmp/full >/dev/null").stdout == "7\n"

    run_as(user, scenario)


def test_a_share_of_the_processor(ours: Path) -> None:
    if os.getuid() != 0:
        with pytest.raises(SandboxUnavailable, match="cpu"):
            sandboxed(ours, cpu=0.1).run("true")
        return
    with limited(ours, cpu=0.1) as sh:
        ran = sh.run("TIMEFORMAT='%U %S'; end=$(( ${EPOCHREALTIME/./} + 1000000 ));"
                     " time while (( ${EPOCHREALTIME/./} < end )); do :; done")  # fmt: skip
        assert sum(map(float, ran.stderr.split())) < 0.5
        groups = sh._engine.live().launch.groups
        assert any("nr_throttled 0" not in Path(group, "cpu.stat").read_text() for group in groups)


def test_limits_leave_no_groups_behind(user: str, mine: Path) -> None:
    def scenario() -> None:
        with limited(mine, memory="200M", processes=50) as sh:
            groups = list(sh._engine.live().launch.groups)
            assert all(map(os.path.isdir, groups))
            sh.run("sleep 60 & (setsid sleep 60 &)")
            sh.restart()
            assert not any(map(os.path.isdir, groups))
            groups += sh._engine.live().launch.groups
            sh.run("kill -9 $$")
            assert not any(map(os.path.isdir, groups))
            sh.open()
            groups += sh._engine.live().launch.groups
        assert not any(map(os.path.isdir, groups))

    run_as(user, scenario)


def test_root_without_groups_is_told_before_anything_runs(ours: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "own_groups", list)
    if os.getuid() == 0:
        with pytest.raises(SandboxUnavailable, match=r"processes.*does not bind root") as caught:
            sandboxed(ours, processes=20).run(f"touch {ours}/ran")
        assert caught.value.code == "sandbox_unavailable"
    with pytest.raises(SandboxUnavailable, match="cpu"):
        sandboxed(ours, cpu=1).run(f"touch {ours}/ran")
    assert not list(ours.iterdir())
    with sandboxed(ours, memory="128M") as sh:
        assert sh.run("ulimit -v").stdout == f"{128 << 10}\n"


# -- the shell's life


def test_ends_are_told_as_they_were(user: str, mine: Path) -> None:
    def scenario() -> None:
        with sandboxed(mine) as sh:
            for command, code, number in (
                ("exit 3", 3, None),
                ("set -e; false", 1, None),
                ("exec true", 0, None),
                ("kill -9 $$", 137, 9),
                ("exit 137", 137, None),
            ):
                result = sh.run(command)
                assert (result.outcome, result.exit_code, result.state_kept) == ("shell_exited", code, False), command
                if os.uname().release >= "6.15" or number is None:
                    assert result.signal == number, command
                assert sh.run("echo fresh").stdout == "fresh\n"

    run_as(user, scenario)


def test_strays_die_with_it(user: str, mine: Path) -> None:
    def scenario() -> None:
        for end in ("restart", "exit 3", "kill -9 $$", "close"):
            seconds = unique_seconds()
            with sandboxed(mine) as sh:
                result = sh.run(f"sleep {seconds} & (setsid env -i sleep {seconds} &); nohup sleep {seconds} 2>&1 &")
                assert len(result.background) == 3
                assert all(map(is_alive, result.background))
                family = descendants(os.getpid())
                if end in ("restart", "close"):
                    getattr(sh, end)()
                else:
                    sh.run(end)
                assert with_argument(seconds) == []
                if end != "restart":
                    assert not any(b"bwrap" in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in family
                                   if is_alive(pid))  # fmt: skip

    run_as(user, scenario)


def test_jobs_are_the_hosts_processes(user: str, mine: Path) -> None:
    def scenario() -> None:
        seconds = unique_seconds()
        with sandboxed(mine) as sh:
            sh.run(f"(setsid sh -c 'sleep 0.1; echo said; exec sleep {seconds}' &)")
            (job,) = sh.jobs()
            wait_until(lambda: with_argument(seconds), "the job")
            assert with_argument(seconds) == list(job.pids)
            wait_until(lambda: job.stdout == "said\n", "what it says")
            assert job.kill() == job.pids
            wait_until(lambda: not with_argument(seconds), "its end")
            assert sh.run("echo free").stdout == "free\n"

    run_as(user, scenario)


def test_a_job_is_not_taken_for_who_has_a_terminal_of_that_name_outside(ours: Path) -> None:
    """The sandbox's /dev/pts/0 is another than the host's."""
    try:
        held = [os.open("/dev/pts/0", os.O_RDWR | os.O_NOCTTY)]
    except OSError:
        held = list(os.openpty())
    if os.ttyname(held[-1]) != "/dev/pts/0":
        pytest.skip("the host's /dev/pts/0 is somebody else's")
    with subprocess.Popen(["sleep", "50"], stdin=held[-1]) as bystander, sandboxed(ours) as sh:
        sh.run("tty <&1 >name; sleep 60 >&1 &")
        assert (ours / "name").read_text() == "/dev/pts/0\n"
        assert sh.jobs()[0].kill() == sh.jobs()[0].pids
        assert bystander.poll() is None
        bystander.kill()
    for fd in held:
        os.close(fd)


def test_a_thread_that_opened_it_may_end(ours: Path) -> None:
    """Bubblewrap's own --die-with-parent would end the sandbox with it."""
    import threading

    with sandboxed(ours) as sh:
        opener = threading.Thread(target=lambda: sh.run("kept=7"))
        opener.start()
        opener.join()
        assert sh.run("sleep 0.05; echo $kept").stdout == "7\n"


def test_nothing_is_left_when_the_host_was_killed(user: str, mine: Path) -> None:
    seconds = unique_seconds()
    program = (
        "import sys; from shellsession import *\n"
        f"sh = Session(cwd='/', sandbox=Sandbox(write=[{str(mine)!r}], **eval(sys.argv[1])))\n"
        f"sh.run('sleep {seconds} & (setsid env -i sleep {seconds} &)')\n"
        "print(*sh._engine.live().launch.groups, sep='|', flush=True); input()"
    )
    limits = "dict(memory='300M', processes=50)" if os.getuid() == 0 else "{}"
    if "ordinary" in user:
        pytest.skip("needs a Python that every user may start")
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(mine)}  # what a watcher forgets, nobody else sweeps up
    with subprocess.Popen(
        [sys.executable, "-c", program, limits],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
    ) as host:
        assert host.stdout
        groups = host.stdout.readline().strip().split("|")
        wait_until(lambda: len(with_argument(seconds)) == 2, "both")
        host.kill()
    wait_until(lambda: not with_argument(seconds) and not any(map(os.path.isdir, groups)), "the end of all", 2.0)


@pytest.mark.skipif(os.getuid() != 0, reason="root is who can make groups here")
def test_what_was_killed_with_its_watcher_is_swept_up(ours: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(ours))
    program = (
        "import os; from shellsession import *; from shellsession.engine.guard import the_guard\n"
        "sh = Session(cwd='/', sandbox=Sandbox(processes=50)).open()\n"
        "print(*sh._engine.live().launch.groups, sep='|', flush=True)\n"
        "the_guard()._watcher.kill(); os.kill(os.getpid(), 9)"
    )
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)
    groups = done.stdout.strip().split("|")
    if groups == [""]:
        pytest.skip("no control groups can be made here")
    assert all(map(os.path.isdir, groups))

    def swept() -> bool:
        Session(cwd="/").open().close()
        return not any(map(os.path.isdir, groups))

    wait_until(swept, "the sweep")
    assert not list(ours.iterdir())


@pytest.mark.skipif(os.getuid() != 0, reason="an ordinary user may")
def test_root_makes_no_user_namespaces_inside(ours: Path) -> None:
    """In one of its own it could mount the control groups, whose files belong to it."""
    with sandboxed(ours) as sh:
        assert sh.run("unshare --user true").exit_code == 1


# -- errors


def test_without_bubblewrap(ours: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (ours / "bash").symlink_to(shutil.which("bash") or "/bin/bash")
    monkeypatch.setenv("PATH", str(ours))
    with pytest.raises(SandboxUnavailable, match="install the package bubblewrap") as caught:
        sandboxed(ours).run("true")
    assert isinstance(caught.value, ShellUnavailable)


def test_where_the_kernel_forbids_user_namespaces(ours: Path) -> None:
    program = (
        "from shellsession import *\n"
        "try: Session(cwd='/', sandbox=Sandbox()).run('true')\n"
        "except SandboxUnavailable as error: print(error)"
    )
    # A sandbox in which no further one can be made is such a kernel.
    outside = ["bwrap", "--unshare-user", "--cap-drop", "ALL", "--disable-userns", "--dev-bind", "/", "/", "--"]
    if subprocess.run([*outside, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this bubblewrap is too old to forbid it")
    done = subprocess.run([*outside, sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert "it said: " in done.stdout
    assert "max_user_namespaces" in done.stdout


@pytest.mark.skipif(os.getuid() != 0, reason="mounting takes root")
def test_what_the_host_mounts_later_is_not_there(ours: Path) -> None:
    """Where mounts are shared, as they are under systemd, they would appear inside, and be writable."""
    program = (
        "import subprocess; from shellsession import *\n"
        f"with Session(cwd='/', sandbox=Sandbox(write=['{ours}'])) as sh:\n"
        "    sh.open()\n"
        "    subprocess.run(['mount', '-t', 'tmpfs', 'none', '/mnt'], check=True)\n"
        "    print(sh.run('grep -c \" /mnt \" /proc/self/mountinfo; echo x >/mnt/file || echo refused').stdout)"
    )
    wrapper = ["unshare", "--mount", "--propagation", "shared"]
    done = subprocess.run([*wrapper, sys.executable, "-c", program], check=True, capture_output=True, text=True)
    assert done.stdout == "0\nrefused\n\n"


REFUSED: dict[str, Callable[[Path], Sandbox]] = {
    "a path that is not there": lambda place: Sandbox(write=[place, place / "nowhere"]),
    "a hidden path that is not there": lambda place: Sandbox(write=[place], hide=[place / "nowhere"]),
    "hidden and written": lambda place: Sandbox(write=[place], hide=[place]),
    "all hidden": lambda place: Sandbox(hide=["/"]),
    "devices": lambda place: Sandbox(write=["/dev"]),
    "processes": lambda place: Sandbox(hide=["/proc/self"]),
    "a working directory that is not there": lambda place: Sandbox(),
}


@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED)
def test_paths_that_cannot_be_meant(tmp_path: Path, make: Callable[[Path], Sandbox]) -> None:
    with open_place("us") as place:
        session = Session(cwd=place, sandbox=make(place))
        with pytest.raises(InvalidRequest, match="sandbox"):
            session.run("true")
        assert session.pid is None


# -- the other kinds of session


def test_asyncio(ours: Path) -> None:
    async def main() -> str:
        async with AsyncSession(cwd=ours, sandbox=Sandbox(write=[ours])) as sh:
            await sh.run("X=1; echo x >/etc/never")
            return (await sh.run("echo $X $$")).stdout

    assert asyncio.run(main()) == "1 2\n"


def test_agents(ours: Path) -> None:
    with Agents(cwd=ours, sandbox=Sandbox(write=[ours])) as agents:
        assert [agents.run(name, "echo $$").stdout for name in ("a", "b")] == ["2\n", "2\n"]


def test_the_daemon(ours: Path, daemon: Daemon) -> None:
    sandbox = Sandbox(write=[ours, Path(daemon.socket).parent], memory="1G")
    with connect("boxed", daemon.socket, False, cwd=ours, sandbox=sandbox) as sh:
        assert sh.run("X=1; echo x >/etc/never; echo $$").stdout == "2\n"
        assert sh.run(f"echo $X; [[ -S {daemon.socket} ]] || echo no socket").stdout == "1\nno socket\n"
        with connect("boxed", daemon.socket, False, cwd=ours, sandbox=sandbox) as again:
            assert again.run("echo $X").stdout == "1\n"
        for other in (Sandbox(), Sandbox(write=[ours])):
            with pytest.raises(InvalidRequest, match="not confined by this sandbox"):
                connect("boxed", daemon.socket, False, cwd=ours, sandbox=other).run("echo never")
        sh.close()
    with pytest.raises(InvalidRequest, match="does not exist"):
        connect("other", daemon.socket, False, cwd=ours, sandbox=Sandbox(write=[ours / "nowhere"])).run("echo never")
    with pytest.raises(InvalidRequest, match="sandbox is a Sandbox"):
        connect("other", daemon.socket, False, sandbox=True)


def test_a_dialogue_and_a_size(user: str, mine: Path) -> None:
    def scenario() -> None:
        with sandboxed(mine) as sh:
            first = sh.run("read -p 'Name? ' name; echo hello $name", stdin=TTY)
            assert first.outcome == "input"
            assert sh.send("John\n").stdout == "hello John\n"
            sh.resize(99, 33)
            assert sh.run("stty size <&1; stty size </dev/tty").stdout == "33 99\n33 99\n"
            assert sh.run("yes", limits=Limits(max_output=10, on_overflow="kill")).outcome == "overflow"
            assert sh.run("echo x; cd /; exit 4", isolated=True).exit_code == 4

    run_as(user, scenario)
