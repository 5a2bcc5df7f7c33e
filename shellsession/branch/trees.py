"""The base of a branch and its layers, as directories on disk: what overlayfs would show of them, without a mount.

Each path is opened part by part, and no symbolic link is followed. So nothing outside the base and the layers is read
or written.
"""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from errno import EXDEV
from typing import Final, NamedTuple

from ..errors import BranchUnavailable

# For a path.
OTHER_BASE: Final = (
    "{} is not the directory that the branch was made of: that one was moved or made anew; nothing was changed: move it"
    " back, or discard the branch"
)
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
# A FIFO that has just replaced a file must not block.
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK
_TYPES: Final = {
    stat.S_IFREG: "file",
    stat.S_IFDIR: "directory",
    stat.S_IFLNK: "link",
    stat.S_IFIFO: "FIFO",
    stat.S_IFSOCK: "socket",
}
# The prefix of the xattrs with which overlayfs marks what is in a layer (mount option userxattr).
MARK: Final = "user.overlay."
# An entry of this type hides what is below it.
WHITEOUT: Final = "whiteout"
ACLS: Final = ("system.posix_acl_access", "system.posix_acl_default")
# Apply gives no file one of these.
SETUID: Final = 0o6000
CAPABILITIES: Final = "security.capability"
# name_to_handle_at(2): its header of a size and a type, the most bytes after it, and the flag for a descriptor.
_HEADER, _HANDLE_MAX, _EMPTY_PATH = 8, 128, 0x1000


