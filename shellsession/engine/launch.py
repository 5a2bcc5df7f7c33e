"""How bash is launched: the command line, what is typed to it first, and whether it lives in a world of its own.

Law: what was asked for and cannot be had is one clear error, before anything runs.
"""

from __future__ import annotations

import os
import shutil
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final

from ..errors import InvalidRequest, SandboxUnavailable, ShellUnavailable
from ..models import Options
from ..policy import seccomp
from ..policy.sandbox import USABLE, Facts, Sandbox, command_line, is_within
from . import cgroups, processes, vfork
from .directories import homes
from .guard import Seat, the_guard

# -i makes SIGINT unwind to the prompt with the state alive; the rest keeps the prompt from meddling with the text.
_ARGUMENTS: Final = ["--noprofile", "--norc", "--noediting", "+H", "+o", "history", "-i"]
# Processes that are in the group as well: bubblewrap outside, and the first one inside.
_ITS_OWN: Final = 2
# The first process of the PID namespace, when it ends, takes all others with it. Bubblewrap's own would stay until the
# last of them has ended, and be left to whoever reaps orphans outside. Bash itself cannot be it: it would survive
# its own `kill -9 $$`. It changes nothing in the environment (before bash 5.0 `exec` itself takes one from SHLVL in a
# subshell), reads no file (-p), and says nothing of how bash ended.
_FIRST: Final = '((SHLVL -= BASH_VERSINFO[0] > 4)); exec 3>&2 2>/dev/null; (exec -a bash "$0" "$@" 2>&3 3>&-); exit $?'
# The device nodes inside are the host's, and root owns them: it could change their modes. Where /dev is read-only they
# can still be written to; bubblewrap's own read-only mounts have no devices.
_SHUT_DEVICES: Final = '"$0" -o rbind,ro /dev /dev && exec "$@"'
_RESOLVER: Final = "/etc/resolv.conf"
_NO_NAMESPACE: Final = ("unshare: ", "namespace", "uid map", "not permitted")
_HINT: Final = (
    "; it needs user namespaces: as root, see `sysctl user.max_user_namespaces kernel.unprivileged_userns_clone"
    " kernel.apparmor_restrict_unprivileged_userns`; in a container, let it make namespaces and mount /proc"
)
_UNKNOWN: Final = "Unknown option"
_OLD: Final = "; it is too old: bubblewrap 0.8 (Debian 12, Ubuntu 24.04) knows all that is used"


@dataclass(frozen=True, slots=True)
class Launch:
    """How one bash is launched: ``program`` with ``argv``.

    ``prelude``: what bash itself sets before all else. ``groups``: control groups that it enters. ``apart``: it has a
    PID namespace, mounts and pseudo terminals of its own, and is not the process that we start but below that one.
    ``seccomp``: what bubblewrap reads from the descriptor vfork.KEPT.
    """

    program: str
    argv: list[str]
    prelude: bytes = b""
    groups: tuple[str, ...] = ()
    apart: bool = False
    seccomp: bytes = b""

    def failed(self, said: str) -> ShellUnavailable:
        """The error when nothing came of it."""
        if self.apart:
            hint = _HINT if any(word in said for word in _NO_NAMESPACE) else _OLD if _UNKNOWN in said else ""
            return SandboxUnavailable(f"the sandbox could not be made; it said: {said or 'nothing'}{hint}")
        return ShellUnavailable(
            f"{self.program} ended at its start (is it bash 4.4 or newer? `bash=` names another); it said:"
            f" {said or 'nothing'}"
        )


def plan(options: Options, bash: str, cwd: str, seat: Seat | None) -> Launch:
    """How to launch bash with these options; in a sandbox, with that seat. Raises InvalidRequest, SandboxUnavailable.

    Who launches it removes its control groups.
    """
    sandbox, umask = options.sandbox, b""
    if options.umask is not None:
        umask = b"\\umask %04o\n" % options.umask  # not `builtin`, which may be a function of the environment's
    if sandbox is None:
        return Launch(bash, ["bash", *_ARGUMENTS], umask)
    assert seat is not None
    rules = _filter()
    facts, command = _facts(sandbox, bash, cwd, seat), [*_script(bash, _FIRST), bash, *_ARGUMENTS]
    with ExitStack() as on_failure:
        prelude, groups = _limits(sandbox, seat, on_failure)
        argv = command_line(sandbox, facts, command, vfork.KEPT, grouped=bool(groups))
        on_failure.pop_all()
    return Launch(argv[0], argv, USABLE.encode() + b"\n" + umask + prelude, groups, apart=True, seccomp=rules)


def _script(bash: str, text: str) -> tuple[str, ...]:
    """Runs that text, which changes nothing in the environment; its arguments follow, from $0 on."""
    return bash, "--noprofile", "--norc", "-p", "-c", text


def _filter() -> bytes:
    if (machine := os.uname().machine) not in seccomp.MACHINES:
        raise SandboxUnavailable(
            f"a sandbox needs a filter of system calls; shellsession has none for {machine}, only for"
            f" {' and '.join(seccomp.MACHINES)}: leave sandbox= out"
        )
    return seccomp.program(machine)


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
    for link in processes.resolve(os.path.expanduser(path))[1]:
        if any(is_within(link, one) for one in writable):
            raise InvalidRequest(f"sandbox: {path!r} leads through {link!r}, a link in write=: name where it leads")


def _limits(sandbox: Sandbox, seat: Seat, on_failure: ExitStack) -> tuple[bytes, tuple[str, ...]]:
    """What bash sets for itself, and the groups it enters."""
    memory, processes = sandbox.memory_bytes, sandbox.processes
    asked = cgroups.limits(memory, None if processes is None else processes + _ITS_OWN, sandbox.cpu)
    name = f"shellsession-{seat.tag:x}"
    groups = cgroups.make(name, asked) if asked else cgroups.Groups((), frozenset())
    for directory in groups.directories:
        on_failure.callback(cgroups.remove, directory)
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
