"""What outlives a process: the store keeps each record, whatever happens to the process and to the file."""

from __future__ import annotations

import fcntl
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from system import SOAK, wait_until

from shellsession import store
from shellsession.store import Store, StoredAgent, StoredReceipt, packed, path_for

PATHS = st.binary(max_size=20).map(os.fsdecode)
TEXTS = st.text(max_size=20)
VALID = TEXTS.filter(lambda text: not any("\ud800" <= one <= "\udfff" for one in text))
RECORDS = st.builds(StoredAgent, PATHS, VALID, is_current=st.booleans())


def test_records_of_any_text_are_found_again(tmp_path: Path) -> None:
    @settings(max_examples=200 if SOAK else 15)  # each is written to the disk
    @given(st.dictionaries(st.text(min_size=1, max_size=10), RECORDS, max_size=8), st.data())
    def check(records: dict[str, StoredAgent], data: st.DataObject) -> None:
        path = str(tmp_path / os.urandom(4).hex() / "state.db")
        ours = Store(path)
        for agent, record in records.items():
            ours.put(agent, StoredAgent("/other"))
            ours.put(agent, record)
        for agent in data.draw(st.sets(st.sampled_from(sorted(records)))) if records else ():
            assert ours.forget(agent)
            del records[agent]
        ours.close()
        again = Store(path)
        assert (again.agents(), again.fault) == (records, "")
        again.close()

    check()


def test_store_is_closed_while_its_log_is_copied_and_the_next_one_can_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def copy_slowly(path: str) -> None:
        with closing(sqlite3.connect(path, 20.0, isolation_level=None)) as database:
            database.execute("BEGIN EXCLUSIVE")
            time.sleep(0.2)

    monkeypatch.setattr("shellsession.store._checkpoint", copy_slowly)
    path = str(tmp_path / "state.db")
    ours = Store(path)
    for number in range(200):
        ours.put(f"a{number}", StoredAgent("/"))
    ours.close()
    again = Store(path)
    assert (again.fault, len(again.agents())) == ("", 200)
    again.close()


def test_checkpoint_is_kept_until_it_is_forgotten(tmp_path: Path) -> None:
    path = str(tmp_path / "state.db")
    ours = Store(path)
    for number in range(510):
        ours.put_checkpoint(f"a{number}", b"data", packed(b"state") if number % 2 else None)
    ours.put_checkpoint("a509", b"newer", None)
    assert ours.checkpoint("a509") == (b"newer", b"state")
    assert ours.forget_checkpoint("a508")
    assert not ours.forget_checkpoint("a508")
    ours.close()
    again = Store(path)
    assert (again.checkpoint("a507"), again.checkpoint("a506")) == ((b"data", b"state"), (b"data", b""))
    assert (again.checkpoint("a508"), again.checkpoint("a0"), len(again.checkpoints())) == ((b"", b""), (b"", b""), 500)
    again.close()


