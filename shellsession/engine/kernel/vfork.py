"""Starts a program without copying this process: its child borrows our memory until execve, as posix_spawn's does.

Law: nothing of Python runs in that child, only C calls that were worked out before, one after the other.

To copy a host of 40 MB takes 3.5 ms, one of 440 MB 11 ms, and runs what every library in it has to say about a fork
(some warn of it, some hang where there are threads). To borrow takes 0.8 ms, whatever the host is. But posix_spawn and
subprocess know no call by which a process adopts what its children leave behind (PR_SET_CHILD_SUBREAPER). So the child
gets contexts (makecontext(3)), each of which makes one call and goes on with the next.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import os
import resource
import signal
import sys
import warnings
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from typing import Any, Final, NoReturn

# A function of the C library that leaves errno alone when it does well, and what it is called with: numbers, or bytes
# that it only reads.
Call = tuple[str, tuple[Any, ...]]
# Marks a place in a list of calls: those before it may fail, from here on a failure counts.
FORGIVE: Final[Call] = ("memset", ())

_CLONE_VM, _CLONE_VFORK, _CLONE_PARENT_SETTID = 0x100, 0x4000, 0x100000  # <linux/sched.h>
# By machine: where <sys/ucontext.h> has uc_sigmask.
_MASK_AT: Final = {"x86_64": 296, "aarch64": 40}.get(os.uname().machine if sys.maxsize > 1 << 32 else "")
_CONTEXT: Final = 8192  # bytes: the largest ucontext_t has 4560
_STACK: Final = 16384  # bytes: the calls need 700, and the loader 4 KiB should it still look for one
_SIGSET: Final = 128  # bytes of a sigset_t
_LAST: Final = 0x7FFFFFFF  # the highest number that a descriptor can have
_MANY: Final = 1 << 20  # descriptors: where nothing closes them all at once, each takes a call
KEPT: Final = 3  # the number that one more descriptor has in the program
_EXECUTE: Final = "execve"
_NOT_RUN: Final = 127


def _library() -> ctypes.CDLL:
    try:
        # By its name: what was preloaded over its functions may want a larger stack.
        return ctypes.CDLL("libc.so.6", use_errno=True)
    except OSError:
        return ctypes.CDLL(None, use_errno=True)  # musl


LIBC: Final = _library()

# Contexts that no child uses any more: to make new ones each time, 400 KB of memory, takes half of what a chain takes.
_free = deque[Any](maxlen=24)


class _Head(ctypes.Structure):
    """How a ucontext_t begins, wherever Linux has 64 bits."""

    _fields_ = (
        ("flags", ctypes.c_ulong),
        ("link", ctypes.c_void_p),
        ("stack", ctypes.c_void_p),
        ("stack_flags", ctypes.c_int),
        ("stack_size", ctypes.c_size_t),
    )


def perform(calls: Sequence[Call]) -> None:
    """Make the calls here. Raises OSError when one has failed, after the last."""
    ctypes.set_errno(0)
    for call in calls:
        if call is FORGIVE:
            ctypes.set_errno(0)
        else:
            getattr(LIBC, call[0])(*_plain(call[1]))
    _check()


def spawn(calls: Sequence[Call], program: str, argv: list[str], env: Mapping[str, str], kept: int | None = None) -> int:
    """Make the calls in a child, then run the program there: no signal blocked, no descriptor but the first three.

    ``kept``: a descriptor that the program has as well, as KEPT. Gives its process id. Raises OSError, and leaves no
    child, when a call failed or the program could not be run; what follows a failed call is made all the same, the
    program too.
    """
    closed = KEPT
    if kept is not None:
        # Last: other calls may use what KEPT is here. If that is `kept` itself, dup2 leaves it to be closed by execve.
        calls, closed = [*calls, ("dup2", (kept, KEPT)), ("fcntl", (KEPT, fcntl.F_SETFD, 0))], KEPT + 1
    return (_borrow if is_possible() else _copy)(calls, program, argv, env, closed)


@cache
def is_possible() -> bool:
    """Can a child borrow our memory? Not with musl, on machines where nobody has tried it, or before Linux 5.9.

    Where it cannot (qemu's user mode makes a copy of it) nothing that fails in the child would be told.
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


def survives(calls: Sequence[Call]) -> bool:
    """Does a process live on that makes these calls? A copy of this one tries them, for those that a filter kills for.

    Not one that borrows our memory: before Linux 5.17 a core dump ended all who had that.
    """
    with suppress(OSError):
        return is_possible() and os.waitpid(_clone([*calls, ("_exit", (0,))], borrowing=False), 0)[1] == 0
    return False


def _borrow(calls: Sequence[Call], program: str, argv: list[str], env: Mapping[str, str], closed: int) -> int:
    LIBC.__errno_location.restype = ctypes.c_void_p
    forgive: Call = ("memset", (LIBC.__errno_location(), 0, ctypes.sizeof(ctypes.c_int)))
    words, variables = _words(argv), _words(f"{name}={value}" for name, value in env.items())
    ends: list[Call] = [
        ("close_range", (closed, _LAST, 0)),
        (_EXECUTE, (os.fsencode(program), words, variables)),
        ("_exit", (_NOT_RUN,)),
    ]
    return _clone([forgive if call is FORGIVE else call for call in calls] + ends)


def _clone(calls: list[Call], borrowing: bool = True) -> int:
    """A child makes the calls; its process id. Raises OSError: who borrows our memory has our errno, too."""
    stack, before = ctypes.create_string_buffer(_STACK), ctypes.create_string_buffer(_SIGSET)
    LIBC.pthread_sigmask(signal.SIG_BLOCK, None, before)
    child = ctypes.c_int(0)  # the kernel writes it: Ctrl-C can strike before what clone returns is kept
    host = os.getpid()
    try:
        try:
            # In the child a handler of ours would run on our memory. (signal.pthread_sigmask takes 0.3 ms for all.)
            LIBC.pthread_sigmask(signal.SIG_SETMASK, b"\xff" * _SIGSET, None)
            contexts = _chain(calls)
            top = ctypes.c_void_p(ctypes.addressof(stack) + _STACK & ~0xF)
            flags = _CLONE_VM * borrowing | _CLONE_VFORK | _CLONE_PARENT_SETTID | signal.SIGCHLD
            ctypes.set_errno(0)
            LIBC.clone(LIBC.setcontext, top, flags, contexts[0], ctypes.byref(child))
            _free.extend(contexts)
            _check()
        finally:
            LIBC.pthread_sigmask(signal.SIG_SETMASK, before, None)  # here strikes the Ctrl-C that had to wait
    except BaseException:
        if os.getpid() == host:  # else a signal handler of the host has forked: it is the parent's
            _reap(child.value)
        raise
    return child.value


def _reap(child: int) -> None:
    if child > 0:
        with suppress(ProcessLookupError, ChildProcessError):  # this host ignores SIGCHLD
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def _copy(calls: Sequence[Call], program: str, argv: list[str], env: Mapping[str, str], closed: int) -> int:
    _words(argv)
    host, pid = os.getpid(), 0
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    above = soft if 0 < soft < _MANY else _MANY
    reader, writer = os.pipe()
    try:
        with warnings.catch_warnings():
            # Python 3.12 warns of a fork among threads; the child does nothing but system calls until exec.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            _become(calls, program, argv, env, writer, range(closed, above))
        os.close(writer)
        writer = -1
        if number := os.read(reader, 16):
            raise OSError(int(number), os.strerror(int(number)))
    except BaseException:
        if os.getpid() != host:  # Ctrl-C struck in the copy: it must not go on with the host's program
            os._exit(_NOT_RUN)
        _reap(pid)
        raise
    finally:
        os.close(reader)
        if writer >= 0:
            os.close(writer)
    return pid


def _become(
    calls: Sequence[Call], program: str, argv: list[str], env: Mapping[str, str], writer: int, closed: range
) -> NoReturn:
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


def _chain(calls: Sequence[Call]) -> list[Any]:
    """Contexts that make one call each and go on with the next; the calls must stay as long as they do.

    Each has a stack of its own behind it, where makecontext leaves the way to the next.
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
    """As numbers of the machine's width; bytes are passed by their address."""
    return [ctypes.c_long(one) if isinstance(one, int) else one for one in arguments]


def _words(texts: Iterable[str]) -> Any:
    words = list(texts)
    encoded = os.fsencode("\0".join(words)).split(b"\0") if words else []
    if len(encoded) != len(words):
        raise ValueError("embedded null byte")
    return (ctypes.c_char_p * (len(encoded) + 1))(*encoded, None)


def _check() -> None:
    if number := ctypes.get_errno():
        raise OSError(number, os.strerror(number))
