"""What a branch changes is written to its directory: as the mount shows it, and whatever kills it."""

from __future__ import annotations

import fcntl
import itertools
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from branched import Place
from hypothesis import given
from overlays import BASES, LAYERS, Overlay, View, machine
from sandboxes import mine as mine, run_as, user as user
from system import SOAK

from shellsession import ApplyFailed, BranchUnavailable, Conflict, InvalidRequest
from shellsession.branch import apply as apply_module
from shellsession.branch.apply import apply, moment
from shellsession.branch.changes import changes

_SETUID = 0o6000


def _expected(view: View) -> View:
    """What apply makes of a tree: no special files, no setuid bits of files, and inodes that differ."""
    kept = {path: dict(entry, inode=0) for path, entry in view.items() if not stat.S_ISFIFO(entry["type"])}
    for entry in kept.values():
        if entry["type"] == stat.S_IFREG:
            entry["mode"] &= ~_SETUID
    return kept


def _linked(view: View) -> set[tuple[str, str]]:
    """The pairs of paths that are one file."""
    return {
        (one, two)
        for one, two in itertools.combinations(sorted(view), 2)
        if view[one]["inode"] and view[one]["inode"] == view[two]["inode"]
    }


def _apply(overlay: Overlay, **options: Any) -> set[str]:
    done = apply(overlay.base, overlay.layers, overlay.home, overlay.opened, **options)
    return {change.path for change in done}


def _has_fifo(view: View) -> bool:
    return any(stat.S_ISFIFO(entry["type"]) for entry in view.values())


@machine
@given(BASES, LAYERS)
def test_base_with_the_changes_is_what_the_mount_shows(overlay_place: Path, base: list[Any], layers: list[Any]) -> None:
    with TemporaryDirectory(dir=overlay_place) as directory:
        overlay = Overlay(Path(directory), base)
        overlay.play(*layers)
        view = overlay.view()
        skipped = [change.path for change in changes(overlay.base, overlay.layers) if change.skipped]
        _apply(overlay)
        tree = overlay.tree()
        if skipped:  # a FIFO keeps what was there before
            below = tuple(f"{path}/" for path in skipped)
            view, tree = (
                {path: one for path, one in each.items() if path not in skipped and not path.startswith(below)}
                for each in (view, tree)
            )
        assert _expected(tree) == _expected(view)
        assert _linked(view) <= _linked(tree)
        left = {change.path: change.what for change in changes(overlay.base, overlay.layers) if not change.skipped}
        assert {path: what for path, what in left.items() if what != ("mode",)} == {}


def _killed(apply_all: Callable[..., object], at: int) -> bool:
    """Kill an apply after that many steps. Return whether it had more."""
    pid = os.fork()
    if pid == 0:
        steps = itertools.count()

        def done(_: str) -> None:
            if next(steps) == at:
                os.kill(os.getpid(), signal.SIGKILL)

        apply_all(done=done)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL


def _stop_after(last: str) -> Callable[[str], None]:
    def done(step: str) -> None:
        if step == last:
            raise KeyboardInterrupt

    return done


def test_mode_of_the_base_itself_is_a_change_that_can_conflict(overlay: Overlay) -> None:
    os.setxattr(overlay.base, "user.note", b"kept")
    overlay.begin()
    overlay.play([("write", "a", b"".hex()), ("write", "b", b"".hex())], [("chmod", "", 0o750)])
    assert [(one.path, one.kind, one.what) for one in changes(overlay.base, overlay.layers, since=1)] == [
        (".", "changed", ("mode",))
    ]
    assert _apply(overlay, paths=["a"]) == {"a"}
    assert _apply(overlay) == {".", "b"}
    assert stat.S_IMODE(os.stat(overlay.base).st_mode) == 0o750
    assert os.getxattr(overlay.base, "user.note") == b"kept"
    assert changes(overlay.base, overlay.layers) == ()
    os.chmod(overlay.base, 0o755)
    with pytest.raises(Conflict, match=r"'\.' changed"):
        _apply(overlay)


