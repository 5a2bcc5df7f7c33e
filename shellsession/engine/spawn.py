"""How bash is started: its environment, and what is set between fork and exec.

Law: on failure all that was taken is given back, and the error says what to do.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import shutil
import signal
import socket
import tty
import warnings
from contextlib import ExitStack, suppress
from pathlib import Path

from ptyprocess import PtyProcess

from ..errors import InvalidRequest, LimitReached, ShellUnavailable
from ..models import Options
from . import cgroups, marks
from .guard import the_guard
from .launch import Launch, plan
from .shell import Shell

BOOTSTRAP = Path(__file__).with_name("bootstrap.bash").read_bytes()

# For programs without a person: no pagers, no colours by default, no questions.
AGENT_ENV = {
    "TERM": "dumb",
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GH_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "DEBIAN_FRONTEND": "noninteractive",
}
# They steer an interactive bash itself and would act at our lines too, or end an idle shell (TMOUT).
_DROPPED = (
    "PROMPT_COMMAND",
    "PS0",
    "PS1",
    "PS2",
    "TMOUT",
    "MAIL",
    "MAILPATH",
    "POSIXLY_CORRECT",
    "BASHOPTS",
    "SHELLOPTS",
    "HISTFILE",
)

# Descriptors that one session may need at its busiest, and what a host needs beside them.
_DESCRIPTORS = 24
_PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>
_KEYCTL_JOIN_SESSION_KEYRING = 1  # <linux/keyctl.h>; glibc has no function for it
_KEYCTL = {"x86_64": 250, "aarch64": 219}.get(os.uname().machine)
_libc = ctypes.CDLL(None, use_errno=True)


_usual: tuple[int, int] | None = None  # what the shells of a host get that has raised its own limit


def raise_descriptors() -> None:
    """Let this process open as many files as it ever may; its shells get the limit that was there before."""
    global _usual
    _usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_usual[1], _usual[1]))


def inherited() -> dict[str, str]:
    """The host's environment, also while another thread changes it (a plain copy raises KeyError then)."""
    return {name: value for name in list(os.environ) if (value := os.environ.get(name)) is not None}


def environment(options: Options) -> dict[str, str]:
    """The environment bash starts with."""
    env = dict(inherited() if options.env is None else options.env)
    if options.agent_env and options.env is None:
        env.update(AGENT_ENV)
    env.update(options.extra_env or {})
    for name, value in env.items():
        _check_variable(name, value)
    return {name: value for name, value in env.items() if name not in _DROPPED}


def _check_variable(name: object, value: object) -> None:
    # exec would raise in the forked child, where nobody could be told.
    try:
        fit = isinstance(name, str) and isinstance(value, str) and bool(name) and not {"=", "\0"} & set(name)
        fit = fit and b"\0" not in os.fsencode(str(value)) and bool(os.fsencode(str(name)))
    except UnicodeEncodeError:
        fit = False
    if not fit:
        raise InvalidRequest(
            f"the environment holds a variable that no program can get: {name!r} (names and values are str)"
        )


def spawn(options: Options) -> Shell:
    """Start bash. Raises ShellUnavailable, SandboxUnavailable, LimitReached or InvalidRequest (a bad cwd)."""
    # A host whose PATH has no bash has one all the same, in the usual places.
    bash = shutil.which(options.bash) or shutil.which(options.bash, path=os.defpath)
    if bash is None:
        raise ShellUnavailable(f"no {options.bash!r} on PATH: install bash 4.4 or newer, or pass bash=<path>")
    cwd = directory(options.cwd)
    guard = the_guard()
    try:
        with ExitStack() as undo:
            _fill_first_three(undo)
            ours, theirs = socket.socketpair()
            own_stdout, their_stdout = os.pipe()
            undo.callback(theirs.close)
            undo.callback(os.close, their_stdout)
            on_failure = undo.enter_context(ExitStack())
            on_failure.callback(ours.close)
            on_failure.callback(os.close, own_stdout)
            _check_descriptors(ours.fileno())
            seat = guard.take(bash)
            on_failure.callback(guard.give_back, seat)
            launch = plan(options, bash, cwd, seat)
            for group in launch.groups:
                on_failure.callback(cgroups.remove, group)
            process = _fork(launch, options, theirs.fileno(), their_stdout, seat.mark, cwd)
            on_failure.callback(_kill, process)
            ours.setblocking(False)
            os.set_blocking(own_stdout, False)
            shell = Shell(process, ours, own_stdout, guard, seat, cwd, options.size, launch)
            on_failure.pop_all()
            return shell
    except OSError as error:
        raise ShellUnavailable(f"bash at {bash} could not be started: {error}") from error


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
    process.closed = process.terminated = True


