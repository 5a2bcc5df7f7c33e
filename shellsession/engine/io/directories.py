"""The private directories for this user's files: in memory (tmpfs) where possible.

Nobody but root and this user can change what one of these paths leads to. Bash opens files by their path, so it is not
enough to check the last directory: every directory on the path is checked. This module imports next to nothing, as each
start of the command line loads it.
"""

from __future__ import annotations

import errno
import os
import stat

from ...errors import ShellUnavailable
from ..kernel import proc

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Final


# Another process of this user may remove the directory just after we have made it: this many times at most.
_ATTEMPTS: Final = 100
_DIRECTORY: Final = os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# The mode of a directory that cannot be listed: only a process that knows a name can open the file.
UNLISTED: Final = 0o300


def homes() -> Iterator[str]:
    """Yield the possible directories of this user's host processes, best first, free of symbolic links."""
    user = os.getuid()
    preferred = os.environ.get("XDG_RUNTIME_DIR"), f"/run/user/{user}", "/dev/shm", os.environ.get("TMPDIR")
    for base in (*preferred, "/tmp", "/var/tmp"):
        if base and os.path.isabs(base):
            yield os.path.join(os.path.realpath(base), f"shellsession-{user}")


def private_home(make: bool = True) -> str:
    """The private directory of this user's host processes, made if missing. Raises ShellUnavailable.

    All processes with the same environment get the same directory, and look for their daemon there. With ``make``
    False, return where it is or would be.
    """
    refused = []
    for path in homes():
        try:
            if make or os.path.lexists(path):
                make_private(path)
            else:
                _check_writable(os.path.dirname(path))
            return path
        except OSError as error:
            refused.append(f"{path} ({error.strerror})")
    raise ShellUnavailable(
        f"no place for the files of sessions: {', '.join(refused)}; set XDG_RUNTIME_DIR or TMPDIR to a directory"
        " that you can write to, and in which nobody else can replace your files"
    )


def home_or_fresh() -> str:
    """The ``private_home``; where other users have taken all its places, a new directory for this process alone."""
    try:
        return private_home()
    except ShellUnavailable as error:
        try:
            return fresh_directory()
        except OSError:
            raise error from None


def fresh_directory(mode: int = 0o700) -> str:
    """A new private directory with a random name. Raises OSError.

    It is never in the current directory, where tempfile would put it at worst: that may be a repository.
    """
    refused: list[OSError] = []
    for path in homes():
        fresh = os.path.join(os.path.dirname(path), f"shellsession-{os.urandom(8).hex()}")
        try:
            make_private(fresh, mode)
            return fresh
        except OSError as error:
            refused.append(error)
    raise refused[-1]


def is_private(directory: str) -> bool:
    """Is it a directory of this user, closed to all others?"""
    try:
        found = os.lstat(directory)
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o077


def make_private(directory: str, mode: int = 0o700, made: int = 1) -> None:
    """Make the directory, or check that it is ours; set its mode. Raises OSError, also where others could replace it.

    ``made``: how many directories at the end of the path are made if missing. They must be ours, and all but the last
    get mode 0700.
    """
    base, *names = directory.rsplit("/", made)
    for attempt in range(_ATTEMPTS):
        here = open_directory(base)
        try:
            for name, its_mode in zip(names, [0o700] * (made - 1) + [mode], strict=True):
                above, here = here, _enter(here, name, its_mode)
                os.close(above)
            return
        except FileNotFoundError:
            if attempt + 1 == _ATTEMPTS:
                raise
        finally:
            os.close(here)


def open_directory(path: str, trusted: bool = True) -> int:
    """Open a directory (O_PATH) without following any symbolic link. Raises OSError.

    ``trusted``: raises PermissionError where users other than root and this one could change what the path leads to.
    """
    here, reached = os.open("/", _DIRECTORY), "/"
    try:
        for name in filter(None, path.split("/")):
            if trusted:
                _refuse_foreign(here, reached)
            above, here = here, os.open(name, _DIRECTORY, dir_fd=here)
            os.close(above)
            reached = os.path.join(reached, name)
        if trusted:
            _refuse_foreign(here, reached)
        return here
    except BaseException:
        os.close(here)
        raise


def make_missing(directory: str) -> None:
    """Make a private directory, and those above it, where missing. Existing directories stay as they are."""
    for attempt in range(_ATTEMPTS):
        try:
            os.mkdir(directory, 0o700)
            os.chmod(directory, 0o700)  # a umask of 0277 would take away our own rights
            return
        except FileExistsError:
            return
        except FileNotFoundError:
            if attempt + 1 == _ATTEMPTS:
                raise
            make_missing(os.path.dirname(directory))


def state_directory() -> str:
    """The directory for what outlives a process, by the XDG base directory specification: the logs by default."""
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):  # the specification says to ignore a relative path
        state = os.path.expanduser("~/.local/state")
    return os.path.join(state, "shellsession")


def _enter(above: int, name: str, mode: int) -> int:
    """Open a directory of ours in ``above``, made if missing. The caller closes both."""
    try:  # noqa: SIM105  # contextlib would slow each start of the command line
        os.mkdir(name, mode, dir_fd=above)
    except FileExistsError:
        pass  # its owner and mode are checked next
    here = os.open(name, _DIRECTORY, dir_fd=above)
    try:
        found = os.fstat(here)
        if found.st_uid != os.getuid():
            raise PermissionError(errno.EPERM, f"{name} belongs to user {found.st_uid}")
        if found.st_mode & 0o777 != mode:  # made with another umask, or changed since
            os.chmod(name, mode, dir_fd=above)
            if os.fstat(here).st_mode & 0o077:
                raise PermissionError(errno.EPERM, f"{name} cannot be made private")
        return here
    except BaseException:
        os.close(here)
        raise


def _check_writable(base: str) -> None:
    """Raise OSError if we could not make a private directory in ``base``."""
    os.close(open_directory(base))
    if not os.access(base, os.W_OK | os.X_OK):
        number = errno.EROFS if os.statvfs(base).f_flag & os.ST_RDONLY else errno.EACCES
        raise OSError(number, os.strerror(number))


def _refuse_foreign(directory: int, path: str) -> None:
    """Raise PermissionError if other users can rename or replace what is in the directory."""
    found = os.fstat(directory)
    if found.st_uid not in (0, os.getuid()) and found.st_uid != proc.root():
        raise PermissionError(errno.EPERM, f"{path} belongs to user {found.st_uid}")
    if found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
        raise PermissionError(errno.EPERM, f"others can write to {path}")
