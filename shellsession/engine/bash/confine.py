"""The confinement of a sandbox: its seccomp filter, its control groups, and the facts for bubblewrap's command line.

In three parts:

``program`` assembles the seccomp filter. In a sandbox no file or directory can be given a setuid or setgid bit.
Bubblewrap mounts ``write`` nosuid inside, but on the host such a file would keep its bit: a file of root's would make
everybody root. File capabilities need no rule. Root would need CAP_SETFCAP, and has no capability in the sandbox. Those
that an ordinary user can set in a user namespace count only in namespaces of that user. ``mkdir`` needs no rule: the
kernel ignores both bits there.

``make`` creates control groups, which limit all processes of a sandbox together, where this process may create any. A
group is made below our own one, or beside it where only the parent can have limits (mostly in version 2). The code that
makes a group also removes it.

``sandbox_facts`` and ``sandbox_limits`` collect what ``spawn`` needs to launch a sandbox. They raise an error for
anything that was requested and cannot be enforced.
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
from . import watcher
from .watcher import Slot, remove, the_guard

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


# -- control groups

_PERIOD: Final = 100_000  # microseconds: the kernel's own default for cpu.max

# The files of each limit and what to write to them, in cgroup version 2 and 1. "?" marks files that some kernels lack.
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
    """A control group of this process: its directory, the mount point of its hierarchy, and the controllers of that.

    A hierarchy of version 2 has no fixed controllers: there each group lists its own.
    """

    directory: str
    mount: str
    controllers: frozenset[str]


class Groups(NamedTuple):
    """The directories of one sandbox's groups, and the controllers whose limits they enforce."""

    directories: tuple[str, ...]
    enforced: frozenset[str]


def limits(memory: int | None, pids: int | None, cpu: float | None) -> dict[str, int]:
    """The limit for each controller, without those that are not set."""
    wanted = {"memory": memory, "pids": pids, "cpu": None if cpu is None else max(1000, round(cpu * _PERIOD))}
    return {name: value for name, value in wanted.items() if value is not None}


def make(name: str, wanted: Mapping[str, int]) -> Groups:
    """Make groups of that name for the limits. ``enforced`` lacks the controllers for which none can be made."""
    parents: dict[tuple[str, int], set[str]] = {}
    for controller in wanted:
        if found := _parent_group(controller):
            parents.setdefault(found, set()).add(controller)
    directories: list[str] = []
    enforced: set[str] = set()
    for (parent, version), controllers in parents.items():
        directory = os.path.join(parent, name)
        try:
            os.mkdir(directory, 0o755)
        except OSError:
            continue
        done = {one for one in controllers if _set(directory, _FILES[version][one], wanted[one])}
        if done:
            directories.append(directory)
            enforced |= done
        else:
            remove(directory)
    return Groups(tuple(directories), frozenset(enforced))


def own_groups() -> list[Group]:
    """The control groups of this process, as far as they are visible here."""
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


def _parent_group(controller: str) -> tuple[str, int] | None:
    """The group in which we may make one with this controller, and the cgroup version; None if there is none."""
    for group in own_groups():
        if controller in group.controllers:
            return (group.directory, 1) if _is_ours(group.directory) else None
    for group in own_groups():
        if group.controllers:
            continue
        # A group of version 2 has either processes or subgroups with controllers. So the parent of our group is mostly
        # the one.
        for directory in (group.directory, os.path.dirname(group.directory)):
            if os.path.commonpath((group.mount, directory)) != group.mount:
                break
            if controller in _words(directory, "cgroup.subtree_control") and _is_ours(directory):
                return directory, 2
    return None


def _is_ours(directory: str) -> bool:
    """May we make a group in the directory, and move our processes into it?"""
    return os.access(directory, os.W_OK) and os.access(os.path.join(directory, "cgroup.procs"), os.W_OK)


def _words(directory: str, name: str) -> list[str]:
    try:
        with open(os.path.join(directory, name), encoding="ascii") as file:
            return file.read().split()
    except OSError:
        return []


def _set(directory: str, files: tuple[tuple[str, str], ...], value: int) -> bool:
    """Write a limit to the files of a group; did it work?"""
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
    """Open the file to which a process writes "0" in order to enter the group. Raises OSError."""
    return os.open(os.path.join(directory, "cgroup.procs"), os.O_WRONLY | os.O_CLOEXEC)


# -- what bubblewrap needs to know

# Processes in the group beside the sandbox's own: bubblewrap outside, and the first process inside.
_HELPERS: Final = 2
# The device nodes inside are the host's, and belong to root, who could change their modes. On a read-only /dev modes
# cannot be changed, but devices can still be written to. Bubblewrap's own read-only mounts would disable devices. In a
# container /dev is nosuid and noexec, and a namespace inside may not take that back.
_READ_ONLY_DEVICES: Final = '"$0" -o rbind,ro,nosuid,noexec /dev /dev && exec "$@"'
_RESOLVER: Final = "/etc/resolv.conf"


