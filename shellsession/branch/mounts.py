"""The mounts of a branch: an overlay over a directory, in namespaces that only the branch's shells see.

``make`` makes the namespaces and the first overlay. A child enters them with ``entering``, before it runs bash.
``stack`` mounts another overlay over the last one, and so freezes the layer that the last one wrote to.

Children with one thread do all of this (see ``vfork``), and end at once. Only the shells, and the descriptors of this
process, keep the namespaces alive.

Why bash cannot reach the directory below the overlay: in the namespaces it has no capability and cannot get any. The
directory is bound among the layers. An empty read-only file system covers them, and each other path to them. Anybody
may make another user namespace, but there the kernel locks these mounts together.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ..engine.kernel.vfork import SystemCall, passing, perform_apart
from ..errors import BranchUnavailable

# <linux/sched.h>, <linux/mount.h>, <linux/prctl.h>, <linux/capability.h>
_NEW_USER, _NEW_MOUNTS = 0x10000000, 0x00020000
_SPACES: Final = _NEW_USER | _NEW_MOUNTS
_READ_ONLY, _NO_SETUID, _NO_DEVICES, _BIND, _RECURSIVE, _PRIVATE, _SHARED = 1, 2, 4, 1 << 12, 1 << 14, 1 << 18, 1 << 20
_NO_NEW_PRIVILEGES: Final = 38
_CAPABILITIES_VERSION: Final = 0x20080522
# The base is bound there, in the directory of the layers. No layer has this name.
BASE: Final = "base"
# The kernel takes one page of options.
_PAGE: Final = 4096


_PROGRAM: Final = (
    "import sys; sys.path.insert(0, sys.argv[1]); from shellsession.branch.mounts import serve;"
    " serve(int(sys.argv[2]), sys.argv[3:])"
)
_GOOD: Final = b"\n"
_ENDED: Final = "the process that makes the namespaces of the branch has ended too early"

_NO_NAMESPACES: Final = (
    "a branch needs user namespaces, and this process cannot make one with its own mounts ({}): see `sysctl"
    " user.max_user_namespaces kernel.unprivileged_userns_clone kernel.apparmor_restrict_unprivileged_userns`; in a"
    " container, let it make namespaces, and mount /proc; or leave out branch="
)
_NO_OVERLAY: Final = (
    "the kernel makes no overlay of {} with its layers in {} ({}): these must be on a local disk with extended"
    " attributes (ext4, xfs, btrfs), not on another overlay, as the root of a container is: name one on a volume"
    " with branch_dir="
)


class Spaces(NamedTuple):
    """The namespaces of a branch, as descriptors.

    ``layers``: the directory of the layers in them, below its cover. ``root``: the root directory in them.
    """

    user: int
    mounts: int
    layers: int
    root: int

    def close(self) -> None:
        for one in self:
            os.close(one)


def make(base: str, directory: str, layers: Sequence[str], covered: Iterable[str]) -> Spaces:
    """Make the namespaces of a branch. Raises BranchUnavailable.

    ``directory``: where the layers are, and an empty directory named BASE. ``layers``: their names, the lowest first;
    the last one is writable. ``covered``: the directories to hide.
    """
    if _may_map():
        return _make(base, directory, layers, covered)
    said, found = _ask_fresh_process([base, directory, ":".join(layers), *covered])
    if said != _GOOD.decode():
        raise BranchUnavailable(said or _ENDED)
    return Spaces(*found)


def _make(base: str, directory: str, layers: Sequence[str], covered: Iterable[str]) -> Spaces:
    covers = [_cover(path) for path in covered]
    calls = [*_private(), ("chdir", (os.fsencode(directory),))]
    calls += [("mount", (os.fsencode(base), BASE.encode(), None, _BIND, None)), *_overlay(base, layers)]
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        # The child does not need its 0, so that a file opened after `close` gets this number.
        calls += [*_open("."), passing(theirs.fileno(), (0,)), *covers, *_open("/"), ("dup2", (0, 1))]
        calls += [*_open("/proc/self/ns/user"), ("dup2", (0, 2)), *_open("/proc/self/ns/mnt")]
        calls += [passing(theirs.fileno(), (2, 0, 1))]
        try:
            perform_apart(calls, _SPACES)
        except OSError as error:
            raise BranchUnavailable(_fault() or _NO_OVERLAY.format(base, directory, error.strerror)) from error
        (layers_there,), (user, mounts, root) = _received(ours), _received(ours)
        return Spaces(user, mounts, layers_there, root)


def _may_map() -> bool:
    """Whether this process may map ids: not if other processes of its user may not read it (PR_SET_DUMPABLE)."""
    return os.access("/proc/self/uid_map", os.W_OK)


def _ask_fresh_process(arguments: list[str]) -> tuple[str, list[int]]:
    """The reply of ``serve`` in a new process, which may map ids."""
    import subprocess

    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
        command = [sys.executable, "-I", "-c", _PROGRAM, package, str(theirs.fileno()), *arguments]
        subprocess.run(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], cwd="/", check=False)
        theirs.close()
        said, found, *_ = socket.recv_fds(ours, 1 << 16, len(Spaces._fields))
    for one in found:
        os.set_inheritable(one, False)
    return said.decode("utf-8", "replace"), found


def serve(number: int, arguments: Sequence[str]) -> None:
    """Make the namespaces for the process at the other end of a socket. Without arguments, only send ``fault``."""
    with socket.socket(fileno=number) as end:
        try:
            if not arguments:
                end.send(_fault().encode() or _GOOD)
                return
            base, directory, layers, *covered = arguments
            socket.send_fds(end, [_GOOD], list(_make(base, directory, layers.split(":"), covered)))
        except BranchUnavailable as error:
            end.send(str(error).encode("utf-8", "replace"))


def fault() -> str:
    """Why branches do not work on this machine; "" if they do."""
    if _may_map():
        return _fault()
    said, _ = _ask_fresh_process([])
    return "" if said == _GOOD.decode() else said or _ENDED


def _fault() -> str:
    try:
        perform_apart(_private(), _SPACES)
    except OSError as error:
        return _NO_NAMESPACES.format(error.strerror)
    return ""


def _received(end: socket.socket) -> list[int]:
    _, found, *_ = socket.recv_fds(end, 1, 3)
    for one in found:
        os.set_inheritable(one, False)
    return found


def _private() -> list[SystemCall]:
    """Calls that map the ids in the new user namespace, and keep later mounts of the host out of it."""
    return [*_mapping(), ("mount", (None, b"/", None, _RECURSIVE | _PRIVATE, None))]


def _open(path: str, flags: int = 0) -> list[SystemCall]:
    return [("close", (0,)), ("open", (os.fsencode(path), flags))]


def _mapping() -> list[SystemCall]:
    """Calls that keep this user's ids in the new user namespace."""
    calls = list[SystemCall]()
    for name, text in (("setgroups", "deny"), ("uid_map", f"{os.geteuid()} {os.geteuid()} 1")):
        calls += _write(name, text)
    return calls + _write("gid_map", f"{os.getegid()} {os.getegid()} 1")


