"""Starts bash: its environment, its command line, the new process, and the first exchange with it.

``plan`` decides how to launch bash, in a sandbox or not. ``spawn`` starts the process with a terminal, the control
socket and a slot (see ``watcher``), and returns a ``Shell``. ``handshake`` then sets up bash over the control socket,
and learns its version. If any step fails, everything before it is undone.
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
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from ptyprocess import PtyProcess

from ...errors import NO_PROCESS, LimitReached, SandboxUnavailable, ShellUnavailable
from ...options import Options, absolute
from ...sandbox import USABLE, command_line
from ..io.nonce import fresh_nonce
from ..io.streams import open_terminal
from ..io.threads import Steps, Wait
from ..kernel import activity, family, vfork
from ..kernel.signals import SIGNALS, changed
from ..wire import MarkFinder, version_line
from . import cgroups, seccomp
from .confine import bash_script, sandbox_facts, sandbox_limits
from .shell import Launch, Shell
from .watcher import Slot, the_guard

if TYPE_CHECKING:
    from ...branch.branch import Branch

# For programs that nobody watches: no pagers, no colours by default, no questions.
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
# An editor would wait for keys. ``git commit --amend`` and ``rebase --continue`` keep the message as it is. Any other
# text would be saved unchanged, too, so that ``git rebase -i`` would claim success: those editors fail.
_NO_EDITOR = "sh -c 'echo no editor opens here: write the file with a command >&2; exit 1'"
EDITORS = {"GIT_EDITOR": ":", "GIT_SEQUENCE_EDITOR": _NO_EDITOR, "EDITOR": _NO_EDITOR, "VISUAL": _NO_EDITOR}
# These control an interactive bash itself. They would also affect our own lines, or end an idle shell (TMOUT).
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
    """A copy of the host's environment. Works while another thread changes it; a plain copy may raise KeyError."""
    return {name: value for name in list(os.environ) if (value := os.environ.get(name)) is not None}


def for_agent(env: Mapping[str, str]) -> dict[str, str]:
    """An inherited environment, with what ``agent_env`` adds. The host's choice of an editor stays."""
    return {**EDITORS, **env, **AGENT_ENV}


def environment(options: Options) -> dict[str, str]:
    """The environment bash starts with."""
    env = dict(inherited() if options.env is None else options.env)
    if options.sandbox is not None and options.env is None:
        env = options.sandbox.environment(env)
    if options.agent_env and options.env is None:
        env = for_agent(env)
        # `clear` and `tput` fail with a dumb terminal, and that ends a script under `set -e`.
        env.setdefault("TERM", "xterm-256color" if options.tty else "dumb")
    env.update(options.extra_env or {})
    if options.policy is not None:
        env = options.policy.environment(env)
    return {name: value for name, value in env.items() if name not in _DROPPED}


# With -i, SIGINT returns bash to its prompt with its state intact. The rest keeps an interactive bash from changing the
# text of commands.
_ARGUMENTS: Final = ["--noprofile", "--norc", "--noediting", "+H", "+o", "history", "-i"]
# The first process of the PID namespace: when it ends, the kernel kills all others there. Bubblewrap's own would stay
# until the last of them has ended, and then be an orphan outside. Bash itself cannot be the first, as it would survive
# its own `kill -9 $$`. This script changes nothing in the environment (before bash 5.0 `exec` itself decrements SHLVL
# in a subshell), reads no file (-p), and prints nothing about how bash ended.
_FIRST: Final = '((SHLVL -= BASH_VERSINFO[0] > 4)); exec 3>&2 2>/dev/null; (exec -a bash "$0" "$@" 2>&3 3>&-); exit $?'


def plan(options: Options, bash: str, cwd: str, slot: Slot | None, branch: Branch | None) -> Launch:
    """How to launch bash with these options; a sandbox needs the slot. Raises SandboxUnavailable.

    In a sandbox this makes its control groups. The caller removes them.
    """
    sandbox, umask = options.sandbox, b""
    if options.umask is not None:
        umask = b"\\umask %04o; " % options.umask  # not `builtin`: the environment may define a function of that name
    if sandbox is None:
        return Launch(bash, ["bash", *_ARGUMENTS], umask)
    assert slot is not None
    rules = _seccomp_rules()
    base = None if branch is None else branch.base
    facts, command = sandbox_facts(sandbox, bash, cwd, slot, base), [*bash_script(bash, _FIRST), bash, *_ARGUMENTS]
    with ExitStack() as on_failure:
        prelude, groups = sandbox_limits(sandbox, slot, on_failure)
        argv = command_line(sandbox, facts, command, vfork.KEPT, grouped=bool(groups))
        on_failure.pop_all()
    return Launch(argv[0], argv, USABLE.encode() + b"; " + umask + prelude, groups, is_sandboxed=True, seccomp=rules)


