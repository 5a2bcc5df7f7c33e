"""The audit log: which agent ran which command, when, and how it ended. One JSON object per line.

A command has a line for its end; one that takes longer has a line for its beginning, too (see ``journal``).

The log has the size of the output, never the output. Secrets from the session's environment are masked. They are found
by value (see ``policy.secrets``), so some are missed: only the log's owner can read it. A command never fails because
its line could not be written.
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

from ...engine.io.directories import make_missing, state_directory
from ...policy.secrets import Secrets

if TYPE_CHECKING:
    from ...models import Result


# The variable that names the log, and its value for none.
VARIABLE: Final = "SHELLSESSION_AUDIT"
OFF: Final = "off"
# The outcome in the line of a command that has begun. Its end has another line with the same id.
BEGAN: Final = "began"
# Characters kept of a command: more than a person would read.
KEPT: Final = 4096
# O_NONBLOCK: a command may have replaced the log by a FIFO that nobody reads.
_FLAGS: Final = os.O_RDWR | os.O_APPEND | os.O_NONBLOCK


Approval = Mapping[str, Any] | None


class Entry(NamedTuple):
    """The data of one line: a command that began, or that has ended.

    ``result``: how it ended, or why the session's policy refused it; None if it has just begun. ``id``: see ``Result``.
    ``client``: the process that asked for it, 0 if that is unknown. ``key``: its idempotency key, if it has one.
    ``began``: the moment of the line of its beginning, if it has ended and has such a line. ``approval``: the decision
    of a person about it (see ``policy.approval``), None if nobody was asked.
    """

    agent: str
    command: bytes
    secrets: Secrets
    result: Result | str | None
    when: float
    id: str = ""
    client: int = 0
    key: str = ""
    began: float = 0.0
    approval: Approval = None


class Audit:
    """The log of one daemon. Other daemons may be told to write to the same file. Not safe from several threads.

    ``files``: how many files of about ``max_bytes`` each are kept, the current one included (``.1`` is the youngest of
    the old ones). ``fault``: why the last lines could not be written; "" if they were.
    """

    def __init__(self, path: str, max_bytes: int = 10 << 20, files: int = 3) -> None:
        self.path = os.path.abspath(path)
        self._max_bytes = max_bytes
        self._files = files
        self._descriptor = -1
        self._is_torn = False  # does the file end within a line?
        self._warned: set[tuple[str, int | None]] = set()
        self.fault = ""

    def check(self) -> None:
        """Raise OSError if no line could be written now."""
        self._open()

    def record(self, entries: Sequence[Entry]) -> None:
        """Write the lines of these commands with one write(2)."""
        self.fault = ""  # a fault that persists is found again
        try:
            self._append(b"".join(map(_line, entries)))
        except OSError as error:
            self._warn("a line was lost; the next one will be tried", error)

    def close(self) -> None:
        """Close the file. Another ``record`` opens it again."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _append(self, line: bytes) -> None:
        """Append to the file, rotated before if it would become too long. Raises OSError."""
        size = self._open()
        if size and size + len(line) > self._max_bytes:  # a device has no size, and is never rotated
            try:
                self._rotate()
            except OSError as error:
                self._warn("it cannot be rotated, and grows", error)
            self._open()
        data = b"\n" + line if self._is_torn else line
        written = os.write(self._descriptor, data)  # in one piece: lines of other daemons never come in between
        self._is_torn = written < len(data)
        if self._is_torn:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def _open(self) -> int:
        """Open the file at the path, unless that is open already; return its size.

        The path may name another file than before: somebody moved or removed it, or another daemon rotated the log.
        """
        if (found := self._current()) is None:
            self.close()
            try:
                self._descriptor = open_private(self.path, _FLAGS)
            except FileNotFoundError:
                make_missing(os.path.dirname(self.path))
                self._descriptor = open_private(self.path, _FLAGS)
            found = os.fstat(self._descriptor)
            # A full disk or a killed daemon may have left half a line. Or another daemon is just writing one (the
            # kernel shows it page by page): then an empty line results, which every reader skips.
            self._is_torn = found.st_size > 0 and os.pread(self._descriptor, 1, found.st_size - 1) != b"\n"
        return found.st_size

    def _current(self) -> os.stat_result | None:
        """The status of the file at the path, if it is the file that is open; else None."""
        if self._descriptor >= 0:
            with suppress(FileNotFoundError):
                found = os.lstat(self.path)
                if os.path.samestat(found, os.fstat(self._descriptor)):
                    return found
        return None

    def _rotate(self) -> None:
        """Rename each file to the next number, and remove the oldest. Raises OSError."""
        try:
            # LOCK_NB: any command may hold this lock for ever. Usually it is another daemon, which is rotating the log.
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return
        try:
            if self._current() is None:  # another daemon has just rotated it
                return
            names = [self.path, *(f"{self.path}.{number}" for number in range(1, self._files))]
            with suppress(FileNotFoundError):
                os.unlink(names[-1])
            for younger, older in reversed(list(itertools.pairwise(names))):
                with suppress(FileNotFoundError):
                    os.rename(younger, older)
        finally:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)

    def _warn(self, consequence: str, error: OSError) -> None:
        self.fault = f"audit log {self.path}: {error.strerror}: {consequence}"
        if (consequence, error.errno) not in self._warned:  # once: a full disk would be logged with every command
            import logging  # 5 ms, and the command line reads logs without it

            self._warned.add((consequence, error.errno))
            logging.getLogger("shellsession.daemon").warning("%s", self.fault)


