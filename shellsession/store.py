"""What outlives a process: what is known of the agents of one daemon, in a private SQLite database.

A record says where an agent's bash was, and what ran in it, so that a session after the end of the daemon starts there
and can say what is lost. A snapshot is the state of that bash, as bytes. ``close``, ``kill`` and ``restart`` delete
both; the end of the daemon, an idle hour and a reboot do not. A receipt is what is known of a command that has an
idempotency key. A checkpoint has the bytes of a client, and a snapshot. ``restart`` keeps these two. A question waits
for a person, and an approval is a rule that a person has made of an answer; ``close`` keeps these, too. A change is
with the kernel when ``put`` returns, so the end of the process loses none. The disk has it later, when another thread
copies the log into the database; or after ``sync``.

Each daemon has its own database, named after its machine and its socket, and keeps it locked. The database is opened
only below a directory that nobody else can change. Where it cannot be had or written, records last as long as the
process, and ``fault`` says why. Every sandbox hides the directory.
"""

from __future__ import annotations

import fcntl
import os
import stat
import threading
import time
import zlib
from collections.abc import Mapping
from contextlib import closing, suppress
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from .engine.io.directories import make_missing, make_private, state_directory

if TYPE_CHECKING:
    import sqlite3

# The version of the tables, in SQLite's ``user_version``. A newer database is left as it is.
_VERSION: Final = 3
_TABLES: Final = (
    "CREATE TABLE IF NOT EXISTS agents (agent BLOB PRIMARY KEY, cwd BLOB NOT NULL, running TEXT NOT NULL,"
    " expired INTEGER NOT NULL, rules TEXT NOT NULL, at REAL NOT NULL, is_current INTEGER NOT NULL DEFAULT 0)"
    " WITHOUT ROWID",
    "CREATE TABLE IF NOT EXISTS snapshots (agent BLOB PRIMARY KEY, data BLOB NOT NULL)",
    "CREATE TABLE IF NOT EXISTS receipts (agent BLOB NOT NULL, key BLOB NOT NULL, digest BLOB NOT NULL,"
    " began REAL NOT NULL, pid INTEGER NOT NULL, ended INTEGER NOT NULL, result TEXT NOT NULL, stdout BLOB NOT NULL,"
    " stderr BLOB NOT NULL, PRIMARY KEY (agent, key))",
    "CREATE TABLE IF NOT EXISTS checkpoints (agent BLOB PRIMARY KEY, at REAL NOT NULL, data BLOB NOT NULL, state BLOB)",
    "CREATE TABLE IF NOT EXISTS approvals (id TEXT PRIMARY KEY, agent BLOB NOT NULL, is_rule INTEGER NOT NULL,"
    " data TEXT NOT NULL)",
)
# The version that has ``is_current``, and how an older database gets it.
_HAS_CURRENT: Final = 3
_ADD_CURRENT: Final = "ALTER TABLE agents ADD COLUMN is_current INTEGER NOT NULL DEFAULT 0"
_READ: Final = "SELECT agent, cwd, running, expired, rules, %s FROM agents WHERE at >= ? ORDER BY at DESC LIMIT ?"
_DELETE: Final = ("DELETE FROM agents WHERE agent = ?", "DELETE FROM snapshots WHERE agent = ?")
_PUT_SNAPSHOT: Final = "INSERT OR REPLACE INTO snapshots VALUES (?, ?)"
_WITH_SNAPSHOT: Final = "SELECT agent, at FROM agents JOIN snapshots USING (agent)"
_PUT: Final = "INSERT OR REPLACE INTO agents VALUES (?, ?, ?, ?, ?, ?, ?)"
_PUT_RECEIPT: Final = "INSERT OR REPLACE INTO receipts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_DELETE_RECEIPT: Final = "DELETE FROM receipts WHERE agent = ? AND key = ?"
_DELETE_RECEIPTS: Final = "DELETE FROM receipts WHERE agent = ?"
_RECEIPT: Final = "SELECT digest, began, pid, ended, result, stdout, stderr FROM receipts WHERE agent = ? AND key = ?"
_RECEIPTS: Final = "SELECT agent, key, length(stdout) + length(stderr) FROM receipts ORDER BY began"
_PUT_CHECKPOINT: Final = (
    "INSERT INTO checkpoints VALUES (?, ?, ?, ?) ON CONFLICT (agent) DO UPDATE SET at = excluded.at,"
    " data = excluded.data, state = coalesce(excluded.state, state)"
)
_CHECKPOINT: Final = "SELECT data, state FROM checkpoints WHERE agent = ?"
_CHECKPOINTS: Final = "SELECT agent FROM checkpoints"
_DELETE_CHECKPOINT: Final = "DELETE FROM checkpoints WHERE agent = ?"
_PUT_APPROVAL: Final = "INSERT OR REPLACE INTO approvals VALUES (?, ?, ?, ?)"
_APPROVALS: Final = "SELECT data FROM approvals WHERE is_rule = ? ORDER BY rowid"
_DELETE_APPROVAL: Final = "DELETE FROM approvals WHERE id = ?"
_DELETE_APPROVALS: Final = "DELETE FROM approvals WHERE agent = ?"
# Only this many are kept, the latest.
_DROP_CHECKPOINTS: Final = (
    "DELETE FROM checkpoints WHERE agent IN (SELECT agent FROM checkpoints ORDER BY at DESC LIMIT -1 OFFSET 500)"
)
# How many agents of one daemon are remembered, and for how many seconds after their last change.
_RECORDS_MAX: Final = 10_000
LIFETIME: Final = 90 * 86400.0
# Seconds to wait for another process that has the database open.
_PATIENCE: Final = 1.0
# After this many writes, or pages of snapshots, the log (WAL) is copied into the database, and that is synced.
_CHECKPOINT_EVERY: Final = 200
_PAGE: Final = 4096
# No larger snapshot is kept.
_SNAPSHOT_MAX: Final = 16 << 20
# How well it is compressed: with this level, it takes as long as half of its encoding.
_LEVEL: Final = 1