def _write(name: str, text: str) -> list[SystemCall]:
    return [*_open(f"/proc/self/{name}", os.O_WRONLY), ("write", (0, text.encode(), len(text)))]


def _overlay(base: str, layers: Sequence[str]) -> list[SystemCall]:
    """Calls that mount an overlay over the base. The working directory is that of the layers.

    A sandbox has a copy of this mount. As the mount is shared, it also gets the overlays mounted over it later.
    """
    *lower, upper = layers
    below = ":".join([*(f"{name}/upper" for name in reversed(lower)), BASE])
    options = f"userxattr,lowerdir={below},upperdir={upper}/upper,workdir={upper}/work"
    if len(options) >= _PAGE:
        raise BranchUnavailable(
            f"{len(layers)} layers are too many for one mount: drop checkpoints, or apply the branch"
        )
    place = os.fsencode(base)
    return [
        ("mount", (b"shellsession", place, b"overlay", 0, options.encode())),
        ("mount", (None, place, None, _SHARED, None)),
    ]


def _cover(path: str) -> SystemCall:
    flags = _READ_ONLY | _NO_SETUID | _NO_DEVICES
    return "mount", (b"shellsession", os.fsencode(path), b"tmpfs", flags, b"size=4k,mode=555")


def _inside(spaces: Spaces) -> list[SystemCall]:
    """Calls that enter the namespaces. The working directory is then their root directory."""
    return [("setns", (spaces.user, _NEW_USER)), ("setns", (spaces.mounts, _NEW_MOUNTS))]


def entering(spaces: Spaces, is_sandboxed: bool) -> list[SystemCall]:
    """Calls that enter the namespaces, and drop all capabilities for good.

    ``is_sandboxed``: root keeps them, as bubblewrap needs them to make a sandbox. The sandbox has none.
    """
    calls = [*_inside(spaces), ("prctl", (_NO_NEW_PRIVILEGES, 1, 0, 0, 0))]  # setuid programs gain nothing
    if not is_sandboxed:
        header, none = _CAPABILITIES_VERSION.to_bytes(4, "little") + bytes(4), bytes(24)
        calls.append(("capset", (header, none)))
    return calls


def stack(spaces: Spaces, base: str, layers: Sequence[str]) -> None:
    """Mount another overlay over the last one. See ``make``. Raises OSError."""
    perform_apart([*_inside(spaces), ("fchdir", (spaces.layers,)), *_overlay(base, layers)])
