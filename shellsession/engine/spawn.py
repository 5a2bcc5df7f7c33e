"""How bash is started: what its process is given before it is bash, and what is taken back when that fails.

Law: on failure all that was taken is given back, and the error says what to do.
"""

from __future__ import annotations

import errno
import os
import resource
import shutil
import signal
import socket
import struct
import termios
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from typing import Any

from ptyprocess import PtyProcess

from ..checks import absolute
from ..errors import NO_PROCESS, InvalidRequest, LimitReached, ShellUnavailable
from ..models import Options
from . import activity, cgroups, tags, vfork
from .guard import Seat, the_guard
from .launch import Launch, plan
from .shell import Shell
from .signals import SIGNALS, changed
from .streams import open_terminal

# Descriptors that one session may need at its busiest, and what a host needs beside them.
_DESCRIPTORS = 24
_PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>
_KEYCTL_GET_KEYRING_ID, _KEYCTL_JOIN_SESSION_KEYRING = 0, 1  # <linux/keyctl.h>; glibc has no function for it
_KEY_SPEC_SESSION_KEYRING = -3
_KEYCTL = {"x86_64": 250, "aarch64": 219}.get(os.uname().machine)
_NO_KEYRING = "; a keyring of its own is one too many: see /proc/sys/kernel/keys/maxkeys"
_NO_TERMINAL = "mount devpts at /dev/pts, and have its ptmx as /dev/ptmx"


_usual: tuple[int, int] | None = None  # what the shells of a host get that has raised its own limit


def raise_descriptors() -> None:
    """Let this process open as many files as it ever may; its shells get the limit that was there before."""
    global _usual
    _usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_usual[1], _usual[1]))


class _OnFailure(ExitStack):
    """What is taken back unless it is kept; never by a forked child of the host, whose parent goes on with it.

    In a host with threads a signal handler may fork in the middle of this, though signals are put off.
    """

    def __init__(self) -> None:
        super().__init__()
        self._owner = os.getpid()

    def __exit__(self, *raised: Any) -> bool | None:
        if self._owner != os.getpid():
            self.pop_all()
        return super().__exit__(*raised)


def spawn(options: Options, env: Mapping[str, str]) -> Shell:
    """Start bash. Raises ShellUnavailable, SandboxUnavailable, LimitReached or InvalidRequest (a bad cwd)."""
    # A host whose PATH has no bash has one all the same, in the usual places.
    bash = shutil.which(options.bash) or shutil.which(options.bash, path=os.defpath)
    if bash is None:
        raise ShellUnavailable(f"no {options.bash!r} on PATH: install bash 4.4 or newer, or pass bash=<path>")
    bash = absolute(bash)  # PATH may hold ".", and it is started elsewhere
    cwd = directory(options.cwd)
    guard = the_guard()
    try:
        with ExitStack() as undo:
            _fill_first_three(undo)
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            own_stdout, their_stdout = os.pipe()
            undo.callback(theirs.close)
            undo.callback(os.close, their_stdout)
            on_failure = undo.enter_context(_OnFailure())
            on_failure.callback(ours.close)
            on_failure.callback(os.close, own_stdout)
            _check_descriptors(ours.fileno())
            tag = guard.take()
            on_failure.callback(guard.leave, tag)
            # A sandbox is made around the seat; else that is made while bash starts.
            seat = None if options.sandbox is None else _furnished(tag, bash, on_failure)
            launch = plan(options, bash, cwd, seat)
            for group in launch.groups:
                on_failure.callback(cgroups.remove, group)
            process = _start(launch, options.size, env, theirs.fileno(), their_stdout, tag, cwd)
            on_failure.callback(_kill, process)
            seat = seat or _furnished(tag, bash, on_failure)
            os.set_blocking(own_stdout, False)
            shell = Shell(process, ours, own_stdout, guard, seat, cwd, options.size, launch)
            on_failure.pop_all()
            guard.children.add(process.pid)
            return shell
    except OSError as error:
        raise _refusal(bash, error) from error


def _furnished(tag: int, bash: str, on_failure: ExitStack) -> Seat:
    guard = the_guard()
    seat = guard.furnish(tag, bash)
    on_failure.callback(guard.give_back, seat)
    return seat


def _refusal(bash: str, error: OSError) -> ShellUnavailable:
    """What stands in the way of a start; mostly it is not bash."""
    if error.errno == errno.EAGAIN:  # of fork and clone, the watcher's too
        return LimitReached(NO_PROCESS)
    hint = _NO_KEYRING if error.errno == errno.EDQUOT and error.filename is None else ""
    return ShellUnavailable(f"bash at {bash} could not be started: {error}{hint}")


def _fill_first_three(undo: ExitStack) -> None:
    """A host without 0, 1 and 2 (a daemon) would have ours there, where the terminal goes in the child."""
    while (fd := os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)) <= 2:
        undo.callback(os.close, fd)
    os.close(fd)