class StoredAgent(NamedTuple):
    """What is known of an agent.

    ``cwd``: the directory of its bash; "" if it has run nothing. ``running``: the text, without secrets, of a command
    that had not ended; "" for none. ``expired``: its session was closed after being idle for too long. ``rules``: the
    sandbox, the policy and the redaction that were named for it, as JSON; "" for none. ``is_current``: its snapshot was
    taken after its last command.
    """

    cwd: str = ""
    running: str = ""
    expired: bool = False
    rules: str = ""
    is_current: bool = False


class StoredReceipt(NamedTuple):
    """What is known of a command with an idempotency key.

    ``digest``: of its request. ``began``, ``pid``: when it was to be sent to which bash. ``result``: the header of a
    result, as JSON, with its two streams; "" if there was none. ``ended``: that is its end.
    """

    digest: bytes
    began: float
    pid: int
    ended: bool = False
    result: str = ""
    stdout: bytes = b""
    stderr: bytes = b""


class Store:
    """The records of one daemon's agents.

    ``path``: the database; "" keeps all in memory. ``fault``: why records do not outlive the process; "" if they do.
    ``unreadable``: why there are records that could not be read; "" if there are none. They may have rules, so no
    session must be opened without them.
    """

    def __init__(self, path: str = "") -> None:
        self.path, self.unreadable = path, ""
        self._fault = self._lost = ""  # of the last write, and for good
        self._records: dict[str, StoredAgent] = {}  # the one that was changed longest ago first
        self._changed: set[str] = set()  # agents whose records are not written yet
        self._writes = 0
        self._copying: threading.Thread | None = None  # the log into the database
        self._database: sqlite3.Connection | None = None
        self._is_ours = False  # it was opened once
        self._lock = -1  # a descriptor of the database, locked by flock(2)
        self._without_receipts: set[str] = set()  # agents whose receipts are not deleted yet
        self._log = -1  # a descriptor of the log, for ``sync``
        self._syncing = threading.Lock()
        if path:
            _remove_old(path)
            self._open()

    @property
    def fault(self) -> str:
        return "; ".join(filter(None, (self._lost, self._fault)))

    def get(self, agent: str) -> StoredAgent | None:
        """The agent's record, if it has one."""
        return self._records.get(agent)

    def put(self, agent: str, record: StoredAgent) -> None:
        """Keep a record of the agent."""
        if self._records.pop(agent, None) == record:
            self._records[agent] = record  # the youngest now
            return
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

    def put_snapshot(self, agent: str, data: bytes) -> bool:
        """Keep the ``packed`` snapshot of an agent that has a record. True if it was written."""
        if agent not in self._records or not data:
            return False
        self._write(_PUT_SNAPSHOT, (_bytes(agent), data), len(data))
        return not self._fault and self._database is not None

    def snapshot(self, agent: str) -> bytes | None:
        """The snapshot of the agent, if it has one that can be read."""
        import sqlite3

        with suppress(sqlite3.Error, zlib.error):
            if self._database is not None:
                row = self._database.execute("SELECT data FROM snapshots WHERE agent = ?", (_bytes(agent),)).fetchone()
                return None if row is None else zlib.decompress(row[0])
        return None

    def snapshot_ages(self) -> dict[str, float]:
        """How many seconds ago the record of each agent with a snapshot was written."""
        with suppress(OSError):
            now = time.time()
            return {_text(agent): now - at for agent, at in self._rows(_WITH_SNAPSHOT)}
        return {}

    def receipt(self, agent: str, key: str) -> StoredReceipt | None:
        """The receipt of that key, if there is one. Raises OSError if that cannot be told."""
        if agent in self._without_receipts:
            return None
        for digest, began, pid, ended, *result in self._rows(_RECEIPT, (_bytes(agent), _bytes(key))):
            return StoredReceipt(digest, began, pid, bool(ended), *result)
        return None

    def receipts(self) -> list[tuple[str, str, int]]:
        """The agent and the key of each receipt, and how many bytes of output it has; the oldest first.

        Raises OSError.
        """
        return [(_text(agent), _text(key), size) for agent, key, size in self._rows(_RECEIPTS)]

    def put_receipt(self, agent: str, key: str, receipt: StoredReceipt) -> None:
        """Keep a receipt. It outlives the process now, and a crash of the machine after ``sync``. Raises OSError."""
        size = len(receipt.stdout) + len(receipt.stderr)
        self._write(_PUT_RECEIPT, (_bytes(agent), _bytes(key), *receipt), size)
        self._opened(self.fault)

    def drop_receipt(self, agent: str, key: str) -> None:
        """Delete the receipt of a command that was not run."""
        self._write(_DELETE_RECEIPT, (_bytes(agent), _bytes(key)))

    def forget_receipts(self, agent: str) -> None:
        """Delete the receipts of an agent."""
        self._without_receipts.add(agent)
        self._write()

    def checkpoint(self, agent: str) -> tuple[bytes, bytes]:
        """What a client keeps for the agent: its bytes, and a snapshot. Both are empty if there is none."""
        with suppress(OSError, zlib.error):
            for data, state in self._rows(_CHECKPOINT, (_bytes(agent),)):
                return data, zlib.decompress(state) if state else b""
        return b"", b""

    def put_checkpoint(self, agent: str, data: bytes, state: bytes | None) -> None:
        """Keep a client's bytes and a ``packed`` snapshot; None: the one that is there. Raises OSError."""
        self._write(_PUT_CHECKPOINT, (_bytes(agent), time.time(), data, state), len(data) + len(state or b""))
        self._opened(self.fault)

    def forget_checkpoint(self, agent: str) -> bool:
        """Delete the checkpoint of an agent. True if it had one."""
        with suppress(OSError):
            if self._rows(_CHECKPOINT, (_bytes(agent),)):
                self._write(_DELETE_CHECKPOINT, (_bytes(agent),))
                return True
        return False

    def checkpoints(self) -> tuple[str, ...]:
        """The agents that have one."""
        with suppress(OSError):
            return tuple(_text(agent) for (agent,) in self._rows(_CHECKPOINTS))
        return ()

    def put_approval(self, id: str, agent: str, is_rule: bool, data: str) -> None:
        """Keep a question of the agent, or a rule, as text."""
        self._write(_PUT_APPROVAL, (id, _bytes(agent), is_rule, data), len(data))

    def approvals(self, is_rule: bool) -> list[str]:
        """The rules, or the questions, as they were put."""
        with suppress(OSError):
            return [data for (data,) in self._rows(_APPROVALS, (is_rule,))]
        return []

    def drop_approval(self, id: str) -> None:
        """Delete a question or a rule."""
        self._write(_DELETE_APPROVAL, (id,))

    def forget_approvals(self, agent: str) -> None:
        """Delete the questions and the rules of an agent."""
        self._write(_DELETE_APPROVALS, (_bytes(agent),))

    def _rows(self, query: str, values: tuple[object, ...] = ()) -> list[Any]:
        import sqlite3

        try:
            return self._opened(self._lost).execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise OSError(str(error)) from error

    def _opened(self, fault: str) -> sqlite3.Connection:
        """The database. Raises OSError with the fault if there is one, and if there is no database."""
        if fault or self._database is None:
            raise OSError(fault or "this daemon has no state database")
        return self._database

    def sync(self) -> None:
        """Wait until the disk has all that was written. May be called in another thread. Raises OSError.

        Only the log is synced. What is in it no more is in the database, which each checkpoint syncs.
        """
        log = f"{self.path}-wal"
        with self._syncing:
            try:
                if self._log < 0 or not os.path.samestat(os.stat(log), os.fstat(self._log)):
                    self._close_log()
                    self._log = os.open(log, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
                    _sync_directories(log)
                os.fdatasync(self._log)
            except OSError as error:
                # For good: the kernel may have dropped what it could not write, and says so once.
                self._lost = self._told(f"the disk may lack the last records: {error}")
                raise OSError(self._lost) from error

    def _close_log(self) -> None:
        if self._log >= 0:
            os.close(self._log)
            self._log = -1

    def agents(self) -> Mapping[str, StoredAgent]:
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
        """Close the database. Another store can then open it at once."""
        if self._copying is not None:
            self._copying.join()
            self._copying = None
        with self._syncing:
            self._close_log()
        if self._database is not None:
            self._database.close()
            self._database = None
        if self._lock >= 0:  # last: to close any descriptor of the file drops SQLite's own locks
            os.close(self._lock)
            self._lock = -1

    def _write(self, statement: str = "", values: tuple[object, ...] = (), size: int = 0) -> None:
        """Write what has changed, and carry out a statement, whose values have ``size`` bytes.

        After a fault, the next change of a record tries again.
        """
        if not self._is_ours:
            return
        import sqlite3

        try:
            if self._database is None or not self._is_in_place():  # somebody has removed it
                self.close()
                self._changed |= self._records.keys()
                self._make()
            assert self._database is not None
            with self._database as database:
                changed = [(agent, self._records.get(agent)) for agent in self._changed]
                gone = [(_bytes(agent),) for agent, one in changed if one is None]
                for delete in _DELETE:
                    database.executemany(delete, gone)
                rows = ((_bytes(agent), *_row(one)) for agent, one in changed if one is not None)
                database.executemany(_PUT, rows)
                for agent in self._without_receipts:
                    database.execute(_DELETE_RECEIPTS, (_bytes(agent),))
                if statement:
                    database.execute(statement, values)
        except (OSError, sqlite3.Error) as error:  # a full disk, for example
            self._fault = self._told(f"the last records could not be written: {error}")
            return
        self._changed.clear()
        self._without_receipts.clear()
        self._fault = ""
        self._writes += 1 + size // _PAGE
        if self._writes >= _CHECKPOINT_EVERY:
            self._writes = 0
            self._copying = threading.Thread(
                target=_checkpoint, args=(self.path,), name="shellsession-store", daemon=True
            )
            self._copying.start()

    def _is_in_place(self) -> bool:
        with suppress(OSError):
            return os.path.samestat(os.stat(self.path), os.fstat(self._lock))
        return False

    def _open(self) -> None:
        """Open the database and read the records. A damaged one is moved aside."""
        try:
            import sqlite3  # 3 ms, and some builds of Python lack it
        except ImportError as error:
            self._lost = self._told(f"nothing is recorded: {error}")
            return
        try:
            try:
                self._make()
            except sqlite3.OperationalError:  # full, for example: not damaged
                raise
            except sqlite3.DatabaseError as error:
                self.close()
                for name in _files(self.path)[1:]:
                    with suppress(FileNotFoundError):
                        os.unlink(name)
                os.replace(self.path, f"{self.path}.damaged")
                self._make()
                self._lost = self._told(
                    f"it was damaged ({error}), and is now {self.path}.damaged: its records are lost"
                )
        except BlockingIOError:
            self.close()
            self._lost = self._told("nothing is recorded: another daemon with the same name has it open")
        except (OSError, sqlite3.Error) as error:
            self.close()
            self._lost = self._told(f"nothing is recorded: {error}")
            self._read_only(str(error))

    def _make(self) -> None:
        """Make the database if it is missing, lock it, and read its records if none are known yet."""
        import sqlite3

        self._lock = _prepare(self.path)
        _take(self._lock)
        self._database = database = sqlite3.connect(self.path, 0.0, check_same_thread=False)
        try:
            if (version := _version(database)) and not self._records:  # first: a full disk can be read
                self._records = _read(database, version)
            # A commit appends to the log, and waits for no disk.
            database.execute("PRAGMA journal_mode = WAL")
            database.execute("PRAGMA synchronous = NORMAL")
            database.execute("PRAGMA wal_autocheckpoint = 0")
            with database:
                for table in _TABLES:
                    database.execute(table)
                if 0 < version < _HAS_CURRENT:
                    database.execute(_ADD_CURRENT)
                database.execute(f"PRAGMA user_version = {_VERSION}")
                database.execute("DELETE FROM agents WHERE at < ?", (time.time() - LIFETIME,))
                database.execute("DELETE FROM snapshots WHERE agent NOT IN (SELECT agent FROM agents)")
                database.execute("DELETE FROM receipts WHERE began < ?", (time.time() - LIFETIME,))
                database.execute("DELETE FROM checkpoints WHERE at < ?", (time.time() - LIFETIME,))
                database.execute(_DROP_CHECKPOINTS)
            database.execute("PRAGMA wal_checkpoint(TRUNCATE)")  # after a killed process
            self._is_ours = True
        except BaseException:
            database.close()
            self._database = None
            raise

    def _read_only(self, why: str) -> None:
        """Read the records of a database that cannot be written. If it cannot be read either, note that."""
        import sqlite3

        if self._records or not os.path.lexists(self.path):
            return
        try:
            _check(os.lstat(self.path), self.path)
            address = f"{Path(self.path).as_uri()}?mode=ro" + "&immutable=1" * (not os.path.exists(f"{self.path}-wal"))
            with closing(sqlite3.connect(address, uri=True)) as database:
                if version := _version(database):
                    self._records = _read(database, version)
        except PermissionError:  # not ours: it never had a record
            pass
        except (OSError, sqlite3.Error) as error:
            self.unreadable = f"{self.path} cannot be read ({why}; {error})"

    def _told(self, why: str) -> str:
        if why not in (self._fault, self._lost):  # once: a full disk would be logged with every command
            import logging

            logging.getLogger("shellsession").warning("state %s: %s", self.path, why)
        return why


def _version(database: sqlite3.Connection) -> int:
    """The version of the tables; 0 if nobody has made them. Raises OSError if it is a newer one."""
    version: int = database.execute("PRAGMA user_version").fetchone()[0]
    if version > _VERSION:
        raise OSError(f"it was made by a newer version of shellsession (tables {version}, not {_VERSION})")
    return version


def _read(database: sqlite3.Connection, version: int) -> dict[str, StoredAgent]:
    current = "is_current" if version >= _HAS_CURRENT else "0"
    rows = database.execute(_READ % current, (time.time() - LIFETIME, _RECORDS_MAX)).fetchall()
    return {
        _text(agent): StoredAgent(os.fsdecode(cwd), running, bool(expired), rules, bool(is_current))
        for agent, cwd, running, expired, rules, is_current in rows[::-1]
    }


def _bytes(agent: str) -> bytes:
    return agent.encode("utf-8", "surrogatepass")  # a name may be any text; SQLite's text may not


def _text(stored: bytes) -> str:
    return stored.decode("utf-8", "surrogatepass")


def _row(record: StoredAgent) -> tuple[object, ...]:
    return os.fsencode(record.cwd), record.running, record.expired, record.rules, time.time(), record.is_current


def packed(snapshot: bytes) -> bytes:
    """The snapshot as the store keeps it; b"" if it is too large."""
    return zlib.compress(snapshot, _LEVEL) if len(snapshot) <= _SNAPSHOT_MAX else b""


def forget_recorded(place: str, agent: str | None) -> int:
    """Delete the record of an agent, or (None) of all, of a daemon that does not run. Returns how many had one.

    Raises OSError.
    """
    if not os.path.lexists(path := path_for(place)):
        return 0
    store = Store(path)
    try:
        if store.fault:
            raise OSError(f"state {path}: {store.fault}")
        known = {*store.agents(), *store.checkpoints(), *(one for one, _, _ in store.receipts())}
        found = [one for one in known if agent in (None, one)]
        for one in found:
            store.forget_receipts(one)
            store.forget_checkpoint(one)
            store.forget_approvals(one)
            store.forget(one)
        return len(found)
    finally:
        store.close()


def _checkpoint(path: str) -> None:
    """Copy the log into the database, and sync that. Others may write meanwhile."""
    import sqlite3

    with suppress(sqlite3.Error), closing(sqlite3.connect(path, 0.0)) as database:
        database.execute("PRAGMA wal_checkpoint(PASSIVE)")


def path_for(place: str) -> str:
    """The database of the daemon at that place, a path. A home directory may be shared by several machines."""
    machine = os.fsencode(os.uname().nodename)
    with suppress(OSError), open("/etc/machine-id", "rb") as file:
        machine = file.read().strip() or machine
    name = sha256(b"%b\0%b" % (machine, os.fsencode(place))).hexdigest()[:12]
    return os.path.join(state_directory(), f"state-{name}.db")


def _remove_old(path: str) -> None:
    """Remove the databases of other daemons that nobody has changed for longer than a record lasts."""
    directory = os.path.dirname(path)
    with suppress(OSError):
        for name in os.listdir(directory):
            files = _files(os.path.join(directory, name))
            is_one = name.startswith("state-") and name.endswith(".db")
            if is_one and files[0] != path and max(map(_changed, files)) < time.time() - LIFETIME:
                for one in files:
                    with suppress(OSError):
                        os.unlink(one)


def _changed(path: str) -> float:
    """When the file was changed last; 0 if there is none."""
    try:
        return os.lstat(path).st_mtime
    except OSError:
        return 0.0


def _take(lock: int) -> None:
    """Lock the descriptor. Raises BlockingIOError if another process keeps it: `forget` has it for a moment only."""
    until = time.monotonic() + _PATIENCE
    while True:
        try:
            return fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                raise
        time.sleep(0.01)


def _prepare(path: str) -> int:
    """Make the private directory and the file of a database, or check that they are ours alone; open it.

    Raises OSError.
    """
    directory = os.path.dirname(path)
    make_missing(directory)
    make_private(os.path.realpath(directory))
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
    descriptor = os.open(path, flags, 0o600)
    try:
        _check(found := os.fstat(descriptor), path)
        if stat.S_IMODE(found.st_mode) != 0o600:
            os.fchmod(descriptor, 0o600)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _sync_directories(path: str) -> None:
    """Have the disk know the file by its name: sync its directory and those above it, which may be new."""
    for directory in Path(path).parents:
        with suppress(OSError):  # one that we may not read was there before
            descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def _check(found: os.stat_result, path: str) -> None:
    """Raise PermissionError unless it is a file of this user, with one name."""
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_nlink != 1:
        raise PermissionError(f"{path} is not a file of this user alone")


def _files(path: str) -> tuple[str, ...]:
    return path, f"{path}-wal", f"{path}-shm"
