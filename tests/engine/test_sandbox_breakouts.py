"""Attempts of commands to escape from their sandbox, at once or at the session's next start."""

from __future__ import annotations

import encodings.ascii  # noqa: F401  # before anybody becomes another user: see ``sandboxes``
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import sandboxes
from daemons import running
from sandboxes import needs_bwrap, open_place, run_as, sandboxed
from system import PYTHON, wait_until

import shellsession
from shellsession import DaemonUnavailable, Sandbox, SandboxUnavailable, Session, connect
from shellsession.daemon.client import exchange
from shellsession.daemon.protocol.wire import PROTOCOL
from shellsession.engine.bash import cgroups

pytestmark = needs_bwrap
user, mine, ours = sandboxes.user, sandboxes.mine, sandboxes.ours


def fill(place: Path, *directories: str, **files: str) -> None:
    """Make them, for the owner of the place."""
    for name in directories:
        (place / name).mkdir()
        shutil.chown(place / name, place.stat().st_uid)
    for name, text in files.items():
        (place / name).write_text(text)


def test_what_leads_to_a_hidden_file_stays_where_it_is(user: str, mine: Path) -> None:
    """Else the next start, which an `exit` brings about, would hide another file."""
    fill(mine, "etc", "etc/deep")
    fill(mine / "etc" / "deep", key="secret")

    def scenario() -> None:
        with sandboxed(mine, hide=[mine / "etc" / "deep" / "key"]) as sh:
            for name in ("etc", "etc/deep"):
                sh.run(f"mv {name} moved && mkdir -p etc/deep && touch etc/deep/key; exit")
                result = sh.run("cat moved/key moved/deep/key etc/deep/key; rm -rf moved")
                assert result.stdout == "", name
            assert sh.run("echo x >etc/deep/new && mv etc/deep/new etc/new && cat etc/new").stdout == "x\n"

    run_as(user, scenario)


