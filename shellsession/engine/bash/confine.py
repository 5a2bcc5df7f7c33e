"""The seccomp filter of a sandbox: no file or directory can be given a setuid or setgid bit.

Law: pure. It asks nothing of the machine and only assembles bytes.

Bubblewrap mounts ``write`` nosuid inside, but on the host a file there keeps its bit: root's would make everybody root.
File capabilities need no rule. Root would need CAP_SETFCAP and has no capability; those that an ordinary user can set
in a user namespace count only in namespaces of that user. ``mkdir`` needs no rule: the kernel ignores both bits there.
"""

from __future__ import annotations

import errno
import os
import shutil
import struct
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Final, NamedTuple

from ...errors import InvalidRequest, SandboxUnavailable
from ...sandbox import Facts, Sandbox, is_within
from ..io.directories import homes
from ..kernel import proc
from . import runtime
from .runtime import Seat, remove, the_guard

# Each machine's AUDIT_ARCH_*: <linux/audit.h>
MACHINES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


class _Call(NamedTuple):
    """A system call that takes the mode of a file: which of its arguments that is, from 0, and the call's numbers."""

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
# These use their mode only where the flags, the argument before it, have O_CREAT or __O_TMPFILE
# (<asm-generic/fcntl.h>). Without these the register may hold anything.
_OPENING: Final = ("open", "openat")
_CREATING: Final = 0o100 | 0o20000000
_SET_ID: Final = 0o6000  # S_ISUID, S_ISGID: <linux/stat.h>
# Their mode is in memory, which no filter can read: openat2, and io_uring_setup, io_uring_enter and io_uring_register
# (the same numbers on both machines). Programs do without them: many kernels and containers lack them.
_UNREADABLE: Final = (437, 425, 426, 427)
# file_setattr of Linux 6.17. Later calls may take a mode, and programs do without them on older kernels. The numbers
# of x32 programs on x86_64 (__X32_SYSCALL_BIT) are greater as well.
_NEWEST: Final = 469

# struct sock_filter and its codes: <linux/filter.h>, <linux/bpf_common.h>
_INSTRUCTION: Final = struct.Struct("=HBBI")
_LOAD: Final = 0x20  # BPF_LD | BPF_W | BPF_ABS
_IF_EQUAL, _IF_GREATER, _IF_ANY_BIT = 0x15, 0x25, 0x45  # BPF_JMP | BPF_K and BPF_JEQ, BPF_JGT, BPF_JSET
_RETURN: Final = 0x06  # BPF_RET | BPF_K
# struct seccomp_data and what a filter answers: <linux/seccomp.h>
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
_KILL_PROCESS, _ERRNO, _ALLOW = 0x80000000, 0x00050000, 0x7FFF0000

_Instruction = tuple[int, int, int, int]


def program(machine: str) -> bytes:
    """The filter for programs of this machine, one of MACHINES, as ``bwrap --seccomp`` reads it.

    SIGSYS kills programs of another architecture (32-bit ones): their calls have other numbers.
    """
    rules = [_load(_NUMBER), *_when(_IF_GREATER, _NEWEST, [_fail(errno.ENOSYS)])]
    for number in _UNREADABLE:
        rules += _when(_IF_EQUAL, number, [_fail(errno.ENOSYS)])
    for name, call in _CALLS.items():
        if (number := getattr(call, machine)) is not None:
            rules += _when(_IF_EQUAL, number, [*_mode_rule(name, call.mode_at), _give(_ALLOW)])
    rules.append(_give(_ALLOW))
    whole = [_load(_ARCHITECTURE), *_when(_IF_EQUAL, MACHINES[machine], rules), _give(_KILL_PROCESS)]
    return b"".join(_INSTRUCTION.pack(*one) for one in whole)


def _mode_rule(name: str, mode_at: int) -> list[_Instruction]:
    """Fail with EPERM if the call sets one of the bits."""
    rule = [_argument(mode_at), *_when(_IF_ANY_BIT, _SET_ID, [_fail(errno.EPERM)])]
    return [_argument(mode_at - 1), *_when(_IF_ANY_BIT, _CREATING, rule)] if name in _OPENING else rule


def _when(test: int, value: int, then: list[_Instruction]) -> list[_Instruction]:
    """Run ``then`` if the loaded word passes the test, else skip it."""
    return [(test, 0, len(then), value), *then]


def _load(offset: int) -> _Instruction:
    return _LOAD, 0, 0, offset


def _argument(index: int) -> _Instruction:
    """Load its lower half, which on these machines is first: a mode and flags have no more."""
    return _load(_ARGUMENTS + 8 * index)


def _fail(number: int) -> _Instruction:
    return _give(_ERRNO | number)


def _give(answer: int) -> _Instruction:
    return _RETURN, 0, 0, answer


_PERIOD: Final = 100_000  # microseconds: the kernel's own default for cpu.max

