"""``shellsession doctor``: what this machine offers to sessions, and what to do about what it lacks."""

from __future__ import annotations

import argparse
import os
import platform
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from . import arguments
from .arguments import escaped, show, show_json

if TYPE_CHECKING:
    from ..session import Session

EXAMPLES: Final = (
    ("shellsession doctor", "what works here, and what to do about the rest"),
    ("shellsession doctor --json", "the same for programs"),
)
_DESCRIPTION: Final = """\
Look at what this machine offers to sessions: bash, /proc, terminals, limits, sandboxes. It opens one session and ends
it again. The exit status is 1 if no session can work here."""
_OLDEST: Final = (4, 4)
_NEEDED_FILES: Final = 64  # a session has about 10 descriptors
_TERMINALS: Final = 16
_LONGEST: Final = 10.0  # seconds of one look


class Finding(NamedTuple):
    """One line of the report. ``state`` is "ok", "limited" (something does not work) or "failed" (nothing does)."""

    name: str
    state: str
    found: str
    advice: str = ""


def own_parser() -> argparse.ArgumentParser:
    own = arguments.parser("doctor", "[OPTIONS]", _DESCRIPTION, EXAMPLES)
    arguments.add_json(own, "print a JSON object for each finding")
    return own


def main(words: Sequence[str]) -> int:
    given = own_parser().parse_args(words)
    # From the ground up: what fails first explains what fails later.
    looks = (_system, _bash, _proc, _place, _terminals, _files, _ptrace, _sandbox, _branch, _groups, _session)
    signs, failed = {"ok": " ok ", "limited": " -- ", "failed": "FAIL"}, False
    for look in looks:
        one = look()
        failed = failed or one.state == "failed"
        if given.json:
            show_json(one._asdict())
        else:
            show(f"[{signs[one.state]}] {one.name:<12}{escaped(one.found)}")
            if one.advice:
                show(f"{'':19}{one.advice}")
        sys.stdout.flush()  # the next look may take seconds
    return int(failed)


def _system() -> Finding:
    found = f"{platform.system()} {platform.release()}, {platform.machine()}, Python {platform.python_version()}"
    if sys.platform == "linux":
        return Finding("system", "ok", found)
    return Finding("system", "failed", found, "sessions need Linux: use a virtual machine or a container")


def _bash() -> Finding:
    from ..engine.bash.spawn import find_bash

    if (path := find_bash("bash")) is None:
        return Finding("bash", "failed", "none on PATH", "install bash 4.4 or newer, or name one: Session(bash=PATH)")
    # -p: without BASH_ENV and functions from the environment, which may print as well.
    said = _output([path, "-p", "-c", "echo ${BASH_VERSINFO[0]} ${BASH_VERSINFO[1]} $BASH_VERSION"]).split()
    if len(said) != 3 or (int(said[0]), int(said[1])) < _OLDEST:
        return Finding("bash", "failed", f"{path} {' '.join(said[2:])}", "bash 4.4 or newer is needed")
    return Finding("bash", "ok", f"{said[2]} at {path}")


def _proc() -> Finding:
    lacks = "what commands leave behind is not found: mount /proc (in a container: do not mask it)"
    if not os.path.exists("/proc/self/stat"):
        return Finding("/proc", "limited", "not mounted", lacks)
    if not os.path.exists("/proc/1/stat"):
        return Finding("/proc", "ok", "mounted; it hides the processes of other users")
    return Finding("/proc", "ok", "mounted")


def _place() -> Finding:
    from ..daemon.protocol.endpoint import socket_path
    from ..engine.io.directories import private_home
    from ..errors import ShellSessionError

    try:
        return Finding("files", "ok", f"in {private_home()}; the daemon's socket is {socket_path()}")
    except ShellSessionError as error:
        return Finding("files", "failed", str(error))


def _terminals() -> Finding:
    try:
        os.close(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY))
    except OSError as error:
        advice = "mount devpts at /dev/pts, or raise `sysctl kernel.pty.max`"
        return Finding("terminals", "failed", f"/dev/ptmx: {error.strerror}", advice)
    used, most = _number("/proc/sys/kernel/pty/nr"), _number("/proc/sys/kernel/pty/max")
    if used is None or most is None:
        return Finding("terminals", "ok", "a new one can be opened")
    found = f"{used} of {most} in use"
    if most - used < _TERMINALS:
        return Finding("terminals", "limited", found, "each session takes two: raise `sysctl kernel.pty.max`")
    return Finding("terminals", "ok", found)


