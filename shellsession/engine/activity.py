"""What a process is doing: the system call that it is in, the signals that it heeds, and the files that it has open.

Law: as for ``processes``, which reads /proc for it: it looks and never acts, and what it may not see is not there.
"""

from __future__ import annotations

import os
import select
import stat
from collections.abc import Iterable, Iterator
from typing import Final

from . import processes
from .signals import SIGNALS
from .spare import SPARE

# The number of the system call read, from the kernel's tables (asm/unistd_64.h, asm-generic/unistd.h).
READ: Final = {"x86_64": 0, "aarch64": 63}.get(os.uname().machine)

# What ``system_call`` says of what is in none.
RUNS: Final = (-1,)


def idle_at(pid: int, fd_target: str) -> bool:
    """Does the process sleep in read(2) on a descriptor 0 that is ``fd_target`` (as readlink shows it)?"""
    return system_call(pid)[:2] == (READ, 0) and processes.link(f"/proc/{pid}/fd/0") == fd_target


def may_look(pid: int) -> bool:
    """Does the kernel tell us what that process is about (ptrace_scope)?"""
    return system_call(pid) != ()


def system_call(pid: int, thread: int = 0) -> tuple[int, ...]:
    """The system call that a process is in, or was in when it was stopped: number and arguments; RUNS when in none.

    ``thread``: of that one of it, instead of its first. Empty where we may not look (setuid programs, ptrace_scope).
    """
    words = processes.read(f"/proc/{pid}/task/{thread or pid}/syscall").split()
    if words and not words[0].isdigit():
        return RUNS
    return (int(words[0]), *(int(word, 16) for word in words[1:])) if words else ()


def threads(pid: int) -> list[int]:
    """Its threads, the first of them first."""
    return sorted(map(int, processes.names(f"/proc/{pid}/task")), key=lambda thread: (thread != pid, thread))


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
    is_first = processes.field(pid, b"NSpid").split()[1:][-1:] == [b"1"]
    return is_first and number not in _signals(pid, b"SigCgt")


def _signals(pid: int | str, kind: bytes) -> set[int]:
    """A set of signals of its."""
    found = int(processes.field(pid, kind) or b"0", 16)
    return {number for number in SIGNALS if found >> (number - 1) & 1}


def descriptors(pid: int) -> set[int]:
    """Those that a process has open; none where it may not be looked at."""
    return {int(name) for name in processes.names(f"/proc/{pid}/fd")}


def watched(pid: int, epoll: int) -> set[int]:
    """The descriptors that an epoll of a process waits to read from: proc(5), fdinfo."""
    entries = (line.split() for line in processes.lines(f"/proc/{pid}/fdinfo/{epoll}") if line.startswith("tfd:"))
    return {int(words[1]) for words in entries if int(words[3], 16) & select.EPOLLIN}


def at_end_of_input(pid: int) -> bool:
    """Is its stdin a pipe into which nobody can write any more? Also of who has read that, and is ending."""
    path = f"/proc/{pid}/fd/0"
    try:
        os.readlink(f"/proc/{pid}/exe")
        if not os.readlink(path).startswith("pipe:"):
            return False
    except FileNotFoundError as error:  # its memory goes first, then its descriptors
        return error.filename != path and processes.alive(pid)
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
        for fd in processes.names(f"/proc/{pid}/fd"):
            path = f"/proc/{pid}/fd/{fd}"
            if (file := processes.identity(path)) in files and _is_written_to(path):
                yield pid, file
                break


def writers(directory: str) -> list[int]:
    """Living processes whose stdout or stderr is a file below that directory, also one that was removed since.

    By name: for a private directory that is safe, and no number of a file that was closed can have gone to another's.
    Not by what else a process has open: a stranger may have been handed that. Who was forked has our reading ends.
    """
    return sorted(
        processes.found_among(processes.everyone, lambda pid: writes_below(pid, directory) and processes.alive(pid))
    )


def writes_below(pid: int, directory: str) -> bool:
    """Is its stdout or stderr open for writing on a file below that directory?"""
    files = (f"/proc/{pid}/fd/{number}" for number in (1, 2))
    return any(processes.link(file).startswith(directory + "/") and _is_written_to(file) for file in files)


def _is_written_to(fd: str) -> bool:
    """Is a descriptor (its path in /proc) open for writing? The link's own mode tells."""
    try:
        return bool(os.lstat(fd).st_mode & stat.S_IWUSR)
    except OSError:
        return False


def may_write_to(pid: int, files: set[tuple[int, int]]) -> bool:
    """Has the process one of the files (by device and inode) open to write to it?"""
    paths = (f"/proc/{pid}/fd/{fd}" for fd in descriptors(pid))
    return any(processes.identity(path) in files and _is_written_to(path) for path in paths)


def is_ending(pid: int) -> bool:
    """Has the process ended, or is it about to? Its memory goes first, then its descriptors."""
    try:
        os.readlink(f"/proc/{pid}/exe")
    except FileNotFoundError:
        return True
    except OSError:  # it may not be looked at
        pass
    return False