def test_second_apply_of_what_was_moved_at_the_top_is_no_conflict(overlay: Overlay) -> None:
    overlay.play_base(("write", "f", b"".hex()))
    overlay.begin()
    overlay.play([("rename", "f", "g"), ("write", "a", b"".hex())])
    assert _apply(overlay, paths=["a"]) == {"a"}
    assert _apply(overlay) == {"f", "g"}


_BASE = [
    *(("mkdir", "d"), ("many", "d", 2), ("mkdir", "gone"), ("mkdir", "gone/in"), ("many", "gone/in", 2)),
    *(("write", "f", b"old".hex()), ("write", "c", b"old".hex()), ("mkdir", "m"), ("chmod", "m", 0o500)),
]
_LAYER = [
    *(("remove", "d"), ("write", "d", b"new".hex()), ("remove", "f"), ("mkdir", "f"), ("many", "f", 2)),
    *(("remove", "gone"), ("append", "c", b"new".hex()), ("link", "c", "c2"), ("symlink", "s", "/etc")),
    *(
        ("chmod", "m", 0o700),
        ("write", "m/x", b"".hex()),
        ("chmod", "m", 0o550),
        ("chmod", "f", 0o500),
        ("chmod", "", 0o750),
    ),
]


def test_apply_that_is_killed_at_any_step_is_finished_by_the_next(overlay: Overlay, overlay_place: Path) -> None:
    overlay.play_base(*_BASE)
    view = overlay.play(_LAYER)[-1]
    before = overlay.tree()
    for at in itertools.count(0, 1 if SOAK else 3):
        with TemporaryDirectory(dir=overlay_place) as directory:
            one = Overlay(Path(directory), _BASE)
            one.layers = overlay.layers
            more = _killed(partial(_apply, one), at)
            for path in ("c", "c2"):  # old or new, none torn
                data = [tree.get(path, {}).get("data") for tree in (before, view, one.tree())]
                assert data[2] in data[:2]
            if at % 2:
                _apply(one, paths=[])
            _apply(one)
            assert _expected(one.tree()) == _expected(view)
            assert _linked(one.tree()) == {("c", "c2")}
            assert stat.S_IMODE(os.stat(one.base).st_mode) == 0o750
            assert set(os.listdir(one.home)) <= {"applied.json", "apply.staged"}
        if not more:
            assert at > 20
            break


def _modes(base: Path) -> dict[str, int]:
    return {str(path.relative_to(base)): stat.S_IMODE(path.stat().st_mode) for path in sorted(base.rglob("*"))}


_IN_CLOSED = (
    "chmod 755 gone; rm gone/old; chmod 555 gone; chmod 755 new; mkdir new/d; echo >new/d/f; chmod 555 new/d new;"
    " chmod 755 set; echo >set/f; chmod 500 set; chmod 755 all; rm -r all"
)


def _make_closed(place: Place) -> None:
    (place.base / "gone" / "old").write_text("old")
    (place.base / "all" / "old").write_text("old")
    for name in ("gone", "new", "set", "all"):
        (place.base / name).chmod(0o555)


def test_apply_in_directories_without_write_permission_is_finished_after_a_kill_at_any_step(
    user: str, mine: Path
) -> None:
    def scenario() -> None:
        for at in itertools.count(0, 1 if SOAK else 2):
            (top := mine / f"at{at}").mkdir()
            place = Place(top, "gone", "new", "set", "all")
            _make_closed(place)
            opened = moment(str(place.base))
            with place.session() as sh:
                sh.run(_IN_CLOSED, check=True)
            uppers = [str(place.layers / "layers" / "0" / "upper")]

            def finish(place: Place, opened: int, uppers: list[str], **options: Any) -> None:
                apply(str(place.base), uppers, str(place.layers), opened, **options)

            more = _killed(partial(finish, place, opened, uppers), at)
            finish(place, opened, uppers)
            plain = {"file": 0o644, "new/d/f": 0o644, "set/f": 0o644}
            assert _modes(place.base) == {"gone": 0o555, "new": 0o555, "new/d": 0o555, "set": 0o500, **plain}
            if not more:
                assert at > 10
                break

    run_as(user, scenario)


