"""What confines a session's bash: what it may write, see, reach and use up, and bubblewrap's command line for that.

Law: pure. It asks nothing of the machine; what has to be known of the machine comes in as Facts.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from os import PathLike  # not for type checkers alone: pydantic and get_type_hints look it up here
from typing import Any, Final

from .errors import InvalidRequest
from .models import check_flag, path_text, to_bytes

_UNITS: Final = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE: Final = re.compile(r"([0-9]{1,15}) ?([KMGT]?)(?:i?B)?", re.ASCII)
# Less, and bash itself does not start under an address space limit.
_MEMORY: Final = (16 << 20, 1 << 50)
_PROCESSES: Final = (2, 1 << 22)  # bash, and a command; the kernel's own PID_MAX_LIMIT
_PROCESSORS: Final = (0.01, 1024)
# Bash text, true in the end: where the directory for temporary files is not there inside, or read-only, it is /tmp.
USABLE: Final = "[[ -d ${TMPDIR-} && -w $TMPDIR ]] || \\unset -v TMPDIR"
# Bubblewrap makes these anew: nothing of the host's can be bound there or has to be hidden there.
_ITS_OWN: Final = ("/dev", "/proc")


@dataclass(frozen=True, slots=True)
class Sandbox:
    """What a session's bash, and all that it starts, is confined to by bubblewrap (Linux; the program ``bwrap``).

    The file system is read-only. ``write``: files and directories that can be written; they and those of ``hide``
    exist, are absolute or begin with ``~``, and lead through no link that is in ``write``. ``hide``: a directory is
    empty, a file cannot be opened. The more deeply nested path wins. /tmp, /dev/shm and /run are empty and private
    unless they, or what is in them, are in ``write``; so is shellsession's own runtime directory, always. TMPDIR is
    unset where it cannot be written.
    ``network``: False leaves a loopback of its own, True is all that the host has. A Unix socket that can be seen can
    be connected to in any case: hide those outside of /run and /tmp. Root has no capabilities inside: it writes what
    belongs to root, or what everybody may write. Nobody can set a setuid or setgid bit inside (EPERM).

    What the host puts in the place of a hidden file or directory later is seen, as the kernel takes the cover away with
    what was covered; most programs save a file so: hide its directory. Inside, root makes no user namespaces, and so no
    further sandbox; nor does anybody whose limits are held by cgroups.

    ``memory``: bytes, or "512M" (K, M, G, T: powers of 1024), of everything in the sandbox together. ``processes``: how
    many there may be, threads too, bash itself among them. ``cpu``: how many processors' time it gets (0.5: half of
    one's). All three are held by cgroups where one can be made. Elsewhere ``memory`` bounds each process by itself
    (RLIMIT_AS), ``processes`` is RLIMIT_NPROC, which does not bind root, and ``cpu`` cannot be had: what is asked for
    and cannot be held raises SandboxUnavailable at the session's start. None: no limit.

    Processes see process ids of their own; a session's results and jobs have the host's. Before
    Linux 6.15 a signal that ended bash itself is told by the exit status alone (128 + n). Raises InvalidRequest.
    """

    write: Iterable[str | PathLike[str]] = ()
    hide: Iterable[str | PathLike[str]] = ()
    network: bool = False
    memory: int | str | None = None
    processes: int | None = None
    cpu: float | None = None

    def __post_init__(self) -> None:
        for name in ("write", "hide"):
            object.__setattr__(self, name, tuple(_paths(name, getattr(self, name))))
        check_flag("sandbox.network", self.network)
        object.__setattr__(self, "memory", _memory(self.memory))
        _check_number("processes", self.processes, int, _PROCESSES)
        _check_number("cpu", self.cpu, int | float, _PROCESSORS)

    @property
    def paths(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """What is to be writable and what hidden, as given."""
        return tuple(map(str, self.write)), tuple(map(str, self.hide))

    @property
    def memory_bytes(self) -> int | None:
        return self.memory if isinstance(self.memory, int) else None


def _paths(name: str, given: object) -> Iterator[str]:
    if isinstance(given, str | bytes | PathLike) or not isinstance(given, Iterable):
        raise InvalidRequest(f"sandbox.{name} is a list of paths, not {given!r}")
    for one in given:
        if (path := path_text(one)) is None or not path.startswith(("/", "~")):
            raise InvalidRequest(f"sandbox.{name}: {one!r} is no absolute path, nor one that begins with ~ (a str)")
        to_bytes(f"sandbox.{name}", path)
        yield path


def _memory(value: object) -> int | None:
    if isinstance(value, str):
        match = _SIZE.fullmatch(value.strip())
        if match is None:
            raise InvalidRequest(f'sandbox.memory is a number of bytes or a text like "512M", not {value!r}')
        value = int(match[1]) * _UNITS[match[2]]
    _check_number("memory", value, int, _MEMORY)
    return value if isinstance(value, int) else None


def _check_number(name: str, value: object, kind: Any, limits: tuple[float, float]) -> None:
    if value is None:
        return
    if isinstance(value, bool) or not isinstance(value, kind) or not limits[0] <= value <= limits[1]:
        low, high = limits
        raise InvalidRequest(f"sandbox.{name} is a number from {low} to {high}, or None for no limit; not {value!r}")


@dataclass(frozen=True, slots=True)
class Facts:
    """What the machine says: absolute paths without symbolic links, and whether we are root.

    ``write``: what can be written. ``hide``: what cannot be seen, and whether it is a directory. ``home``: where all
    hosts of this user have their files, and ``slot`` the part of it that is this session's. ``unreadable``: a file
    without any permission. ``resolver``: what name resolution needs of /run. ``wrapper``: a command that runs
    bubblewrap, with mounts of its own.
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


