"""``Sandbox``: the option that confines a session's bash, and the bubblewrap command line that enforces it.

Nothing here touches the system. ``Facts`` holds what it must know about the machine.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from os import PathLike  # imported at run time, too: pydantic and get_type_hints look it up here
from typing import Any, Final

from .errors import InvalidRequest, SandboxUnavailable
from .models import check_flag, path_text, to_bytes

_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE: Final = re.compile(r"([0-9]{1,15}) ?([KMGT]?)(?:i?B)?", re.ASCII)
# Lowest and highest values. With less memory, bash itself does not start under an address space limit.
_MEMORY: Final = (16 << 20, 1 << 50)
_PROCESSES: Final = (2, 1 << 22)  # bash and one command; the kernel's PID_MAX_LIMIT
_PROCESSORS: Final = (0.01, 1024)
# Bash text that unsets TMPDIR, so that /tmp is used, unless TMPDIR is a directory that can be written inside. Its exit
# status is 0.
USABLE: Final = "[[ -d ${TMPDIR-} && -w $TMPDIR ]] || \\unset -v TMPDIR"
# A directory of the session that only its bash writes to, below its slot; in memory, and not visible from outside.
SCRATCH: Final = "scratch"
# Variables that a sandbox passes on from the host: they describe the user and the locale, and hold no secrets.
_CLEAN_ENV: Final = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_*", "TERM", "TZ", "TMPDIR")
# Bubblewrap mounts these afresh: nothing of the host is visible there that could be bound or hidden.
_FRESH_MOUNTS: Final = ("/dev", "/proc")
# What the host has there is not visible either, but paths in them can be bound.
_EMPTY: Final = (*_FRESH_MOUNTS, "/run", "/tmp")


@dataclass(frozen=True, slots=True)
class Sandbox:
    """How bubblewrap confines a session's bash and everything it starts (Linux; the program ``bwrap``).

    **Files.** The file system is read-only, except for ``write``.

    * ``write``: files and directories that can be written. ``hide``: a directory is empty, a file cannot be opened.
      These paths must exist, and not lead through a link that is in ``write``. A relative path starts at the present
      directory of this process, ``~`` at the home. The more deeply nested path wins. ``missing_ok``: skip paths of
      ``hide`` that do not exist when bash starts. One that the host makes later is visible.
    * /tmp, /dev/shm and /run are empty and private unless they, or paths in them, are in ``write``. shellsession's own
      runtime directory always is, and so is the directory of its logs. TMPDIR is unset if it cannot be written inside.
    * If the host replaces a hidden file or directory later, the new one is visible: the kernel removes the cover
      together with what it covers. Most programs save a file in this way, so hide its directory.

    **Environment.** Of the host's environment bash gets PATH, HOME, USER, LOGNAME, SHELL, LANG, ``LC_*``, TERM, TZ and
    TMPDIR. ``pass_env``: names or patterns (``*``, ``?``, ``[...]``) of more; ``["*"]`` passes all. The options ``env``
    and ``extra_env`` of the session always pass.

    **Privileges.** Root has no capabilities inside: it can write what belongs to root, and what everybody may write.
    Nobody can set a setuid or setgid bit (EPERM). Root cannot make user namespaces, and so no further sandbox; nor can
    anybody whose limits are enforced by cgroups.

    **Network.** ``network``: False leaves only a loopback interface; True gives the host's network. A Unix socket that
    is visible can always be connected to: hide those outside of /run and /tmp.

    **Limits** (None: no limit).

    * ``memory``: bytes, or "512M" (K, M, G, T: powers of 1024), for everything in the sandbox together.
    * ``processes``: the number of processes and threads, including bash.
    * ``cpu``: how much processor time it gets; 0.5 is half of one processor's.

    Cgroups enforce all three where they can be made. If a process is killed for its memory there, the result's
    ``reason`` is "killed: memory limit 512M". Elsewhere ``memory`` limits each process by itself (RLIMIT_AS),
    ``processes`` is RLIMIT_NPROC, which does not bind root, and ``cpu`` is not available. The start of a session raises
    SandboxUnavailable if a limit cannot be enforced, or a path does not exist.

    Processes have process ids of their own inside; results and jobs show the host's. Before Linux 6.15, only the exit
    status (128 + n) shows that a signal ended bash itself. Raises InvalidRequest.
    """

    write: Iterable[str | PathLike[str]] = ()
    hide: Iterable[str | PathLike[str]] = ()
    network: bool = False
    memory: int | str | None = None
    processes: int | None = None
    cpu: float | None = None
    pass_env: Iterable[str] = ()
    missing_ok: bool = False

    def __post_init__(self) -> None:
        for name in ("write", "hide"):
            object.__setattr__(self, name, tuple(_paths(name, getattr(self, name))))
        object.__setattr__(self, "pass_env", tuple(_patterns(self.pass_env)))
        check_flag("sandbox.network", self.network)
        check_flag("sandbox.missing_ok", self.missing_ok)
        object.__setattr__(self, "memory", _memory(self.memory))
        _check_number("processes", self.processes, int, _PROCESSES)
        _check_number("cpu", self.cpu, int | float, _PROCESSORS)

    @property
    def paths(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """The paths of ``write`` and of ``hide``, as the caller named them."""
        return tuple(map(str, self.write)), tuple(map(str, self.hide))

    def shows(self, path: str) -> bool:
        """Is what the host has at this absolute path visible inside?"""
        write, hide = self.paths
        mount = max((one for one in ("/", *_EMPTY, *write, *hide) if is_within(path, one)), key=len, default="")
        return mount == "/" or mount in write

    def environment(self, environ: Mapping[str, str]) -> dict[str, str]:
        """The variables of the host's environment that bash gets."""
        patterns = (*_CLEAN_ENV, *self.pass_env)
        return {
            name: value
            for name, value in environ.items()
            if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
        }

    @property
    def memory_bytes(self) -> int | None:
        return self.memory if isinstance(self.memory, int) else None