def _files() -> Finding:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    processes = resource.getrlimit(resource.RLIMIT_NPROC)[0]
    most = "no limit" if processes == resource.RLIM_INFINITY else str(processes)
    found = f"{soft} descriptors for a process (it may have {hard}); processes of this user: {most}"
    if soft < _NEEDED_FILES:
        return Finding(
            "limits", "limited", found, "each session takes about 10 descriptors: raise it, `ulimit -n 4096`"
        )
    return Finding("limits", "ok", found)


def _ptrace() -> Finding:
    scope = _number("/proc/sys/kernel/yama/ptrace_scope")
    if scope is not None and scope > 1:
        advice = "the rest of an interrupted command may run before it is stopped: `sysctl kernel.yama.ptrace_scope=1`"
        return Finding("ptrace", "limited", f"ptrace_scope is {scope}", advice)
    return Finding("ptrace", "ok", "our own children can be traced")


def _sandbox() -> Finding:
    if (path := shutil.which("bwrap")) is None:
        return Finding("sandbox", "limited", "no bwrap on PATH", "for sandbox= install the package bubblewrap")
    from ..errors import ShellSessionError
    from ..sandbox import Sandbox
    from ..session import Session

    version = _output([path, "--version"]).strip()
    try:
        with Session(cwd="/", sandbox=Sandbox(), timeout=_LONGEST) as session:
            _open(session)
    except ShellSessionError as error:
        return Finding("sandbox", "limited", f"{version}: {error}")
    return Finding("sandbox", "ok", f"{version}; a session in a sandbox works")


def _branch() -> Finding:
    from tempfile import TemporaryDirectory

    from ..errors import ShellSessionError
    from ..session import Session

    with TemporaryDirectory() as place:
        try:
            with Session(cwd=place, branch=place, timeout=_LONGEST) as session:
                _open(session)
        except ShellSessionError as error:
            return Finding("branch", "limited", str(error))
    return Finding("branch", "ok", "a session on a branch of its files works")


def _groups() -> Finding:
    from ..engine.bash.cgroups import own_groups

    held = sorted({name for group in own_groups() for name in group.controllers})
    if held:
        return Finding("cgroups", "ok", f"{', '.join(held)}: a sandbox can limit them for all its processes together")
    advice = "without them a sandbox's memory= limits each process, and processes= all of this user's"
    return Finding("cgroups", "limited", "this process cannot create any", advice)


def _session() -> Finding:
    from ..errors import ShellSessionError
    from ..session import Session

    begun = time.perf_counter()
    try:
        with Session(timeout=_LONGEST) as session:
            _open(session)
            opened = time.perf_counter() - begun
            times = sorted(_timed(lambda: session.run("true")) for _ in range(20))
    except ShellSessionError as error:
        return Finding("session", "failed", str(error))
    return Finding("session", "ok", f"open after {opened * 1e3:.0f} ms, then {times[10] * 1e6:.0f} us for `true`")


def _open(session: Session) -> None:
    """Run a first command. Raises ShellUnavailable if bash takes too long to start, and other ShellSessionErrors."""
    from ..errors import SessionClosed, ShellUnavailable

    timer = threading.Timer(_LONGEST, session.close)
    timer.start()
    try:
        session.run("true", check=True)
    except SessionClosed:
        raise ShellUnavailable(
            f"bash has not started within {_LONGEST:g} s: look at what it waits for, `ps f` shows it"
        ) from None
    finally:
        timer.cancel()


def _timed(work: Callable[[], object]) -> float:
    begun = time.perf_counter()
    work()
    return time.perf_counter() - begun


def _number(path: str) -> int | None:
    try:
        with open(path, encoding="ascii") as file:
            return int(file.read())
    except (OSError, ValueError):
        return None


def _output(command: list[str]) -> str:
    """What a program prints; "" where it cannot be run."""
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=_LONGEST).stdout
    except (OSError, subprocess.SubprocessError):
        return ""