def test_records_of_a_killed_process_are_there(tmp_path: Path) -> None:
    path = str(tmp_path / "state.db")
    program = f"""
import os, signal, time
from shellsession.store import StoredAgent, Store
store = Store({path!r})
for number in range(1000):
    store.put(f"a{{number % 7}}", StoredAgent(f"/{{number}}"))
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], check=False)
    assert done.returncode == -signal.SIGKILL
    again = Store(path)
    assert again.agents() == {f"a{number % 7}": StoredAgent(f"/{number}") for number in range(993, 1000)}
    again.close()


def test_damaged_database_is_set_aside_and_told(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(b"not a database" * 1000)
    damaged = Store(str(path))
    damaged.put("a", StoredAgent("/"))
    assert "it was damaged" in damaged.fault, "as long as the process"
    assert damaged.unreadable == ""
    damaged.close()
    assert (tmp_path / "state.db.damaged").read_bytes() == b"not a database" * 1000
    again = Store(str(path))
    assert (again.agents(), again.fault) == ({"a": StoredAgent("/")}, "")
    again.close()


def test_newer_database_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    before = path.read_bytes()
    newer = Store(str(path))
    newer.put("a", StoredAgent("/"))
    newer.close()
    assert "made by a newer version" in newer.fault
    assert "made by a newer version" in newer.unreadable
    assert newer.get("a") == StoredAgent("/"), "as long as the process"
    assert path.read_bytes() == before


def test_older_database_keeps_its_records(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE agents (agent BLOB PRIMARY KEY, cwd, running, expired, rules, at) WITHOUT ROWID")
        database.execute("CREATE TABLE snapshots (agent BLOB PRIMARY KEY, data BLOB NOT NULL)")
        database.execute("INSERT INTO agents VALUES (?, ?, '', 0, '', ?)", (b"a", b"/usr", time.time()))
        database.execute("INSERT INTO snapshots VALUES (?, ?)", (b"a", packed(b"state")))
        database.execute("PRAGMA user_version = 2")
    database.close()
    for _ in range(2):
        store = Store(str(path))
        assert (store.agents(), store.snapshot("a"), store.fault) == ({"a": StoredAgent("/usr")}, b"state", "")
        store.put("b", StoredAgent("/", is_current=True))
        store.forget("b")
        store.close()


@pytest.mark.parametrize("what", ["directory of others", "link", "two names", "a directory"])
def test_place_that_others_could_change_is_not_used(tmp_path: Path, what: str) -> None:
    above = tmp_path / "above"
    above.mkdir()
    path = above / "shellsession" / "state.db"
    if what == "directory of others":
        above.chmod(0o777)
    else:
        path.parent.mkdir(mode=0o700)
        (tmp_path / "other").touch()
        if what == "link":
            path.symlink_to(tmp_path / "other")
        elif what == "two names":
            path.hardlink_to(tmp_path / "other")
        else:
            path.mkdir()
    refused = Store(str(path))
    assert refused.fault.startswith("nothing is recorded: ")
    assert refused.unreadable == ""
    refused.put("a", StoredAgent("/"))
    refused.close()
    assert (tmp_path / "other").stat().st_size == 0 if (tmp_path / "other").exists() else True


def test_files_are_private_whatever_the_umask_is(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = Store(str(tmp_path / "new" / "state.db"))
        made.put("a", StoredAgent("/"))
        modes = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "new").iterdir()}
        assert set(modes.values()) == {0o600}
        assert (tmp_path / "new").stat().st_mode & 0o777 == 0o700
        assert made.size > 0
        made.close()
    finally:
        os.umask(before)


def test_records_are_bounded_and_the_oldest_goes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_RECORDS_MAX", 3)
    path = str(tmp_path / "state.db")
    ours = Store(path)
    for agent in "abacd":
        ours.put(agent, StoredAgent(f"/{len(ours.agents())}"))
    kept = list(ours.agents())
    ours.close()
    again = Store(path)
    assert (kept, sorted(again.agents())) == (["a", "c", "d"], ["a", "c", "d"])
    again.close()


def test_records_expire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "state.db")
    ours = Store(path)
    ours.put("a", StoredAgent("/"))
    ours.close()
    monkeypatch.setattr(store, "LIFETIME", -1.0)
    again = Store(path)
    assert again.agents() == {}
    again.close()


def test_records_of_a_disk_without_room_are_read(tmp_path: Path) -> None:
    """And of one that is read-only: rules must not be lost because nothing can be written."""
    path = tmp_path / "state.db"
    ours = Store(str(path))
    ours.put("a", StoredAgent("/", rules="{}"))
    ours.close()
    program = f"""