# What is written for a limit, by file: of version 2, then of version 1. "?" marks what not every kernel has.
_FILES: Final = {
    2: {
        "memory": (("memory.max", "{}"), ("memory.swap.max?", "0")),
        "pids": (("pids.max", "{}"),),
        "cpu": (("cpu.max", f"{{}} {_PERIOD}"),),
    },
    1: {
        "memory": (("memory.limit_in_bytes", "{}"), ("memory.memsw.limit_in_bytes?", "{}")),
        "pids": (("pids.max", "{}"),),
        "cpu": (("cpu.cfs_period_us", str(_PERIOD)), ("cpu.cfs_quota_us", "{}")),
    },
}


class Group(NamedTuple):
    """A control group that we are in: its directory, where its hierarchy is mounted, and the controllers of that.

    A hierarchy of version 2 names none: there each group says which ones it has.
    """

    directory: str
    mount: str
    controllers: frozenset[str]


class Groups(NamedTuple):
    """The directories of one sandbox's groups, and the controllers that hold."""

    directories: tuple[str, ...]
    held: frozenset[str]


def limits(memory: int | None, pids: int | None, cpu: float | None) -> dict[str, int]:
    """What is asked of each controller."""
    asked = {"memory": memory, "pids": pids, "cpu": None if cpu is None else max(1000, round(cpu * _PERIOD))}
    return {name: value for name, value in asked.items() if value is not None}


def make(name: str, asked: Mapping[str, int]) -> Groups:
    """Groups of that name for what can be held; the other controllers are not among ``held``."""
    places: dict[tuple[str, int], set[str]] = {}
    for controller in asked:
        if found := _place(controller):
            places.setdefault(found, set()).add(controller)
    directories: list[str] = []
    held: set[str] = set()
    for (parent, version), controllers in places.items():
        directory = os.path.join(parent, name)
        try:
            os.mkdir(directory, 0o755)
        except OSError:
            continue
        done = {one for one in controllers if _set(directory, _FILES[version][one], asked[one])}
        if done:
            directories.append(directory)
            held |= done
        else:
            remove(directory)
    return Groups(tuple(directories), frozenset(held))


def own_groups() -> list[Group]:
    """The control groups of this process, as far as they can be seen."""
    ours = [line.split(":", 2) for line in proc.lines("/proc/self/cgroup")]
    paths = {frozenset(names.split(",")) - {""}: path for _, names, path in ours}
    found = []
    for line in proc.lines("/proc/self/mountinfo"):
        before, _, after = line.partition(" - ")
        kind, _, options = after.split(" ", 2)
        root, mount = before.split(" ")[3:5]
        for controllers, path in paths.items():
            if kind == ("cgroup" if controllers else "cgroup2") and controllers <= {*options.split(",")}:
                directory = os.path.normpath(mount + "/" + path.removeprefix(root))
                found.append(Group(directory, mount, controllers))
    return found


def _place(controller: str) -> tuple[str, int] | None:
    """Where a group with this controller can be made by us, and the version it has there."""
    for group in own_groups():
        if controller in group.controllers:
            return (group.directory, 1) if _is_ours(group.directory) else None
    for group in own_groups():
        if group.controllers:
            continue
        # A group of version 2 has processes or groups with controllers, not both: most often it is our neighbour's.
        for directory in (group.directory, os.path.dirname(group.directory)):
            if os.path.commonpath((group.mount, directory)) != group.mount:
                break
            if controller in _words(directory, "cgroup.subtree_control") and _is_ours(directory):
                return directory, 2
    return None


def _is_ours(directory: str) -> bool:
    """May we make a group there, and move a process of ours into it?"""
    return os.access(directory, os.W_OK) and os.access(os.path.join(directory, "cgroup.procs"), os.W_OK)


def _words(directory: str, name: str) -> list[str]:
    try:
        with open(os.path.join(directory, name), encoding="ascii") as file:
            return file.read().split()
    except OSError:
        return []


def _set(directory: str, files: tuple[tuple[str, str], ...], value: int) -> bool:
    for name, text in files:
        path = os.path.join(directory, name.rstrip("?"))
        try:
            with open(path, "r+", encoding="ascii") as file:
                file.write(text.format(value))
        except OSError:
            if not name.endswith("?"):
                return False
    return True


def entrance(directory: str) -> int:
    """Open what a process writes "0" to in order to move into the group. Raises OSError."""
    return os.open(os.path.join(directory, "cgroup.procs"), os.O_WRONLY | os.O_CLOEXEC)


# Processes that are in the group as well: bubblewrap outside, and the first one inside.
_ITS_OWN: Final = 2
# The device nodes inside are the host's, and root owns them: it could change their modes. Where /dev is read-only they
# can still be written to; bubblewrap's own read-only mounts have no devices.
_SHUT_DEVICES: Final = '"$0" -o rbind,ro /dev /dev && exec "$@"'
_RESOLVER: Final = "/etc/resolv.conf"


