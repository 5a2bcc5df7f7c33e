"""Lets a stopped shell go on to just behind the child that it waits for, and interrupts it there.

Law: it traces (ptrace(2)) for a moment only, changes nothing in what it looks at, and lets go whatever happens.

Bash goes on with `pytest; git push` when pytest has ended in its own way after SIGINT: it holds the signal for the
program's, which has heeded it (wait_sigint_handler in its jobs.c). Its own is what reaches it behind its wait4(2) and
before the next one: a tenth of a millisecond, which signals from outside missed in 240 of 240 cases, and in a third to
nine tenths when it was stopped and continued before each of a hundred. Who traces it sees that moment. A program in
system(3), which ignores SIGINT until then, has the same one: there it heeds that.
"""

from __future__ import annotations

import ctypes
import os
import signal
import struct
import threading
import time
from contextlib import suppress
from functools import cache
from typing import Final

from . import activity, processes, vfork
from .waiting import Steps, Wait

_SEIZE, _INTERRUPT, _DETACH, _SYSCALL = 0x4206, 0x4207, 17, 24  # <sys/ptrace.h>
_GET_SIGNAL, _GET_SYSCALL = 0x4202, 0x420E  # the second since Linux 5.3
_TELL_SYSCALLS: Final = 1  # PTRACE_O_TRACESYSGOOD
_OTHER, ENTRY, EXIT = 0, 1, 2  # at what it has stopped, as _GET_SYSCALL tells
_EVENT: Final = 128  # PTRACE_EVENT_STOP: a stop without a signal that is to be delivered
# The kernel's numbers of wait4, rt_sigaction and ioctl (asm/unistd_64.h, asm-generic/unistd.h); elsewhere nothing is
# traced.
_WAIT, SET_HANDLER, _TAKE = {
    "x86_64": (61, 13, 16),
    "aarch64": (260, 134, 29),
}.get(os.uname().machine, (None, None, None))
_STOPS: Final = 64  # five to nine take it there, of 20 to 40 us each
_EAGER: Final = 20  # looks, before others get their turn between two
_TICK: Final = 0.001
_ENDED: Final = ("", "X", "Z")
_PATIENCE: Final = 5.0  # for a machine that gives it no processor

_ptrace = vfork.LIBC.ptrace
_ptrace.argtypes = (ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p)
_ptrace.restype = ctypes.c_long


def interrupt_behind_child(pid: int) -> Steps[bool]:
    """Let a stopped shell go on that waits for a child, and interrupt it behind that; False where it cannot be traced.

    The child has ended. A shell that waits for more is interrupted as it does so. One that no interrupt reaches is
    killed there. Who was struck (Ctrl-C) in here has to ``detach``.
    """
    if not _is_possible() or processes.state(pid) != "T" or not (_waits(pid) or sets_handler(pid)):
        return False
    try:
        seize(pid)
    except OSError:
        return False
    with suppress(ProcessLookupError):  # it was killed meanwhile
        os.kill(pid, signal.SIGCONT)
        yield from _go_behind_child(pid)
        os.kill(pid, signal.SIGKILL if activity.is_shielded(pid, signal.SIGINT) else signal.SIGINT)
    detach(pid)
    return True


def _waits(pid: int) -> bool:
    """Was it stopped in wait4, or just behind it? Not a handler of SIGCHLD, which asks with WNOHANG."""
    call = activity.system_call(pid)
    return call[:1] == (_WAIT,) and not call[3] & os.WNOHANG


def sets_handler(pid: int) -> bool:
    """Was it stopped as it set one of SIGINT? Interrupted before its next word, bash would signal itself for ever."""
    return activity.system_call(pid)[:2] == (SET_HANDLER, signal.SIGINT)


def _go_behind_child(pid: int) -> Steps[None]:
    """To where it has put its own handler of SIGINT back; or to where it waits for something else.

    Stopped as it set one: whether that was its own, or the one for its wait, its next call tells. With `set -m` it
    keeps its own while it waits, and takes the terminal back behind it.
    """
    amid, puts_back = sets_handler(pid), False
    for _ in range(_STOPS):
        if not (yield from _stops(pid)):
            return
        what, number, first = stopped_at(pid)
        if (what == EXIT and puts_back) or (what, number) == (ENTRY, _TAKE):
            return
        if what == ENTRY:
            if amid and number != _WAIT:
                return
            amid, puts_back = False, number == SET_HANDLER and first == signal.SIGINT
        go_on(pid)