class Identity(NamedTuple):
    """Which directory it is: another one gets neither, and both stay after a rename and a boot.

    ``handle``: has also the generation, as a new directory may get the inode of a removed one. "": there is none.
    """

    inode: int
    handle: str

    @classmethod
    def of(cls, fd: int) -> Identity:
        found, mount = ctypes.create_string_buffer(_HEADER + _HANDLE_MAX), ctypes.c_int()
        size = ctypes.c_uint32.from_buffer(found)
        size.value, handle = _HANDLE_MAX, ""
        with suppress(AttributeError):  # an old musl
            call = ctypes.CDLL(None, use_errno=True).name_to_handle_at
            if call(fd, b"", found, ctypes.byref(mount), _EMPTY_PATH) == 0:
                handle = found.raw[_HEADER // 2 : _HEADER + size.value].hex()
        return cls(os.fstat(fd).st_ino, handle)

    def is_other(self, other: Identity) -> bool:
        return self.inode != other.inode or "" != self.handle != other.handle != ""


class Entry(NamedTuple):
    """What is at a path: its type (file, directory, link, FIFO, socket or device), its mode, and its size in bytes.

    ``layer``: where it is: 0 is the base. ``changed``: its ctime in nanoseconds.
    """

    type: str
    mode: int
    size: int
    layer: int
    inode: int
    links: int
    uid: int
    gid: int
    changed: int


class Opened(NamedTuple):
    """An open directory of the layer ``number``. ``has_marks``: whiteouts in it may be files with an xattr."""

    number: int
    fd: int
    has_marks: bool


def split(path: str) -> tuple[str, str]:
    """Return the directory of a path below the base, and the name in it. Five times as fast as ``os.path.split``."""
    directory, _, name = path.rpartition("/")
    return directory, name


@contextmanager
def closing_fd(fd: int) -> Iterator[int]:
    """Close the descriptor at the end of the block."""
    try:
        yield fd
    finally:
        os.close(fd)


def open_directory(root: int, path: str) -> int:
    """Open the directory at a path below ``root``; "" is the root. Raises OSError, also if a mount is in the way."""
    fd = os.open(".", _DIRECTORY, dir_fd=root)
    for name in path.split("/") if path else ():
        try:
            child = os.open(name, _DIRECTORY, dir_fd=fd)
            if os.fstat(child).st_dev != os.fstat(fd).st_dev:
                os.close(child)
                raise OSError(EXDEV, "another file system is mounted there", path)
        finally:
            os.close(fd)
        fd = child
    return fd


def open_file(directory: int, name: str) -> int:
    """Open a regular file to read it. Raises OSError, also for anything else."""
    fd = os.open(name, _FILE, dir_fd=directory)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(f"{name!r} is no regular file")
    return fd


def entry_at(directory: int, name: str, layer: int = 0) -> Entry | None:
    """Return what is there; None if nothing is."""
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return None
    kind = _TYPES.get(stat.S_IFMT(found.st_mode), "device")
    if stat.S_ISCHR(found.st_mode) and found.st_rdev == 0:
        kind = WHITEOUT
    size = 0 if kind == "directory" else found.st_size
    mode, owner = stat.S_IMODE(found.st_mode), (found.st_uid, found.st_gid)
    return Entry(kind, mode, size, layer, found.st_ino, found.st_nlink, *owner, found.st_ctime_ns)


def attributes(fd: int) -> dict[str, bytes]:
    """Return the xattrs of the user: user.* without the marks of overlayfs, and ACLs."""
    return {name: os.getxattr(fd, name) for name in listed(fd) if is_users(name)}


def is_users(name: str) -> bool:
    return name in ACLS or (name.startswith("user.") and not name.startswith(MARK))


def listed(fd: int) -> list[str]:
    """Return the names of its xattrs; none if the file system does not support them."""
    try:
        return os.listxattr(fd)
    except OSError:
        return []


def dress(old: int, new: int, *, with_times: bool = True) -> None:
    """Give the new one the owner, xattrs, ACLs, mode and times of the old one, but no file a setuid or setgid bit."""
    about, present = os.fstat(old), os.fstat(new)
    if (about.st_uid, about.st_gid) != (present.st_uid, present.st_gid):
        with suppress(PermissionError):  # an ordinary user's new files are his own
            os.fchown(new, about.st_uid, about.st_gid)
    wanted, had = attributes(old), attributes(new)
    for name in had.keys() - wanted.keys():
        os.removexattr(new, name)
    for name in sorted(wanted.keys() - set(ACLS)):  # before the mode, which may forbid writing
        os.setxattr(new, name, wanted[name])
    os.fchmod(new, about.st_mode & 0o7777 & ~(0 if stat.S_ISDIR(about.st_mode) else SETUID))
    for name in sorted(wanted.keys() & set(ACLS)):
        os.setxattr(new, name, wanted[name])
    if with_times:
        os.utime(new, ns=(about.st_atime_ns, about.st_mtime_ns))


def sync(fd: int) -> None:
    """Write the whole file system to the disk with syncfs(2), which is faster than one file after another."""
    if ctypes.CDLL(None, use_errno=True).syncfs(fd) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@contextmanager
def _present(base: str) -> Iterator[None]:
    try:
        yield
    except (FileNotFoundError, NotADirectoryError) as error:
        raise BranchUnavailable(
            f"the directory of the branch, {base}, is gone; its changes are still on the branch: move it back, or"
            " discard the branch"
        ) from error


class Trees:
    """The base and the layers of a branch, open. Number 0 is the base, and a higher number is above a lower one.

    Close it after use. Raises BranchUnavailable if the base is gone, or is not the one with this identity.
    """

    def __init__(self, base: str, layers: Iterable[str], identity: Identity | None = None) -> None:
        self._stack = ExitStack()
        self.roots: list[int] = []
        with self._stack:
            with _present(base):
                self._open(base)
            if identity and identity.is_other(Identity.of(self.roots[0])):
                raise BranchUnavailable(OTHER_BASE.format(base))
            for path in layers:
                self._open(path)
            self._stack = self._stack.pop_all()

    def _open(self, path: str) -> None:
        self.roots.append(os.open(path, os.O_RDONLY | os.O_DIRECTORY))
        self._stack.callback(os.close, self.roots[-1])

    def __enter__(self) -> Trees:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def mark(self, fd: int, name: str) -> bytes:
        """Return the value of a mark of overlayfs; b"" if it is not there."""
        try:
            return os.getxattr(fd, MARK + name)
        except OSError:
            return b""

    def open(self, number: int, path: str) -> int:
        """Open a directory. Raises OSError."""
        return open_directory(self.roots[number], path)

    def merged(self, numbers: Iterable[int], path: str, stack: ExitStack) -> tuple[list[Opened], bool]:
        """Open a directory in these layers, the highest first, down to an opaque one. Also returns whether one is."""
        opened = []
        for number in numbers:
            fd = self.open(number, path)
            stack.callback(os.close, fd)
            opaque = self.mark(fd, "opaque")
            opened.append(Opened(number, fd, opaque == b"x"))
            if opaque == b"y":
                return opened, True
        return opened, False

    def entry(self, directory: Opened, name: str) -> Entry | None:
        """Return what the layer has there, which may be a whiteout; None if it has nothing."""
        found = entry_at(directory.fd, name, directory.number)
        if found and directory.has_marks and found.type == "file" and not found.size:
            with closing_fd(open_file(directory.fd, name)) as fd:
                if MARK + "whiteout" in listed(fd):
                    return found._replace(type=WHITEOUT)
        return found

    def look(self, directories: Iterable[Opened], name: str) -> tuple[Entry | None, tuple[int, ...], bool]:
        """Return what these layers show there, the layers that make up a directory, and whether they hide the rest."""
        top, numbers = None, list[int]()
        for directory in directories:
            found = self.entry(directory, name)
            if found is None:
                continue
            if found.type != "directory":
                return top or (None if found.type == WHITEOUT else found), tuple(numbers), True
            top = top or found
            numbers.append(directory.number)
        return top, tuple(numbers), False