def _seccomp_rules() -> bytes:
    """The seccomp filter for this machine. Raises SandboxUnavailable."""
    if (machine := os.uname().machine) not in seccomp.MACHINES:
        raise SandboxUnavailable(
            f"a sandbox needs a seccomp filter; shellsession has none for {machine}, only for"
            f" {' and '.join(seccomp.MACHINES)}: leave out sandbox="
        )
    return seccomp.program(machine)


# Descriptors that must be free: the most that one session needs, and some for the host.
_DESCRIPTORS = 24
_PR_SET_CHILD_SUBREAPER = 36  # <linux/prctl.h>
_KEYCTL_GET_KEYRING_ID, _KEYCTL_JOIN_SESSION_KEYRING = 0, 1  # <linux/keyctl.h>; glibc has no function for it
_KEY_SPEC_SESSION_KEYRING = -3
_KEYCTL = {"x86_64": 250, "aarch64": 219}.get(os.uname().machine)
_NO_KEYRING = "; a sandbox needs a keyring, and your quota of keys is used up: see /proc/sys/kernel/keys/maxkeys"
_NO_TERMINAL = "mount devpts at /dev/pts, with its ptmx as /dev/ptmx"

_shell_limit: tuple[int, int] | None = None  # RLIMIT_NOFILE for the shells of a host that has raised its own


def raise_descriptors() -> None:
    """Raise this process's limit of open files to its maximum. Its shells get the limit as it was before."""
    global _shell_limit
    _shell_limit = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_shell_limit[1], _shell_limit[1]))


class _OnFailure(ExitStack):
    """Undoes the steps so far if a later one fails, but never in a forked child, whose parent goes on with them.

    In a host with threads a signal handler may fork in the middle of this, although signals are deferred.
    """

    def __init__(self) -> None:
        super().__init__()
        self._owner = os.getpid()

    def __exit__(self, *raised: Any) -> bool | None:
        if self._owner != os.getpid():
            self.pop_all()
        return super().__exit__(*raised)


def find_bash(name: str) -> str | None:
    """The path of the bash with that name. PATH may lack its directory: look in the default places, too."""
    return shutil.which(name) or shutil.which(name, path=os.defpath)


def spawn(options: Options, env: Mapping[str, str], branch: Branch | None = None) -> Shell:
    """Start bash, on the branch if there is one, which this opens.

    Raises ShellUnavailable, SandboxUnavailable, BranchUnavailable or LimitReached.
    """
    bash = find_bash(options.bash)
    if bash is None:
        raise ShellUnavailable(f"no {options.bash!r} on PATH: install bash 4.4 or newer, or pass bash=<path>")
    bash = absolute(bash)  # PATH may contain ".", and bash starts in another directory
    cwd = first_directory(options.cwd)
    guard = the_guard()
    try:
        with ExitStack() as undo:
            _fill_first_three(undo)
            if branch is not None:
                branch.open()
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            own_stdout, their_stdout = os.pipe()
            undo.callback(theirs.close)
            undo.callback(os.close, their_stdout)
            on_failure = undo.enter_context(_OnFailure())
            on_failure.callback(ours.close)
            on_failure.callback(os.close, own_stdout)
            _check_descriptors(ours.fileno())
            tag = guard.reserve()
            on_failure.callback(guard.free, tag)
            # A sandbox needs the slot before it starts. Otherwise the slot is made while bash starts.
            slot = None if options.sandbox is None else _open_slot(tag, bash, on_failure)
            launch = plan(options, bash, cwd, slot, branch)
            for group in launch.groups:
                on_failure.callback(cgroups.remove, group)
            entering = () if branch is None else branch.entering(launch.is_sandboxed)
            process = _start(launch, options.size, env, theirs.fileno(), their_stdout, tag, cwd, entering)
            on_failure.callback(_kill, process)
            slot = slot or _open_slot(tag, bash, on_failure)
            os.set_blocking(own_stdout, False)
            shell = Shell(process, ours, own_stdout, guard, slot, cwd, options.size, launch, branch is not None)
            on_failure.pop_all()
            guard.children.add(process.pid)
            return shell
    except OSError as error:
        raise _start_error(bash, error) from error