def _stops(pid: int) -> Steps[bool]:
    """Wait for its next stop; not where it sleeps, or has ended."""
    until = time.monotonic() + _PATIENCE
    looks = 0
    while (state := processes.state(pid)) != "t":
        looks += 1
        if looks <= _EAGER:
            os.sched_yield()
            continue
        if state in _ENDED or _sleeps(pid) or time.monotonic() > until:
            return False
        yield Wait((), time.monotonic() + _TICK)
    return True


def _sleeps(pid: int) -> bool:
    """More than its state tells: who looks through its children, or was pre-empted there, is shown as asleep as well.

    (do_wait() of the kernel's exit.c.) Taken for asleep as it reaps the child, a shell went on with what follows.
    """
    return activity.system_call(pid) != activity.RUNS and processes.state(pid) == "S"


@cache
def _survives(_thread: int, _filters: bytes) -> bool:
    return vfork.survives([("ptrace", (_SEIZE, 0, 0, 0))])


def _is_possible() -> bool:
    """Not where nobody knows the calls' numbers, or who traces is killed, or somebody else would be told of each stop.

    A filter of system calls may kill who makes one, as systemd's does: a copy of this thread tries it first. And a
    handler of SIGCHLD that waits for any child is told of stops as well, which it does not expect.
    """
    if _WAIT is None or callable(signal.getsignal(signal.SIGCHLD)):
        return False
    filters = processes.filters()
    return not filters or _survives(threading.get_native_id(), filters)


def seize(pid: int) -> None:
    """Trace a stopped process, from this thread. Raises OSError where that is not to be had."""
    _trace(_SEIZE, pid, 0, _TELL_SYSCALLS)
    try:
        stopped_at(pid)
    except OSError:  # an older kernel, or it was killed meanwhile
        detach(pid)
        raise


def stopped_at(pid: int) -> tuple[int, int, int]:
    """Which kind of stop; at an entry the number of the call and its first argument, at an exit what it gives."""
    told = ctypes.create_string_buffer(88)
    _trace(_GET_SYSCALL, pid, len(told), ctypes.addressof(told))
    what, value, argument = struct.unpack_from("=B23xqQ", told)
    return what, value, argument


def go_on(pid: int) -> None:
    """To its next stop, with the signal that it was about to get."""
    _trace(_SYSCALL, pid, 0, _signal(pid))


def _signal(pid: int) -> int:
    told = (ctypes.c_int * 32)()  # a siginfo_t: number, errno, code
    try:
        if stopped_at(pid)[0] != _OTHER:
            return 0
        _trace(_GET_SIGNAL, pid, 0, ctypes.addressof(told))
    except ProcessLookupError:
        raise
    except OSError:  # an older kernel
        return 0
    return 0 if told[2] >> 8 == _EVENT else told[0]


def detach(pid: int) -> None:
    """Let it go on untraced, if this thread traces it. Only what is stopped can be, and only by who traces it."""
    until = time.monotonic() + _PATIENCE
    while processes.alive(pid) and processes.tracer(pid) == threading.get_native_id():
        with suppress(ProcessLookupError):  # it is not stopped
            _trace(_DETACH, pid, 0, _signal(pid))
            return
        _ptrace(_INTERRUPT, pid, 0, 0)
        os.sched_yield()
        if time.monotonic() > until:  # it would stop for ever at its next call
            os.kill(pid, signal.SIGKILL)
            break
    if processes.parent(pid) != os.getpid():  # who traces is told of the end first, then the parent
        with suppress(ChildProcessError):
            os.waitpid(pid, os.WNOHANG)


def _trace(request: int, pid: int, address: int, data: int) -> None:
    ctypes.set_errno(0)
    if _ptrace(request, pid, address, data) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