def _line(one: Entry) -> bytes:
    """The line of one command."""
    agent, command, secrets, result, when, id, client, key, began, approval = one
    text = secrets.mask(command.decode("utf-8", "surrogateescape"), KEPT + 1)
    entry: dict[str, Any] = {
        "time": _moment(when),
        "agent": agent,
        "command": text[:KEPT],
    }
    entry |= {name: value for name, value in (("id", id), ("client", client)) if value}
    if key:
        entry["key"] = secrets.mask(key)
    if approval is not None:
        entry["approval"] = dict(approval)
    if began:
        entry["began"] = _moment(began)
    if len(text) > KEPT or len(command) > 2 * KEPT:
        entry["command_size"] = len(command)
    if result is None:
        entry["outcome"] = BEGAN
    else:
        entry |= _refusal(secrets.mask(result, KEPT)) if isinstance(result, str) else _ending(result)
    return json.dumps(entry).encode("ascii") + b"\n"


def _moment(when: float) -> str:
    seconds, milliseconds = divmod(round(when * 1000), 1000)
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds)) + f".{milliseconds:03d}Z"


def _refusal(reason: str) -> dict[str, Any]:
    return {"outcome": "refused", "reason": reason, "ran": False}


def _ending(result: Result) -> dict[str, Any]:
    entry: dict[str, Any] = {
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
    return entry


def open_private(path: str, flags: int) -> int:
    """Open a log file that only its owner can read, whatever the umask is.

    Raises OSError, also for a file of another user, who could read what is written.
    """
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


def path_for(socket: str, wanted: str | None = None) -> str:
    """The path of the log of the daemon at that socket; "" if it has none.

    ``wanted``, or else SHELLSESSION_AUDIT, is the path, or "off". By default each daemon has its own file in
    ``state_directory``, and that at the usual socket has ``audit.jsonl``.
    """
    named = wanted if wanted is not None else os.environ.get(VARIABLE) or None
    if named is not None:
        return "" if named in ("", OFF) else os.path.abspath(named)
    from ..protocol.endpoint import is_usual  # the command line reads logs that are named without it

    if is_usual(socket):
        return os.path.join(state_directory(), "audit.jsonl")
    import hashlib

    mark = hashlib.sha256(os.fsencode(socket)).hexdigest()[:8]
    return os.path.join(state_directory(), f"audit-{mark}.jsonl")


def read(path: str, agent: str | None = None, last: int | None = None) -> Iterator[dict[str, Any]]:
    """Yield the recorded entries, oldest first: of one agent or of all agents, and only the ``last`` ones if given."""
    with _files(path) as files:
        entries = (entry for file in files for entry in _entries(file))
        chosen = (entry for entry in entries if agent is None or entry.get("agent") == agent)
        yield from chosen if last is None else deque(chosen, maxlen=last)


@contextmanager
def _files(path: str) -> Iterator[list[BinaryIO]]:
    """Open the log's files, oldest first. All are opened before any is read, so a rotation meanwhile hides none."""
    with ExitStack() as opened:
        files: dict[tuple[int, int], BinaryIO] = {}  # by inode: during a rotation one file may appear under two names
        missing = 0
        for number in itertools.count():  # youngest first: a file that is renamed meanwhile is met under its new name
            name = f"{path}.{number}" if number else path
            try:
                file = opened.enter_context(open(name, "rb", opener=_open_nonblocking))
            except FileNotFoundError:
                missing += 1
                if missing == 2:  # a single gap may be a file that is just being renamed
                    break
                continue
            found = os.fstat(file.fileno())
            if stat.S_ISREG(found.st_mode):  # a device might never end
                files.setdefault((found.st_dev, found.st_ino), file)
        yield list(reversed(files.values()))


def _open_nonblocking(name: str, flags: int) -> int:
    return os.open(name, flags | os.O_NONBLOCK)  # a FIFO would block


def _entries(file: BinaryIO) -> Iterator[dict[str, Any]]:
    """Yield the entries of one file. Skips invalid lines."""
    for line in file:
        try:
            entry = json.loads(line)
        except (ValueError, RecursionError):  # half a line of a killed daemon; a thousand brackets
            continue
        if isinstance(entry, dict):
            yield entry