def size_text(size: int) -> str:
    """A number of bytes with the largest unit that divides it: "512M"."""
    unit, factor = max((one for one in _UNITS.items() if size % one[1] == 0), key=lambda one: one[1])
    return f"{size // factor}{unit}"


def _paths(name: str, given: object) -> Iterator[str]:
    if isinstance(given, str | bytes | PathLike) or not isinstance(given, Iterable):
        raise InvalidRequest(f"sandbox.{name} must be a list of paths, not {given!r}")
    for one in given:
        if not (path := path_text(one)):
            raise InvalidRequest(f"sandbox.{name}: {one!r} is not the path of a file or directory (str)")
        to_bytes(f"sandbox.{name}", path)
        yield path if path.startswith(("/", "~")) else posixpath.abspath(path)


def _patterns(given: object) -> Iterator[str]:
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise InvalidRequest(f"sandbox.pass_env must be a list of names or patterns of variables, not {given!r}")
    for one in given:
        if not isinstance(one, str) or not one or "=" in one:  # what follows "=" may be a secret
            shown = repr(one.partition("=")[0]) if isinstance(one, str) else type(one).__name__
            raise InvalidRequest(f"sandbox.pass_env: {shown} is not the name of a variable; values go into extra_env=")
        to_bytes("sandbox.pass_env", one)
        yield one


def _memory(value: object) -> int | None:
    if isinstance(value, str):
        match = _SIZE.fullmatch(value.strip())
        if match is None:
            raise InvalidRequest(f'sandbox.memory must be a number of bytes or a text like "512M", not {value!r}')
        value = int(match[1]) * _UNITS[match[2]]
    _check_number("memory", value, int, _MEMORY)
    return value if isinstance(value, int) else None


def _check_number(name: str, value: object, kind: Any, limits: tuple[float, float]) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, kind) or not limits[0] <= value <= limits[1]:
        low, high = limits
        raise InvalidRequest(
            f"sandbox.{name} must be a number from {low} to {high}, or None for no limit; not {value!r}"
        )


@dataclass(frozen=True, slots=True)
class Facts:
    """What ``command_line`` must know about the machine. All paths are absolute, and without symbolic links.

    ``root``: whether this user is root. ``unshare``, ``bwrap``: the programs. ``cwd``: the working directory.
    ``home``: the directory for files of all hosts of this user; ``slot``: the directory in it for this session.
    ``unreadable``: a file without any permission. ``write``: paths that can be written. ``hide``: hidden paths, each
    with whether it is a directory. ``resolver``: paths in /run that name resolution needs. ``wrapper``: a command that
    starts bubblewrap, with mounts of its own. ``is_branched``: it starts in namespaces of a branch.
    """

    root: bool
    unshare: str
    bwrap: str
    cwd: str
    home: str
    slot: str
    unreadable: str
    write: tuple[str, ...] = ()
    hide: tuple[tuple[str, bool], ...] = ()
    resolver: tuple[str, ...] = ()
    wrapper: tuple[str, ...] = ()
    is_branched: bool = False


@dataclass(frozen=True, slots=True)
class _Mount:
    """How a path is mounted.

    ``arguments``: those of bubblewrap. ``empty``: nothing of the host is visible there. ``read_only``: it is remounted
    read-only when everything inside it is mounted.
    """

    arguments: tuple[str, ...]
    empty: bool = False
    read_only: bool = False


