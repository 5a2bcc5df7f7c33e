"""What a process is doing: the system call that it is in, the signals that it heeds, and the files that it has open.

Law: as for ``processes``, which reads /proc for it: it looks and never acts, and what it may not see is not there.
"""

from __future__ import annotations

import os
import select
import signal
import stat
import struct
from collections.abc import Iterable, Iterator
from typing import Final

from . import proc
from .proc import SPARE
from .signals import SIGNALS

# The number of the system call read, from the kernel's tables (asm/unistd_64.h, asm-generic/unistd.h).
READ: Final = {"x86_64": 0, "aarch64": 63}.get(os.uname().machine)

# What ``system_call`` says of what is in none.
RUNS: Final = (-1,)


def idle_at(pid: int, fd_target: str) -> bool:
    """Does the process sleep in read(2) on a descriptor 0 that is ``fd_target`` (as readlink shows it)?"""
    return system_call(pid)[:2] == (READ, 0) and proc.link(f"/proc/{pid}/fd/0") == fd_target


def may_look(pid: int) -> bool:
    """Does the kernel tell us what that process is about (ptrace_scope)?"""
    return system_call(pid) != ()


def system_call(pid: int, thread: int = 0) -> tuple[int, ...]:
    """The system call that a process is in, or was in when it was stopped: number and arguments; RUNS when in none.

    ``thread``: of that one of it, instead of its first. Empty where we may not look (setuid programs, ptrace_scope).
    """
    words = proc.read(f"/proc/{pid}/task/{thread or pid}/syscall").split()
    if words and not words[0].isdigit():
        return RUNS
    return (int(words[0]), *(int(word, 16) for word in words[1:])) if words else ()


def threads(pid: int) -> list[int]:
    """Its threads, the first of them first."""
    return sorted(map(int, proc.names(f"/proc/{pid}/task")), key=lambda thread: (thread != pid, thread))


def memory(pid: int, address: int, size: int) -> bytes:
    """What a process has there; empty where we may not look, or it has less."""

    def look() -> bytes:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
            return os.pread(file.fileno(), size, address)

    try:
        found = SPARE.look(look)
    except (OSError, OverflowError):
        return b""
    return found if len(found) == size else b""


def ignores(pid: int, number: int) -> bool:
    """Does a process ignore that signal?"""
    return number in _signals(pid, b"SigIgn")


def ignored() -> set[int]:
    """The signals that this process ignores, also those of which Python does not know (another thread's system(3))."""
    return _signals("self", b"SigIgn")


def is_shielded(pid: int, number: int) -> bool:
    """Does the kernel drop that signal, as it does for the first process of a PID namespace that does not handle it?

    (SIGNAL_UNKILLABLE.) From outside SIGKILL and SIGSTOP alone reach it.
    """
    is_first = proc.field(pid, b"NSpid").split()[1:][-1:] == [b"1"]
    return is_first and number not in _signals(pid, b"SigCgt")


def _signals(pid: int | str, kind: bytes) -> set[int]:
    """A set of signals of its."""
    found = int(proc.field(pid, kind) or b"0", 16)
    return {number for number in SIGNALS if found >> (number - 1) & 1}


def descriptors(pid: int) -> set[int]:
    """Those that a process has open; none where it may not be looked at."""
    return {int(name) for name in proc.names(f"/proc/{pid}/fd")}


def watched(pid: int, epoll: int) -> set[int]:
    """The descriptors that an epoll of a process waits to read from: proc(5), fdinfo."""
    entries = (line.split() for line in proc.lines(f"/proc/{pid}/fdinfo/{epoll}") if line.startswith("tfd:"))
    return {int(words[1]) for words in entries if int(words[3], 16) & select.EPOLLIN}


def at_end_of_input(pid: int) -> bool:
    """Is its stdin a pipe into which nobody can write any more? Also of who has read that, and is ending."""
    path = f"/proc/{pid}/fd/0"
    try:
        os.readlink(f"/proc/{pid}/exe")
        if not os.readlink(path).startswith("pipe:"):
            return False
    except FileNotFoundError as error:  # its memory goes first, then its descriptors
        return error.filename != path and proc.alive(pid)
    except OSError:
        return False

    def look() -> bool:
        with open(path, "rb", buffering=0, opener=_without_waiting) as pipe:
            poll = select.poll()
            poll.register(pipe, 0)  # POLLHUP is told in any case
            return bool(poll.poll(0))

    try:
        return SPARE.look(look)
    except OSError:
        return False


def _without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def holders(pids: Iterable[int], files: set[tuple[int, int]]) -> Iterator[tuple[int, tuple[int, int]]]:
    """Those processes that have one of the files (by device and inode) open to write to it, and which one.

    It takes a while to look at all: what was closed meanwhile may have given its number to another's.

    Not by the names that readlink shows: in another mount namespace another terminal is /dev/pts/0.
    """
    for pid in pids:
        for fd in proc.names(f"/proc/{pid}/fd"):
            path = f"/proc/{pid}/fd/{fd}"
            if (file := proc.identity(path)) in files and _is_written_to(path):
                yield pid, file
                break


def writers(directory: str) -> list[int]:
    """Living processes whose stdout or stderr is a file below that directory, also one that was removed since.

    By name: for a private directory that is safe, and no number of a file that was closed can have gone to another's.
    Not by what else a process has open: a stranger may have been handed that. Who was forked has our reading ends.
    """
    return sorted(proc.found_among(proc.everyone, lambda pid: writes_below(pid, directory) and proc.alive(pid)))


