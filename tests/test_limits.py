"""How much of the output is kept, where the rest goes, and who hears it live."""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support import unique_seconds, wait_until, with_argument

from shellsession import CommandFailed, InvalidRequest, Limits, Result, Session, SessionBusy
from shellsession.engine import typist
from shellsession.engine.call import Typed
from shellsession.engine.shell import Shell

Make = Callable[..., Session]
STREAMS = pytest.mark.parametrize("tty", [True, False], ids=["terminal", "pipe"])

NUMBERS = "".join(f"{i}\n" for i in range(1, 20001)).encode()


@STREAMS
@pytest.mark.parametrize("limit", [0, 1, 2, 3, 10, 1001, len(NUMBERS) - 1, len(NUMBERS), len(NUMBERS) + 1])
def test_the_middle_is_dropped_and_counted(sh: Session, limit: int, tty: bool) -> None:
    result = sh.run("seq 20000; seq 20000 >&2", limits=Limits(max_output=limit), tty=tty)
    front, back = (limit + 1) // 2, limit // 2
    omitted = max(0, len(NUMBERS) - limit)
    kept = NUMBERS[:front] + NUMBERS[len(NUMBERS) - back :] if omitted else NUMBERS
    assert (result.stdout_bytes, result.stdout_omitted) == (kept, omitted)
    assert (result.stderr_bytes, result.stderr_omitted) == (kept, omitted)
    assert (result.outcome, result.exit_code) == ("exited", 0)
    assert result.stdout_file is None


@pytest.mark.parametrize("limit", range(1, 25))
def test_the_text_is_never_cut_inside_a_character(sh: Session, limit: int) -> None:
    result = sh.run("printf 'é世😀é世😀é世😀é世😀'", limits=Limits(max_output=limit))
    assert "�" not in result.stdout
    assert set(result.stdout) <= set("é世😀")


@pytest.mark.parametrize(
    "options",
    [
        {"max_output": -1},
        {"max_output": "5"},
        {"max_output": 1.5},
        {"max_output": True},
        {"max_output": None},
        {"spill_max": -1},
        {"spill_max": None},
        {"on_overflow": "drop"},
        {"on_overflow": None},
    ],
    ids=repr,
)
def test_limits_that_cannot_be_meant_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match=rf"limits\.{next(iter(options))}"):
        Limits(**options)


def test_endless_output_stays_in_bounds(sh: Session) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    result = sh.run("yes", timeout=0.2, tty=False)
    assert (result.outcome, result.state_kept) == ("timed_out", True)
    assert len(result.stdout_bytes) == 1 << 20
    assert result.stdout_omitted > 1 << 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 16 << 10


@STREAMS
def test_an_overflow_can_end_the_command(sh: Session, tty: bool) -> None:
    seconds = unique_seconds()
    result = sh.run(f"X=1; sleep {seconds} & yes", limits=Limits(max_output=5000, on_overflow="kill"), tty=tty)
    assert (result.outcome, result.exit_code, result.state_kept) == ("overflow", 130, True)
    assert len(result.stdout_bytes) == 5000
    assert result.stdout_omitted > 0
    assert "limit" in result.reason
    assert with_argument(seconds) == []
    assert sh.run("echo $X").stdout == "1\n"


def test_an_overflow_of_stderr_counts_too(sh: Session) -> None:
    result = sh.run("yes >&2", limits=Limits(max_output=5000, on_overflow="kill"))
    assert (result.outcome, result.stdout, len(result.stderr_bytes)) == ("overflow", "", 5000)


def test_what_just_fits_is_no_overflow(sh: Session) -> None:
    limits = Limits(max_output=5, on_overflow="kill")
    assert sh.run("echo 1234", limits=limits).outcome == "exited"


def test_an_overflow_by_check_is_a_failure(sh: Session) -> None:
    with pytest.raises(CommandFailed) as caught:
        sh.run("yes", limits=Limits(max_output=5, on_overflow="kill"), check=True)
    assert caught.value.result.outcome == "overflow"