def _open_slot(tag: int, bash: str, on_failure: ExitStack) -> Slot:
    guard = the_guard()
    slot = guard.open_slot(tag, bash)
    on_failure.callback(guard.close_slot, slot)
    return slot


def _start_error(bash: str, error: OSError) -> ShellUnavailable:
    """The error for a failed start. The cause is mostly not bash."""
    if error.errno == errno.EAGAIN:  # from fork or clone, also of the watcher
        return LimitReached(NO_PROCESS)
    hint = _NO_KEYRING if error.errno == errno.EDQUOT and error.filename is None else ""
    return ShellUnavailable(f"bash at {bash} could not be started: {error}{hint}")


def _fill_first_three(undo: ExitStack) -> None:
    """Open 0, 1 and 2 where the host has none: ours must have other numbers, as the child replaces these three."""
    while (fd := os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)) <= 2:
        undo.callback(os.close, fd)
    os.close(fd)


def _kill(process: PtyProcess) -> None:
    os.kill(process.pid, signal.SIGKILL)
    with suppress(ChildProcessError):
        os.waitpid(process.pid, 0)
    process.fileobj.close()
    process.closed = True


def first_directory(wanted: str | None) -> str:
    """The directory in which bash starts. Raises ShellUnavailable."""
    try:
        cwd = os.getcwd() if wanted is None else os.fspath(wanted)
    except OSError as error:
        raise ShellUnavailable(f"the host's own working directory is gone ({error}): pass cwd=") from error
    if not os.path.isdir(cwd):
        raise ShellUnavailable(f"cwd {cwd!r} is not a directory: make it again, or open a session with another cwd=")
    return cwd


def _start(
    launch: Launch,
    size: tuple[int, int],
    env: Mapping[str, str],
    control: int,
    own_stdout: int,
    tag: int,
    cwd: str,
    entering: Iterable[vfork.SystemCall],
) -> PtyProcess:
    """Start the process, with a new terminal and the calls that set up its streams and surroundings."""
    with ExitStack() as undo:
        optional = _optional_calls(tag)  # run first: they end with FORGIVE, which forgives all failures before it
        calls = [*entering, *_stream_calls(control, own_stdout), *_state_calls(cwd)]
        for group in launch.groups:
            undo.callback(os.close, entrance := cgroups.entrance(group))
            calls.append(("write", (entrance, b"0", 1)))
        kept = None
        if launch.is_sandboxed:
            calls += _keyring_calls()
            undo.callback(os.close, kept := _pipe_of(launch.seccomp))
        master, slave = _terminal(size)
        undo.callback(os.close, slave)
        on_failure = undo.enter_context(ExitStack())
        on_failure.callback(os.close, master)
        own_terminal: list[vfork.SystemCall] = [("setsid", ()), ("ioctl", (slave, termios.TIOCSCTTY, 0))]
        pid = vfork.spawn([*optional, *own_terminal, *calls], launch.program, launch.argv, env, kept)
        on_failure.pop_all()  # from here on PtyProcess closes the terminal: closed twice, it could be another file
        with _OnFailure() as on_failure:  # Ctrl-C is still possible, in a host with threads
            on_failure.callback(os.waitpid, pid, 0)
            on_failure.callback(os.kill, pid, signal.SIGKILL)
            process = PtyProcess(pid, master)
            on_failure.pop_all()
        # Only our code signals and reaps the process. The finalizer of PtyProcess, also in a forked child, shall only
        # close the terminal, and not sleep 0.1 s afterwards.
        process.terminated, process.delayafterclose = True, 0
        return process


def _pipe_of(text: bytes) -> int:
    """The reading end of a pipe that contains the text, and then ends. The text must fit into a pipe."""
    reader, writer = os.pipe()
    with open(writer, "wb") as end:
        end.write(text)
    return reader


def _terminal(size: tuple[int, int]) -> tuple[int, int]:
    """A new terminal: master and slave. Raises ShellUnavailable, and OSError without a free descriptor."""
    try:
        return open_terminal(size)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise
        raise ShellUnavailable(
            f"bash needs a terminal, and none could be opened: {error.strerror}; {_NO_TERMINAL}"
        ) from error


def _stream_calls(control: int, own_stdout: int) -> Iterator[vfork.SystemCall]:
    for fd, end in enumerate((control, own_stdout, control)):
        yield "dup2", (end, fd)