def directory(wanted: str | None) -> str:
    """Where bash starts. Raises InvalidRequest."""
    try:
        cwd = os.getcwd() if wanted is None else os.fspath(wanted)
    except OSError as error:
        raise InvalidRequest(f"the host's own working directory is gone ({error}): pass cwd=") from error
    if not os.path.isdir(cwd):
        raise InvalidRequest(f"cwd {cwd!r} is not a directory")
    return cwd


def _fork(launch: Launch, options: Options, control: int, own_stdout: int, mark: int, cwd: str) -> PtyProcess:
    def in_child() -> None:
        try:
            # Before bash starts: it remembers these modes, and puts them back when a child dies of a signal.
            tty.setraw(0)
            for fd, end in enumerate((control, own_stdout, control)):
                os.dup2(end, fd)
            os.close(control)
            os.close(own_stdout)
            for number in ignored:
                signal.signal(number, signal.SIG_DFL)
            signal.pthread_sigmask(signal.SIG_SETMASK, ())
            # Whatever a command leaves behind becomes bash's child, and can be found from it.
            _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            with suppress(OSError, ValueError):
                resource.setrlimit(marks.LIMIT, (mark, hard))
            if _usual is not None:
                resource.setrlimit(resource.RLIMIT_NOFILE, _usual)
            if launch.apart:
                _leave_keyring()
            os.chdir(cwd)
            cgroups.enter(launch.groups)
            os.execve(program, launch.argv, env)
        except Exception:
            raise  # ptyprocess tells the parent
        except BaseException:
            os._exit(1)  # nothing may return into a copy of the host's program

    # All that can be worked out before the fork is: after it, each page that Python touches is copied.
    hard = resource.getrlimit(marks.LIMIT)[1]
    # Python ignores SIGPIPE, and nohup SIGHUP: a child that inherits that behaves unlike one at a prompt.
    ignored = [number for number in signal.valid_signals() if signal.getsignal(number) == signal.SIG_IGN]
    program, env = launch.program, environment(options)
    columns, rows = options.size
    with warnings.catch_warnings():
        # Python 3.12 warns of a fork among threads; the child does nothing but system calls until exec.
        warnings.simplefilter("ignore", DeprecationWarning)
        return PtyProcess.spawn(
            [program],
            preexec_fn=in_child,
            dimensions=(rows, columns),
            pass_fds=(control, own_stdout),
        )


def _leave_keyring() -> None:
    """Keys of our login (Kerberos has its tickets there) go down to children, whatever namespace these are in."""
    if _KEYCTL is None or _libc.syscall(_KEYCTL, _KEYCTL_JOIN_SESSION_KEYRING, None) >= 0:
        return
    if (number := ctypes.get_errno()) not in (errno.ENOSYS, errno.EPERM):  # which a sandbox would get as well
        raise OSError(number, f"no keyring of its own ({os.strerror(number)}; see /proc/sys/kernel/keys/maxkeys)")


def _check_descriptors(newest: int) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and newest + _DESCRIPTORS > soft:
        raise LimitReached(
            f"this process may open {soft} files (RLIMIT_NOFILE) and {newest} are in use; one more comes too"
            f" close. Raise the limit (ulimit -n, or resource.setrlimit; up to {hard} is allowed), or close sessions"
        )
