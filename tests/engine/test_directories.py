"""No file of ours is in a directory of another user, who could replace what bash runs."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import hosts
import pytest
import sandboxes
from hosts import HOST, start
from marks import answers
from sandboxes import ORDINARY, open_place, run_as
from system import wait_until

from shellsession import Session, ShellUnavailable
from shellsession.engine.io.directories import make_private, private_home

user, started = sandboxes.user, hosts.started
as_root = pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory to another user")
OTHER = 65534
LONG = f"echo {'x' * 5000}"


@pytest.fixture
def base(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An XDG_RUNTIME_DIR of ours that everybody can reach, in a directory of its own."""
    with open_place("as who we are") as place:
        place.chmod(0o755)
        (base := place / "run").mkdir(0o700)
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(base))
        yield base


def foreign(path: Path) -> None:
    os.chown(path, OTHER, OTHER)


UNSAFE: dict[str, Callable[[Path], None]] = {
    "everybody's": lambda base: base.chmod(0o777),
    "a group's": lambda base: base.chmod(0o770),
    "below one that is everybody's": lambda base: base.parent.chmod(0o777),
    "another user's": foreign,
    "below another user's": lambda base: foreign(base.parent),
}


@pytest.mark.parametrize(
    "make", [pytest.param(make, id=name, marks=as_root if "user" in name else ()) for name, make in UNSAFE.items()]
)
def test_a_place_where_others_can_replace_our_files_is_passed_over(base: Path, make: Callable[[Path], None]) -> None:
    home = f"{base}/shellsession-{os.getuid()}"
    assert private_home(make=False) == home
    make(base)
    assert private_home(make=False) != home
    with pytest.raises(PermissionError):
        make_private(home)
    assert not list(base.iterdir())


def test_a_place_where_all_may_write_and_nobody_replace_is_a_place(base: Path) -> None:
    base.chmod(0o1777)
    base.parent.chmod(0o1777)
    assert private_home(make=False) == f"{base}/shellsession-{os.getuid()}"


def test_a_link_to_a_place_is_resolved_once(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever owns the link could put it elsewhere later."""
    (link := base.parent / "link").symlink_to(base)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(link))
    assert private_home(make=False) == f"{base}/shellsession-{os.getuid()}"


@as_root
@pytest.mark.parametrize("kind", ["directory", "open directory", "link to one of ours"])
def test_what_another_user_has_put_there_first_is_passed_over(base: Path, tmp_path: Path, kind: str) -> None:
    base.chmod(0o1777)
    mine = base / f"shellsession-{os.getuid()}"
    if "link" in kind:
        (tmp_path / "ours").mkdir(0o700)
        mine.symlink_to(tmp_path / "ours")
    else:
        mine.mkdir(0o777 if "open" in kind else 0o700)
        foreign(mine)
    with pytest.raises((PermissionError, NotADirectoryError)):
        make_private(str(mine))


@as_root
def test_root_is_trusted_where_a_user_namespace_does_not_map_it(base: Path) -> None:
    """All that root owns shows the overflow id there; else there would be no place, as / is root's."""
    os.chown(base, ORDINARY, ORDINARY)

    def scenario() -> None:
        libc = ctypes.CDLL(None)
        libc.prctl(4, 1, 0, 0, 0)  # PR_SET_DUMPABLE: who has changed its user may not write to its uid_map
        if libc.unshare(0x10000000) != 0:  # CLONE_NEWUSER
            pytest.skip("no user namespace can be made here")
        Path("/proc/self/uid_map").write_bytes(b"0 %d 1" % ORDINARY)
        assert (os.getuid(), os.stat("/").st_uid != 0) == (0, True)
        os.environ["XDG_RUNTIME_DIR"] = str(base)
        assert private_home(make=False) == f"{base}/shellsession-0"

    run_as("as an ordinary user", scenario)


@as_root
def test_a_directory_that_another_user_puts_in_the_place_of_ours_gets_nothing(base: Path) -> None:
    """As where somebody tidies up /tmp, and he is quicker than we are."""
    base.chmod(0o1777)
    with Session(cwd="/", tty=False) as sh:
        answers(sh)
        seat = Path(sh.engine.live().slot.directory)
        home = seat.parents[1]
        assert home.parent == base
        shutil.rmtree(home)
        seat.mkdir(parents=True)
        for directory in (home, seat.parent, seat):
            directory.chmod(0o777)
            foreign(directory)
        answers(sh)
        assert sh.run(LONG).stdout == "x" * 5000 + "\n"
        assert sh.run("cat", stdin=b"secret").stdout == "secret"
        assert list(seat.iterdir()) == []
        with pytest.raises(ShellUnavailable, match=f"belongs to user {OTHER}"):
            Session(cwd="/").open()


def test_no_stream_of_another_session_is_found_by_listing(user: str, base: Path) -> None:
    shutil.chown(base, ORDINARY if "ordinary" in user else os.getuid())

    def scenario() -> None:
        os.environ["XDG_RUNTIME_DIR"] = str(base)
        with Session(cwd="/", tty=False) as one, Session(cwd="/", tty=False) as other:
            answers(other)
            told = [os.fsdecode(stream.path) for stream in other.engine.live().streams if stream.inode]
            assert all(path.startswith(str(base)) and os.path.exists(path) for path in told)
            found = one.run(f"find {base} 2>/dev/null; printf '%s\\n' {base}/*/*/*/*").stdout.splitlines()
            assert str(Path(told[0]).parent) in found
            if os.getuid() != 0:  # root is not held back by a directory's mode
                assert not {*found} & {*told}
        assert list(base.iterdir()) == []

    run_as(user, scenario)


def elsewhere(place: Path) -> Path:
    """A directory of the user's own work."""
    (place / "work" / "below").mkdir(parents=True)
    for directory in (place / "work", place / "work" / "below"):
        directory.chmod(0o555)
    return place / "work"


def modes(directory: Path) -> list[int]:
    return [path.stat().st_mode & 0o777 for path in (directory, directory / "below")]


@pytest.mark.parametrize("which", ["its own", "its host's"])
def test_the_end_of_a_session_changes_nothing_where_a_link_leads(place: Path, base: Path, which: str) -> None:
    work = elsewhere(place)
    with Session(cwd=place) as sh:
        answers(sh)
        seat = sh.engine.live().slot.directory
        spoilt = seat if which == "its own" else os.path.dirname(seat)
        sh.run(f"rm -rf {spoilt}; ln -s {work} {spoilt}", check=True)
        answers(sh)
    assert modes(work) == [0o555, 0o555]


def test_the_end_of_a_host_changes_nothing_where_a_link_leads(
    place: Path, base: Path, started: list[subprocess.Popen[str]]
) -> None:
    work = elsewhere(place)
    spoil = f"cd {base}/*/* && d=$PWD && cd / && chmod -R 700 $d && rm -rf $d && ln -s {work} $d"
    host = start(started, HOST + "sys.stdin.read()\n", spoil)
    assert host.stdout
    host.stdout.readline()
    (link,) = base.glob("*/*")
    assert link.is_symlink()
    host.kill()
    wait_until(lambda: not link.is_symlink(), "the end of what it left")
    assert modes(work) == [0o555, 0o555]
