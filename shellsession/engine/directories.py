"""Where the files of one user's hosts and daemon live: private directories, in memory where there is such a place.

Law: it imports next to nothing, as the command line pays for that at each call.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from typing import Final

from ..errors import ShellUnavailable

# The last host to leave removes what it was in, perhaps each time when we have just made it.
_ATTEMPTS: Final = 100


def homes() -> Iterator[str]:
    """Where this user's hosts may have their directory, best first."""
    user = os.getuid()
    wished = os.environ.get("XDG_RUNTIME_DIR"), f"/run/user/{user}", "/dev/shm", os.environ.get("TMPDIR")
    for base in (*wished, "/tmp", "/var/tmp"):
        if base and os.path.isabs(base):
            yield os.path.join(base, f"shellsession-{user}")


def private_home() -> str:
    """The directory of this user's hosts: private, in memory where there is such a place. Raises ShellUnavailable.

    The same for all processes that have the same environment: there they look for their daemon.
    """
    refused = []
    for path in homes():
        try:
            if _is_made_private(path):
                return path
            refused.append(f"{path} (not yours alone)")
        except OSError as error:
            refused.append(f"{path} ({error.strerror})")
    raise ShellUnavailable(
        f"no place for the files of sessions: {', '.join(refused)}; set XDG_RUNTIME_DIR or TMPDIR to a directory"
        " that you can write to"
    )


def own_home() -> str:
    """The same for one process, to whom nobody else needs to find: a fresh one where others have taken all places.

    Without symbolic links: so the kernel tells what files somebody has open.
    """
    try:
        return os.path.realpath(private_home())
    except ShellUnavailable as error:
        try:
            return fresh_directory()
        except OSError:
            raise error from None


def fresh_directory() -> str:
    """A private directory of another name wherever one can be made. Raises OSError.

    Not in the current directory, as tempfile would: that is perhaps a repository.
    """
    import tempfile

    refused: list[OSError] = []
    for path in homes():
        try:
            return tempfile.mkdtemp(prefix="shellsession-", dir=os.path.realpath(os.path.dirname(path)))
        except OSError as error:
            refused.append(error)
    raise refused[-1]


def _is_made_private(path: str) -> bool:
    """Make it, unless it is there; is it ours, and for nobody else? Raises OSError where nothing can be made."""
    user = os.getuid()
    for _ in range(_ATTEMPTS):
        with suppress(FileExistsError):
            os.mkdir(path, 0o700)
        # Removed since: to go elsewhere would mean another daemon than all others have.
        with suppress(FileNotFoundError):
            found = os.lstat(path)
            if stat.S_ISDIR(found.st_mode) and found.st_uid == user and stat.S_IMODE(found.st_mode) != 0o700:
                os.chmod(path, 0o700)  # ours, and made with another umask (which can take our own rights, too)
                found = os.lstat(path)
            # Somebody else may have made it first, in a directory that all may write to.
            return stat.S_ISDIR(found.st_mode) and found.st_uid == user and not found.st_mode & 0o077
    return False


def make_private(directory: str) -> None:
    """Make a private directory, and those above it that somebody has removed behind our back."""
    for attempt in range(_ATTEMPTS):
        with suppress(FileExistsError):
            try:
                os.mkdir(directory, 0o700)
                os.chmod(directory, 0o700)  # a umask of 0277 would take it from ourselves
            except FileNotFoundError:
                if attempt + 1 == _ATTEMPTS:
                    raise
                make_private(os.path.dirname(directory))
                continue
        return