def _script(bash: str, text: str) -> tuple[str, ...]:
    """Runs that text, which changes nothing in the environment; its arguments follow, from $0 on."""
    return bash, "--noprofile", "--norc", "-p", "-c", text


def _facts(sandbox: Sandbox, bash: str, cwd: str, seat: Seat) -> Facts:
    root = os.getuid() == 0
    tools = {}
    for tool, package in (("bwrap", "bubblewrap"), ("unshare", "util-linux"), ("mount", "mount"))[: 3 if root else 2]:
        if (found := shutil.which(tool)) is None:
            raise SandboxUnavailable(f"no `{tool}` on PATH: install the package {package}, or leave sandbox= out")
        tools[tool] = found
    write, hide = sandbox.paths
    writable = tuple(_real("write", path) for path in write)
    hidden = [_real("hide", path) for path in hide]
    for path in (*write, *hide):
        _refuse_changeable(path, writable)
    for socket in (os.environ.get("SHELLSESSION_SOCKET"), the_guard().socket):
        if socket and os.path.exists(socket):
            hidden.append(os.path.realpath(socket))  # the daemon runs commands outside for whoever may connect to it
    directory = os.path.realpath(seat.directory)
    home = os.path.dirname(os.path.dirname(directory))
    # Hosts with another XDG_RUNTIME_DIR have theirs elsewhere: what they type is there, and commands outside read it.
    hidden += {os.path.realpath(one) for one in homes() if os.path.isdir(one)} - {home}
    unreadable = os.path.join(directory, "hidden")
    os.close(os.open(unreadable, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0))
    resolver = os.path.realpath(_RESOLVER)
    return Facts(
        root,
        tools["unshare"],
        tools["bwrap"],
        os.path.realpath(cwd),
        home,
        directory,
        unreadable,
        writable,
        tuple((path, os.path.isdir(path)) for path in hidden),
        (resolver,) if resolver.startswith("/run/") and os.path.exists(resolver) else (),
        (*_script(bash, _SHUT_DEVICES), tools["mount"]) if root else (),
    )


def _real(name: str, path: str) -> str:
    real = os.path.realpath(os.path.expanduser(path))
    if not os.path.isabs(os.path.expanduser(path)) or not os.path.exists(real):
        raise InvalidRequest(f"sandbox.{name}: {path!r} does not exist: make it first, or leave it out")
    return real


def _refuse_changeable(path: str, writable: tuple[str, ...]) -> None:
    """A link that the sandbox itself can put elsewhere decides nothing: at the next start it would."""
    for link in proc.resolve(os.path.expanduser(path))[1]:
        if any(is_within(link, one) for one in writable):
            raise InvalidRequest(f"sandbox: {path!r} leads through {link!r}, a link in write=: name where it leads")


def _limits(sandbox: Sandbox, seat: Seat, on_failure: ExitStack) -> tuple[bytes, tuple[str, ...]]:
    """What bash sets for itself, and the groups it enters."""
    memory, processes = sandbox.memory_bytes, sandbox.processes
    asked = limits(memory, None if processes is None else processes + _ITS_OWN, sandbox.cpu)
    name = f"shellsession-{seat.tag:x}"
    groups = make(name, asked) if asked else Groups((), frozenset())
    for directory in groups.directories:
        on_failure.callback(runtime.remove, directory)
    for number, directory in enumerate(groups.directories):  # for the watcher, should nobody else remove them
        os.symlink(directory, os.path.join(seat.directory, f"group-{number}"))
    return _rlimits(sandbox, groups.held), groups.directories


def _rlimits(sandbox: Sandbox, held: frozenset[str]) -> bytes:
    """For what no group holds: the limits that bash sets for itself and hands down."""
    lines = []
    if sandbox.cpu is not None and "cpu" not in held:
        raise SandboxUnavailable(_without("cpu", "nothing else bounds it"))
    if sandbox.processes is not None and "pids" not in held:
        if os.getuid() == 0:
            raise SandboxUnavailable(_without("processes", "RLIMIT_NPROC does not bind root"))
        # Set inside, where only what is inside counts (since Linux 5.14): the first process does as well.
        lines.append(b"\\ulimit -u %d\n" % (sandbox.processes + 1))
    if sandbox.memory_bytes is not None and "memory" not in held:
        lines.append(b"\\ulimit -v %d\n" % (sandbox.memory_bytes >> 10))
    return b"".join(lines)


def _without(name: str, why: str) -> str:
    return (
        f"sandbox.{name} cannot be held here: this process may make no control group with that controller, and {why};"
        " run it where a cgroup is delegated to it (systemd: Delegate=yes), as an ordinary user, or leave it out"
    )