def bash_script(bash: str, text: str) -> tuple[str, ...]:
    """The command that runs a script in bash without touching the environment. Arguments follow, from $0 on."""
    return bash, "--noprofile", "--norc", "-p", "-c", text


def sandbox_facts(sandbox: Sandbox, bash: str, cwd: str, slot: Slot) -> Facts:
    """What bubblewrap's command line needs to know about this machine. Raises SandboxUnavailable, InvalidRequest."""
    root = os.getuid() == 0
    tools = {}
    for tool, package in (("bwrap", "bubblewrap"), ("unshare", "util-linux"), ("mount", "mount"))[: 3 if root else 2]:
        if (found := shutil.which(tool)) is None:
            raise SandboxUnavailable(f"no `{tool}` on PATH: install the package {package}, or leave out sandbox=")
        tools[tool] = found
    write, hide = sandbox.paths
    writable = tuple(_real("write", path) for path in write)
    hidden = [_real("hide", path) for path in hide]
    for path in (*write, *hide):
        _refuse_changeable(path, writable)
    for socket in (os.environ.get("SHELLSESSION_SOCKET"), the_guard().socket):
        if socket and os.path.exists(socket):
            hidden.append(os.path.realpath(socket))  # through it a command could run others outside the sandbox
    directory = os.path.realpath(slot.directory)
    home = os.path.dirname(os.path.dirname(directory))
    # Hosts with another XDG_RUNTIME_DIR keep files elsewhere that shells outside the sandbox read. Hide these, too.
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
        (*bash_script(bash, _READ_ONLY_DEVICES), tools["mount"]) if root else (),
    )


def _real(name: str, path: str) -> str:
    real = os.path.realpath(os.path.expanduser(path))
    if not os.path.isabs(os.path.expanduser(path)) or not os.path.exists(real):
        raise InvalidRequest(f"sandbox.{name}: {path!r} does not exist: make it first, or leave it out")
    return real


def _refuse_changeable(path: str, writable: tuple[str, ...]) -> None:
    """Raise InvalidRequest if a path leads through a symbolic link that the sandbox itself could change.

    At its next start the sandbox would decide what is writable or hidden.
    """
    for link in proc.resolve(os.path.expanduser(path))[1]:
        if any(is_within(link, one) for one in writable):
            raise InvalidRequest(f"sandbox: {path!r} leads through {link!r}, a link in write=: name its target instead")


def sandbox_limits(sandbox: Sandbox, slot: Slot, on_failure: ExitStack) -> tuple[bytes, tuple[str, ...]]:
    """The limits of a sandbox: the commands with which bash sets its own, and the control groups that it enters."""
    memory, processes = sandbox.memory_bytes, sandbox.processes
    wanted = limits(memory, None if processes is None else processes + _HELPERS, sandbox.cpu)
    name = f"shellsession-{slot.tag:x}"
    groups = make(name, wanted) if wanted else Groups((), frozenset())
    for directory in groups.directories:
        on_failure.callback(watcher.remove, directory)
    for number, directory in enumerate(groups.directories):  # for the watcher, which removes them if nobody else does
        os.symlink(directory, os.path.join(slot.directory, f"group-{number}"))
    return _rlimits(sandbox, groups.enforced), groups.directories


def _rlimits(sandbox: Sandbox, enforced: frozenset[str]) -> bytes:
    """The commands with which bash sets the limits that no group enforces. Raises SandboxUnavailable."""
    lines = []
    if sandbox.cpu is not None and "cpu" not in enforced:
        raise SandboxUnavailable(_unenforceable("cpu", "nothing else limits it"))
    if sandbox.processes is not None and "pids" not in enforced:
        if os.getuid() == 0:
            raise SandboxUnavailable(_unenforceable("processes", "RLIMIT_NPROC does not limit root"))
        # Set inside, where only processes inside count (since Linux 5.14). The first process counts as well.
        lines.append(b"\\ulimit -u %d\n" % (sandbox.processes + 1))
    if sandbox.memory_bytes is not None and "memory" not in enforced:
        lines.append(b"\\ulimit -v %d\n" % (sandbox.memory_bytes >> 10))
    return b"".join(lines)


def _unenforceable(name: str, why: str) -> str:
    return (
        f"sandbox.{name} cannot be enforced here: this process cannot make a control group with that controller, and"
        f" {why}; run it where a cgroup is delegated to it (systemd: Delegate=yes), as an ordinary user, or leave out"
        " that limit"
    )
