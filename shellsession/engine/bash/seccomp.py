"""Assembles the seccomp filter of a sandbox: in it no file or directory can be given a setuid or setgid bit.

Bubblewrap mounts ``write`` nosuid inside, but on the host such a file would keep its bit: a file of root's would make
everybody root. File capabilities need no rule. Root would need CAP_SETFCAP, and has no capability in the sandbox. Those
that an ordinary user can set in a user namespace count only in namespaces of that user. ``mkdir`` needs no rule: the
kernel ignores both bits there.
"""

from __future__ import annotations

import errno
import struct
from typing import Final, NamedTuple

# Each machine's AUDIT_ARCH_*: <linux/audit.h>
MACHINES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


class _Call(NamedTuple):
    """A system call that takes the mode of a file: the index of that argument, from 0, and the call's numbers."""

    mode_at: int
    x86_64: int | None = None
    aarch64: int | None = None


# <asm/unistd_64.h>, <asm-generic/unistd.h>
_CALLS: Final = {
    "open": _Call(2, 2),
    "creat": _Call(1, 85),
    "chmod": _Call(1, 90),
    "fchmod": _Call(1, 91, 52),
    "mknod": _Call(1, 133),
    "openat": _Call(3, 257, 56),
    "mknodat": _Call(2, 259, 33),
    "fchmodat": _Call(2, 268, 53),
    "fchmodat2": _Call(2, 452, 452),
}
# These use their mode only if the flags, the argument before it, contain O_CREAT or __O_TMPFILE
# (<asm-generic/fcntl.h>). Otherwise the register may hold anything.
_OPENING: Final = ("open", "openat")
_CREATING: Final = 0o100 | 0o20000000
_SET_ID: Final = 0o6000  # S_ISUID, S_ISGID: <linux/stat.h>
# These have their mode in memory, which no filter can read: openat2, io_uring_setup, io_uring_enter, io_uring_register
# (the same numbers on both machines). Programs work without them: many kernels and containers lack them.
_UNREADABLE: Final = (437, 425, 426, 427)
# file_setattr of Linux 6.17. Calls added later may take a mode, and programs work without them on older kernels. The
# numbers of x32 programs on x86_64 (__X32_SYSCALL_BIT) are greater as well.
_NEWEST: Final = 469

# struct sock_filter and its codes: <linux/filter.h>, <linux/bpf_common.h>
_INSTRUCTION: Final = struct.Struct("=HBBI")
_LOAD: Final = 0x20  # BPF_LD | BPF_W | BPF_ABS
_IF_EQUAL, _IF_GREATER, _IF_ANY_BIT = 0x15, 0x25, 0x45  # BPF_JMP | BPF_K and BPF_JEQ, BPF_JGT, BPF_JSET
_RETURN: Final = 0x06  # BPF_RET | BPF_K
# Offsets in struct seccomp_data, and the return values of a filter: <linux/seccomp.h>
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_KILL_PROCESS, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000

_Instruction = tuple[int, int, int, int]


def program(machine: str) -> bytes:
    """The filter for a machine in MACHINES, as ``bwrap --seccomp`` reads it.

    Programs of another architecture (32-bit ones) are killed with SIGSYS, as their calls have other numbers.
    """
    rules = [_load(_NUMBER), *_when(_IF_GREATER, _NEWEST, [_fail(errno.ENOSYS)])]
    for number in _UNREADABLE:
        rules += _when(_IF_EQUAL, number, [_fail(errno.ENOSYS)])
    for name, call in _CALLS.items():
        if (number := getattr(call, machine)) is not None:
            rules += _when(_IF_EQUAL, number, [*_mode_rule(name, call.mode_at), _return(_ALLOW)])
    rules.append(_return(_ALLOW))
    whole = [_load(_ARCHITECTURE), *_when(_IF_EQUAL, MACHINES[machine], rules), _return(_KILL_PROCESS)]
    return b"".join(_INSTRUCTION.pack(*one) for one in whole)


def _mode_rule(name: str, mode_at: int) -> list[_Instruction]:
    """Fail with EPERM if the call sets the setuid or setgid bit."""
    rule = [_argument(mode_at), *_when(_IF_ANY_BIT, _SET_ID, [_fail(errno.EPERM)])]
    return [_argument(mode_at - 1), *_when(_IF_ANY_BIT, _CREATING, rule)] if name in _OPENING else rule


def _when(test: int, value: int, then: list[_Instruction]) -> list[_Instruction]:
    """Run ``then`` if the loaded word passes the test, else skip it."""
    return [(test, 0, len(then), value), *then]


def _load(offset: int) -> _Instruction:
    return _LOAD, 0, 0, offset


def _argument(index: int) -> _Instruction:
    """Load the lower half of an argument, which comes first on these machines: a mode or flags fit in it."""
    return _load(_ARGUMENTS + 8 * index)


def _fail(number: int) -> _Instruction:
    return _return(_ERRNO | number)


def _return(value: int) -> _Instruction:
    return _RETURN, 0, 0, value