def test_apply_where_the_user_cannot_write_changes_nothing(overlay: Overlay, monkeypatch: pytest.MonkeyPatch) -> None:
    overlay.play_base(("mkdir", "d"), ("mkdir", "e"))
    overlay.begin()
    overlay.play([("write", "d/f", b"".hex()), ("write", "e/f", b"".hex())])
    monkeypatch.setattr(os, "access", lambda path, mode, dir_fd, **_: not os.readlink(_fd(dir_fd)).endswith("/e"))
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(ApplyFailed, match=r"may not write to 'e', which belongs to user .*: nothing was changed"):
        _apply(overlay)
    assert set(overlay.tree()) == {"d", "e"}
    assert os.listdir(overlay.home) == []
    assert _apply(overlay, paths=["d"]) == {"d/f"}


def _fd(number: int) -> str:
    return f"/proc/self/fd/{number}"


@pytest.mark.parametrize("at", ["copied b/x", "staged", "renamed a"])
def test_discard_gives_up_an_interrupted_apply_and_keeps_what_it_has_written(user: str, mine: Path, at: str) -> None:
    place = Place(mine, "b")

    def scenario() -> None:
        place.base.joinpath("b").chmod(0o555)
        opened = moment(str(place.base))
        with place.session() as sh:
            sh.run("echo >a; chmod 755 b; mkdir b/x; echo >b/x/y; chmod 555 b/x b", check=True)
            uppers = [str(place.layers / "layers" / "0" / "upper")]
            with pytest.raises(KeyboardInterrupt):
                apply(str(place.base), uppers, str(place.layers), opened, done=_stop_after(at))
            with pytest.raises(ApplyFailed, match="apply again first, or discard, which keeps that part"):
                sh.checkpoint()
            sh.branch.discard()
            kept = {"a": 0o644} if at == "renamed a" else {}
            assert _modes(place.base) == {"b": 0o555, "file": 0o644, **kept}
            sh.run("echo 2 >a; echo 3 >file", check=True)
            assert [change.path for change in sh.branch.apply()] == ["a", "file"]

    run_as(user, scenario)


def test_path_that_changed_in_the_base_is_a_conflict_before_anything_is_written(overlay: Overlay) -> None:
    overlay.play_base(("mkdir", "d"), ("many", "d", 2), ("write", "f", b"1".hex()), ("write", "g", b"1".hex()))
    overlay.begin()
    overlay.play(
        [("append", "f", b"2".hex()), ("remove", "d"), ("write", "h", b"3".hex()), ("append", "g", b"2".hex())]
    )
    overlay.play_base(("write", "d/mine", b"".hex()), ("append", "f", b"mine".hex()), ("remove", "g"))
    before = overlay.tree()
    with pytest.raises(Conflict, match="and 3 more") as caught:
        _apply(overlay)
    assert set(caught.value.paths) == {"d", "d/mine", "f", "g"}
    assert overlay.tree() == before
    assert _apply(overlay, paths=["h"]) == {"h"}
    assert _apply(overlay, overwrite=True) == {"d", "d/mine", "d/n0", "d/n1", "f", "g"}
    assert _expected(overlay.tree()) == _expected(overlay.view())


