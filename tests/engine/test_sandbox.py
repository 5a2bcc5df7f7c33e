"""A sandboxed session: forbidden actions fail, allowed ones work, and the session keeps its state."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
import sandboxes
from sandboxes import needs_bwrap, on_branch, open_place, run_as, sandboxed
from system import PYTHON

from shellsession import Sandbox, SandboxUnavailable, Session, ShellUnavailable

pytestmark = needs_bwrap
user, mine, ours = sandboxes.user, sandboxes.mine, sandboxes.ours


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
    "the mode of a device, which root owns": "chmod 666 /dev/full",
    "a terminal of somebody else": "ls /dev/pts | grep -vx -e ptmx -e 0 -e 1",
    "the host's /tmp": "cat OUTSIDE/secret",
    "the sockets of services": "ls -A /run | grep .",
    "the files of other sessions": 'ls -A "${SEAT%/*}/.." | grep .. | grep -v -x "$(basename "${SEAT%/*}")"',
    "our own files": 'echo x >"$SEAT/new"',
    "our own streams removed": 'rm -f "$(readlink /proc/self/fd/2)"',
    "a process of the host": "kill -0 HOST && [[ $(tr '\\0' ' ' </proc/HOST/cmdline) == *pytest* ]]",
    "the first process killed": "kill -9 1; kill -0 1 && [[ ! -e /proc/1/cmdline ]]",
}


@pytest.mark.parametrize("branched", [False, True], ids=["plain", "on a branch"])
@pytest.mark.parametrize("command", FORBIDDEN.values(), ids=FORBIDDEN)
def test_what_is_forbidden_fails_and_the_session_lives(user: str, mine: Path, command: str, branched: bool) -> None:
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
            sandbox = Sandbox(write=[mine], hide=[mine / "hidden", mine / "key"])
            options = on_branch(mine) if branched else {}
            with Session(cwd=mine, timeout=20, sandbox=sandbox, **options) as sh:
                sh.open()
                seat = sh.engine.live().slot.directory
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
        with sandboxed(mine, pass_env=["BASH_*", "SHLVL"]) as sh:
            result = sh.run(command)
            assert (result.stdout, result.exit_code) == (expected, 0), result

    run_as(user, scenario)


def test_secrets_of_the_environment_stay_outside(user: str, mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("API_KEY", "LC_OURS", "AWS_REGION"):
        monkeypatch.setenv(name, name.lower())

    def scenario() -> None:
        said = "echo ${API_KEY-none} ${LC_OURS-none} ${AWS_REGION-none} ${MORE-none} ${HOME:+home}; (exit ${#PAGER})"
        sandbox = Sandbox(write=[mine], pass_env=["AWS_*"])
        with Session(cwd=mine, sandbox=sandbox, extra_env={"MORE": "more"}) as sh:
            result = sh.run(said)
            assert (result.stdout, result.exit_code) == ("none lc_ours aws_region more home\n", len("cat"))
        with Session(cwd=mine, sandbox=Sandbox(write=[mine]), env=dict(os.environ)) as sh:
            assert sh.run("echo $API_KEY").stdout == "api_key\n"

    run_as(user, scenario)


def test_a_missing_hidden_path_is_skipped_only_when_told_so(user: str, mine: Path) -> None:
    (mine / "there").mkdir()
    (mine / "there" / "secret").touch()

    def scenario() -> None:
        hide = [mine / "there", mine / "nowhere"]
        with sandboxed(mine, hide=hide, missing_ok=True) as sh:
            assert sh.run("ls -A there").stdout == ""
        with pytest.raises(SandboxUnavailable, match="nowhere' does not exist: make it first, or pass missing_ok=True"):
            sandboxed(mine, hide=hide).open()
        with pytest.raises(SandboxUnavailable, match="nowhere' does not exist: make it first, or leave it out"):
            Session(cwd=mine, sandbox=Sandbox(write=[mine / "nowhere"], missing_ok=True)).open()

    run_as(user, scenario)


def test_the_same_environment_as_without(user: str, mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OLDPWD", raising=False)  # bash drops one that is no directory, as what is in /tmp inside
    monkeypatch.delenv("TMPDIR", raising=False)  # and one that cannot be written is unset

    def scenario() -> None:
        with sandboxed(mine, pass_env=["*"]) as sh, Session(cwd=mine) as plain:
            texts = [set(one.run("env -0", tty=False).stdout.split("\0")) for one in (sh, plain)]
            assert {name for name in texts[0] ^ texts[1] if not name.startswith("_=")} == set()

    run_as(user, scenario)


def test_nothing_reads_the_users_files_at_the_start(user: str, mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (mine / "env").write_text(f"echo read >>{mine}/log")
    monkeypatch.setenv("BASH_ENV", f"{mine}/env")

    def scenario() -> None:
        with sandboxed(mine, pass_env=["BASH_ENV"]) as sh:
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
                theirs, ours = (Path(one.engine.live().slot.directory) for one in (other, sh))
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


def test_the_working_directory_behind_a_link(user: str, mine: Path) -> None:
    """It is told as `pwd` does, also where the link leads to what is only there inside."""

    def scenario() -> None:
        with sandboxed(mine) as sh:
            sh.run(f"mkdir -p /tmp/new/in; ln -s /tmp/new link; ln -s ../{mine.name}/link/in nested; ln -s loop loop")
            for path in (mine / "link", mine / "nested", mine / "link" / "in"):
                result = sh.run(f"cd {path} && pwd")
                assert (result.cwd, result.stdout) == (str(path), f"{path}\n")
            for lie in (mine / "loop", "/etc", "/nowhere"):
                assert sh.run(f"unset DIRSTACK; DIRSTACK={lie}").cwd == "/tmp/new/in"

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


# -- errors


def test_without_bubblewrap(ours: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (ours / "bash").symlink_to(shutil.which("bash") or "/bin/bash")
    monkeypatch.setenv("PATH", str(ours))
    with pytest.raises(SandboxUnavailable, match="install the package bubblewrap") as caught:
        sandboxed(ours).run("true")
    assert isinstance(caught.value, ShellUnavailable)


def test_with_an_old_bubblewrap(ours: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (ours / "bwrap").write_text("#!/bin/sh\necho 'bwrap: Unknown option --disable-userns' >&2; exit 1")
    (ours / "bwrap").chmod(0o755)
    monkeypatch.setenv("PATH", f"{ours}:{os.environ['PATH']}")
    with pytest.raises(SandboxUnavailable, match=r"--disable-userns; bubblewrap is too old: install 0\.8"):
        sandboxed(ours).run("true")


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


@pytest.mark.skipif(os.getuid() != 0, reason="mounting takes root")
def test_a_container_has_no_programs_and_no_setuid_in_dev() -> None:
    """Container runtimes mount /dev so, and no sandbox inside may take that back."""
    program = "from shellsession import *; print(Session(cwd='/', sandbox=Sandbox()).run('echo inside').stdout, end='')"
    mounted = f"mount -o remount,bind,nosuid,noexec /dev && exec {PYTHON} -c {shlex.quote(program)}"
    done = subprocess.run(["unshare", "--mount", "sh", "-c", mounted], check=True, capture_output=True, text=True)
    assert done.stdout == "inside\n"


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
        with pytest.raises(SandboxUnavailable, match="sandbox"):
            session.run("true")
        assert session.pid is None