@STREAMS
def test_the_spill_holds_everything(sh: Session, place: Path, tty: bool) -> None:
    spill = place / "spill"
    spill.mkdir()
    result = sh.run("seq 20000; seq 20000 >&2", limits=Limits(max_output=10, spill=str(spill)), tty=tty)
    assert result.stdout_file is not None
    assert result.stderr_file is not None
    assert {Path(result.stdout_file).parent, Path(result.stderr_file).parent} == {spill}
    assert Path(result.stdout_file).read_bytes() == Path(result.stderr_file).read_bytes() == NUMBERS
    assert Path(result.stdout_file).stat().st_mode & 0o777 == 0o600


def test_each_call_has_its_own_spill_files(sh: Session, place: Path) -> None:
    limits = Limits(max_output=1, spill=str(place))
    first, second = (sh.run(f"echo call {i}", limits=limits).stdout_file for i in (1, 2))
    assert first
    assert second
    assert [Path(first).read_text(), Path(second).read_text()] == ["call 1\n", "call 2\n"]


def test_a_spill_may_be_a_file(sh: Session, place: Path) -> None:
    spill = place / "all"
    spill.write_text("old")
    result = sh.run("echo out; echo err >&2", limits=Limits(max_output=1, spill=str(spill)))
    assert (result.stdout_file, result.stderr_file) == (str(spill), f"{spill}.stderr")
    assert spill.read_text() == "out\n"
    assert Path(f"{spill}.stderr").read_text() == "err\n"


def test_no_file_is_made_for_output_that_fits(sh: Session, place: Path) -> None:
    result = sh.run("echo out", limits=Limits(spill=str(place)))
    assert (result.stdout_file, list(place.iterdir())) == (None, [])


@pytest.mark.parametrize("room", [0, 1, 1000])
def test_the_spill_is_capped(sh: Session, place: Path, room: int) -> None:
    result = sh.run("seq 20000", limits=Limits(max_output=10, spill=str(place), spill_max=room))
    assert result.stdout_file
    assert Path(result.stdout_file).read_bytes() == NUMBERS[:room]
    assert result.stdout_omitted == len(NUMBERS) - 10


@pytest.mark.parametrize("spill", ["nowhere/file", "file/in/a/file", "/proc/1/spill"])
def test_a_spill_that_cannot_be_is_refused_before_anything_runs(sh: Session, place: Path, spill: str) -> None:
    limits = Limits(max_output=10, spill=str(place / spill))
    with pytest.raises(InvalidRequest, match="spill"):
        sh.run("touch ran", limits=limits)
    assert not (place / "ran").exists()
    with pytest.raises(InvalidRequest, match="spill"):
        Session(limits=limits)


def test_a_disk_that_takes_no_more_is_told_and_the_command_is_whole(sh: Session, place: Path) -> None:
    sh.run("true", tty=False)
    before, (soft, hard) = len(os.listdir("/proc/self/fd")), resource.getrlimit(resource.RLIMIT_FSIZE)
    limits = Limits(max_output=10, spill=str(place / "spill"))
    resource.setrlimit(resource.RLIMIT_FSIZE, (5000, hard))
    try:
        result = sh.run("seq 20000; echo done >&2", limits=limits, tty=False)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert (result.outcome, result.exit_code, result.stderr) == ("exited", 0, "done\n")
    assert result.stdout_omitted == len(NUMBERS) - 10
    assert f"{place}/spill: File too large" in result.reason
    assert len(os.listdir("/proc/self/fd")) == before


SOCKET = f"'{sys.executable}' -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"spill\")'"


