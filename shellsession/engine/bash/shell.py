"""One live bash: ``Shell`` owns its process, control socket, streams and slot, until ``close``.

A shell is made by ``spawn``. It can be asked about its state (/proc), signalled and ended. ``Launch`` says how its
process was started, and turns a failed start into an error.
"""

from __future__ import annotations

import errno
import os
import resource
import select
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Final, Literal

from ptyprocess import PtyProcess

from ...errors import FORKED, SandboxUnavailable, SessionClosed, ShellUnavailable
from ...sandbox import SCRATCH, is_within
from ...text import signal_name
from ..io.control_socket import ControlSocket
from ..io.streams import CHUNK, MANY_READS, Keyboard, Stream, Streams, get_modes, set_size, slave_path
from ..kernel import activity, proc
from ..kernel.family import Family, Orphans
from ..kernel.signals import kill
from . import cgroups
from .files import Files
from .watcher import Guard, Slot

_NO_NAMESPACE: Final = ("unshare: ", "namespace", "uid map", "not permitted")
_HINT: Final = (
    "; it needs user namespaces: as root, see `sysctl user.max_user_namespaces kernel.unprivileged_userns_clone"
    " kernel.apparmor_restrict_unprivileged_userns`; in a container, let it make namespaces and mount /proc"
)
_UNKNOWN: Final = "Unknown option"
_OLD: Final = "; bubblewrap is too old: install 0.8 (Debian 12, Ubuntu 24.04) or newer"


@dataclass(frozen=True, slots=True)
class Launch:
    """How one bash is launched: ``program`` with ``argv``.

    ``prelude``: commands that begin the first line, so that LINENO is the same without them. ``groups``: the control
    groups that it enters. ``is_sandboxed``: it has its own PID namespace, mounts and pseudo terminals, and the process
    that we start is an ancestor of bash. ``seccomp``: the filter that bubblewrap reads from the descriptor vfork.KEPT.
    """

    program: str
    argv: list[str]
    prelude: bytes = b""
    groups: tuple[str, ...] = ()
    is_sandboxed: bool = False
    seccomp: bytes = b""

    def failed(self, message: str, status: int | None) -> ShellUnavailable:
        """The error for a launch that failed. ``message``: what the program printed. ``status``: how it ended."""
        if status is not None and status < 0:
            return ShellUnavailable(
                f"{self.program} was killed at its start, by {signal_name(-status)}: look for what does that, such as a"
                f" limit of memory, and try again; it said: {message or 'nothing'}"
            )
        if self.is_sandboxed:
            hint = _HINT if any(word in message for word in _NO_NAMESPACE) else _OLD if _UNKNOWN in message else ""
            return SandboxUnavailable(f"the sandbox could not be made; it said: {message or 'nothing'}{hint}")
        return ShellUnavailable(
            f"{self.program} ended at its start (is it bash 4.4 or newer? `bash=` names another); it said:"
            f" {message or 'nothing'}"
        )


# Bash needs this many descriptors to redirect a command at all.
USABLE_DESCRIPTORS = 20
# While a command has its own 0, 1 and 2, bash keeps its own three at numbers from here on. It needs four there, as it
# also opens each stream of the command at such a number first.
_KEPT_FROM, _KEPT = 10, 4
# No larger file that bash has written is read.
_SCRATCH_MAX = 256 << 20
# At most this many scans for processes to kill: one that we may not kill (a setuid program) could start others forever.
_SCANS = 100

# What a shell is doing. A command is typed to a READY one, which makes it BUSY; a startup command to an OPENING one,
# which makes it STARTING. ABANDONED: its end was interrupted, and the next operation finishes that.
Life = Literal["opening", "starting", "ready", "busy", "closing", "abandoned"]
OPENING: Final = "opening"
STARTING: Final = "starting"
READY: Final = "ready"
BUSY: Final = "busy"
CLOSING: Final = "closing"
ABANDONED: Final = "abandoned"
_BEGUN: Final[dict[Life, Life]] = {OPENING: STARTING, READY: BUSY}
_SETTLED: Final[dict[Life, Life]] = {after: before for before, after in _BEGUN.items()}


