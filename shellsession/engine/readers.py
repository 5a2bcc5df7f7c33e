"""Who waits for something to be typed at a terminal, as the kernel tells of each thread's system call.

Law: it looks and never acts. What cannot be seen for certain is said to be so, and left to the caller.
"""

from __future__ import annotations

import os
import select
import signal
import struct
from collections.abc import Iterable
from typing import Final

from . import activity, processes

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
    calls = [activity.system_call(pid, thread) for thread in activity.threads(pid)[:_MANY]]
    if not calls or not calls[0]:
        return "hidden" if processes.alive(pid) else ""
    first, *more = (_in_call(pid, call, controlling, others) if call else "" for call in calls)
    if first or not all(what or call[:1] == (_FUTEX,) for what, call in zip((first, *more), calls, strict=True)):
        return first
    return next(filter(None, more), "")


def _in_call(pid: int, call: tuple[int, ...], controlling: str, others: Iterable[str]) -> str:
    number = call[0]
    if number == activity.READ:
        return "reads" if _is_one(pid, call[1], (controlling, *others)) else ""
    if number in (_IOCTL, _KILL):
        return "stopped" if processes.state(pid) == "T" and _takes_terminal(pid, call, controlling) else ""
    if number in _POLL | _SELECT | _EPOLL:
        return "polls" if any(_is_one(pid, fd, (controlling,)) for fd in _awaited(pid, call)) else ""
    return ""


def _is_one(pid: int, fd: int, terminals: Iterable[str]) -> bool:
    return processes.link(f"/proc/{pid}/fd/{fd}") in ("/dev/tty", *terminals)


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
        return activity.watched(pid, first)
    if number in _POLL:
        count = min(second, _MANY)
        entries = activity.memory(pid, first, count * _POLLFD.size)
        wanted = [fd for fd, events, _ in _POLLFD.iter_unpack(entries) if events & select.POLLIN]
        return wanted if entries or not count else activity.descriptors(pid)
    count = min(first, _MANY)
    size = -(-count // 8)
    bits = activity.memory(pid, second, size) if second else bytes(size)  # no set: it waits for nothing to read
    chosen = [fd for fd in range(count) if bits and bits[fd >> 3] >> (fd & 7) & 1]
    return chosen if bits or not count else activity.descriptors(pid)
