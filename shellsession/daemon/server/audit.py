"""The audit log: which agent ran which command, when, and how it ended; one JSON object on a line per command.

Law: sizes of output, never output; no secret that the session's environment names; and no command fails because its
line could not be written.

Secrets are known by value (see ``policy.secrets``), and not all of them: that is why the log is its owner's alone.
"""

from __future__ import annotations

import errno
import fcntl
import itertools
import json
import os
import stat
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

from ...engine.io.directories import make_missing
from ...policy.secrets import Secrets

if TYPE_CHECKING:
    from ...models import Result


# Characters kept of a command: no more of it than a person reads.
KEPT: Final = 4096
# Not to wait: in the place of the log a command may have put a FIFO that nobody reads.
_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_NONBLOCK


class Entry(NamedTuple):
    """What one line is made of."""

    agent: str
    command: bytes
    secrets: Secrets
    result: Result
    when: float


class Audit:
    """The log of one daemon, which may share it with others; for one thread.

    ``files`` counts the one that is written and the old ones (``.1`` is the youngest), each about ``max_bytes`` long.
    ``fault`` says what went wrong with the last lines ("" when nothing did).
    """

    def __init__(self, path: str, max_bytes: int = 10 << 20, files: int = 3) -> None:
        self.path = os.path.abspath(path)
        self._max_bytes = max_bytes
        self._files = files
        self._descriptor = -1
        self._torn = False  # the file ends within a line
        self._told: set[tuple[str, int | None]] = set()
        self.fault = ""

    def check(self) -> None:
        """Raises OSError where no line could be written now."""
        self._ready()

    def record(self, agent: str, command: bytes, secrets: Secrets, result: Result, when: float | None = None) -> None:
        """Write the line of one command. ``when``: in seconds since the epoch, now by default."""
        self.record_all([Entry(agent, command, secrets, result, time.time() if when is None else when)])

    def record_all(self, entries: Sequence[Entry]) -> None:
        """Write the lines of some commands with one write(2)."""
        self.fault = ""  # of the lines before: what still is wrong is found again
        try:
            self._append(b"".join(_line(*entry) for entry in entries))
        except OSError as error:
            self._complain("a line was lost; the next one will be tried", error)

    def close(self) -> None:
        """Give the file back; another line would open it again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _append(self, line: bytes) -> None:
        size = self._ready()
        if size and size + len(line) > self._max_bytes:  # a device has no size: it stays where it is
            try:
                self._rotate()
            except OSError as error:
                self._complain("it cannot be rotated, and grows", error)
            self._ready()
        data = b"\n" + line if self._torn else line
        written = os.write(self._descriptor, data)  # at once: another daemon's line comes before or after, not between
        self._torn = written < len(data)
        if self._torn:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _ready(self) -> int:
        """The size of the file that the path names, opened unless we have it (moved, removed, rotated by another)."""
        if (found := self._ours()) is None:
            self.close()
            try:
                self._descriptor = open_private(self.path, _FLAGS)
            except FileNotFoundError:
                make_missing(os.path.dirname(self.path))
                self._descriptor = open_private(self.path, _FLAGS)
            found = os.fstat(self._descriptor)
            # A full disk, or a daemon that was killed, has left half a line; or another one is within a line just now
            # (the kernel shows it page by page): then an empty line comes of it, which no reader minds.
            self._torn = found.st_size > 0 and os.pread(self._descriptor, 1, found.st_size - 1) != b"\n"
        return found.st_size

    def _ours(self) -> os.stat_result | None:
        """The file that the path names, when it is the one that we have open."""
        if self._descriptor >= 0:
            with suppress(FileNotFoundError):
                found = os.lstat(self.path)
                if os.path.samestat(found, os.fstat(self._descriptor)):
                    return found
        return None

    def _rotate(self) -> None:
        try:
            # Not to wait: any command may hold this lock. Mostly it is another daemon, which rotates just now.
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        try:
            if self._ours() is None:  # another daemon was faster
                return
            names = [self.path, *(f"{self.path}.{number}" for number in range(1, self._files))]
            with suppress(FileNotFoundError):
                os.unlink(names[-1])
            for younger, older in reversed(list(itertools.pairwise(names))):
                with suppress(FileNotFoundError):
                    os.rename(younger, older)
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def _complain(self, consequence: str, error: OSError) -> None:
        self.fault = f"audit log {self.path}: {error.strerror}: {consequence}"
        if (consequence, error.errno) not in self._told:  # once: a full disk would be told with every command
            import logging  # 5 ms, which the command line would pay to read

            self._told.add((consequence, error.errno))
            logging.getLogger("shellsession.daemon").warning("%s", self.fault)


def _line(agent: str, command: bytes, secrets: Secrets, result: Result, when: float) -> bytes:
    seconds, milliseconds = divmod(round(when * 1000), 1000)
    text = secrets.mask(command.decode("utf-8", "surrogateescape"), KEPT + 1)
    entry: dict[str, Any] = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{milliseconds:03d}Z",
        "agent": agent,
        "command": text[:KEPT],
    }
    if len(text) > KEPT:
        entry["command_size"] = len(command)
    entry |= {
        "exit_code": result.exit_code,
        "outcome": result.outcome,
        "duration": round(result.duration, 6),
        "stdout": len(result.stdout_bytes) + result.stdout_omitted,
        "stderr": len(result.stderr_bytes) + result.stderr_omitted,
    }
    if not result.ran:
        entry["ran"] = False
    if result.killed:
        entry["killed"] = len(result.killed)
    return json.dumps(entry).encode("ascii") + b"\n"


def open_private(path: str, flags: int) -> int:
    """A log file that its owner alone may read, whatever the umask is. Raises OSError, also where another user owns it:
    he has put it there, and would read what is written."""
    descriptor = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode) and found.st_uid != os.geteuid():
            raise PermissionError(errno.EPERM, "it is another user's file", path)
        if stat.S_ISREG(found.st_mode) and stat.S_IMODE(found.st_mode) != 0o600:
            os.fchmod(descriptor, 0o600)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def default_path() -> str:
    """Where the log is unless somebody says otherwise, by the XDG base directory specification."""
    state = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(state):  # to be ignored, says the specification
        state = os.path.expanduser("~/.local/state")
    return os.path.join(state, "shellsession", "audit.jsonl")


def read(path: str, agent: str | None = None, last: int | None = None) -> Iterator[dict[str, Any]]:
    """What was recorded, oldest first: of one agent, or of all; of that all, or the ``last`` so many."""
    with _files(path) as files:
        entries = (entry for file in files for entry in _entries(file))
        chosen = (entry for entry in entries if agent is None or entry.get("agent") == agent)
        yield from chosen if last is None else deque(chosen, maxlen=last)


@contextmanager
def _files(path: str) -> Iterator[list[BinaryIO]]:
    """The log's files, oldest first, all opened before any is read: a rotation meanwhile takes none of them away."""
    with ExitStack() as opened:
        files: dict[tuple[int, int], BinaryIO] = {}  # by inode: a rotation may show us one file under two names
        missing = 0
        for number in itertools.count():  # youngest first: so a file that moves on comes our way
            try:
                file = opened.enter_context(open(f"{path}.{number}" if number else path, "rb", opener=_at_once))
            except FileNotFoundError:
                missing += 1
                if missing == 2:  # one may be on its way from one name to the next
                    break
                continue
            found = os.fstat(file.fileno())
            if stat.S_ISREG(found.st_mode):  # a device might never end
                files.setdefault((found.st_dev, found.st_ino), file)
        yield list(reversed(files.values()))


def _at_once(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NONBLOCK)  # a FIFO, too


def _entries(file: BinaryIO) -> Iterator[dict[str, Any]]:
    for line in file:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):  # half a line of a daemon that was killed; a thousand brackets
            continue
        if isinstance(entry, dict):
            yield entry
