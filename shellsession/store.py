"""What outlives a process: the records of the daemon's agents, in one private SQLite database of this user and machine.

A record says where an agent's bash was, and what ran in it, so that a session after the end of the daemon starts there
and can say what is lost. ``close``, ``kill`` and ``restart`` delete it; the end of the daemon, an idle hour and a
reboot do not. A change is with the kernel when ``put`` returns, so the end of the process loses none. The disk has it
later, at the next checkpoint, which another thread makes.

The database is opened only below a directory that nobody else can change. Where that cannot be had, or the file is of a
newer version, records last as long as the process, and ``fault`` says why. Every sandbox hides the directory.
"""

from __future__ import annotations

import os
import stat
import threading
import time
from collections.abc import Mapping
from contextlib import closing, suppress
from hashlib import sha256
from typing import TYPE_CHECKING, Final, NamedTuple

from .engine.io.directories import make_missing, make_private, state_directory

if TYPE_CHECKING:
    import sqlite3

# The version of the tables, in SQLite's ``user_version``. A newer database is left as it is.
_VERSION: Final = 1
_TABLES: Final = """
    CREATE TABLE IF NOT EXISTS agents (
        place TEXT NOT NULL, agent BLOB NOT NULL, cwd BLOB NOT NULL, running TEXT NOT NULL, expired INTEGER NOT NULL,
        rules TEXT NOT NULL, at REAL NOT NULL, PRIMARY KEY (place, agent)
    ) WITHOUT ROWID
"""
_DELETE: Final = "DELETE FROM agents WHERE place = ? AND agent = ?"
_PUT: Final = "INSERT OR REPLACE INTO agents VALUES (?, ?, ?, ?, ?, ?, ?)"
# How many agents of one daemon are remembered, and for how many seconds after their last change.
_RECORDS_MAX: Final = 10_000
_LIFETIME: Final = 90 * 86400.0
# Seconds to wait for another daemon that writes, which takes 50 us: if it is stopped then, ours must go on.
_PATIENCE: Final = 0.25
# After this many writes the log (WAL) is copied into the database, and that is synced.
_CHECKPOINT_EVERY: Final = 200


class Record(NamedTuple):
    """What is known of an agent.

    ``cwd``: the directory of its bash; "" if it has run nothing. ``running``: the text, without secrets, of a command
    that had not ended; "" for none. ``expired``: its session was closed after being idle for too long. ``rules``: the
    sandbox, the policy and the redaction that were named for it, as JSON; "" for none.
    """

    cwd: str = ""
    running: str = ""
    expired: bool = False
    rules: str = ""