def writes_below(pid: int, directory: str) -> bool:
    """Is its stdout or stderr open for writing on a file below that directory?"""
    files = (f"/proc/{pid}/fd/{number}" for number in (1, 2))
    return any(proc.link(file).startswith(directory + "/") and _is_written_to(file) for file in files)


def _is_written_to(fd: str) -> bool:
    """Is a descriptor (its path in /proc) open for writing? The link's own mode tells."""
    try:
        return bool(os.lstat(fd).st_mode & stat.S_IWUSR)
    except OSError:
        return False


def may_write_to(pid: int, files: set[tuple[int, int]]) -> bool:
    """Has the process one of the files (by device and inode) open to write to it?"""
    paths = (f"/proc/{pid}/fd/{fd}" for fd in descriptors(pid))
    return any(proc.identity(path) in files and _is_written_to(path) for path in paths)


def is_ending(pid: int) -> bool:
    """Has the process ended, or is it about to? Its memory goes first, then its descriptors."""
    try:
        os.readlink(f"/proc/{pid}/exe")
    except FileNotFoundError:
        return True
    except OSError:  # it may not be looked at
        pass
    return False


# System call numbers from the kernel's tables (asm/unistd_64.h, asm-generic/unistd.h), of those that wait for
# descriptors: poll and ppoll; select and pselect6; epoll_wait, epoll_pwait and epoll_pwait2; and of ioctl, kill, futex.
_POLL, _SELECT, _EPOLL, _IOCTL, _KILL, _FUTEX = {
    "x86_64": ({7, 271}, {23, 270}, {232, 281, 441}, 16, 62, 202),
    "aarch64": ({73}, {72}, {22, 441}, 29, 129, 98),
}.get(os.uname().machine, (set[int](), set[int](), set[int](), None, None, None))
# What the kernel stops a process for that is not in the foreground (asm-generic/ioctls.h): to change the terminal's
# modes (TCSETS, TCSETSW, TCSETSF, and TCSETS2, ... of newer C libraries), or who is there (TIOCSPGRP).
_TAKES: Final = {0x5402, 0x5403, 0x5404, 0x402C542B, 0x402C542C, 0x402C542D, 0x5410}
_POLLFD: Final = struct.Struct("ihh")  # poll(2): descriptor, events wanted, events told
_MANY: Final = 1024  # descriptors that are looked at of one call, and threads of one process


def at_terminal(pid: int, controlling: str, others: Iterable[str] = ()) -> str:
    """What a process has to do with its terminal just now.

    "reads": it sleeps in read(2) on it, or on one of the ``others``. "polls": it sleeps until the controlling terminal,
    perhaps among others, has something to read. "stopped": it is not in the foreground there and wants to be, or to
    change its modes, and was stopped for that. "hidden": we may not look. "": nothing.

    It is what its first thread does; or another one, for which all the others wait. A program that goes on with its
    work meanwhile (docker compose, which hears keys) waits for nobody.
    """
    calls = [system_call(pid, thread) for thread in threads(pid)[:_MANY]]
    if not calls or not calls[0]:
        return "hidden" if proc.alive(pid) else ""
    first, *more = (_in_call(pid, call, controlling, others) if call else "" for call in calls)
    if first or not all(what or call[:1] == (_FUTEX,) for what, call in zip((first, *more), calls, strict=True)):
        return first
    return next(filter(None, more), "")


def _in_call(pid: int, call: tuple[int, ...], controlling: str, others: Iterable[str]) -> str:
    number = call[0]
    if number == READ:
        return "reads" if _is_one(pid, call[1], (controlling, *others)) else ""
    if number in (_IOCTL, _KILL):
        return "stopped" if proc.state(pid) == "T" and _takes_terminal(pid, call, controlling) else ""
    if number in _POLL | _SELECT | _EPOLL:
        return "polls" if any(_is_one(pid, fd, (controlling,)) for fd in _awaited(pid, call)) else ""
    return ""


def _is_one(pid: int, fd: int, terminals: Iterable[str]) -> bool:
    return proc.link(f"/proc/{pid}/fd/{fd}") in ("/dev/tty", *terminals)


def _takes_terminal(pid: int, call: tuple[int, ...], controlling: str) -> bool:
    """Is this what a process does to have the terminal? A shell stops its own group until somebody gives it that."""
    number, first, second, *_ = call
    if number == _KILL:
        return first == 0 and second in (signal.SIGTTIN, signal.SIGTTOU)
    return second in _TAKES and _is_one(pid, first, (controlling,))


def _awaited(pid: int, call: tuple[int, ...]) -> Iterable[int]:
    """The descriptors that the call waits to read from; all that are open, where its arguments cannot be seen."""
    number, first, second, *_ = call
    if number in _EPOLL:
        return watched(pid, first)
    if number in _POLL:
        count = min(second, _MANY)
        entries = memory(pid, first, count * _POLLFD.size)
        wanted = [fd for fd, events, _ in _POLLFD.iter_unpack(entries) if events & select.POLLIN]
        return wanted if entries or not count else descriptors(pid)
    count = min(first, _MANY)
    size = -(-count // 8)
    bits = memory(pid, second, size) if second else bytes(size)  # no set: it waits for nothing to read
    chosen = [fd for fd in range(count) if bits and bits[fd >> 3] >> (fd & 7) & 1]
    return chosen if bits or not count else descriptors(pid)
