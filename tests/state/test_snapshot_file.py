"""Snapshots in files: complete or refused, private, and without what a file must not have."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from system import SOAK

from shellsession import InvalidRequest, Policy, Session, Snapshot, SnapshotDamaged, SnapshotTooNew
from shellsession.state.values import Function, Omission, Variable

_SNAPSHOT: Final = Snapshot(
    cwd="/usr",
    variables={
        "X": Variable("1"),
        "BYTES": Variable("\udcff\udcfe é", "x"),
        "LIST": Variable({"0": "a", "7": "\udc80"}, "a"),
        "MAP": Variable({"\udcff": "v", "k": "\n"}, "A"),
        "NONE": Variable(None, "i"),
    },
    functions={"f": Function("f () \n{ \n    echo \udcff\n}\n", "x")},
    aliases={"ll": "ls -l"},
    traps={"USR1": "echo"},
    options=frozenset({"pipefail"}),
    arguments=("a", "\udcff"),
    completions=(("-W", "a b", "x"),),
    left_out=(Omission("variable", "Y"),),
    limits={"nofile": 256},
    facts={"trapping": True, "named": (11,)},
    at=1.5,
)


def test_loaded_snapshot_is_equal(tmp_path: Path) -> None:
    _SNAPSHOT.save(tmp_path / "file")
    assert Snapshot.load(tmp_path / "file") == _SNAPSHOT
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600
    _SNAPSHOT.__replace__(cwd="/").save(str(tmp_path / "file"))
    assert Snapshot.load(tmp_path / "file").cwd == "/"
    assert os.listdir(tmp_path) == ["file"]


def test_damage_of_any_byte_is_found() -> None:
    data = _SNAPSHOT.to_bytes()
    for at in range(len(data)):
        for changed in (data[:at] + bytes((data[at] ^ 1,)) + data[at + 1 :], data[:at], data[:at] + data[at + 1 :]):
            with pytest.raises(SnapshotDamaged):
                Snapshot.from_bytes(changed)
    for other in (b"", b"\0" * 100, data + b"x", data + data, b"#!/bin/bash\ntouch executed\n"):
        with pytest.raises(SnapshotDamaged):
            Snapshot.from_bytes(other)


def test_newer_version_is_refused() -> None:
    from hashlib import sha256

    body = b'shellsession snapshot 2\n{"soul": 1}'
    data = body + b"\nsha256 " + sha256(body).hexdigest().encode() + b"\n"
    with pytest.raises(SnapshotTooNew, match="version 2"):
        Snapshot.from_bytes(data)


@pytest.mark.parametrize("form", ["[]", "{}", "1", '{"cwd": 1}', "[" * 100_000])
def test_other_form_is_refused(form: str) -> None:
    from hashlib import sha256

    body = b"shellsession snapshot 1\n" + form.encode()
    with pytest.raises(SnapshotDamaged):
        Snapshot.from_bytes(body + b"\nsha256 " + sha256(body).hexdigest().encode() + b"\n")


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_file_that_others_can_write_to_is_refused(mode: int, tmp_path: Path) -> None:
    _SNAPSHOT.save(tmp_path / "file")
    (tmp_path / "file").chmod(mode)
    with pytest.raises(InvalidRequest, match=f"mode {mode:04o}"):
        Snapshot.load(tmp_path / "file")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_file_of_another_user_is_refused(tmp_path: Path) -> None:
    _SNAPSHOT.save(tmp_path / "file")
    os.chown(tmp_path / "file", 65534, -1)
    with pytest.raises(InvalidRequest, match="belongs to user 65534"):
        Snapshot.load(tmp_path / "file")


def test_pipe_and_directory_are_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe", 0o600)
    for path in (tmp_path / "pipe", tmp_path):
        with pytest.raises((InvalidRequest, IsADirectoryError)):
            Snapshot.load(path)
    with pytest.raises(FileNotFoundError):
        Snapshot.load(tmp_path / "missing")
    with pytest.raises(FileNotFoundError):
        _SNAPSHOT.save(tmp_path / "missing" / "file")


# Each child saves over the old file, and kills itself where it calls the n-th of these.
_KILLED: Final = """
import os, sys, tempfile
from shellsession import Snapshot
from shellsession.state import snapshot_file