def _optional_calls(tag: int) -> Iterator[vfork.SystemCall]:
    """Calls that some kernels refuse (gVisor refuses the tag). Bash runs without them."""
    # Bash adopts the processes that a command leaves behind, so they can be found from it.
    yield "prctl", (_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    yield "setrlimit", (family.LIMIT, _rlimit(tag, resource.getrlimit(family.LIMIT)[1]))
    yield vfork.FORGIVE


def _state_calls(cwd: str) -> Iterator[vfork.SystemCall]:
    """Calls that set signals, the limit of open files, and the working directory."""
    # Python ignores SIGPIPE, and nohup SIGHUP. A child that inherits this behaves differently from one at a prompt.
    for number in (activity.ignored() | changed()).intersection(SIGNALS):
        yield "signal", (number, signal.SIG_DFL)
    if _shell_limit is not None:
        yield "setrlimit", (resource.RLIMIT_NOFILE, _rlimit(*_shell_limit))
    yield "chdir", (os.fsencode(cwd),)


def _rlimit(soft: int, hard: int) -> bytes:
    """A struct rlimit."""
    return struct.pack("LL", soft % (1 << 64), hard % (1 << 64))  # infinity is -1 in some versions of Python


def _keyring_calls() -> Iterator[vfork.SystemCall]:
    """Calls that give the child its own keyring.

    Children inherit the keys of our login (Kerberos keeps its tickets there) in any namespace. Checking whether this
    kernel has keyrings gives this thread one, if it had none.
    """
    if _KEYCTL is None:
        return
    try:
        vfork.perform([("syscall", (_KEYCTL, _KEYCTL_GET_KEYRING_ID, _KEY_SPEC_SESSION_KEYRING, 0))])
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EPERM):  # no keyrings here, and none in the sandbox either
            return
    yield "syscall", (_KEYCTL, _KEYCTL_JOIN_SESSION_KEYRING, 0)


def _check_descriptors(newest: int) -> None:
    """Raise LimitReached if too few descriptors are left for a session. ``newest`` was opened last."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and newest + _DESCRIPTORS > soft:
        how = f"(ulimit -n, or resource.setrlimit; up to {hard} is allowed)"
        if soft == hard:
            how = f"of the program that starts it (ulimit -Hn: no more than {hard} is allowed here)"
        raise LimitReached(
            f"this process may open {soft} files (RLIMIT_NOFILE), and {newest} are in use: too few are left for"
            f" another session. Raise the limit {how}, or close sessions"
        )


# Before 5.1 bash has a history from the start, in spite of `+o history`, and reads the user's history file into it.
BOOTSTRAP: Final = Path(__file__).with_name("bootstrap.bash").read_bytes()
# Bash starts in 1 to 3 ms. If it takes a minute, the machine is overloaded.
_PATIENCE: Final = 60.0
# What has closed its end of our socket has mostly ended by then.
_ENDS_WITHIN: Final = 1.0
_OLDEST: Final = 404


def handshake(shell: Shell, tty: bool, refuse_closed: Callable[[], None]) -> Steps[None]:
    """Set up a new shell. ``tty``: make a terminal for its commands now, as they mostly need one.

    Raises ShellUnavailable, and the error of ``refuse_closed`` if another thread has closed the session.
    """
    finder = MarkFinder(fresh_nonce())
    shell.control.send(shell.launch.prelude + BOOTSTRAP + version_line(finder.nonce))
    if not shell.launch.is_sandboxed:
        shell.streams.prepare(tty)  # for the first command, while bash starts
    until = time.monotonic() + _PATIENCE
    while finder.mark is None:
        refuse_closed()
        if not (yield Wait((shell.control.fd,), until)):
            raise ShellUnavailable(f"bash did not answer within {_PATIENCE:.0f} s: is the machine overloaded?")
        data = shell.control.read(finder)
        if data == b"":
            message = finder.noise.decode("utf-8", "replace").strip()
            if not shell.dead:  # it closes its descriptors a moment before its end
                yield Wait((shell.child_fd,) if shell.child_fd >= 0 else (), time.monotonic() + _ENDS_WITHIN)
            raise shell.launch.failed(message, shell.status if shell.dead else None)
    shell.control.note_mark(finder.mark)
    if shell.launch.is_sandboxed:
        shell.find_bash()
        shell.streams.prepare(tty)
    if finder.mark.status < _OLDEST:
        major, minor = divmod(finder.mark.status, 100)
        raise ShellUnavailable(f"bash {major}.{minor} is too old: pass bash=<path> of bash 4.4 or newer")
    shell.version = finder.mark.status
    shell.control.identify(shell.version)