from shellsession.store import Store
store = Store({str(path)!r})
print(store.get("a"), repr(store.unreadable), "nothing is recorded" in store.fault)
"""
    mount = f"mount --bind {tmp_path} {tmp_path} && mount -o remount,bind,ro {tmp_path}"
    words = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", f'{mount} && exec "$@"', "sh"]
    done = subprocess.run([*words, sys.executable, "-c", program], capture_output=True, text=True, check=False)
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip("no mount can be made here")
    assert done.stdout == f"{StoredAgent('/', rules='{}')} '' True\n"


def test_database_that_another_process_has_open_is_left_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "state.db")
    first, second = Store(path), Store(path)
    assert "another daemon" in second.fault
    assert second.unreadable == ""
    second.put("a", StoredAgent("/second"))
    first.put("a", StoredAgent("/first"))
    second.close()
    first.close()
    again = Store(path)
    assert again.agents() == {"a": StoredAgent("/first")}
    again.close()


def test_database_that_is_locked_for_a_moment_is_used(tmp_path: Path) -> None:
    path = str(tmp_path / "state.db")
    Store(path).close()
    with open(path) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        timer = threading.Timer(0.1, fcntl.flock, (file, fcntl.LOCK_UN))
        timer.start()
        ours = Store(path)
        timer.join()
    assert ours.fault == ""
    ours.close()


def test_database_that_was_removed_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "new" / "state.db"
    ours = Store(str(path))
    ours.put("a", StoredAgent("/a"))
    shutil.rmtree(path.parent)
    ours.put("b", StoredAgent("/b"))
    assert ours.fault == ""
    ours.close()
    again = Store(str(path))
    assert again.agents() == {"a": StoredAgent("/a"), "b": StoredAgent("/b")}
    again.close()


def test_old_databases_of_others_are_removed(tmp_path: Path) -> None:
    old, young = tmp_path / "state-0123456789ab.db", tmp_path / "state-123456789abc.db"
    for path in (old, young):
        path.touch()
    os.utime(old, (0, 0))
    Store(str(tmp_path / "state-23456789abcd.db")).close()
    assert (old.exists(), young.exists()) == (False, True)


def test_each_daemon_of_a_user_has_its_own_database(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len({path_for("/run/1"), path_for("/run/2"), path_for("/run/1")}) == 2
    with monkeypatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", "/elsewhere")
        assert path_for("/run/1").startswith("/elsewhere/shellsession/state-")


def test_snapshot_of_an_agent_outlives_the_process_and_ends_with_its_record(tmp_path: Path) -> None:
    path = str(tmp_path / "state.db")
    ours = Store(path)
    for agent in "ab":
        ours.put(agent, StoredAgent("/"))
        assert ours.put_snapshot(agent, packed(b"first"))
        assert ours.put_snapshot(agent, packed(agent.encode() * 100_000))
    assert not ours.put_snapshot("nobody", packed(b"x"))  # it has no record that would delete it
    ours.forget("b")
    ours.close()
    again = Store(path)
    assert [again.snapshot(agent) for agent in ("a", "b", "nobody")] == [b"a" * 100_000, None, None]
    again.put("b", StoredAgent("/"))
    assert again.snapshot("b") is None
    again.close()


def test_snapshot_goes_with_a_record_that_has_no_more_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_RECORDS_MAX", 1)
    ours = Store(str(tmp_path / "state.db"))
    ours.put("a", StoredAgent("/"))
    ours.put_snapshot("a", packed(b"x"))
    ours.put("b", StoredAgent("/"))
    ours.put("a", StoredAgent("/"))
    assert ours.snapshot("a") is None
    ours.close()


def test_snapshots_are_not_kept_without_a_database(tmp_path: Path) -> None:
    memory = Store()
    memory.put("a", StoredAgent("/"))
    assert not memory.put_snapshot("a", packed(b"x"))
    assert memory.snapshot("a") is None


def test_log_of_large_snapshots_is_copied_into_the_database(tmp_path: Path) -> None:
    ours = Store(str(tmp_path / "state.db"))
    ours.put("a", StoredAgent("/"))
    for _ in range(60):
        assert ours.put_snapshot("a", packed(os.urandom(1 << 18)))
    wait_until(lambda: os.stat(f"{tmp_path}/state.db").st_size > 1 << 18, "the copy")
    ours.close()


def test_synced_receipts_are_there_after_a_power_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a disk has for certain is what was there at a sync. The log is checkpointed and reused meanwhile."""
    monkeypatch.setattr(store, "_CHECKPOINT_EVERY", 20)
    path, synced, directories = tmp_path / "state" / "state.db", list[Path](), 0
    fdatasync, fsync = os.fdatasync, os.fsync

    def note(file: int) -> None:
        fdatasync(file)
        assert os.path.samestat(os.fstat(file), os.stat(f"{path}-wal"))
        synced.append(tmp_path / f"disk{len(synced)}" / "state.db")
        synced[-1].parent.mkdir(mode=0o700)
        for end in ("", "-wal"):
            shutil.copy(f"{path}{end}", f"{synced[-1]}{end}")

    def count(file: int) -> None:
        nonlocal directories
        directories += stat.S_ISDIR(os.fstat(file).st_mode)
        fsync(file)

    monkeypatch.setattr(os, "fdatasync", note)
    monkeypatch.setattr(os, "fsync", count)
    ours = Store(str(path))
    for number in range(300):
        ours.put_receipt("a", f"k{number}", StoredReceipt(b"d", time.time(), 7, stdout=bytes(number * 10)))
        if number % 10 == 0:
            ours.sync()
    ours.close()
    assert directories >= 2, "the database and its directory are known by name"
    monkeypatch.undo()
    assert len(synced) == 30
    for at, disk in enumerate(synced):
        with open(f"{disk}-wal", "ab") as log:  # the beginning of what was written later
            log.write(os.urandom(1000))
        again = Store(str(disk))
        assert {key for _, key, _ in again.receipts()} == {f"k{number}" for number in range(10 * at + 1)}
        again.close()