def test_second_apply_does_not_take_the_first_for_a_conflict(overlay: Overlay) -> None:
    overlay.play_base(("mkdir", "d"), ("many", "d", 2))
    overlay.begin()
    overlay.play([("append", "d/n0", b"2".hex())])
    assert _apply(overlay) == {"d/n0"}
    overlay.play([("append", "d/n0", b"3".hex()), ("remove", "d/n1")])
    assert _apply(overlay) == {"d/n0", "d/n1"}
    assert _apply(overlay) == set()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_what_cannot_be_read_is_skipped_and_stays(overlay: Overlay) -> None:
    overlay.play_base(("mkdir", "d"), ("mkdir", "d/in"), ("write", "d/f", b"".hex()), ("write", "own", b"".hex()))
    overlay.begin()
    overlay.play([("write", "own", b"1".hex()), ("mkdir", "new"), ("write", "new/f", b"".hex()), ("remove", "d")])
    for path in (f"{overlay.layers[0]}/own", f"{overlay.layers[0]}/new", f"{overlay.base}/d/in"):
        os.chmod(path, 0)
    found = {change.path: change.skipped for change in changes(overlay.base, overlay.layers)}
    reason = "it cannot be read: Permission denied"
    assert found == {"d": "", "d/f": "", "d/in": reason, "new": reason, "own": reason}
    assert _apply(overlay, overwrite=True) == {"d/f"}
    os.chmod(f"{overlay.base}/d/in", 0o700)
    assert set(overlay.tree()) == {"d", "d/in", "own"}


def test_base_that_changed_between_kill_and_resume_is_a_conflict(overlay: Overlay) -> None:
    overlay.play_base(("write", "a", b"1".hex()), ("write", "b", b"1".hex()))
    overlay.begin()
    overlay.play([("append", "a", b"2".hex()), ("append", "b", b"2".hex())])
    with pytest.raises(KeyboardInterrupt):
        _apply(overlay, done=_stop_after("renamed a"))
    overlay.play_base(("append", "b", b"mine".hex()))
    with pytest.raises(Conflict) as caught:
        _apply(overlay, paths=[])
    assert caught.value.paths == ("b",)
    assert _apply(overlay, paths=[], overwrite=True) == {"a", "b"}


def test_apply_is_finished_in_the_same_directory_alone(overlay: Overlay) -> None:
    overlay.play([("write", "a", b"1".hex()), ("write", "b", b"1".hex())])
    with pytest.raises(KeyboardInterrupt):
        _apply(overlay, done=_stop_after("renamed a"))
    os.rename(overlay.base, old := f"{overlay.base}.old")
    os.mkdir(overlay.base)
    with pytest.raises(BranchUnavailable, match="is not the directory that the branch was made of"):
        _apply(overlay)
    assert os.listdir(overlay.base) == []
    os.rmdir(overlay.base)
    os.rename(old, overlay.base)
    assert _apply(overlay) == {"a", "b"}


def test_paths_bring_the_directories_that_they_need(overlay: Overlay) -> None:
    overlay.play([("mkdir", "a"), ("mkdir", "a/b"), ("many", "a/b", 2), ("write", "a/x", b"".hex())])
    assert _apply(overlay, paths=["./a/b/n1"]) == {"a", "a/b", "a/b/n1"}
    with pytest.raises(InvalidRequest, match="paths must be below"):
        _apply(overlay, paths=["../x"])


def test_links_in_the_base_lead_nothing_outside(overlay: Overlay, tmp_path: Path) -> None:
    overlay.play_base(("mkdir", "d"), ("write", "d/x", b"".hex()))
    overlay.begin()
    overlay.play([("append", "d/x", b"1".hex()), ("write", "d/y", b"1".hex())])
    os.rename(f"{overlay.base}/d", f"{overlay.base}/e")
    os.symlink(tmp_path, f"{overlay.base}/d")
    with pytest.raises(Conflict):
        _apply(overlay)
    _apply(overlay, overwrite=True)
    assert os.listdir(tmp_path) == []
    assert not os.path.islink(f"{overlay.base}/d")


