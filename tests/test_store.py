"""What outlives a process: the store keeps each record, whatever happens to the process and to the file."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from shellsession import store
from shellsession.store import Record, Store

PATHS = st.binary(max_size=20).map(os.fsdecode)
TEXTS = st.text(max_size=20)
RECORDS = st.builds(Record, PATHS, TEXTS.filter(lambda text: not any("\ud800" <= one <= "\udfff" for one in text)))


def test_records_of_any_text_are_found_again(tmp_path: Path) -> None:
    @given(st.dictionaries(st.text(min_size=1, max_size=10), RECORDS, max_size=8), st.data())
    def check(records: dict[str, Record], data: st.DataObject) -> None:
        path = str(tmp_path / os.urandom(4).hex() / "state.db")
        ours, other = Store("here", path), Store("there", path)
        for agent, record in records.items():
            ours.put(agent, record)
            other.put(agent, Record("/other"))
        for agent in data.draw(st.sets(st.sampled_from(sorted(records)))) if records else ():
            assert ours.forget(agent)
            del records[agent]
        ours.close()
        other.close()
        again = Store("here", path)
        assert (again.agents(), again.fault) == (records, "")
        again.close()

    check()


def test_records_of_a_killed_process_are_there(tmp_path: Path) -> None:
    path = str(tmp_path / "state.db")
    program = f"""
import os, signal, time
from shellsession.store import Record, Store
store = Store("", {path!r})
for number in range(1000):
    store.put(f"a{{number % 7}}", Record(f"/{{number}}"))
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], check=False)
    assert done.returncode == -signal.SIGKILL
    again = Store("", path)
    assert again.agents() == {f"a{number % 7}": Record(f"/{number}") for number in range(993, 1000)}
    again.close()


def test_damaged_database_is_set_aside_and_told(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    path.write_bytes(b"not a database" * 1000)
    damaged = Store("", str(path))
    assert "it was damaged" in damaged.fault
    damaged.put("a", Record("/"))
    damaged.close()
    assert (tmp_path / "state.db.damaged").read_bytes() == b"not a database" * 1000
    again = Store("", str(path))
    assert (again.agents(), again.fault) == ({"a": Record("/")}, "")
    again.close()


def test_newer_database_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "state.db"
    with sqlite3.connect(path) as database:
        database.execute("PRAGMA user_version = 99")
    database.close()
    before = path.read_bytes()
    newer = Store("", str(path))
    newer.put("a", Record("/"))
    newer.close()
    assert "made by a newer version" in newer.fault
    assert newer.get("a") == Record("/"), "as long as the process"
    assert path.read_bytes() == before


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
    refused = Store("", str(path))
    assert refused.fault.startswith("nothing is recorded: ")
    refused.put("a", Record("/"))
    refused.close()
    assert (tmp_path / "other").stat().st_size == 0 if (tmp_path / "other").exists() else True


def test_files_are_private_whatever_the_umask_is(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = Store("", str(tmp_path / "new" / "state.db"))
        made.put("a", Record("/"))
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
    ours = Store("", path)
    for agent in "abacd":
        ours.put(agent, Record(f"/{len(ours.agents())}"))
    kept = list(ours.agents())
    ours.close()
    again = Store("", path)
    assert (kept, sorted(again.agents())) == (["a", "c", "d"], ["a", "c", "d"])
    again.close()


def test_records_expire(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(tmp_path / "state.db")
    ours = Store("", path)
    ours.put("a", Record("/"))
    ours.close()
    monkeypatch.setattr(store, "_LIFETIME", -1.0)
    again = Store("", path)
    assert again.agents() == {}
    again.close()
