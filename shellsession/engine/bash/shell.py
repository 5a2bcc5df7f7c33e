"""How bash is launched: the command line, what is typed to it first, and whether it lives in a world of its own.

Law: what was asked for and cannot be had is one clear error, before anything runs.
"""

from __future__ import annotations

import os
import resource
import select
import signal
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from typing import Final

from ptyprocess import PtyProcess

from ...errors import FORKED, SandboxUnavailable, SessionClosed, ShellUnavailable
from ..io.control import Control
from ..io.streams import CHUNK, MANY_READS, Keyboard, Stream, Streams, get_modes, set_size, slave_path
from ..kernel import proc, readers
from ..kernel.family import Family, Orphans
from ..kernel.signals import kill
from . import runtime
from .runtime import Files, Guard, Seat

_NO_NAMESPACE: Final = ("unshare: ", "namespace", "uid map", "not permitted")
_HINT: Final = (
    "; it needs user namespaces: as root, see `sysctl user.max_user_namespaces kernel.unprivileged_userns_clone"
    " kernel.apparmor_restrict_unprivileged_userns`; in a container, let it make namespaces and mount /proc"
)
_UNKNOWN: Final = "Unknown option"
_OLD: Final = "; it is too old: bubblewrap 0.8 (Debian 12, Ubuntu 24.04) knows all that is used"


@dataclass(frozen=True, slots=True)
class Launch:
    """How one bash is launched: ``program`` with ``argv``.

    ``prelude``: what bash itself sets before all else. ``groups``: control groups that it enters. ``apart``: it has a
    PID namespace, mounts and pseudo terminals of its own, and is not the process that we start but below that one.
    ``seccomp``: what bubblewrap reads from the descriptor vfork.KEPT.
    """

    program: str
    argv: list[str]
    prelude: bytes = b""
    groups: tuple[str, ...] = ()
    apart: bool = False
    seccomp: bytes = b""

    def failed(self, said: str) -> ShellUnavailable:
        """The error when nothing came of it."""
        if self.apart:
            hint = _HINT if any(word in said for word in _NO_NAMESPACE) else _OLD if _UNKNOWN in said else ""
            return SandboxUnavailable(f"the sandbox could not be made; it said: {said or 'nothing'}{hint}")
        return ShellUnavailable(
            f"{self.program} ended at its start (is it bash 4.4 or newer? `bash=` names another); it said:"
            f" {said or 'nothing'}"
        )


# Bash needs this many descriptors to redirect a command at all.
USABLE_DESCRIPTORS = 20
# It keeps its own three from this number on while a command has those of its own, which are opened there, too.
_KEPT_FROM, _KEPT = 10, 4
# Looks at who is to be killed, at the most: who may not be killed (setuid programs) could start others for ever.
_LOOKS = 100


