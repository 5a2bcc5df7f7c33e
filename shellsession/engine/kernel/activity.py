"""What a process is doing: its system call, its signal handling, its open files, and whether it waits for a terminal.

Everything is read from /proc, mostly through ``proc``. Nothing here acts on a process. A function returns an empty or
false value where the kernel hides the answer (ptrace_scope, hidepid, setuid programs).
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

# What ``system_call`` returns for a process that is in none.
RUNS: Final = (-1,)


def idle_at(pid: int, fd_target: str) -> bool:
    """Does the process sleep in read(2) on its stdin, and is that ``fd_target`` (as readlink shows it)?"""
    return system_call(pid)[:2] == (READ, 0) and proc.link(f"/proc/{pid}/fd/0") == fd_target


def may_look(pid: int) -> bool:
    """Does the kernel let us see the system call of the process (ptrace_scope)?"""
    return system_call(pid) != ()


def system_call(pid: int, thread: int = 0) -> tuple[int, ...]:
    """The system call that a process is in, or was in when it was stopped: its number and arguments.

    Returns RUNS for a process in no system call, and an empty tuple where we may not look (setuid programs,
    ptrace_scope). ``thread`` names another thread than the first.
    """
    words = proc.read(f"/proc/{pid}/task/{thread or pid}/syscall").split()
    if words and not words[0].isdigit():
        return RUNS
    return (int(words[0]), *[int(word, 16) for word in words[1:7]]) if words else ()


def threads(pid: int) -> list[int]:
    """The threads of a process, its first thread first."""
    return sorted(map(int, proc.names(f"/proc/{pid}/task")), key=lambda thread: (thread != pid, thread))


def memory(pid: int, address: int, size: int) -> bytes:
    """The ``size`` bytes of a process's memory at ``address``; empty where we may not read all of them."""

    def read() -> bytes:
        with open(f"/proc/{pid}/mem", "rb", buffering=0) as file:
            return os.pread(file.fileno(), size, address)

    try:
        found = SPARE.call(read)
    except (OSError, OverflowError):
        return b""
    return found if len(found) == size else b""


def ignores(pid: int, number: int) -> bool:
    """Does the process ignore the signal?"""
    return number in _signals(pid, b"SigIgn")


def ignored() -> set[int]:
    """The signals that this process ignores, including those set behind Python's back (system(3) in a thread)."""
    return _signals("self", b"SigIgn")


def is_shielded(pid: int, number: int) -> bool:
    """Does the kernel drop the signal because the process is the first of its PID namespace (SIGNAL_UNKILLABLE)?

    Such a process gets only the signals that it handles, and from outside SIGKILL and SIGSTOP.
    """
    is_first = proc.field(pid, b"NSpid").split()[1:][-1:] == [b"1"]
    return is_first and number not in _signals(pid, b"SigCgt")


def _signals(pid: int | str, kind: bytes) -> set[int]:
    """One of the signal sets in /proc/PID/status, such as SigIgn."""
    found = int(proc.field(pid, kind) or b"0", 16)
    return {number for number in SIGNALS if found >> (number - 1) & 1}


def descriptors(pid: int) -> set[int]:
    """The descriptors that a process has open; empty where we may not look."""
    return {int(name) for name in proc.names(f"/proc/{pid}/fd")}


def watched(pid: int, epoll: int, events: int = select.EPOLLIN) -> set[int]:
    """The descriptors that an epoll of a process waits for, to read from by default: proc(5), fdinfo."""
    entries = (line.split() for line in proc.lines(f"/proc/{pid}/fdinfo/{epoll}") if line.startswith("tfd:"))
    return {int(words[1]) for words in entries if int(words[3], 16) & events}


def at_end_of_input(pid: int) -> bool:
    """Is stdin of the process a pipe that nobody can write to any more?

    Also true of a process that has read the end of its input and is just ending.
    """
    path = f"/proc/{pid}/fd/0"
    try:
        os.readlink(f"/proc/{pid}/exe")
        if not os.readlink(path).startswith("pipe:"):
            return False
    except FileNotFoundError as error:  # an ending process loses its memory first, then its descriptors
        return error.filename != path and proc.alive(pid)
    except OSError:
        return False

    def has_no_writer() -> bool:
        with open(path, "rb", buffering=0, opener=_open_nonblocking) as pipe:
            poll = select.poll()
            poll.register(pipe, 0)  # poll(2) always reports POLLHUP
            return bool(poll.poll(0))

    try:
        return SPARE.call(has_no_writer)
    except OSError:
        return False