@pytest.mark.parametrize(
    ("put", "why"),
    [
        ("mkfifo spill", "it is no regular file"),
        ("mkfifo spill; exec 7<>spill", "it is no regular file"),
        (SOCKET, "it is no regular file"),
        ("ln -s /dev/tty spill", "it is no regular file"),
        ("ln -s /dev/full spill", "it is no regular file"),
        ("mkdir spill", "Is a directory"),
        ("ln -s spill spill", "Too many levels of symbolic links"),
    ],
    ids=["a FIFO", "a FIFO with a reader", "a socket", "a terminal", "a device", "a directory", "a circle"],
)
def test_what_a_command_puts_in_the_place_of_its_spill_holds_nobody_up(
    sh: Session, place: Path, put: str, why: str
) -> None:
    sh.run("true", tty=False)
    before = len(os.listdir("/proc/self/fd"))
    limits = Limits(max_output=10, spill=str(place / "spill"))
    result = sh.run(f"{put}; seq 20000", limits=limits, tty=False)
    assert (result.outcome, result.exit_code, result.stdout_omitted) == ("exited", 0, len(NUMBERS) - 10)
    assert result.reason == f"the output could not be written whole to {place}/spill: {why}"
    assert result.stdout_file is None
    assert len(os.listdir("/proc/self/fd")) == before