class Store:
    """The records of one daemon's agents.

    ``place``: the daemon's socket; "" for the usual one. ``path``: the database, by default that of this machine in
    ``state_directory``; "" keeps all in memory. ``fault``: why records do not outlive the process; "" if they do.
    """

    def __init__(self, place: str = "", path: str | None = None) -> None:
        self.place, self.path, self.fault = place, usual_path() if path is None else path, ""
        self._records: dict[str, Record] = {}  # the one that was changed longest ago first
        self._changed: set[str] = set()  # agents whose records are not written yet
        self._writes = 0
        self._database: sqlite3.Connection | None = None
        if self.path:
            self._open()

    def get(self, agent: str) -> Record | None:
        """The agent's record, if it has one."""
        return self._records.get(agent)

    def put(self, agent: str, record: Record) -> None:
        """Keep a record of the agent."""
        if self._records.get(agent) == record:
            return
        self._records.pop(agent, None)
        self._records[agent] = record
        self._changed.add(agent)
        if len(self._records) > _RECORDS_MAX:
            self._changed.add(oldest := next(iter(self._records)))
            del self._records[oldest]
        self._write()

    def forget(self, agent: str) -> bool:
        """Delete the agent's record. True if it had one."""
        if self._records.pop(agent, None) is None:
            return False
        self._changed.add(agent)
        self._write()
        return True

    def agents(self) -> Mapping[str, Record]:
        """All records, by agent."""
        return dict(self._records)

    @property
    def size(self) -> int:
        """How many bytes the database has on disk."""
        found = 0
        for name in _files(self.path) if self.path else ():
            with suppress(OSError):
                found += os.stat(name).st_size
        return found

    def close(self) -> None:
        """Close the database."""
        if self._database is not None:
            self._database.close()
            self._database = None

    def _write(self) -> None:
        """Write what has changed. After a fault, the next change tries again."""
        if (database := self._database) is None:
            return
        import sqlite3

        now, records = time.time(), [(agent, self._records.get(agent)) for agent in self._changed]
        rows = [
            (self.place, _bytes(agent), os.fsencode(one.cwd), one.running, one.expired, one.rules, now)
            for agent, one in records
            if one is not None
        ]
        try:
            with database:
                database.executemany(_DELETE, [(self.place, _bytes(agent)) for agent, one in records if one is None])
                database.executemany(_PUT, rows)
        except sqlite3.Error as error:  # a full disk, for example
            self._fail(f"the last records could not be written: {error}")
            return
        self._changed.clear()
        self.fault = ""
        self._writes += 1
        if self._writes % _CHECKPOINT_EVERY == 0:
            threading.Thread(target=_checkpoint, args=(self.path,), name="shellsession-store", daemon=True).start()

    def _open(self) -> None:
        """Open the database and read our records. A damaged one is moved aside."""
        try:
            import sqlite3  # 3 ms, and some builds of Python lack it
        except ImportError as error:
            self._fail(f"nothing is recorded: {error}")
            return
        try:
            try:
                self._read()
            except sqlite3.DatabaseError as error:
                if isinstance(error, sqlite3.OperationalError):  # busy, full, not readable: not damaged
                    raise
                self._set_aside()
                self._read()
                self._fail(f"it was damaged ({error}), and is now {self.path}.damaged: earlier records are lost")
        except (OSError, sqlite3.Error) as error:
            self._database = None
            self._fail(f"nothing is recorded: {error}")

    def _read(self) -> None:
        import sqlite3

        prepare(self.path)
        database = sqlite3.connect(self.path, _PATIENCE, check_same_thread=False)
        try:
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if version > _VERSION:
                raise OSError(f"it was made by a newer version of shellsession (tables {version}, not {_VERSION})")
            # A commit appends to the log, and waits for no disk.
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
            database.execute("PRAGMA wal_autocheckpoint = 0")
            with database:
                database.execute(_TABLES)
                database.execute(f"PRAGMA user_version = {_VERSION}")
                database.execute("DELETE FROM agents WHERE at < ?", (time.time() - _LIFETIME,))
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # after a killed process
            rows = database.execute(
                "SELECT agent, cwd, running, expired, rules FROM agents WHERE place = ? ORDER BY at DESC LIMIT ?",
                (self.place, _RECORDS_MAX),
            ).fetchall()
            self._records = {
                agent.decode("utf-8", "surrogatepass"): Record(os.fsdecode(cwd), running, bool(expired), rules)
                for agent, cwd, running, expired, rules in rows[::-1]
            }
        except BaseException:
            database.close()
            raise
        self._database = database

    def _set_aside(self) -> None:
        for name in _files(self.path)[1:]:
            with suppress(FileNotFoundError):
                os.unlink(name)
        os.replace(self.path, f"{self.path}.damaged")

    def _fail(self, why: str) -> None:
        if why != self.fault:  # once: a full disk would be logged with every command
            import logging

            logging.getLogger("shellsession").warning("state %s: %s", self.path, why)
        self.fault = why


def _checkpoint(path: str) -> None:
    """Copy the log into the database, and sync that. Others may write meanwhile."""
    import sqlite3

    with suppress(sqlite3.Error), closing(sqlite3.connect(path, _PATIENCE)) as database:
        database.execute("PRAGMA wal_checkpoint(PASSIVE)")


def usual_path() -> str:
    """The database of this machine: a home directory may be shared by several, and their agents are others."""
    machine = os.fsencode(os.uname().nodename)
    with suppress(OSError), open("/etc/machine-id", "rb") as file:
        machine = file.read().strip() or machine
    return os.path.join(state_directory(), f"state-{sha256(machine).hexdigest()[:8]}.db")


def prepare(path: str) -> None:
    """Make the private directory and the file of a database, or check that they are ours alone. Raises OSError."""
    directory = os.path.dirname(path)
    make_missing(directory)
    make_private(os.path.realpath(directory))
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o600)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink != 1:
            raise PermissionError(f"{path} is not a file of this user alone")
        if stat.S_IMODE(found.st_mode) != 0o600:
            os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


def _bytes(agent: str) -> bytes:
    return agent.encode("utf-8", "surrogatepass")  # a name may be any text; SQLite's text may not


def _files(path: str) -> tuple[str, ...]:
    return path, f"{path}-wal", f"{path}-shm"
