"""``read_file`` and ``write_file``, in sessions of every kind."""

from __future__ import annotations

import asyncio
import hashlib
import io
import os
import re
import socket
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

import kinds
import pytest
from system import PATIENCE, wait_until

from shellsession import AsyncSession, InvalidRequest, Sandbox, Session, connect
from shellsession.files import PIECE

sh = kinds.sh

pytestmark = pytest.mark.usefixtures("company")

_BYTES: Final = bytes(range(256))
SOON: Final = 0.05


@pytest.mark.sampled
@pytest.mark.parametrize("size", [0, 1, PIECE - 1, PIECE, 3 * PIECE + 7])
def test_content_of_any_size_is_exact(sh: Session, place: Path, size: int) -> None:
    data = (_BYTES * (size // 256 + 1))[:size]
    name = "f\udcff \n'é"  # a byte that is not UTF-8
    (place / name).write_bytes(b"longer before" + data)
    sh.write_file(name, data)
    assert (place / name).read_bytes() == data
    assert sh.read_file(place / name) == data
    assert sh.run("sha256sum <f*").stdout.split()[0] == hashlib.sha256(data).hexdigest()


def test_files_are_streamed_from_and_to_file_objects(sh: Session, place: Path) -> None:
    class Unbuffered(io.RawIOBase):
        """It takes only a part of what it gets."""

        taken = b""

        def write(self, data: Any) -> int:
            self.taken += bytes(data[:300_001])
            return min(len(data), 300_001)

    source, sink = place / "source", Unbuffered()
    source.write_bytes(_BYTES * 10_000)
    with source.open("rb", buffering=0) as file:
        sh.write_file("copy", file)
    assert sh.read_file("copy", into=sink) == b""  # type: ignore[arg-type]
    assert sink.taken == source.read_bytes()
    sh.write_file("text", "ä\udcff\n")
    assert sh.read_file("text") == b"\xc3\xa4\xff\n"


def test_a_path_starts_where_bash_is_also_while_a_command_runs(sh: Session, place: Path) -> None:
    sh.write_file("new", b"1")
    assert ((place / "new").read_bytes(), sh.pid) == (b"1", None)  # no bash was started
    sh.run("mkdir sub other; cd sub")
    sh.write_file("~", b"2")
    assert (place / "sub" / "~").read_bytes() == b"2"
    sh.run("cd ../other; touch there; sleep 100", timeout=SOON, on_timeout="yield")
    wait_until((place / "other" / "there").exists, "the command")
    sh.write_file("while", b"3")
    assert sh.read_file("../other/while") == b"3"
    assert sh.interrupt().outcome == "interrupted"
    sh.run("cd ..; rmdir sub 2>/dev/null; rm -r other; mkdir other; cd other; rmdir ../other")
    with pytest.raises(FileNotFoundError):
        sh.write_file("file", b"", parents=True)


def test_a_file_is_replaced_as_bash_does_it(sh: Session, place: Path) -> None:
    """It stays the same file, behind a link as well; a new one gets the umask of the session."""
    sh.run("umask 027; echo before >file; chmod 604 file; ln file hard; ln -s file soft; ln -s target dangling")
    number = (place / "file").stat().st_ino
    sh.write_file("soft", b"after")
    assert ((place / "file").stat().st_ino, (place / "hard").read_bytes()) == (number, b"after")
    assert (place / "file").stat().st_mode & 0o777 == 0o604
    sh.write_file("dangling", b"")
    sh.write_file("a/b/c", b"", parents=True)
    sh.run("umask 0")
    sh.write_file("open/file", b"", parents=True)
    found = {name: oct((place / name).stat().st_mode & 0o777) for name in ("target", "a", "a/b", "a/b/c")}
    assert found == {"target": "0o640", "a": "0o750", "a/b": "0o750", "a/b/c": "0o640"}
    assert [oct((place / name).stat().st_mode & 0o777) for name in ("open", "open/file")] == ["0o777", "0o666"]


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("path", "mode"),
    [
        ("missing", "rb"),
        ("missing/file", "wb"),
        ("directory", "rb"),
        ("directory", "wb"),
        ("new/", "wb"),
        ("file/below", "rb"),
        ("loop", "rb"),
        ("x" * 300, "wb"),
        ("/proc/sys/kernel/ostype", "wb"),
    ],
)
def test_errors_are_those_of_open(sh: Session, place: Path, path: str, mode: str) -> None:
    sh.run("mkdir directory; touch file; ln -s loop loop")
    absolute = os.path.join(place, path)
    with pytest.raises(OSError, match=re.escape(repr(absolute))) as wanted, open(absolute, mode):
        pass
    verbs: dict[str, Callable[[str], object]] = {"rb": sh.read_file, "wb": lambda path: sh.write_file(path, b"")}
    with pytest.raises(type(wanted.value)) as raised:
        verbs[mode](path)
    assert str(raised.value) == str(wanted.value).replace(absolute, path)
    assert (raised.value.errno, raised.value.filename) == (wanted.value.errno, path)


def test_what_is_no_regular_file_is_refused_at_once(sh: Session, place: Path) -> None:
    os.mkfifo(place / "fifo")
    directory = os.open(place, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(f"/proc/self/fd/{directory}/socket")  # a long path would be refused
        for path in ("fifo", "socket", "/dev/zero", "/dev/stdin"):
            refused = partial(pytest.raises, InvalidRequest, match=f"'{path}' is not a regular file: .* use a command")
            with refused():
                sh.read_file(path)
            with refused():
                sh.write_file(path, b"x")
    os.close(directory)
    with pytest.raises(InvalidRequest, match="'/proc/self/environ' would be this process's, not the session's"):
        sh.read_file("/proc/self/environ")


def test_the_threads_of_the_reading_process_are_refused(sh: Session) -> None:
    process = sh.run("echo $PPID").stdout.strip()  # this process, or the daemon
    for thread in os.listdir(f"/proc/{process}/task"):
        with pytest.raises(InvalidRequest, match="would be this process's"):
            sh.read_file(f"/proc/{thread}/maps")


def test_a_file_that_grows_as_it_is_read_ends(sh: Session, place: Path) -> None:
    (place / "grows").write_bytes(b"x" * (PIECE + 5))

    class Growing(io.BytesIO):
        def write(self, data: Any) -> int:
            with open(place / "grows", "ab") as file:
                file.write(b"y" * 2 * PIECE)
            return super().write(data)

    sh.read_file(place / "grows", into=(into := Growing()))
    assert into.getvalue() == b"x" * (PIECE + 5)
    assert len(sh.read_file("/proc/self/../version")) > 0  # says that its size is 0


def test_a_file_that_is_replaced_meanwhile_is_not_mixed_with_the_other(sh: Session, place: Path) -> None:
    (place / "file").write_bytes(b"1" * PIECE * 2)

    class Replacing(io.BytesIO):
        def write(self, data: Any) -> int:
            (place / "other").write_bytes(b"2" * PIECE * 2)
            os.replace(place / "other", place / "file")
            return super().write(data)

        def read(self, size: int | None = -1) -> bytes:
            self.write(b"")
            return b"3" * PIECE

    with pytest.raises(OSError, match=r"another file has taken its place.*: 'file'$"):
        sh.read_file("file", into=Replacing())
    with pytest.raises(OSError, match=r"another file has taken its place.*: 'file'$"):
        sh.write_file("file", Replacing())


@pytest.mark.parametrize(
    "wrong",
    [
        lambda sh: sh.read_file(""),
        lambda sh: sh.read_file(b"bytes"),
        lambda sh: sh.read_file("a\0b"),
        lambda sh: sh.read_file("file", into=1),
        lambda sh: sh.write_file("file", 1),
        lambda sh: sh.write_file("file", io.StringIO("text")),
        lambda sh: sh.write_file("file", b"", parents=1),
    ],
)
def test_wrong_arguments_change_nothing(sh: Session, place: Path, wrong: Callable[[Any], object]) -> None:
    (place / "file").write_bytes(b"as before")
    with pytest.raises(InvalidRequest):
        wrong(sh)
    assert (place / "file").read_bytes() == b"as before"


@pytest.mark.parametrize("kind", ["here", "in the daemon"])
def test_a_sandbox_is_not_passed_by(kind: str, place: Path, request: pytest.FixtureRequest) -> None:
    if kind == "here":
        session: Any = Session(sandbox=Sandbox())
    else:
        session = connect(request.node.name, request.getfixturevalue("daemon").socket, False, sandbox=Sandbox())
    refused = partial(
        pytest.raises, InvalidRequest, match=r"outside the session's sandbox: use a command, such as run\("
    )
    with session:
        with refused():
            session.read_file("/etc/passwd")
        with refused():
            session.write_file(place / "file", b"")
        session.close()
    assert list(place.iterdir()) == []


def test_a_cancelled_task_waits_for_its_piece(place: Path) -> None:
    """Nothing is written after the cancellation was raised."""
    begun, go_on = threading.Event(), threading.Event()

    class Slow(io.BytesIO):
        def read(self, size: int | None = -1) -> bytes:
            begun.set()
            assert go_on.wait(PATIENCE)
            return b"x"

    async def main() -> None:
        async with AsyncSession(cwd=place) as session:
            task = asyncio.create_task(session.write_file("file", Slow()))
            await asyncio.to_thread(begun.wait, PATIENCE)
            task.cancel()
            await asyncio.wait([task], timeout=SOON)
            assert not task.done()
            go_on.set()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert list(place.iterdir()) == []
