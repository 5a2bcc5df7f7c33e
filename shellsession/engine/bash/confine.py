"""Collects what ``spawn`` needs to launch a sandbox: facts for bubblewrap's command line, and limits.

Raises an error for anything that was requested and cannot be enforced.
"""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack, suppress
from typing import Final

from ...errors import SandboxUnavailable
from ...sandbox import SCRATCH, Facts, Sandbox, is_within
from ..io.directories import homes, make_missing, state_directory
from ..kernel import proc
from . import cgroups
from .watcher import Slot, the_guard

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


def sandbox_facts(sandbox: Sandbox, bash: str, cwd: str, slot: Slot, base: str | None) -> Facts:
    """What bubblewrap's command line needs to know about this machine. Raises SandboxUnavailable.

    ``base``: the directory of which the session has a branch.
    """
    root = os.getuid() == 0
    tools = {}
    for tool, package in (("bwrap", "bubblewrap"), ("unshare", "util-linux"), ("mount", "mount"))[: 3 if root else 2]:
        if (found := shutil.which(tool)) is None:
            raise SandboxUnavailable(f"no `{tool}` on PATH: install the package {package}, or leave out sandbox=")
        tools[tool] = found
    write, hide = sandbox.paths
    writable = tuple(existing("write", path) for path in write)
    if sandbox.missing_ok:
        hide = tuple(path for path in hide if os.path.exists(os.path.expanduser(path)))
    hidden = [existing("hide", path) for path in hide]
    for path in (*write, *hide):
        _refuse_changeable(path, writable)
    for path in (*writable, *hidden):
        if base is not None and path != base and is_within(path, base):
            raise SandboxUnavailable(
                f"sandbox: {path!r} is in {base!r}, of which this session has a branch: name only that directory, or"
                " one above it"
            )
    for socket in (os.environ.get("SHELLSESSION_SOCKET"), the_guard().socket):
        if socket and os.path.exists(socket):
            hidden.append(os.path.realpath(socket))  # through it a command could run others outside the sandbox
    directory = os.path.realpath(slot.directory)
    home = os.path.dirname(os.path.dirname(directory))
    # Hosts with another XDG_RUNTIME_DIR keep files elsewhere that shells outside the sandbox read. Hide these, too.
    hidden += {os.path.realpath(one) for one in homes() if os.path.isdir(one)} - {home}
    # The logs of all agents. Made first: a directory that another host makes later would be visible.
    with suppress(OSError):
        make_missing(state_directory())
    if os.path.isdir(state := os.path.realpath(state_directory())):
        hidden.append(state)
    unreadable = os.path.join(directory, "hidden")
    os.close(os.open(unreadable, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0))
    os.makedirs(os.path.join(directory, SCRATCH), 0o700, exist_ok=True)
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
        base is not None,
    )


def existing(name: str, path: str) -> str:
    """A path of the sandbox's ``name``, which is write or hide, without symbolic links. Raises SandboxUnavailable."""
    real = os.path.realpath(os.path.expanduser(path))
    if not os.path.isabs(os.path.expanduser(path)) or not os.path.exists(real):
        instead = "pass missing_ok=True" if name == "hide" else "leave it out"
        raise SandboxUnavailable(f"sandbox.{name}: {path!r} does not exist: make it first, or {instead}")
    return real


def _refuse_changeable(path: str, writable: tuple[str, ...]) -> None:
    """Raise SandboxUnavailable if a path leads through a symbolic link that the sandbox itself could change.

    At its next start the sandbox would decide what is writable or hidden.
    """
    for link in proc.resolve(os.path.expanduser(path))[1]:
        if any(is_within(link, one) for one in writable):
            raise SandboxUnavailable(
                f"sandbox: {path!r} leads through {link!r}, a link in write=: name its target instead"
            )


def sandbox_limits(sandbox: Sandbox, slot: Slot, on_failure: ExitStack) -> tuple[bytes, tuple[str, ...]]:
    """The limits of a sandbox: the commands with which bash sets its own, and the control groups that it enters."""
    memory, processes = sandbox.memory_bytes, sandbox.processes
    wanted = cgroups.limits(memory, None if processes is None else processes + _HELPERS, sandbox.cpu)
    name = f"shellsession-{slot.tag:x}"
    groups = cgroups.make(name, wanted) if wanted else cgroups.NONE
    for directory in groups.directories:
        on_failure.callback(cgroups.remove, directory)
    for number, directory in enumerate(groups.directories):  # for the watcher, which removes them if nobody else does
        os.symlink(directory, os.path.join(slot.directory, f"group-{number}"))
    return _rlimits(sandbox, groups.enforced), groups.directories


def _rlimits(sandbox: Sandbox, enforced: frozenset[str]) -> bytes:
    """The commands with which bash sets the limits that no group enforces. Raises SandboxUnavailable."""
    commands = []
    if sandbox.cpu is not None and "cpu" not in enforced:
        raise SandboxUnavailable(_unenforceable("cpu", "nothing else limits it"))
    if sandbox.processes is not None and "pids" not in enforced:
        if os.getuid() == 0:
            raise SandboxUnavailable(_unenforceable("processes", "RLIMIT_NPROC does not limit root"))
        # Set inside, where only processes inside count (since Linux 5.14). The first process counts as well.
        commands.append(b"\\ulimit -u %d; " % (sandbox.processes + 1))
    if sandbox.memory_bytes is not None and "memory" not in enforced:
        commands.append(b"\\ulimit -v %d; " % (sandbox.memory_bytes >> 10))
    return b"".join(commands)


def _unenforceable(name: str, why: str) -> str:
    return (
        f"sandbox.{name} cannot be enforced here: this process cannot make a control group with that controller, and"
        f" {why}; run it where a cgroup is delegated to it (systemd: Delegate=yes), as an ordinary user, or leave out"
        " that limit"
    )
