"""The environment that bash starts with.

Law: pure but for a look at the host's own.
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
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any, Final

from ptyprocess import PtyProcess

from ...errors import NO_PROCESS, InvalidRequest, LimitReached, SandboxUnavailable, ShellUnavailable
from ...options import Options, absolute
from ...sandbox import USABLE, command_line
from ..io.control import fresh_nonce
from ..io.streams import open_terminal
from ..io.threads import Steps, Wait
from ..kernel import family, readers, vfork
from ..kernel.signals import SIGNALS, changed
from ..wire import Framer, version_line
from . import confine, runtime
from .confine import _facts, _limits, _script
from .runtime import Seat, the_guard
from .shell import Launch, Shell

# For programs without a person: no pagers, no colours by default, no questions.
AGENT_ENV = {
    "PAGER": "cat",
    "GIT_PAGER": "cat",
    "GH_PAGER": "cat",
    "MANPAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    "DEBIAN_FRONTEND": "noninteractive",
    "PYTHONUNBUFFERED": "1",  # through a pipe, a program that its time limit ends would lose what it printed
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


def inherited() -> dict[str, str]:
    """The host's environment, also while another thread changes it (a plain copy raises KeyError then)."""
    return {name: value for name in list(os.environ) if (value := os.environ.get(name)) is not None}


def environment(options: Options) -> dict[str, str]:
    """The environment bash starts with."""
    env = dict(inherited() if options.env is None else options.env)
    if options.agent_env and options.env is None:
        env.update(AGENT_ENV)
        # `clear` and `tput` fail with a dumb terminal, and that ends a script under `set -e`.
        env.setdefault("TERM", "xterm-256color" if options.tty else "dumb")
    env.update(options.extra_env or {})
    return {name: value for name, value in env.items() if name not in _DROPPED}


# -i makes SIGINT unwind to the prompt with the state alive; the rest keeps the prompt from meddling with the text.
_ARGUMENTS: Final = ["--noprofile", "--norc", "--noediting", "+H", "+o", "history", "-i"]
# The first process of the PID namespace, when it ends, takes all others with it. Bubblewrap's own would stay until the
# last of them has ended, and be left to whoever reaps orphans outside. Bash itself cannot be it: it would survive
# its own `kill -9 $$`. It changes nothing in the environment (before bash 5.0 `exec` itself takes one from SHLVL in a
# subshell), reads no file (-p), and says nothing of how bash ended.
_FIRST: Final = '((SHLVL -= BASH_VERSINFO[0] > 4)); exec 3>&2 2>/dev/null; (exec -a bash "$0" "$@" 2>&3 3>&-); exit $?'


def plan(options: Options, bash: str, cwd: str, seat: Seat | None) -> Launch:
    """How to launch bash with these options; in a sandbox, with that seat. Raises InvalidRequest, SandboxUnavailable.

    Who launches it removes its control groups.
    """
    sandbox, umask = options.sandbox, b""
    if options.umask is not None:
        umask = b"\\umask %04o\n" % options.umask  # not `builtin`, which may be a function of the environment's
    if sandbox is None:
        return Launch(bash, ["bash", *_ARGUMENTS], umask)
    assert seat is not None
    rules = _filter()
    facts, command = _facts(sandbox, bash, cwd, seat), [*_script(bash, _FIRST), bash, *_ARGUMENTS]
    with ExitStack() as on_failure:
        prelude, groups = _limits(sandbox, seat, on_failure)
        argv = command_line(sandbox, facts, command, vfork.KEPT, grouped=bool(groups))
        on_failure.pop_all()
    return Launch(argv[0], argv, USABLE.encode() + b"\n" + umask + prelude, groups, apart=True, seccomp=rules)


def _filter() -> bytes:
    if (machine := os.uname().machine) not in confine.MACHINES:
        raise SandboxUnavailable(
            f"a sandbox needs a filter of system calls; shellsession has none for {machine}, only for"
            f" {' and '.join(confine.MACHINES)}: leave sandbox= out"
        )
    return confine.program(machine)


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
                on_failure.callback(runtime.remove, group)
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
            undo.callback(os.close, entrance := confine.entrance(group))
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
    yield "setrlimit", (family.LIMIT, _rlimit(tag, resource.getrlimit(family.LIMIT)[1]))
    yield vfork.FORGIVE


def _to_its_surroundings(cwd: str) -> Iterator[vfork.Call]:
    # Python ignores SIGPIPE, and nohup SIGHUP: a child that inherits that behaves unlike one at a prompt.
    for number in (readers.ignored() | changed()).intersection(SIGNALS):
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


# Before 5.1 bash has a history from the start, for all that it is told by `+o history`, and reads the user's into it.
BOOTSTRAP: Final = Path(__file__).with_name("bootstrap.bash").read_bytes()
# Bash starts in 1 to 3 ms; a minute means that the machine is on its knees, not that bash is slow.
_PATIENCE: Final = 60.0
_OLDEST: Final = 404


def handshake(shell: Shell, tty: bool, refuse_closed: Callable[[], None]) -> Steps[None]:
    """Set up the shell, with a terminal for its commands where ``tty`` says that they mostly have one.

    Raises ShellUnavailable, and what ``refuse_closed`` does when another thread has closed it.
    """
    framer = Framer(fresh_nonce())
    shell.control.send(shell.launch.prelude + BOOTSTRAP + version_line(framer.nonce))
    if not shell.launch.apart:
        shell.streams.prepare(tty)  # the first command's are made while bash starts
    until = time.monotonic() + _PATIENCE
    while framer.mark is None:
        refuse_closed()
        if not (yield Wait((shell.control.fd,), until)):
            raise ShellUnavailable(f"bash did not answer within {_PATIENCE:.0f} s")
        data = shell.control.hear(framer)
        if data == b"":
            said = framer.noise.decode("utf-8", "replace").strip()
            raise shell.launch.failed(said)
    shell.control.lines_taken(framer.mark)
    if shell.launch.apart:
        shell.find_bash()
        shell.streams.prepare(tty)
    if framer.mark.status < _OLDEST:
        major, minor = divmod(framer.mark.status, 100)
        raise ShellUnavailable(f"bash {major}.{minor} is too old, 4.4 or newer is needed: pass bash=<path> of another")
    shell.version = framer.mark.status
    shell.control.greeted(shell.version)