path, big = sys.argv[1], Snapshot(arguments=("new" * 100_000,))
Snapshot(arguments=("old",)).save(path)
killed = 0
for module, name in ((tempfile, "mkstemp"), (os, "fsync"), (os, "replace"), (os, "fsync"), (snapshot_file, "_sync")):
    for after in (False, True):
        if not (pid := os.fork()):
            call = getattr(module, name)
            def last(*values, **named):
                if after:
                    call(*values, **named)
                os.kill(os.getpid(), 9)
            setattr(module, name, last)
            big.save(path)
            os._exit(0)
        killed += os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -9
        assert Snapshot.load(path).arguments in (("old",), big.arguments)
print(killed)
"""


def test_killed_while_saving_leaves_the_old_or_the_new_file(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _KILLED, str(tmp_path / "file")]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "10\n"


# Each child saves again and again, and is killed at a random moment.
_KILLED_AT_RANDOM: Final = """
import os, random, sys, time
from shellsession import Snapshot

path, choose = sys.argv[1], random.Random(sys.argv[1])
texts = [Snapshot(arguments=(letter * size,)) for letter, size in (("a", 10), ("b", 1_000_000), ("c", 10_000))]
texts[0].save(path)
for _ in range(int(sys.argv[2])):
    if not (pid := os.fork()):
        while True:
            for one in texts:
                one.save(path)
    time.sleep(choose.random() / 50)
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    assert Snapshot.load(path) in texts
print("done")
"""


def test_killed_at_a_random_moment_leaves_a_complete_file(tmp_path: Path) -> None:
    command = [sys.executable, "-c", _KILLED_AT_RANDOM, str(tmp_path / "file"), str(1000 if SOAK else 30)]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "done\n"


def test_disk_that_is_full_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    _SNAPSHOT.save(tmp_path / "file")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space"):
            Snapshot().save(tmp_path / "file")
    assert Snapshot.load(tmp_path / "file") == _SNAPSHOT
    assert os.listdir(tmp_path) == ["file"]


def test_file_has_no_secrets_and_nothing_inherited(tmp_path: Path) -> None:
    env = {"PATH": "/usr/bin:/bin", "GIVEN": "inherited-value", "GITHUB_TOKEN": "token-of-the-host"}
    policy = Policy(hide_names=["^PIN"], secrets=["declared-secret"])
    with Session(env=env, policy=policy, redact=[r"pin-[0-9]+"]) as sh:
        sh.run(
            "export MY_SECRET=s3cr3t-value; DB=postgres://me:pa55word@host/x; KEPT=1; PIN=hidden-value; PATH=$PATH:/x"
        )
        sh.run("f() { login pin-12345; }; alias a='x declared-secret'; g() { echo kept; }")
        snap = sh.snapshot()
        assert snap.variables["MY_SECRET"].value == "s3cr3t-value"
        snap.save(tmp_path / "file")
        text = (tmp_path / "file").read_text()
        for secret in ("s3cr3t", "pa55word", "pin-1", "declared-secret", "hidden-value", "inherited-value", "token-of"):
            assert secret not in text
        loaded = Snapshot.load(tmp_path / "file")
        names = {*[("variable", name) for name in ("MY_SECRET", "DB", "PIN")], ("function", "f"), ("alias", "a")}
        assert {tuple(one) for one in loaded.left_out} == names
    rotated = {**env, "GITHUB_TOKEN": "rotated", "MY_SECRET": "of the new start"}
    with Session(env=rotated, policy=policy, snapshot=loaded) as sh:
        result = sh.run("g; echo $KEPT $GITHUB_TOKEN $GIVEN $PATH $MY_SECRET ${DB-none}; type f a 2>&1 | wc -l")
        shown = "kept\n1 rotated inherited-value /usr/bin:/bin:/x of the new start none\n2\n"
        assert (result.stdout, sh.restored.not_restored) == (shown, ())


def test_file_has_no_copy_of_a_secret(tmp_path: Path) -> None:
    env = {"PATH": "/usr/bin:/bin", "GITHUB_TOKEN": "token-of-the-host"}
    with Session(env=env) as sh:
        sh.run('export MY_SECRET=s3cr3t-value; H="Bearer $GITHUB_TOKEN"; L=(a "x=$MY_SECRET"); KEPT=1')
        sh.run("f() { login token-of-the-host; }; alias PATH='x s3cr3t-value'; g() { login $MY_SECRET; }")
        sh.snapshot().save(tmp_path / "file")
    text = (tmp_path / "file").read_text()
    assert "s3cr3t" not in text
    assert "token-of" not in text
    names = {*[("variable", name) for name in ("MY_SECRET", "H", "L")], ("function", "f"), ("alias", "PATH")}
    assert {tuple(one) for one in Snapshot.load(tmp_path / "file").left_out} == names