class Shell:
    """A live bash; made by ``spawn.spawn``, ended by ``close``."""

    def __init__(
        self,
        process: PtyProcess,
        control: socket.socket,
        own_stdout: int,
        guard: Guard,
        seat: Seat,
        cwd: str,
        size: tuple[int, int],
        launch: Launch,
    ) -> None:
        self.wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)  # wakes who attends a command: see wake
        self._wake_lock = threading.RLock()  # reentrant: on Python 3.14 Ctrl-C can leave it taken by who was struck
        self.launch = launch
        self.pid: int = process.pid
        self._child: int = process.pid  # which we reap; bash itself, unless that was launched apart
        self._root = ""  # where bash's file system begins
        self.control = Control(control)
        self.own_stdout = own_stdout  # bash's own stdout, which no command of ours has: only what traps say there
        self.prompt = b""  # what bash is known to say on its own stderr before it reads a line: PS1
        self.noise = b""  # what may be that: it was said behind the last command
        self.version = 0  # bash's, times 100, once it has told
        self.lost = True  # not opened wholly yet, or given up in the middle of ending something: not to be typed to
        self.in_hand = True  # a verb opens it, or ends it
        self.is_parents = False  # this is a forked child of the host: bash and all its descriptors are the parent's
        self.swept = False  # everything below bash was killed before bash was
        self.killed: list[int] = []  # by ``end``
        self._is_being_ended = False
        self.seat = seat
        self.files = Files(seat.directory)
        self.first_cwd = cwd
        self._cwd: bytes | None = None
        self._cwd_text = cwd
        self._guard = guard
        os.set_blocking(process.fd, False)
        path = b"/dev/tty" if launch.apart else slave_path(process.fd)
        self.terminal = Stream(process.fd, path, get_modes(process.fd))
        self._process = process
        self.keyboard = Keyboard(self.terminal)
        self.pidfd = self.child_fd = _pidfd(self.pid)
        watched = (self.child_fd,) if self.child_fd >= 0 else ()
        self.streams = Streams(self.files.pipe, size, (self.terminal.fd, own_stdout, *watched))
        self.status: int | None = None  # as os.waitstatus_to_exitcode tells it: -n for signal n
        self.busy = b""  # the nonce of the command it is at
        self._reaped = False
        self.family = Family(self.pid, seat.tag)
        self._orphans = Orphans()
        self._names = self._own_names()

    def find_bash(self) -> None:
        """Bash was launched apart, and has answered: learn which process it is, and where its terminals are.

        Raises ShellUnavailable.
        """
        try:
            (first,) = proc.children(self._child)
            (self.pid,) = proc.children(first)
            self._root = f"/proc/{self.pid}/root"
            self.streams.devices = os.open(self._root + "/dev/pts", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (OSError, ValueError) as error:
            raise ShellUnavailable(f"bash runs in its sandbox, but cannot be found in /proc: {error}") from error
        self.pidfd = _pidfd(self.pid)
        self.family.close()
        self.family = Family(self.pid, self.seat.tag, first)
        self._names = self._own_names()

    def refuse_forked(self) -> None:
        """After a wait: a signal handler or a callback may have forked in it, and the child goes on with the verb."""
        if self.is_parents:
            raise SessionClosed(FORKED)

    # -- talking

    def wake(self) -> None:
        """From any thread: wake who attends a command here."""
        with self._wake_lock:
            if self.wake_fd >= 0:
                os.eventfd_write(self.wake_fd, 1)

    def clear_wake(self) -> None:
        """It has woken."""
        with suppress(BlockingIOError):
            os.eventfd_read(self.wake_fd)

    def read_own_stdout(self) -> bytes | None:
        """What was said on bash's own stdout: bytes, None when nothing is there, b"" when bash has let go of it."""
        try:
            return os.read(self.own_stdout, CHUNK)
        except BlockingIOError:
            return None

    def clear_own_output(self) -> None:
        """Forget what was said on bash's own descriptors while nothing was run; of who talks without end, some."""
        self.control.skip()
        for _ in range(MANY_READS):
            if not self.read_own_stdout():
                break

    def is_ready(self, has_terminal: bool) -> bool:
        """Is bash alive? Before the next command: what anybody has written to its streams meanwhile is dropped.

        One poll(2) tells both. ``has_terminal``: False while a job reads the terminal.
        """
        is_quiet = self.child_fd >= 0
        for _, event in self.streams.poll.poll(0):
            is_quiet = is_quiet and event == select.POLLHUP
        return is_quiet or self._drop_what_came(has_terminal)

    def _drop_what_came(self, has_terminal: bool) -> bool:
        events = self.streams.glance()
        for stream in (self.terminal, *self.streams):
            if events.get(stream.fd, 0) & select.POLLIN and (has_terminal or stream is not self.terminal):
                stream.skip()
        return not (self.child_fd < 0 or self.child_fd in events) or not self.dead

    def resize(self, size: tuple[int, int]) -> None:
        self.streams.size = size
        for stream in (self.terminal, *self.streams):
            if stream.modes:
                set_size(stream.fd, size)

    def is_background(self) -> bool:
        """Has a shell with job control died in the foreground, so that reading the terminal would fail (EIO)?"""
        with suppress(OSError):
            return os.tcgetpgrp(self.terminal.fd) != os.getpgid(self.pid)
        return False

    # -- looking

    def place(self, said: bytes) -> str:
        """Bash's working directory: as it says itself (it keeps symbolic links), unless it was made to lie."""
        if said != self._cwd:
            there = proc.link(f"/proc/{self.pid}/cwd")
            # Apart, a link may lead to what is elsewhere, or nowhere, for us.
            where = proc.resolve(os.fsdecode(said), self._root)[0] if self._root else os.fsdecode(said)
            try:
                same = not there or os.path.samefile(self._root + where, self._root + there)
                true = said.startswith(b"/") and same
            except (OSError, ValueError):  # it was removed, or may not be looked at: bash's word is what there is
                true = not there or there.endswith(" (deleted)")
            # What was not true is looked at again each time: it may have become so.
            self._cwd, self._cwd_text = (said, os.fsdecode(said)) if true else (None, there)
        return self._cwd_text

    @property
    def cwd(self) -> str:
        """Bash's working directory at the last mark."""
        return self._cwd_text

    def usable(self) -> bool:
        """Could bash still redirect a command? (`ulimit -n 3` takes that away for ever.)"""
        try:
            return resource.prlimit(self.pid, resource.RLIMIT_NOFILE)[0] >= USABLE_DESCRIPTORS
        except (OSError, ValueError):
            return True

    def has_room(self) -> bool:
        """Are there descriptors left at which bash could keep its own while a command has its three?"""
        limit = resource.prlimit(self.pid, resource.RLIMIT_NOFILE)[0]
        used = sum(_KEPT_FROM <= number < limit for number in readers.descriptors(self.pid))
        return limit - _KEPT_FROM - used >= _KEPT

    def _own_names(self) -> list[str]:
        return [proc.link(f"/proc/{self.pid}/fd/{fd}") for fd in (0, 1, 2)]

    @property
    def control_name(self) -> str:
        """That of bash's own input, as /proc has it."""
        return self._names[0]

    def is_whole(self) -> bool:
        """Has bash its own three descriptors back?"""
        return self._own_names() == self._names

    def idle(self) -> bool:
        """Does bash sit at its prompt with nothing left to read? In a text (`read <&10`) it keeps its own elsewhere."""
        if not readers.idle_at(self.pid, self.control_name):
            return False
        others = (f"/proc/{self.pid}/fd/{fd}" for fd in readers.descriptors(self.pid) if fd > 2)
        return self.control_name not in map(proc.link, others)

    def is_at_our_line(self, older: Mapping[int, int]) -> bool:
        """Has bash its own input still, or again, with nothing below it that is not ``older``?"""
        return proc.link(f"/proc/{self.pid}/fd/0") == self.control_name and not self.family.newer(older)

    def prepares_prompt(self) -> bool:
        """Is bash, after a command, not yet where it reads the next one? False where the kernel forbids the look."""
        return not readers.idle_at(self.pid, self.control_name) and readers.may_look(self.pid)

    def continue_stopped(self) -> bool:
        """Had somebody stopped bash (`kill -STOP $$`)? Then it goes on."""
        if proc.state(self.pid) != "T":
            return False
        self.signal(signal.SIGCONT)
        return True

    # -- ending

    def signal(self, number: int) -> None:
        """Signal bash itself, never a stranger that got its number after it."""
        if number == signal.SIGCONT and self._is_being_ended:  # by another thread, and stopped for that
            return
        with suppress(OSError):
            if self.pidfd >= 0:
                signal.pidfd_send_signal(self.pidfd, number)
            elif not self._reaped:
                os.kill(self.pid, number)

    def end(self) -> None:
        """From any thread, and at once: kill bash and all below it.

        Bash is the last: what has shed its tag is known by its parents alone, and once bash is gone orphans go where
        nobody finds them. Stopped, bash starts nothing new, nor does what was killed, be it still on its way out: when
        a look finds nobody else, there is nobody else.
        """
        self._is_being_ended = True
        try:
            self.signal(signal.SIGSTOP)
            struck = set[int]()
            for _ in range(_LOOKS):
                fresh = [] if self._reaped else self.family.living(besides=struck)
                if not fresh:
                    break
                struck.update(fresh)
                self.killed += kill(fresh)
        finally:  # also where Ctrl-C strikes here
            self.signal(signal.SIGKILL)
            if not self._reaped:
                self.killed.append(self.pid)

    def interrupt_group(self) -> None:
        """SIGINT for bash and all that has its process group, as from a terminal: for where nobody can be seen."""
        with suppress(OSError):
            if not self.dead:
                os.killpg(self.pid, signal.SIGINT)

    @property
    def dead(self) -> bool:
        """Has bash ended? Then ``status`` says how."""
        if not self._reaped:
            told: int | None
            try:
                pid, told = os.waitpid(self._child, os.WNOHANG)
            except ChildProcessError:  # the host reaps all its children itself, or ignores SIGCHLD
                pid, told = self._child, None
            if pid and not (told is not None and os.WIFSTOPPED(told)):  # as one is told of that is traced just now
                if told is None or self.pid != self._child:  # of the signal bubblewrap has made a status
                    known = proc.exit_status(self.pidfd)
                    told = told if known is None else known
                self._guard.children.discard(self._child)
                self._reaped, self.status = True, None if told is None else os.waitstatus_to_exitcode(told)
        return self._reaped

    def strays(self) -> Iterator[int]:
        """What carries this session's tag, or has shed it but writes to us; bash not counted. See ``Orphans.find``."""
        ours = (self.pid, self._child)  # what we reap ends by itself, after what it has to reap
        places = {self.seat.directory, self.files.directory}  # the second, where somebody has spoilt the first
        found = self._orphans.find(self.family.tags.all, places, self._guard.children - {self._child})
        return (0 if pid in ours else pid for pid in found)

    def close(self) -> None:
        """Give back descriptors, files and the seat. Bash must be dead. Done again, it does what is left."""
        with ExitStack() as steps:  # each is done, whatever goes wrong with another; the last one first
            steps.callback(self._guard.give_back, self.seat)
            for directory in self.launch.groups:
                steps.callback(runtime.remove, directory)
            steps.callback(self.files.close)
            steps.callback(self._close_terminal)
            steps.callback(self._close_descriptors)
            steps.callback(self.family.close)
            steps.callback(self.keyboard.close)
            steps.callback(self.streams.close)
            steps.callback(self.control.close)

    def _close_descriptors(self) -> None:
        """Each is forgotten just before it is closed: another thread or a signal handler may be about to use it.

        Nothing strikes between these two: Python looks for signals behind a call, and where a function or loop begins.
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
        self._process.fileobj.close()  # PtyProcess.close() cannot be called again after it was struck
        self._process.closed = True


def _pidfd(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except (OSError, AttributeError):  # Linux before 5.3: the end is seen a little later, by looking
        return -1