def test_what_a_quick_command_puts_there_is_never_taken_for_a_place_of_ours(
    sh: Session, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spill, send = place / "spill", typist._send

    def send_and_be_overtaken(shell: Shell, typed: Typed, lines: bytes) -> None:
        send(shell, typed, lines)
        wait_until(spill.is_dir, "the command's directory")

    monkeypatch.setattr(typist, "_send", send_and_be_overtaken)
    result = sh.run("mkdir spill; seq 20000", limits=Limits(max_output=10, spill=str(spill)), tty=False)
    assert result.reason == f"the output could not be written whole to {spill}: Is a directory"
    assert list(spill.iterdir()) == []


def test_a_spill_may_be_a_link_to_a_file(sh: Session, place: Path) -> None:
    (place / "spill").symlink_to("elsewhere")
    result = sh.run("seq 20000", limits=Limits(max_output=10, spill=str(place / "spill")), tty=False)
    assert (result.reason, (place / "elsewhere").read_bytes()) == ("", NUMBERS)


def test_a_spill_that_is_no_regular_file_is_refused_before_anything_runs(sh: Session, place: Path) -> None:
    os.mkfifo(place / "fifo")
    for spill in (str(place / "fifo"), "/dev/full"):
        with pytest.raises(InvalidRequest, match="spill"):
            sh.run("touch ran", limits=Limits(max_output=10, spill=spill))
    assert not (place / "ran").exists()


def test_a_quick_flood_is_an_overflow_too(sh: Session) -> None:
    """It was over before anybody could end it."""
    limits = Limits(max_output=10, on_overflow="kill")
    for text, outcome in (("echo 12345678901", "overflow"), ("echo 123456789", "exited")):
        assert sh.run(text, limits=limits).outcome == outcome


def test_the_spill_of_a_command_that_is_handed_back_is_whole(sh: Session, place: Path) -> None:
    sh.run("mkfifo go")
    limits = Limits(max_output=100, spill=str(place))
    sh.run("seq 20; read x <go; seq 20000", limits=limits, timeout=0.15, on_timeout="yield")
    (place / "go").write_text("\n")
    result = sh.wait()
    assert result.outcome == "exited"
    assert result.stdout_file
    assert Path(result.stdout_file).read_bytes() == b"".join(b"%d\n" % i for i in range(1, 21)) + NUMBERS


@STREAMS
def test_output_is_heard_as_it_comes(sh: Session, place: Path, tty: bool) -> None:
    """The command goes on only when the callback has heard its first line: so it was heard live."""
    sh.run("mkfifo go")
    heard: list[tuple[str, bytes]] = []

    def hear(stream: str, data: bytes) -> None:
        heard.append((stream, data))
        if b"first" in data:
            (place / "go").write_text("\n")

    result = sh.run("echo first; read x <go; echo second >&2", on_output=hear, tty=tty, timeout=10)
    assert heard == [("stdout", b"first\n"), ("stderr", b"second\n")]
    assert (result.stdout, result.stderr) == ("first\n", "second\n")


def test_what_is_heard_is_all_even_if_not_all_is_kept(sh: Session) -> None:
    heard = bytearray()
    result = sh.run("seq 20000", on_output=lambda _, data: heard.extend(data), limits=Limits(max_output=10))
    assert bytes(heard) == NUMBERS
    assert len(result.stdout_bytes) == 10


def test_a_callback_that_fails_ends_the_command_and_keeps_the_shell(sh: Session) -> None:
    seconds = unique_seconds()

    def fail(*_: object) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        sh.run(f"X=1; echo hi; sleep {seconds}", on_output=fail)
    assert with_argument(seconds) == []
    assert sh.run("echo $X").stdout == "1\n"


@pytest.mark.parametrize("command", ["seq 20000", "seq 20000 >&2", "seq 20000; sleep 100", "seq 3"])
def test_a_callback_that_fails_for_ever_leaves_nothing_for_the_next_call(sh: Session, command: str) -> None:
    def fail(*_: object) -> None:
        raise LookupError("mine")

    with pytest.raises(LookupError, match="mine"):
        sh.run(command, on_output=fail)
    result = sh.run("echo next")
    assert (result.stdout_bytes[-20:], result.stderr_bytes[-20:]) == (b"next\n", b"")


def test_a_callback_cannot_use_its_own_session(sh: Session) -> None:
    with pytest.raises(SessionBusy, match="callback"):
        sh.run("echo hi; sleep 100", on_output=lambda *_: sh.run("echo never"))
    assert sh.run("echo alive").stdout == "alive\n"


@STREAMS
def test_a_stream_gives_the_output_and_then_the_result(sh: Session, place: Path, tty: bool) -> None:
    sh.run("mkfifo go")
    pieces: list[tuple[str, bytes]] = []
    last: Result | None = None
    for item in sh.stream("echo first; read x <go; echo second >&2; (exit 3)", tty=tty, timeout=10):
        assert last is None
        if isinstance(item, Result):
            last = item
            continue
        pieces.append(item)
        if item[1] == b"first\n":
            (place / "go").write_text("\n")
    assert pieces == [("stdout", b"first\n"), ("stderr", b"second\n")]
    assert last
    assert (last.exit_code, last.outcome) == (3, "exited")
    assert sh.run("echo $?").stdout == "3\n"


def test_a_stream_of_nothing_is_its_result(sh: Session) -> None:
    items = list(sh.stream("true"))
    assert [type(item) for item in items] == [Result]


def test_breaking_out_of_a_stream_interrupts_the_command(sh: Session) -> None:
    seconds = unique_seconds()
    stream = sh.stream(f"X=1; echo a; sleep {seconds}")
    assert next(stream) == ("stdout", b"a\n")
    with pytest.raises(SessionBusy):
        sh.run("echo never")
    stream.close()  # type: ignore[attr-defined]
    assert with_argument(seconds) == []
    assert sh.run("echo $X").stdout == "1\n"


def test_a_stream_never_begun_runs_nothing(sh: Session, place: Path) -> None:
    stream = sh.stream("touch made")
    del stream
    assert sh.run("ls").stdout == ""


def test_a_stream_ends_at_its_time_limit(sh: Session) -> None:
    *pieces, last = sh.stream("echo a; sleep 100", timeout=0.15)
    assert pieces == [("stdout", b"a\n")]
    assert isinstance(last, Result)
    assert (last.outcome, last.state_kept) == ("timed_out", True)
    assert sh.run("echo alive").stdout == "alive\n"


def test_a_stream_of_much_output_is_whole(sh: Session) -> None:
    parts = [item[1] for item in sh.stream("seq 20000", limits=Limits(max_output=10)) if not isinstance(item, Result)]
    assert b"".join(parts) == NUMBERS
