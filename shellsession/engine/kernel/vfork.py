"""Starts a program without copying this process: the child borrows our memory until execve, as in posix_spawn.

No Python runs in that child. It only makes a list of C calls that was prepared before, one after the other.

A fork of a host of 40 MB takes 3.5 ms, one of 440 MB 11 ms. It also runs the fork handlers of every library in the
host: some warn, some hang where there are threads. Borrowing takes 0.8 ms, whatever the size of the host. posix_spawn
and subprocess cannot make the child adopt orphans (PR_SET_CHILD_SUBREAPER). So the child runs a chain of contexts
(makecontext(3)): each makes one call and continues with the next.

Where borrowing is not possible (``is_possible``), ``spawn`` forks and makes the same calls.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import signal
import socket
import struct
import sys
import warnings
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Final, NoReturn

# A function of the C library, and its arguments: numbers, or bytes that it only reads. It must leave errno alone when
# it succeeds.
SystemCall = tuple[str, tuple[Any, ...]]
# A place in a list of calls: those before it may fail, a failure after it is an error.
FORGIVE: Final[SystemCall] = ("memset", ())

_CLONE_VM, _CLONE_VFORK, _CLONE_PARENT_SETTID = 0x100, 0x4000, 0x100000  # <linux/sched.h>
# The offset of uc_sigmask in a ucontext_t (<sys/ucontext.h>), by machine.
_MASK_AT: Final = {"x86_64": 296, "aarch64": 40}.get(os.uname().machine if sys.maxsize > 1 << 32 else "")
_CONTEXT: Final = 8192  # bytes: the largest ucontext_t has 4560
_STACK: Final = 16384  # bytes: the calls need 700, and the loader 4 KiB if it has yet to resolve one
_SIGSET: Final = 128  # bytes of a sigset_t
_LAST: Final = 0x7FFFFFFF  # the highest possible descriptor
_MANY: Final = 1 << 20  # at most this many descriptors are closed where that takes a call for each
KEPT: Final = 3  # the number of the extra descriptor in the program
_RIGHTS: Final = 1  # SCM_RIGHTS
_WALL: Final = 0x40000000  # <linux/wait.h>: also children that end with another signal than SIGCHLD, or none
_EXECUTE: Final = "execve"
_NOT_RUN: Final = 127


def _library() -> ctypes.CDLL:
    try:
        # By name: preloaded replacements of its functions may need a larger stack.
        return ctypes.CDLL("libc.so.6", use_errno=True)
    except OSError:
        return ctypes.CDLL(None, use_errno=True)  # musl


LIBC: Final = _library()

# Contexts that no child uses any more. Making new ones each time, 400 KB of memory, takes half the time of a chain.
_free = deque[Any](maxlen=24)


class _Head(ctypes.Structure):
    """The first fields of a ucontext_t, the same on every 64-bit Linux."""

    _fields_ = (
        ("flags", ctypes.c_ulong),
        ("link", ctypes.c_void_p),
        ("stack", ctypes.c_void_p),
        ("stack_flags", ctypes.c_int),
        ("stack_size", ctypes.c_size_t),
    )


def perform(calls: Sequence[SystemCall]) -> None:
    """Make the calls in this process. Raises OSError after the last one if any has failed."""
    ctypes.set_errno(0)
    for call in calls:
        if call is FORGIVE:
            ctypes.set_errno(0)
        else:
            getattr(LIBC, call[0])(*_plain(call[1]))
    _check()


def perform_apart(calls: Sequence[SystemCall], spaces: int = 0) -> None:
    """Make the calls in a child, which ends then. Raises OSError if one of them has failed.

    The child has one thread, as setns(2) into a user namespace demands. ``spaces``: the namespaces that are made for
    it, as flags of clone(2). A failed call does not stop it.
    """
    if is_possible():
        ending: list[SystemCall] = [*_forgiving(calls), ("_exit", (0,))]
        _wait(_clone(ending, spaces=spaces, end_signal=0))  # no handler of the host sees this child
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # see ``_copy``
        pid = os.fork()
    if pid == 0:
        number = errno.EINVAL
        try:
            perform([*([("unshare", (spaces,))] if spaces else []), *calls])
            number = 0
        except OSError as error:
            number = error.errno or number
        finally:
            os._exit(number)
    if number := os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]):
        raise OSError(number, os.strerror(number))


def passing(end: int, descriptors: Sequence[int]) -> SystemCall:
    """The call that sends these descriptors of the child over its socket."""
    size = struct.calcsize("i") * len(descriptors)
    right = struct.pack(
        f"Nii{len(descriptors)}i", struct.calcsize("Nii") + size, socket.SOL_SOCKET, _RIGHTS, *descriptors
    )
    control, byte = ctypes.create_string_buffer(right, len(right) + -len(right) % 8), ctypes.create_string_buffer(1)
    piece = ctypes.create_string_buffer(struct.pack("PN", ctypes.addressof(byte), 1))
    words = ctypes.addressof(piece), 1, ctypes.addressof(control), len(control.raw)
    header: Any = ctypes.create_string_buffer(struct.pack("PIPNPNi", 0, 0, *words, 0))
    header.parts = control, byte, piece  # kept as long as the call
    return "sendmsg", (end, header, 0)


def spawn(
    calls: Sequence[SystemCall], program: str, argv: list[str], env: Mapping[str, str], kept: int | None = None
) -> int:
    """Make the calls in a child, run the program there, and return the child's process id.

    The program starts with no signal blocked, and with no descriptors but 0, 1, 2 and, as number KEPT, ``kept``. Raises
    OSError, and leaves no child, if a call failed or the program could not be run. A failed call does not stop the
    child: it makes the remaining calls, and runs the program, too.
    """
    closed = KEPT
    if kept is not None:
        # Last: the other calls may use descriptor KEPT of this process. If that is `kept` itself, dup2 does nothing, so
        # close-on-exec is cleared explicitly.
        calls, closed = [*calls, ("dup2", (kept, KEPT)), ("fcntl", (KEPT, fcntl.F_SETFD, 0))], KEPT + 1
    return (_borrow if is_possible() else _copy)(calls, program, argv, env, closed)


@cache
def is_possible() -> bool:
    """Can a child borrow our memory? Not with musl, on untested machines, or before Linux 5.9.

    The last step tries it. In qemu's user mode the child gets a copy, and its failures would go unnoticed.
    """
    functions = ("clone", "getcontext", "makecontext", "setcontext", "close_range")
    if _MASK_AT is None or not all(hasattr(LIBC, name) for name in functions):
        return False
    if LIBC.close_range(_LAST, _LAST, 0) < 0:
        return False
    borrowed = ctypes.create_string_buffer(1)
    with suppress(OSError):
        _reap(_clone([("memset", (ctypes.addressof(borrowed), 1, 1)), ("_exit", (0,))]))
    return borrowed.raw == b"\1"


def survives(calls: Sequence[SystemCall]) -> bool:
    """Does a process survive these calls? A seccomp filter may kill it for one, so a forked child tries them.

    The child does not borrow our memory: before Linux 5.17 a core dump ended every process that shared it.
    """
    with suppress(OSError):
        return is_possible() and os.waitpid(_clone([*calls, ("_exit", (0,))], borrowing=False), 0)[1] == 0
    return False


def _borrow(calls: Sequence[SystemCall], program: str, argv: list[str], env: Mapping[str, str], closed: int) -> int:
    """``spawn`` with a child that borrows our memory."""
    words, variables = _words(argv), _words(f"{name}={value}" for name, value in env.items())
    last: list[SystemCall] = [
        ("close_range", (closed, _LAST, 0)),
        (_EXECUTE, (os.fsencode(program), words, variables)),
        ("_exit", (_NOT_RUN,)),
    ]
    return _clone(_forgiving(calls) + last)


def _forgiving(calls: Sequence[SystemCall]) -> list[SystemCall]:
    """The calls, with one that resets our errno in the place of each FORGIVE."""
    LIBC.__errno_location.restype = ctypes.c_void_p
    forgive: SystemCall = ("memset", (LIBC.__errno_location(), 0, ctypes.sizeof(ctypes.c_int)))
    return [forgive if call is FORGIVE else call for call in calls]


def _clone(calls: list[SystemCall], borrowing: bool = True, spaces: int = 0, end_signal: int = signal.SIGCHLD) -> int:
    """Start a child that makes the calls; return its process id.

    Raises OSError if a call failed: a child that borrows our memory also sets our errno.
    """
    stack, before = ctypes.create_string_buffer(_STACK), ctypes.create_string_buffer(_SIGSET)
    LIBC.pthread_sigmask(signal.SIG_BLOCK, None, before)
    child = ctypes.c_int(0)  # written by the kernel: Ctrl-C may come before the return value of clone is stored
    host = os.getpid()
    try:
        try:
            # A signal handler would run in the child, on our memory. (signal.pthread_sigmask takes 0.3 ms for this.)
            LIBC.pthread_sigmask(signal.SIG_SETMASK, b"\xff" * _SIGSET, None)
            contexts = _chain(calls)
            top = ctypes.c_void_p(ctypes.addressof(stack) + _STACK & ~0xF)
            flags = _CLONE_VM * borrowing | _CLONE_VFORK | _CLONE_PARENT_SETTID | end_signal | spaces
            ctypes.set_errno(0)
            LIBC.clone(LIBC.setcontext, top, flags, contexts[0], ctypes.byref(child))
            _free.extend(contexts)
            _check()
        finally:
            LIBC.pthread_sigmask(signal.SIG_SETMASK, before, None)  # a deferred Ctrl-C is raised here
    except BaseException:
        if os.getpid() == host:  # else a signal handler of the host has forked, and the child is the parent's
            _reap(child.value)
        raise
    return child.value


def _reap(child: int) -> None:
    if child > 0:
        with suppress(ProcessLookupError, ChildProcessError):  # the host may ignore SIGCHLD: then there is no zombie
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, _WALL)


def _wait(child: int) -> None:
    with suppress(ChildProcessError):  # as in ``_reap``
        os.waitpid(child, _WALL)


def _copy(calls: Sequence[SystemCall], program: str, argv: list[str], env: Mapping[str, str], closed: int) -> int:
    """``spawn`` by fork. The child reports an error over a pipe."""
    _words(argv)  # raises ValueError for a null byte, as ``_borrow`` does
    host, pid = os.getpid(), 0
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    above = soft if 0 < soft < _MANY else _MANY
    reader, writer = os.pipe()
    try:
        with warnings.catch_warnings():
            # Python 3.12 warns of a fork in a process with threads; the child makes only system calls until exec.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            _execute(calls, program, argv, env, writer, range(closed, above))
        os.close(writer)
        writer = -1
        if number := os.read(reader, 16):
            raise OSError(int(number), os.strerror(int(number)))
    except BaseException:
        if os.getpid() != host:  # an exception in the child, such as Ctrl-C: it must not continue the host's program
            os._exit(_NOT_RUN)
        _reap(pid)
        raise
    finally:
        os.close(reader)
        if writer >= 0:
            os.close(writer)
    return pid


def _execute(
    calls: Sequence[SystemCall], program: str, argv: list[str], env: Mapping[str, str], writer: int, closed: range
) -> NoReturn:
    """In a forked child: make the calls, and run the program; write the number of an error to ``writer``."""
    try:
        perform(calls)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.closerange(closed.start, writer)
        os.closerange(writer + 1, closed.stop)
        os.execve(program, argv, env)
    except OSError as error:
        os.write(writer, b"%d" % (error.errno or errno.EINVAL))
    finally:
        os._exit(_NOT_RUN)


def _chain(calls: Sequence[SystemCall]) -> list[Any]:
    """Contexts that make one call each and continue with the next. The caller keeps the calls alive as long as these.

    Each context is followed by its own stack, where makecontext stores the link to the next.
    """
    chain: list[Any] = []
    for name, arguments in reversed(calls):
        try:
            context = _free.pop()
        except IndexError:
            context = ctypes.create_string_buffer(_CONTEXT + _STACK)
        LIBC.getcontext(context)
        head = _Head.from_buffer(context)
        head.link = ctypes.addressof(chain[-1]) if chain else None
        head.stack, head.stack_size = ctypes.addressof(context) + _CONTEXT, _STACK
        if name == _EXECUTE:
            assert _MASK_AT is not None
            ctypes.c_uint64.from_buffer(context, _MASK_AT).value = 0
        LIBC.makecontext(context, getattr(LIBC, name), len(arguments), *_plain(arguments))
        chain.append(context)
    return chain[::-1]


def _plain(arguments: tuple[Any, ...]) -> list[Any]:
    """The arguments for ctypes: integers as C longs, anything else (bytes) as it is."""
    return [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]


def _words(texts: Iterable[str]) -> Any:
    """A C array of strings that ends with NULL. Raises ValueError for a null byte in a text."""
    words = list(texts)
    encoded = os.fsencode("\0".join(words)).split(b"\0") if words else []
    if len(encoded) != len(words):
        raise ValueError("embedded null byte")
    return (ctypes.c_char_p * (len(encoded) + 1))(*encoded, None)


def _check() -> None:
    if number := ctypes.get_errno():
        raise OSError(number, os.strerror(number))