def _open_nonblocking(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def holders(pids: Iterable[int], files: set[tuple[int, int]]) -> Iterator[tuple[int, tuple[int, int]]]:
    """Yield each process that has one of the files (by device and inode) open for writing, with that file.

    Looking at many processes takes a while. A file that is closed meanwhile may pass its inode number to a new one.

    Files are not compared by the names that readlink shows: /dev/pts/0 is another terminal in another mount namespace.
    """
    for pid in pids:
        for fd in proc.names(f"/proc/{pid}/fd"):
            path = f"/proc/{pid}/fd/{fd}"
            if (file := proc.identity(path)) in files and _is_written_to(path):
                yield pid, file
                break


def writers(directory: str) -> list[int]:
    """Living processes whose stdout or stderr is a file below the directory, even if that was removed since.

    Files are compared by name. This is safe for a private directory, and no inode number can have been used again.
    Other descriptors do not count: an unrelated process may have been passed one, and our own forks hold the reading
    ends.
    """
    return sorted(proc.found_among(proc.everyone, lambda pid: writes_below(pid, directory) and proc.alive(pid)))


def writes_below(pid: int, directory: str) -> bool:
    """Is stdout or stderr of the process open for writing on a file below the directory?"""
    files = (f"/proc/{pid}/fd/{number}" for number in (1, 2))
    return any(proc.link(file).startswith(directory + "/") and _is_written_to(file) for file in files)


def lock_holders(pids: Iterable[int], file: tuple[int, int]) -> Iterator[int]:
    """Yield each process that has the file open with a lock, whoever took that: proc(5), fdinfo."""
    for pid in pids:
        fds = (fd for fd in descriptors(pid) if proc.identity(f"/proc/{pid}/fd/{fd}") == file)
        if any(b"lock:" in proc.read(f"/proc/{pid}/fdinfo/{fd}") for fd in fds):
            yield pid


def _is_written_to(fd: str) -> bool:
    """Is a descriptor, given by its path in /proc, open for writing? The mode of the link itself says so."""
    return bool(proc.mode(fd, follow=False) & stat.S_IWUSR)


def may_write_to(pid: int, files: set[tuple[int, int]]) -> bool:
    """Does the process have one of the files (by device and inode) open for writing?"""
    paths = (f"/proc/{pid}/fd/{fd}" for fd in descriptors(pid))
    return any(proc.identity(path) in files and _is_written_to(path) for path in paths)


def is_ending(pid: int) -> bool:
    """Has the process ended, or is it ending? An ending process loses its memory first, then its descriptors."""
    try:
        os.readlink(f"/proc/{pid}/exe")
    except FileNotFoundError:
        return True
    except OSError:  # we may not look
        pass
    return False


# System call numbers from the kernel's tables (asm/unistd_64.h, asm-generic/unistd.h). The calls that wait for
# descriptors: poll and ppoll; select and pselect6; epoll_wait, epoll_pwait and epoll_pwait2. Then ioctl, kill, futex.
_POLL, _SELECT, _EPOLL, _IOCTL, _KILL, _FUTEX = {
    "x86_64": ({7, 271}, {23, 270}, {232, 281, 441}, 16, 62, 202),
    "aarch64": ({73}, {72}, {22, 441}, 29, 129, 98),
}.get(os.uname().machine, (set[int](), set[int](), set[int](), None, None, None))
_TIMED_BY_POINTER: Final = {"x86_64": {271, 441}, "aarch64": {73, 441}}.get(os.uname().machine, set[int]())
# Requests for which the kernel stops a background process (asm-generic/ioctls.h): to set the terminal's modes (TCSETS,
# TCSETSW, TCSETSF, and TCSETS2, ... of newer C libraries), or its foreground process group (TIOCSPGRP).
_FOREGROUND_ONLY: Final = {0x5402, 0x5403, 0x5404, 0x402C542B, 0x402C542C, 0x402C542D, 0x5410}
_POLLFD: Final = struct.Struct("ihh")  # poll(2): descriptor, events wanted, events returned
_MANY: Final = 1024  # at most: descriptors examined per call, and threads per process


def at_terminal(pid: int, controlling: str, others: Iterable[str] = ()) -> str:
    """How a process waits for its controlling terminal.

    "reads": it sleeps in read(2) on that terminal or on one of the ``others``. "polls": it sleeps until the controlling
    terminal, perhaps among other descriptors, is readable. "stopped": the kernel stopped it, as a background process
    that tried to read the terminal, take the foreground or change the modes. "hidden": we may not look. "": it does not
    wait for the terminal.

    The answer is about its first thread, or about another thread if all the rest wait on a futex. A program that goes
    on working while one thread listens for keys (docker compose) does not wait for input.
    """
    calls = [system_call(pid, thread) for thread in threads(pid)[:_MANY]]
    if not calls or not calls[0]:
        return "hidden" if proc.alive(pid) else ""
    first, *more = (_wait_of(pid, call, controlling, others) if call else "" for call in calls)
    if first or not all(what or call[:1] == (_FUTEX,) for what, call in zip((first, *more), calls, strict=True)):
        return first
    return next(filter(None, more), "")


def _wait_of(pid: int, call: tuple[int, ...], controlling: str, others: Iterable[str]) -> str:
    """``at_terminal`` for one system call."""
    number = call[0]
    if number == READ:
        return "reads" if _is_terminal(pid, call[1], (controlling, *others)) else ""
    if number in (_IOCTL, _KILL):
        return "stopped" if proc.state(pid) == "T" and _wants_foreground(pid, call, controlling) else ""
    if number in _POLL | _SELECT | _EPOLL:
        return "polls" if any(_is_terminal(pid, fd, (controlling,)) for fd in awaited(pid, call)) else ""
    return ""


def _is_terminal(pid: int, fd: int, terminals: Iterable[str]) -> bool:
    return proc.link(f"/proc/{pid}/fd/{fd}") in ("/dev/tty", *terminals)


def _wants_foreground(pid: int, call: tuple[int, ...], controlling: str) -> bool:
    """Does only a foreground process get through with this call?

    A background shell sends its own group SIGTTIN or SIGTTOU, until it is put into the foreground.
    """
    number, first, second, *_ = call
    if number == _KILL:
        return first == 0 and second in (signal.SIGTTIN, signal.SIGTTOU)
    return second in _FOREGROUND_ONLY and _is_terminal(pid, first, (controlling,))


def awaited(pid: int, call: tuple[int, ...], events: int = select.POLLIN) -> Iterable[int]:
    """The descriptors that a poll, select or epoll waits for, to read from by default.

    All open ones where its arguments cannot be read.
    """
    number, first, second, third, *_ = call
    if number in _EPOLL:
        return watched(pid, first, events)
    if number in _POLL:
        count = min(second, _MANY)
        entries = memory(pid, first, count * _POLLFD.size)
        wanted = [fd for fd, asked, _ in _POLLFD.iter_unpack(entries) if asked & events]
        return wanted if entries or not count else descriptors(pid)
    count, chosen = min(first, _MANY), second if events & select.POLLIN else third
    size = -(-count // 8)
    bits = memory(pid, chosen, size) if chosen else bytes(size)  # no set: it does not wait for that
    found = [fd for fd in range(count) if bits and bits[fd >> 3] >> (fd & 7) & 1]
    return found if bits or not count else descriptors(pid)


def has_limit(pid: int, call: tuple[int, ...]) -> bool:
    """Does a poll, select or epoll end by itself?"""
    number, _, _, third, fourth, fifth, *_ = call
    if number in _SELECT:
        return fifth != 0
    if number in _TIMED_BY_POINTER:
        return (third if number in _POLL else fourth) != 0
    milliseconds = third if number in _POLL else fourth
    return milliseconds & 0x80000000 == 0