@pytest.mark.parametrize("is_there", [True, False])
def test_the_state_directory_below_a_writable_path_can_be_neither_read_nor_changed(
    user: str, mine: Path, is_there: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the logs of all agents. One that another host makes later is hidden, too."""
    place = mine / "state" / "shellsession"
    monkeypatch.setenv("XDG_STATE_HOME", str(place.parent))

    def scenario() -> None:
        if is_there:
            place.mkdir(parents=True)
        with sandboxed(mine) as sh:
            place.mkdir(parents=True, exist_ok=True)
            (place / "audit.jsonl").write_text("secret")
            assert sh.run("cat state/shellsession/audit.jsonl").stdout == ""
            sh.run("echo x >state/shellsession/audit.jsonl; rm -rf state; mv state moved; mkdir -p state/shellsession")
            assert sh.run("cat */shellsession/audit.jsonl; exit").stdout == ""
            assert sh.run("cat */shellsession/audit.jsonl").stdout == ""
        assert (place / "audit.jsonl").read_text() == "secret"

    run_as(user, scenario)


def test_what_leads_to_a_writable_directory_stays_where_it_is(user: str, mine: Path) -> None:
    fill(mine, "etc", "etc/deep")

    def scenario() -> None:
        with open_place("us") as outside:
            sandbox = Sandbox(write=[mine, mine / "etc" / "deep"])
            with Session(cwd=mine, timeout=20, sandbox=sandbox) as sh:
                sh.run(f"mv etc moved && mkdir etc && ln -s {outside} etc/deep; exit")
                sh.run(f"echo x >{outside}/new")
            assert not (outside / "new").exists()

    run_as(user, scenario)


LINKS: dict[str, Callable[[Path, Path], Sandbox]] = {
    "hidden": lambda place, outside: Sandbox(write=[place], hide=[place / "link"]),
    "written": lambda place, outside: Sandbox(write=[place, place / "link"]),
    "on the way": lambda place, outside: Sandbox(write=[place], hide=[place / "link" / "in"]),
    "behind another link": lambda place, outside: Sandbox(write=[place], hide=[outside / "back"]),
}


@pytest.mark.parametrize("make", LINKS.values(), ids=LINKS)
def test_a_link_that_can_be_changed_inside_is_refused(ours: Path, make: Callable[[Path, Path], Sandbox]) -> None:
    with open_place("us") as outside:
        (outside / "in").mkdir()
        (ours / "link").symlink_to(outside)
        (outside / "back").symlink_to(f"../{ours.name}/link/in")
        with pytest.raises(SandboxUnavailable, match=r"leads through .*/link'"):
            Session(cwd=ours, sandbox=make(ours, outside)).run("true")
        with Session(cwd=outside, sandbox=Sandbox(write=[ours / "link"])) as sh:
            assert sh.run(f"echo x >{outside}/new").exit_code == 0
        assert os.listdir(ours) == ["link"]


@contextmanager
def delegated(user: str) -> Iterator[None]:
    """This process is in a control group (of version 1, for its pids) that belongs to the user."""
    groups = [group for group in cgroups.own_groups() if "pids" in group.controllers]
    if os.getuid() != 0 or not groups:
        pytest.skip("no control group can be made here")
    before, after = Path(groups[0].directory), Path(groups[0].directory, f"delegated-{os.getpid()}")
    after.mkdir()
    try:
        for path in (after, after / "cgroup.procs") if "ordinary" in user else ():
            shutil.chown(path, sandboxes.ORDINARY)
        (after / "cgroup.procs").write_text(str(os.getpid()))
        yield
    finally:
        (before / "cgroup.procs").write_text(str(os.getpid()))
        wait_until(lambda: cgroups.remove(str(after)), "the end of what was in it")


def test_limits_cannot_be_lifted(user: str, mine: Path) -> None:
    """Whose group it is could mount it in a user namespace, and write what it likes."""
    lift = "unshare -UrmC bash -c 'mount -t cgroup -o pids none /mnt && echo 1000 >/mnt/pids.max; mkdir /mnt/sub'"

    def scenario() -> None:
        with sandboxed(mine, processes=20) as sh:
            assert sh.run(lift).exit_code != 0
            (group,) = sh.engine.live().launch.groups
            assert Path(group, "pids.max").read_text() == "22\n"
        assert not os.path.exists(group)

    with delegated(user):
        run_as(user, scenario)


def test_a_daemon_that_came_later_serves_no_sandbox(ours: Path) -> None:
    """Its socket could not be hidden at the start; what it runs, and for whom it was asked, is not confined."""
    client = f"{PYTHON} -c 'import sys; from shellsession import connect; connect(*sys.argv[1:], False)'"
    # Wherever we and Python are installed, it shall be there.
    write = [ours, Path(shellsession.__file__).parents[1], Path(sys.prefix)]
    with Session(cwd=write[1], timeout=20, sandbox=Sandbox(write=write)) as sh, Session(cwd=write[1]) as outside:
        sh.open()
        with running(ours / "daemon") as daemon:
            assert sh.run(f"[[ -S {daemon.socket} ]]").exit_code == 0
            assert outside.run(f"{client} agent {daemon.socket}").stderr == ""
            result = sh.run(f"{client} agent {daemon.socket}")
            assert "outside this container: nothing was sent" in result.stderr
            stays = "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); print(s.recv(1))"
            assert "b'{'" not in sh.run([sys.executable, "-c", stays, daemon.socket]).stdout
            assert f"refused a connection of user {os.getuid()} from a sandbox" in daemon.said


def test_processes_that_wait_for_a_result_cannot_be_opened(ours: Path) -> None:
    """Also by a client's own end of a pipe, which the same user can open outside of a sandbox."""
    reading, writing = os.pipe()
    search = f"find /proc/[0-9]*/fd -lname 'pipe:\\[{os.fstat(reading).st_ino}\\]' 2>/dev/null"
    with Session(timeout=20) as outside, sandboxed(ours) as sh:
        assert outside.run(search).stdout != ""
        assert sh.run(search).stdout == ""
    os.close(reading)
    os.close(writing)


_LISTENS = """
import contextlib, os, socket, sys
listener = socket.socket(socket.AF_UNIX)
listener.bind("socket")
listener.listen()
first = os.getpid()
if {ends} and os.fork() > 0:  # who listens has ended then: so says the kernel to who comes
    os._exit(0)
while {ends} and os.getppid() == first:
    pass
open("ready", "w").close()
while True:
    with contextlib.suppress(OSError), listener.accept()[0] as client, open("heard", "ab") as heard:
        client.sendall(b'{{"protocol":{protocol},"version":"1","incarnation":"a","connection":1,"pid":1,"key":""}}\\n')
        heard.write(client.recv(1 << 20))
"""


@pytest.mark.parametrize("ends", [False, True], ids=["lives", "has ended"])
def test_no_client_says_anything_to_a_listener_in_a_sandbox(
    ours: Path, ends: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would get the environment of who asks for a session."""
    monkeypatch.setattr(exchange, "_RETRY_SECONDS", 0.0)
    (ours / "listens.py").write_text(_LISTENS.format(ends=ends, protocol=PROTOCOL))
    with sandboxed(ours) as sh:
        sh.run(f"{shlex.quote(os.path.realpath(sys.executable))} -I listens.py &")
        wait_until((ours / "ready").exists, "the listener")
        with pytest.raises(DaemonUnavailable, match="closes them at once" if ends else "runs in a sandbox"):
            connect("a", ours / "socket", False)
        wait_until((ours / "heard").exists, "its client")
        assert (ours / "heard").read_bytes() == b""


@pytest.mark.skipif(os.uname().machine != "x86_64", reason="the numbers of the system calls")
def test_the_keys_of_our_login_stay_outside() -> None:
    read = (
        "import ctypes; libc, text = ctypes.CDLL(None), ctypes.create_string_buffer(9)\n"
        'libc.syscall(250, 11, libc.syscall(250, 10, -3, b"user", b"ours", 0), text, 9); print(text.value)'
    )
    program = (
        "import ctypes, sys; from shellsession import *\n"
        "libc = ctypes.CDLL(None)\n"
        "if libc.syscall(250, 1, None) < 0 or libc.syscall(248, b'user', b'ours', b'secret', 6, -3) < 0:\n"
        "    sys.exit('no keys')\n"
        "for options in {}, {'sandbox': Sandbox()}:\n"
        "    with Session(cwd='/', **options) as sh: print(sh.run(sys.argv[1]).stdout)"
    )
    inside = shlex.join([os.path.realpath(sys.executable), "-I", "-c", read])
    done = subprocess.run([sys.executable, "-c", program, inside], check=False, capture_output=True, text=True)
    if "no keys" in done.stderr:
        pytest.skip("the kernel keeps no keys for us")
    assert done.stdout.split() == ["b'secret'", "b''"], done.stderr


def test_hosts_with_another_runtime_directory_are_not_to_be_seen(user: str, mine: Path) -> None:
    """The files from which their bash reads what it runs could be written."""
    fill(mine, "theirs", "ours")

    def scenario() -> None:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("TMPDIR", str(mine / "theirs"))
            theirs = mine / "theirs" / f"shellsession-{os.getuid()}"
            theirs.mkdir(0o700)
            (theirs / "text").write_text("secret")
            patch.setenv("XDG_RUNTIME_DIR", str(mine / "ours"))
            with sandboxed(mine) as sh:
                assert sh.run(f"ls -A {theirs}; echo x >{theirs}/new").stdout == ""
            assert os.listdir(theirs) == ["text"]

    run_as(user, scenario)
