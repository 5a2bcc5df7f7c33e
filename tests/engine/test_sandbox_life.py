"""A sandboxed session from its start to any end; nothing of it is left."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
import sandboxes
from daemons import Daemon
from sandboxes import fork_as, needs_bwrap, run_as, sandboxed
from system import descendants, is_alive, unique_seconds, wait_until, with_argument

from shellsession import (
    TTY,
    Agents,
    AsyncSession,
    InvalidRequest,
    Limits,
    Sandbox,
    SandboxUnavailable,
    Session,
    connect,
)

pytestmark = needs_bwrap
_RELEASE: Final = tuple(int(part) for part in os.uname().release.split(".")[:2])  # the kernel's
user, mine, ours = sandboxes.user, sandboxes.mine, sandboxes.ours


def test_the_log_shows_how_commands_ended(user: str, mine: Path) -> None:
    def scenario() -> None:
        with sandboxed(mine) as sh:
            for command, code, number in (
                ("exit 3", 3, None),
                ("trap : ERR; set -e; false", 1, None),
                ("exec true", 0, None),
                ("kill -9 $$", 137, 9),
                ("exit 137", 137, None),
            ):
                result = sh.run(command)
                assert (result.outcome, result.exit_code, result.state_kept) == ("shell_exited", code, False), command
                if _RELEASE >= (6, 15) or number is None:
                    assert result.signal == number, command
                assert sh.run("echo fresh").stdout == "fresh\n"

    run_as(user, scenario)


def test_nothing_follows_what_is_cut(user: str, mine: Path) -> None:
    def scenario() -> None:
        with sandboxed(mine) as sh:
            text = "v=7; sh -c 'trap \"exit 0\" INT; sleep 100 & wait'; echo went on"
            assert sh.run(text, timeout=0.2).stdout == ""
            assert sh.run(f"({text})", timeout=0.2).stdout == ""
            assert sh.run("echo $v").stdout == "7\n"

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
            sh.run("(sleep 0.1; exit 3) >/dev/null 2>&1 &")
            job = sh.jobs()[-1]
            with pytest.raises(InvalidRequest, match="a sandbox"):
                job.release()
            assert job.wait(10)
            assert job.exit_code == 3

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

    def host() -> None:
        os.environ["XDG_RUNTIME_DIR"] = str(mine)  # what a watcher forgets, nobody else sweeps up
        sh = sandboxed(mine, memory="300M")
        sh.run(f"sleep {seconds} & (setsid env -i sleep {seconds} &)")
        (mine / "said").write_text("\n".join(sh.engine.live().launch.groups))
        (mine / "said").rename(mine / "groups")
        signal.pause()

    child = fork_as(user, host, 2)
    try:
        wait_until((mine / "groups").exists, "the host")
        wait_until(lambda: len(with_argument(seconds)) == 2, "both")
        groups = (mine / "groups").read_text().split("\n")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    wait_until(lambda: not with_argument(seconds) and not any(map(os.path.isdir, groups)), "the end of all", 2.0)


@pytest.mark.skipif(os.getuid() != 0, reason="root is who can make groups here")
def test_what_was_killed_with_its_watcher_is_swept_up(ours: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(ours))
    program = (
        "import os; from shellsession import *; from shellsession.engine.bash.watcher import the_guard\n"
        "sh = Session(cwd='/', sandbox=Sandbox(memory='300M')).open()\n"
        "print(*sh.engine.live().launch.groups, sep='|', flush=True)\n"
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
    with connect("other", daemon.socket, False, cwd=ours, sandbox=Sandbox(write=[ours, ours / "later"])) as sh:
        with pytest.raises(SandboxUnavailable, match="does not exist"):
            sh.run("echo never")
        (ours / "later").mkdir()
        assert sh.run("touch later/here").ok
        sh.close()
    with pytest.raises(InvalidRequest, match="sandbox must be a Sandbox"):
        connect("other", daemon.socket, False, sandbox=True)  # type: ignore[arg-type]  # refused for that


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