def test_times_xattrs_holes_and_acls_are_kept(overlay: Overlay) -> None:
    overlay.play([("write", "f", b"1".hex()), ("attribute", "f", b"kept".hex()), ("write", "hole", b"1".hex())])
    layer, base = Path(overlay.layers[0]), Path(overlay.base)
    os.truncate(layer / "hole", 1 << 30)
    os.utime(layer / "f", (1, 2))
    acl = bytes.fromhex(
        "0200000001000600ffffffff02000400010000000400040 0ffffffff10000600ffffffff20000400ffffffff".replace(" ", "")
    )
    os.setxattr(layer / "f", "system.posix_acl_access", acl)
    _apply(overlay)
    assert os.stat(base / "f").st_mtime == 2
    assert os.getxattr(base / "f", "user.note") == b"kept"
    assert os.getxattr(base / "f", "system.posix_acl_access") == acl
    about = os.stat(base / "hole")
    assert (about.st_size, about.st_blocks < 100) == (1 << 30, True)


def test_lock_of_another_program_is_told_after_a_while(overlay: Overlay, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(apply_module, "_PATIENCE", 0.1)
    overlay.play([("write", "f", b"".hex())])
    fd = os.open(overlay.base, os.O_RDONLY)
    fcntl.flock(fd, fcntl.LOCK_EX)
    with pytest.raises(ApplyFailed, match="another program has locked the directory"):
        _apply(overlay)
    os.close(fd)
    assert _apply(overlay) == {"f"}


_FULL = """
import os, subprocess, sys
from shellsession import ApplyFailed
from shellsession.branch.apply import apply, moment
place, size = sys.argv[1:]
base, layer, home = (os.path.join(place, name) for name in ("base", "layer", "home"))
for one in (base, layer, home):
    os.mkdir(one, 0o755)
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k,mode=755", "t", base], check=True)
for number in range(8):
    with open(f"{base}/f{number}", "w") as file:
        file.write("old" * 1000)
    with open(f"{layer}/f{number}", "w") as file:
        file.write("new" * 3_000)
with open(f"{layer}/g", "w") as file:
    file.write("new" * int(size))
opened = moment(base)
try:
    apply(base, [layer], home, opened)
except ApplyFailed as error:
    print(error)
print(sorted(os.listdir(base)), sorted(os.listdir(home)), {open(f"{base}/f{n}").read()[:3] for n in range(8)})
os.truncate(f"{layer}/g", 10)
print(len(apply(base, [layer], home, opened)), {open(f"{base}/f{n}").read() == "new" * 3_000 for n in range(8)})
"""


@pytest.mark.usefixtures("overlay_place")
def test_full_disk_changes_nothing_and_can_be_tried_again(tmp_path: Path) -> None:
    command = ["unshare", "-Urm", sys.executable, "-c", _FULL, str(tmp_path), "100000"]
    done = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert "No space left on device" in done[0]
    assert "free some space; nothing was changed" in done[0]
    assert done[1:] == [f"{[f'f{n}' for n in range(8)]} [] {{'old'}}", "9 {True}"]


def test_what_a_kill_of_the_machine_must_find_is_on_the_disk_before_the_next_step(
    overlay: Overlay, monkeypatch: pytest.MonkeyPatch
) -> None:
    overlay.play_base(("write", "f", b"old".hex()))
    overlay.begin()
    overlay.play([("append", "f", b"new".hex())])
    steps = list[str]()

    def noted(module: Any, name: str, what: Callable[..., str]) -> None:
        real = getattr(module, name)

        def call(*arguments: Any, **options: Any) -> Any:
            steps.append(what(*arguments))
            return real(*arguments, **options)

        monkeypatch.setattr(module, name, call)

    noted(os, "fsync", lambda fd: f"fsync {os.path.basename(os.readlink(f'/proc/self/fd/{fd}')).partition('-')[0]}")
    noted(os, "replace", lambda old, new: f"named {os.path.basename(new)}")
    noted(os, "rename", lambda old, new: f"rename {new}")
    noted(apply_module, "sync", lambda fd: "syncfs")
    _apply(overlay)
    monkeypatch.undo()
    written = {name: [f"fsync .{name}", f"named {name}", "fsync home"] for name in ("apply.json", "apply.staged")}
    assert steps[:8] == [*written["apply.json"], "syncfs", *written["apply.staged"], "rename f"]
    assert steps[8:] == ["syncfs", "fsync .applied.json", "named applied.json", "fsync home"]