def command_line(sandbox: Sandbox, facts: Facts, command: list[str], seccomp: int, grouped: bool = False) -> list[str]:
    """The command line that runs ``command`` in the sandbox. Raises SandboxUnavailable for contradictory paths.

    ``seccomp``: the descriptor from which bubblewrap reads its filter. ``grouped``: cgroups of ours enforce the limits.
    """
    mounts = _mounts(sandbox, facts)
    mount = _nearest_mount(mounts, facts.cwd)
    if mounts[mount].empty and mount != facts.cwd:
        raise SandboxUnavailable(
            f"the working directory {facts.cwd!r} does not exist in the sandbox, where {mount!r} is empty:"
            " add it to the sandbox's write, or pass another cwd="
        )
    # Mount from the outside in; remount read-only at the end, as mounting inside needs a writable directory.
    order = sorted(mounts, key=lambda path: path.split("/") if path != "/" else [])
    mount_words = [word for path in order for word in mounts[path].arguments]
    mount_words += [word for path in order if mounts[path].read_only for word in ("--remount-ro", path)]
    spaces = ["user", "pid", "ipc", "uts", *(() if sandbox.network else ("net",))]
    isolation = [f"--unshare-{space}" for space in spaces] + ["--unshare-cgroup-try", "--as-pid-1"]
    # In a user namespace of its own, a command could mount the cgroup file system. Our cgroups belong to this user, who
    # needs no capability to change their limits.
    isolation += ["--disable-userns"] if facts.root or grouped else []
    # Where mounts are shared (as systemd does), a later mount of the host would appear inside, and be writable. In the
    # namespaces of a branch only its own mounts are shared, and shall appear.
    propagation = "slave" if facts.is_branched else "private"
    prefix = [facts.unshare, "--map-current-user", "--mount", "--propagation", propagation, "--", *facts.wrapper]
    # Root would otherwise keep every capability, and could undo the mounts.
    isolation += ["--cap-drop", "ALL", "--seccomp", str(seccomp)]
    # No --die-with-parent: the kernel would kill the sandbox when the thread that started it ends.
    return [*prefix, facts.bwrap, *isolation, *mount_words, "--chdir", facts.cwd, "--", *command]


def _mounts(sandbox: Sandbox, facts: Facts) -> dict[str, _Mount]:
    memory = sandbox.memory_bytes
    # Files in a private directory count as memory. Its size is limited, so that it is full before the memory is.
    temporary, shared = ((), ()) if memory is None else (("--size", str(memory // 2)), ("--size", str(memory // 4)))
    mounts = {
        "/": _Mount(("--ro-bind", "/", "/")),
        "/dev": _Mount(("--dev", "/dev"), empty=True, read_only=True),
        "/dev/shm": _Mount((*shared, "--perms", "1777", "--tmpfs", "/dev/shm"), empty=True),
        "/proc": _Mount(("--proc", "/proc"), read_only=facts.root),
        "/run": _Mount(("--perms", "0755", "--tmpfs", "/run"), empty=True, read_only=True),
        "/tmp": _Mount((*temporary, "--perms", "1777", "--tmpfs", "/tmp"), empty=True),
    }
    if "/" in facts.write:
        del mounts["/tmp"]
    for path in facts.resolver if sandbox.network else ():
        mounts[path] = _Mount(("--ro-bind", path, path))
    for path in facts.write:
        _refuse_fresh_mount("write", path)
        mounts[path] = _Mount(("--bind", path, path))
    for path, is_directory in facts.hide:
        _refuse_fresh_mount("hide", path)
        if path in facts.write or path == "/":
            raise SandboxUnavailable(f"sandbox: {path!r} cannot be hidden{' and written' if path != '/' else ''}")
        mounts[path] = _hidden(path) if is_directory else _Mount(("--ro-bind", facts.unreadable, path))
    mounts[facts.home] = _hidden(facts.home)
    mounts[facts.slot] = _Mount(("--ro-bind", facts.slot, facts.slot))
    scratch = posixpath.join(facts.slot, SCRATCH)
    mounts[scratch] = _Mount((*shared, "--perms", "0700", "--tmpfs", scratch), empty=True)
    for path, _ in facts.hide:  # nothing to hide inside a hidden directory
        if mounts[_nearest_mount(mounts, posixpath.dirname(path))].empty:
            mounts.pop(path, None)
    return mounts | {path: _Mount(("--bind", path, path)) for path in _directories_between(mounts, facts.write)}


def _directories_between(mounts: Iterable[str], writable: Iterable[str]) -> Iterator[str]:
    """The directories between a writable path and the mounts inside it; each gets its own mount.

    A mount point cannot be renamed. If one of these directories could be renamed inside, the next start of bash, after
    an `exit`, would mount other files.
    """
    for path in mounts:
        directory = posixpath.dirname(path)
        above = _nearest_mount(mounts, directory)
        while directory != above and above in writable:
            yield directory
            directory = posixpath.dirname(directory)


def _hidden(path: str) -> _Mount:
    return _Mount(("--perms", "0555", "--tmpfs", path), empty=True, read_only=True)


def _nearest_mount(mounts: Iterable[str], path: str) -> str:
    """The mount point that the path is at or below."""
    return max((one for one in mounts if is_within(path, one)), key=len)


def is_within(path: str, directory: str) -> bool:
    """Is the path the directory, or in it?"""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _refuse_fresh_mount(name: str, path: str) -> None:
    if any(is_within(path, own) for own in _FRESH_MOUNTS) and not is_within(path, "/dev/shm"):
        raise SandboxUnavailable(
            f"sandbox.{name}: {path!r} is in a directory that the sandbox makes itself: leave it out of write and hide"
        )