def _kill(process: PtyProcess) -> None:
    os.kill(process.pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(process.pid, 0)
    process.fileobj.close()
    process.closed = True


def directory(wanted: str | None) -> str:
    """Where bash starts. Raises InvalidRequest."""
    try:
        cwd = os.getcwd() if wanted is None else os.fspath(wanted)
    except OSError as error:
        raise InvalidRequest(f"the host's own working directory is gone ({error}): pass cwd=") from error
    if not os.path.isdir(cwd):
        raise InvalidRequest(f"cwd {cwd!r} is not a directory")
    return cwd


def _start(
    launch: Launch,
    size: tuple[int, int],
    env: Mapping[str, str],
    control: int,
    own_stdout: int,
    tag: int,
    cwd: str,
) -> PtyProcess:
    with ExitStack() as undo:
        forgiven = _if_it_can_be(tag)  # first, as all that stands before it is forgiven
        calls = [*_to_its_streams(control, own_stdout), *_to_its_surroundings(cwd)]
        for group in launch.groups:
            undo.callback(os.close, entrance := cgroups.entrance(group))
            calls.append(("write", (entrance, b"0", 1)))
        kept = None
        if launch.apart:
            calls += _from_our_keyring()
            undo.callback(os.close, kept := _pipe_of(launch.seccomp))
        master, slave = _terminal(size)
        undo.callback(os.close, slave)
        on_failure = undo.enter_context(ExitStack())
        on_failure.callback(os.close, master)
        own_terminal: list[vfork.Call] = [("setsid", ()), ("ioctl", (slave, termios.TIOCSCTTY, 0))]
        pid = vfork.spawn([*forgiven, *own_terminal, *calls], launch.program, launch.argv, env, kept)
        on_failure.pop_all()  # from here on the terminal is the process's: twice closed, it could be a stranger's
        with _OnFailure() as on_failure:  # Ctrl-C, in a host with threads
            on_failure.callback(os.waitpid, pid, 0)
            on_failure.callback(os.kill, pid, signal.SIGKILL)
            process = PtyProcess(pid, master)
            on_failure.pop_all()
        # Signalled and reaped by us alone: all that is left to its finalizer, as in a forked child, is to close the
        # terminal. It would sleep behind that, for 0.1 s.
        process.terminated, process.delayafterclose = True, 0
        return process


def _pipe_of(text: bytes) -> int:
    """The end of a pipe that reads the text (far less than a pipe holds) and then its end."""
    reader, writer = os.pipe()
    with open(writer, "wb") as end:
        end.write(text)
    return reader


def _terminal(size: tuple[int, int]) -> tuple[int, int]:
    try:
        return open_terminal(size)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        raise ShellUnavailable(
            f"bash needs a terminal, and none can be had: {error.strerror}; {_NO_TERMINAL}"
        ) from error


def _to_its_streams(control: int, own_stdout: int) -> Iterator[vfork.Call]:
    for fd, end in enumerate((control, own_stdout, control)):
        yield "dup2", (end, fd)


def _if_it_can_be(tag: int) -> Iterator[vfork.Call]:
    """What some kernels refuse (gVisor the tag), and bash runs without."""
    # Whatever a command leaves behind becomes bash's child, and can be found from it.
    yield "prctl", (_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    yield "setrlimit", (tags.LIMIT, _rlimit(tag, resource.getrlimit(tags.LIMIT)[1]))
    yield vfork.FORGIVE


def _to_its_surroundings(cwd: str) -> Iterator[vfork.Call]:
    # Python ignores SIGPIPE, and nohup SIGHUP: a child that inherits that behaves unlike one at a prompt.
    for number in (activity.ignored() | changed()).intersection(SIGNALS):
        yield "signal", (number, signal.SIG_DFL)
    if _usual is not None:
        yield "setrlimit", (resource.RLIMIT_NOFILE, _rlimit(*_usual))
    yield "chdir", (os.fsencode(cwd),)


def _rlimit(soft: int, hard: int) -> bytes:
    return struct.pack("LL", soft % (1 << 64), hard % (1 << 64))  # infinity is -1 in some Pythons


def _from_our_keyring() -> Iterator[vfork.Call]:
    """Keys of our login (Kerberos has its tickets there) go down to children, whatever namespace these are in.

    To ask whether there are keyrings here gives this thread one, where it had none.
    """
    if _KEYCTL is None:
        return
    try:
        vfork.perform([("syscall", (_KEYCTL, _KEYCTL_GET_KEYRING_ID, _KEY_SPEC_SESSION_KEYRING, 0))])
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EPERM):  # which a sandbox would get as well
            return
    yield "syscall", (_KEYCTL, _KEYCTL_JOIN_SESSION_KEYRING, 0)


def _check_descriptors(newest: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and newest + _DESCRIPTORS > soft:
        how = f"(ulimit -n, or resource.setrlimit; up to {hard} is allowed)"
        if soft == hard:
            how = f"of who starts it (ulimit -Hn: {hard} is all that is allowed here)"
        raise LimitReached(
            f"this process may open {soft} files (RLIMIT_NOFILE) and {newest} are in use; one more comes too"
            f" close. Raise the limit {how}, or close sessions"
        )