@dataclass(frozen=True, slots=True)
class _Mount:
    """How a path is mounted; ``empty``: nothing of the host's is seen there; ``shut``: it is read-only in the end."""

    arguments: tuple[str, ...]
    empty: bool = False
    shut: bool = False


def command_line(sandbox: Sandbox, facts: Facts, command: list[str], seccomp: int, grouped: bool = False) -> list[str]:
    """The command line that runs ``command`` confined. Raises InvalidRequest for paths that contradict each other.

    ``seccomp``: the descriptor from which bubblewrap reads its filter. ``grouped``: control groups of ours hold its
    limits.
    """
    mounts = _mounts(sandbox, facts)
    above = _above(mounts, facts.cwd)
    if mounts[above].empty and above != facts.cwd:
        raise InvalidRequest(
            f"the working directory {facts.cwd!r} is not there in the sandbox, where {above!r} is empty:"
            " add it to the sandbox's write, or pass another cwd="
        )
    # Mounted from the outside in; shut only when all that is mounted in them has its place.
    order = sorted(mounts, key=lambda path: path.split("/") if path != "/" else [])
    mounted = [word for path in order for word in mounts[path].arguments]
    mounted += [word for path in order if mounts[path].shut for word in ("--remount-ro", path)]
    spaces = ["user", "pid", "ipc", "uts", *(() if sandbox.network else ("net",))]
    apart = [f"--unshare-{space}" for space in spaces] + ["--unshare-cgroup-try", "--as-pid-1"]
    # What belongs to us in the control groups, which could be mounted in a user namespace of its own, is the host's:
    # no capability is needed to write it.
    apart += ["--disable-userns"] if facts.root or grouped else []
    # Root would keep every capability in there, and could undo the mounts.
    # No --die-with-parent: the kernel takes the end of the thread that started it for the parent's.
    # What is mounted outside later would be there inside, and writable, where mounts are shared (as systemd does).
    alone = [facts.unshare, "--map-current-user", "--mount", "--propagation", "private", "--", *facts.wrapper]
    apart += ["--cap-drop", "ALL", "--seccomp", str(seccomp)]
    return [*alone, facts.bwrap, *apart, *mounted, "--chdir", facts.cwd, "--", *command]


def _mounts(sandbox: Sandbox, facts: Facts) -> dict[str, _Mount]:
    memory = sandbox.memory_bytes
    # What fills a private directory counts as memory: it shall be full before the limit is reached.
    temporary, shared = ((), ()) if memory is None else (("--size", str(memory // 2)), ("--size", str(memory // 4)))
    mounts = {
        "/": _Mount(("--ro-bind", "/", "/")),
        "/dev": _Mount(("--dev", "/dev"), empty=True, shut=True),
        "/dev/shm": _Mount((*shared, "--perms", "1777", "--tmpfs", "/dev/shm"), empty=True),
        "/proc": _Mount(("--proc", "/proc"), shut=facts.root),
        "/run": _Mount(("--perms", "0755", "--tmpfs", "/run"), empty=True, shut=True),
        "/tmp": _Mount((*temporary, "--perms", "1777", "--tmpfs", "/tmp"), empty=True),
    }
    if "/" in facts.write:
        del mounts["/tmp"]
    for path in facts.resolver if sandbox.network else ():
        mounts[path] = _Mount(("--ro-bind", path, path))
    for path in facts.write:
        _refuse_its_own("write", path)
        mounts[path] = _Mount(("--bind", path, path))
    for path, is_directory in facts.hide:
        _refuse_its_own("hide", path)
        if path in facts.write or path == "/":
            raise InvalidRequest(f"sandbox: {path!r} cannot be hidden{' and written' if path != '/' else ''}")
        mounts[path] = _hidden(path) if is_directory else _Mount(("--ro-bind", facts.unreadable, path))
    mounts[facts.home] = _hidden(facts.home)
    mounts[facts.slot] = _Mount(("--ro-bind", facts.slot, facts.slot))
    for path, _ in facts.hide:  # in what is hidden already there is nothing to hide
        if mounts[_above(mounts, posixpath.dirname(path))].empty:
            mounts.pop(path, None)
    return mounts | {path: _Mount(("--bind", path, path)) for path in _ways(mounts, facts.write)}


def _ways(mounts: Iterable[str], writable: Iterable[str]) -> Iterator[str]:
    """The directories between what can be written and what is mounted in it.

    Renamed inside, they would lead the next start, after an `exit`, to other files. What is mounted cannot be renamed.
    """
    for path in mounts:
        way = posixpath.dirname(path)
        above = _above(mounts, way)
        while way != above and above in writable:
            yield way
            way = posixpath.dirname(way)


def _hidden(path: str) -> _Mount:
    return _Mount(("--perms", "0555", "--tmpfs", path), empty=True, shut=True)


def _above(mounts: Iterable[str], path: str) -> str:
    """What is mounted at the path, or nearest above it."""
    return max((one for one in mounts if is_within(path, one)), key=len)


def is_within(path: str, directory: str) -> bool:
    """Is the path the directory, or in it?"""
    return path == directory or path.startswith(directory.rstrip("/") + "/")


def _refuse_its_own(name: str, path: str) -> None:
    if any(is_within(path, own) for own in _ITS_OWN) and not is_within(path, "/dev/shm"):
        raise InvalidRequest(f"sandbox.{name}: {path!r} is made anew in a sandbox and cannot be given to it or hidden")