class Shell:
    """A live bash; made by ``spawn.spawn``, ended by ``close``."""

    def __init__(
        self,
        process: PtyProcess,
        control: socket.socket,
        own_stdout: int,
        guard: Guard,
        slot: Slot,
        cwd: str,
        size: tuple[int, int],
        launch: Launch,
        is_branched: bool = False,
    ) -> None:
        self.wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)  # see wake
        self._wake_lock = threading.RLock()  # reentrant: on Python 3.14 a thread that gets Ctrl-C may keep it locked
        self.launch = launch
        self.pid: int = process.pid
        self._child: int = process.pid  # the process that we reap: bash itself, unless that is sandboxed
        self._memory_kills = 0
        # The path at which bash's file system is visible here, if that is another one than ours.
        self._root = f"/proc/{process.pid}/root" if is_branched else ""
        self.control = ControlSocket(control)
        self.own_stdout = own_stdout  # bash's own stdout: commands have another, only traps write here
        self.prompt = b""  # what bash is known to print on its own stderr before it reads a line: PS1
        self.noise = b""  # what it printed after the last command, which may be its prompt
        self.version = 0  # bash's version, times 100, once it is known
        self.life: Life = OPENING
        self.is_parents = False  # is this a forked child of the host? Then bash and all descriptors are the parent's
        self.died_last = False  # everything below bash was killed before bash was, so it has left no orphans
        self.killed: list[int] = []  # by ``end``
        self._is_being_ended = False
        self.slot = slot
        self.files = Files(slot.directory)
        self.first_cwd = cwd
        self._cwd: bytes | None = None
        self._cwd_text = cwd
        self._guard = guard
        os.set_blocking(process.fd, False)
        path = b"/dev/tty" if launch.is_sandboxed else slave_path(process.fd)
        self.terminal = Stream(process.fd, path, get_modes(process.fd))
        self._process = process
        self.keyboard = Keyboard(self.terminal)
        self.pidfd = _pidfd(self.pid)
        self.child_fd = self.pidfd  # the pidfd of the process that we reap
        watched = (self.child_fd,) if self.child_fd >= 0 else ()
        self.streams = Streams(self.files.pipe, size, (self.terminal.fd, own_stdout, *watched))
        self.status: int | None = None  # as from os.waitstatus_to_exitcode: -n for signal n
        self._reaped = False
        self.family = Family(self.pid, slot.tag)
        self._orphans = Orphans()
        self._names = self._own_names()

    def find_bash(self) -> None:
        """Find the process and the terminals of a sandboxed bash, after its first answer.

        Raises ShellUnavailable.
        """
        try:
            (first,) = proc.children(self._child)
            (self.pid,) = proc.children(first)
            self._root = f"/proc/{self.pid}/root"
            self.streams.devices = os.open(self._root + "/dev/pts", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (OSError, ValueError) as error:
            raise ShellUnavailable(
                f"bash runs in its sandbox, but is not visible in /proc ({error}): mount /proc without hidepid"
            ) from error
        self.pidfd = _pidfd(self.pid)
        self.family.close()
        self.family = Family(self.pid, self.slot.tag, first)
        self._names = self._own_names()

    # -- its life

    @property
    def busy(self) -> bool:
        """Whether a command was typed that has not been settled."""
        return self.life in _SETTLED

    def become_ready(self) -> None:
        """Bash has answered, and the startup commands have run: commands may be typed."""
        self.life = READY

    def begin(self) -> None:
        """A command is about to be typed. It runs until ``settle``, whatever happens in between."""
        self.life = _BEGUN.get(self.life, self.life)  # a text may be typed again

    def settle(self) -> None:
        """The command has ended, and nothing of it can come any more."""
        self.life = _SETTLED.get(self.life, self.life)  # it may be closing

    def begin_to_close(self) -> None:
        """The session is being closed: no more commands."""
        self.life = CLOSING

    def abandon(self) -> None:
        """Kill bash and everything that it started, without waiting. The next operation finishes its end."""
        self.end()
        kill([pid for pid in self.strays() if pid])
        self.life = ABANDONED

    def kill_last(self) -> None:
        """Kill bash, after everything below it."""
        self.signal(signal.SIGKILL)
        self.died_last = True

    def disown(self) -> None:
        """In a forked child of the host: bash and all descriptors are the parent's."""
        self.is_parents = True

    def refuse_forked(self) -> None:
        """Raise SessionClosed in a forked child of the host. To be called after a wait.

        A signal handler or a callback may fork during the wait, and the child then continues the operation.
        """
        if self.is_parents:
            raise SessionClosed(FORKED)

    # -- its input and output

    def wake(self) -> None:
        """Wake the thread or task that waits for a command here. Safe from any thread."""
        with self._wake_lock:
            if self.wake_fd >= 0:
                os.eventfd_write(self.wake_fd, 1)

    def clear_wake(self) -> None:
        """Reset ``wake_fd`` after a ``wake``."""
        with suppress(BlockingIOError):
            os.eventfd_read(self.wake_fd)

    def read_own_stdout(self) -> bytes | None:
        """The output on bash's own stdout: None if there is none now, b"" if bash has closed it."""
        try:
            return os.read(self.own_stdout, CHUNK)
        except BlockingIOError:
            return None

    def clear_own_output(self) -> None:
        """Drop output on bash's own descriptors from between commands. An endless writer is read for a while only."""
        self.control.skip()
        for _ in range(MANY_READS):
            if not self.read_own_stdout():
                break

    def prepare(self, has_terminal: bool) -> bool:
        """Drop what was written to the streams since the last command. Returns whether bash is alive.

        ``has_terminal``: False while a job reads the terminal.
        """
        # Mostly one poll(2) answers both: nobody holds a stream (POLLHUP), and bash's pidfd has no event.
        is_quiet = self.child_fd >= 0
        for _, event in self.streams.poll.poll(0):
            is_quiet = is_quiet and event == select.POLLHUP
        return is_quiet or self._drop_output(has_terminal)

    def _drop_output(self, has_terminal: bool) -> bool:
        events = self.streams.events()
        for stream in (self.terminal, *self.streams):
            if events.get(stream.fd, 0) & select.POLLIN and (has_terminal or stream is not self.terminal):
                stream.skip()
        may_be_dead = self.child_fd < 0 or self.child_fd in events
        return not (may_be_dead and self.dead)

    def resize(self, size: tuple[int, int]) -> None:
        self.streams.size = size
        for stream in (self.terminal, *self.streams):
            if stream.is_terminal:
                set_size(stream.fd, size)

    def is_background(self) -> bool:
        """Is bash in the background of its terminal, so that a command could not read it (EIO)?

        A nested shell with job control leaves it so when it dies in the foreground.
        """
        with suppress(OSError):
            return os.tcgetpgrp(self.terminal.fd) != os.getpgid(self.pid)
        return False

    # -- its directory

    def is_below(self, directory: str) -> bool:
        """Is bash's working directory this one, or in it?"""
        return is_within(proc.link(f"/proc/{self.pid}/cwd").removesuffix(" (deleted)"), directory)

    def is_in_old_layer(self, base: str) -> bool:
        """Is bash's working directory in a layer of its branch that another one covers?"""
        return (
            self.is_below(base)
            and proc.identity(f"/proc/{self.pid}/cwd")[0] != proc.identity(f"/proc/{self.pid}/root{base}")[0]
        )

    def open_below(self, directory: str) -> str:
        """A file in the directory that bash itself has open; "" if it has none."""
        for fd in activity.descriptors(self.pid):
            if is_within(path := proc.link(f"/proc/{self.pid}/fd/{fd}"), directory):
                return path
        return ""

    # -- its state

    def check_cwd(self, reported: bytes) -> str:
        """Bash's working directory: as bash reports it, with symbolic links, unless /proc shows that this is wrong."""
        if reported != self._cwd:
            real = proc.link(f"/proc/{self.pid}/cwd")
            # In a sandbox, a symbolic link may lead elsewhere for us, or nowhere.
            path = proc.resolve(os.fsdecode(reported), self._root)[0] if self._root else os.fsdecode(reported)
            try:
                is_same = not real or os.path.samefile(self._root + path, self._root + real)
                is_true = reported.startswith(b"/") and is_same
            except (OSError, ValueError):  # it was removed, or we may not look: there is only bash's report
                is_true = not real or real.endswith(" (deleted)")
            # A false report is checked again each time, as it may become true.
            self._cwd, self._cwd_text = (reported, os.fsdecode(reported)) if is_true else (None, real)
        return self._cwd_text

    @property
    def cwd(self) -> str:
        """Bash's working directory at the last mark."""
        return self._cwd_text

    def scratch_file(self, name: str) -> bytes:
        """The path of a file to which bash itself can write. Raises LimitReached.

        In a sandbox it is in memory that only the sandbox sees, so ``files.remove`` does nothing then.
        """
        return self.scratch_path(name) if self.launch.is_sandboxed else self.files.write(name, b"")

    def scratch_path(self, name: str) -> bytes:
        """The path of the file that ``scratch_file`` makes."""
        if self.launch.is_sandboxed:
            return os.fsencode(os.path.join(os.path.realpath(self.slot.directory), SCRATCH, name))
        return self.files.path(name)

    def read_scratch_file(self, name: str) -> bytes:
        """Read and remove a file that bash has written. Raises OSError."""
        path = self._root + os.fsdecode(self.scratch_path(name))
        if not (
            self.launch.is_sandboxed or os.path.exists(path)
        ):  # bash has ended, and with it the way through its root
            path = os.fsdecode(self.scratch_path(name))
        # What is at the path is the session's doing: it must lead nowhere else, and not block.
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if (size := os.fstat(file.fileno()).st_size) > _SCRATCH_MAX:  # a sparse file costs the session nothing
                raise OSError(errno.EFBIG, os.strerror(errno.EFBIG), path)
            data = file.read(size)
        with suppress(OSError):
            os.unlink(path)
        return data

    def can_redirect(self) -> bool:
        """Can bash still redirect a command? Not after `ulimit -n 3`, for example."""
        try:
            return resource.prlimit(self.pid, resource.RLIMIT_NOFILE)[0] >= USABLE_DESCRIPTORS
        except (OSError, ValueError):
            return True

    def has_free_descriptors(self) -> bool:
        """Does bash have enough free descriptors to keep its own while a command has 0, 1 and 2?"""
        limit = resource.prlimit(self.pid, resource.RLIMIT_NOFILE)[0]
        used = sum(_KEPT_FROM <= number < limit for number in activity.descriptors(self.pid))
        return limit - _KEPT_FROM - used >= _KEPT

    def _own_names(self) -> list[str]:
        return [proc.link(f"/proc/{self.pid}/fd/{fd}") for fd in (0, 1, 2)]

    @property
    def control_name(self) -> str:
        """The name of bash's own input, as /proc shows it."""
        return self._names[0]

    def has_own_descriptors(self) -> bool:
        """Does bash have its own 0, 1 and 2 again?"""
        return self._own_names() == self._names

    def idle(self) -> bool:
        """Does bash wait at its prompt, with nothing left to read?

        Not while a command reads our socket itself (`read <&10`): bash then keeps its own input at a higher number.
        """
        if not activity.idle_at(self.pid, self.control_name):
            return False
        others = (f"/proc/{self.pid}/fd/{fd}" for fd in activity.descriptors(self.pid) if fd > 2)
        return self.control_name not in map(proc.link, others)

    def is_at_our_line(self, older: Mapping[int, int]) -> bool:
        """Does bash have its own input, and no descendants but the ``older`` ones? Then it runs only our own line."""
        return proc.link(f"/proc/{self.pid}/fd/0") == self.control_name and not self.family.newer(older)

    def prepares_prompt(self) -> bool:
        """Is bash still on its way from a command to reading the next line? False where we may not look."""
        return not activity.idle_at(self.pid, self.control_name) and activity.may_look(self.pid)

    def continue_stopped(self) -> bool:
        """Continue bash if somebody has stopped it (`kill -STOP $$`); was that so?"""
        if proc.state(self.pid) != "T":
            return False
        self.signal(signal.SIGCONT)
        return True

    # -- ending

    def signal(self, number: int) -> None:
        """Signal bash itself, never another process that has got its pid since."""
        if number == signal.SIGCONT and self._is_being_ended:  # another thread has stopped it in ``end``
            return
        with suppress(OSError):
            if self.pidfd >= 0:
                signal.pidfd_send_signal(self.pidfd, number)
            elif not self._reaped:
                os.kill(self.pid, number)

    def end(self) -> None:
        """Kill bash and everything below it, at once. Safe from any thread.

        Bash is killed last: a process without its tag is found only through its ancestors, and once bash has ended,
        other processes adopt its orphans. Bash is stopped first. A stopped or killed process starts nothing new, so
        when a scan finds no other process, there is none.
        """
        self._is_being_ended = True
        try:
            self.signal(signal.SIGSTOP)
            signalled = set[int]()
            for _ in range(_SCANS):
                fresh = [] if self._reaped else self.family.living(besides=signalled)
                if not fresh:
                    break
                signalled.update(fresh)
                self.killed += kill(fresh)
        finally:  # even if Ctrl-C is raised here
            self.signal(signal.SIGKILL)
            if not self._reaped:
                self.killed.append(self.pid)

    def interrupt_group(self) -> None:
        """Send SIGINT to bash's process group, as a terminal does: for use where processes are not visible."""
        with suppress(OSError):
            if not self.dead:
                os.killpg(self.pid, signal.SIGINT)

    @property
    def dead(self) -> bool:
        """Has bash ended? If so, this reaps it, and ``status`` says how it ended."""
        if not self._reaped:
            status: int | None
            try:
                pid, status = os.waitpid(self._child, os.WNOHANG)
            except ChildProcessError:  # the host reaps all its children itself, or ignores SIGCHLD
                pid, status = self._child, None
            if pid and not (status is not None and os.WIFSTOPPED(status)):  # stopped: while it is traced
                if status is None or self.pid != self._child:  # bubblewrap turns a signal into an exit status
                    known = proc.exit_status(self.pidfd)
                    status = status if known is None else known
                self._guard.children.discard(self._child)
                self._reaped, self.status = True, None if status is None else os.waitstatus_to_exitcode(status)
        return self._reaped

    def strays(self) -> Iterator[int]:
        """Yield the living processes of this session except bash, wherever they are; 0 in between (``Orphans.find``).

        They carry the session's tag, or have lost it but write to its pipes.
        """
        ours = (self.pid, self._child)  # the process that we reap ends by itself, after its own children
        directories = {self.slot.directory, self.files.directory}  # the second is used if the first became unusable
        found = self._orphans.find(self.family.tags.all, directories, self._guard.children - {self._child})
        return (0 if pid in ours else pid for pid in found)

    def lost_to_memory(self) -> bool:
        """Has the kernel killed a process of the sandbox for want of memory since the last call of this?"""
        before, self._memory_kills = self._memory_kills, cgroups.memory_kills(self.launch.groups)
        return self._memory_kills > before

    def close(self) -> None:
        """Close the descriptors, and remove the files and the slot. Bash must have ended.

        After an interrupted call, a second one does the rest.
        """
        with ExitStack() as steps:  # in reverse order; each runs even if another one fails
            steps.callback(self._guard.close_slot, self.slot)
            for directory in self.launch.groups:
                steps.callback(cgroups.remove, directory)
            steps.callback(self.files.close)
            steps.callback(self._close_terminal)
            steps.callback(self._close_descriptors)
            steps.callback(self.family.close)
            steps.callback(self.keyboard.close)
            steps.callback(self.streams.close)
            steps.callback(self.control.close)

    def _close_descriptors(self) -> None:
        """Close each descriptor just after its attribute is reset: another thread or a signal handler may use it.

        No signal handler runs in between: Python checks for signals after a call, and at the start of a function or
        loop.
        """
        with self._wake_lock:
            wake_fd, self.wake_fd = self.wake_fd, -1
            if wake_fd >= 0:
                os.close(wake_fd)
        pidfd, self.pidfd = self.pidfd, -1
        if pidfd not in (-1, self.child_fd):
            os.close(pidfd)
        child_fd, self.child_fd = self.child_fd, -1
        if child_fd >= 0:
            os.close(child_fd)
        own_stdout, self.own_stdout = self.own_stdout, -1
        if own_stdout >= 0:
            os.close(own_stdout)

    def _close_terminal(self) -> None:
        self._process.fileobj.close()  # PtyProcess.close() cannot be called again after Ctrl-C in it
        self._process.closed = True


def _pidfd(pid: int) -> int:
    """A pidfd of the process; -1 where there are none (before Linux 5.3). Then its end is noticed a little later."""
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):
        return -1
