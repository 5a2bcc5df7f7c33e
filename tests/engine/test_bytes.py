"""Bytes pass unchanged: in commands of any length, through stdin of any size, and in the output."""

from __future__ import annotations

import hashlib
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from reference import typed

from shellsession import InvalidRequest, Session

pytestmark = pytest.mark.usefixtures("company")

ALL_BYTES = bytes(range(1, 256))
EVERY_BYTE = bytes(range(256))
# Commands of both lengths: typed inline, and read from a file.
LENGTHS = pytest.mark.parametrize("filler", [b"", b": " + b"x" * 5000 + b"\n"], ids=["short", "long"])
STREAMS = pytest.mark.parametrize("tty", [True, False], ids=["terminal", "pipe"])


def as_words(data: bytes) -> bytes:
    """The bytes in single quotes, as a person would write them."""
    return b"'" + data.replace(b"'", b"'\\''") + b"'"


@LENGTHS
@STREAMS
def test_all_bytes_pass_through_a_command(sh: Session, filler: bytes, tty: bool) -> None:
    result = sh.run(filler + b"printf %s " + as_words(ALL_BYTES), tty=tty)
    assert (result.stdout_bytes, result.stderr_bytes, result.exit_code) == (ALL_BYTES, b"", 0)


@pytest.mark.sampled
@LENGTHS
@pytest.mark.parametrize("value", [1, 9, 13, 27, 0x22, 0x24, 0x27, 0x5C, 0x60, 0x7F, 0x80, 0xC3, 0xFF])
def test_a_byte_alone_and_in_pairs(sh: Session, filler: bytes, value: int) -> None:
    for data in (bytes([value]), bytes([value]) * 2, b"a" + bytes([value]) + b"b"):
        assert sh.run(filler + b"printf %s " + as_words(data)).stdout_bytes == data


@settings(max_examples=60)
@given(st.binary(max_size=3000).map(lambda data: data.replace(b"\0", b"")))
def test_any_bytes_pass_through_a_command(sh: Session, data: bytes) -> None:
    result = sh.run(b"printf %s " + as_words(data))
    assert (result.stdout_bytes, result.stderr_bytes) == (data, b"")


@LENGTHS
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (b"cat <<EOF\na\n\n\nEOF\n", b"a\n\n\n"),
        (b"cat <<'EOF'\n\\x $HOME `ls`\nEOF", b"\\x $HOME `ls`\n"),
        (b"echo a \\\n  b", b"a b\n"),
        (b"x='a\n\n'\nprintf %s \"$x\"\n\n\n", b"a\n\n"),
        (b"echo one\n\n# two\necho three\n", b"one\nthree\n"),
        (b"echo a\\\\b 'it'\\''s'", b"a\\b it's\n"),
    ],
    ids=["heredoc", "quoted heredoc", "continued line", "newlines in quotes", "several lines", "backslashes"],
)
def test_newlines_and_quotes_are_kept(sh: Session, filler: bytes, command: bytes, expected: bytes) -> None:
    assert sh.run(filler + command).stdout_bytes == expected


@LENGTHS
@pytest.mark.parametrize("end", ["\\\n", "\\\n\\", "\\\n\\\n\\", "\\\n \t", " \\\n\\", "\\" + "\n" * 70])
def test_a_text_that_ends_continued_ends_as_at_a_prompt(sh: Session, filler: bytes, end: str, place: Path) -> None:
    for before in ("echo a\n", "echo a ", "f() { echo a; }; f\n"):
        text = (before + end).encode()
        expected = typed(text, place, on_terminal=False)
        result = sh.run(filler + text)
        assert (result.stdout_bytes, result.exit_code, result.outcome) == (expected.stdout, expected.status, "exited")
        assert result.stderr_bytes == b""


@pytest.mark.parametrize("length", [2046, 2047, 2048, 2049, 4095, 4096, 4097, 65536])
def test_there_is_no_seam_between_short_and_long_commands(sh: Session, length: int) -> None:
    command = b"printf %s " + b"y" * (length - 10)
    assert len(command) == length
    assert sh.run(command).stdout_bytes == command[10:]


def test_a_command_of_five_megabytes_runs(sh: Session) -> None:
    result = sh.run(
        b"".join(b"x%d=%d\n" % (i, i) for i in range(200_000)) + b": " + b"z" * (2 << 20) + b"\necho $x199999"
    )
    assert (result.stdout, result.exit_code) == ("199999\n", 0)


def test_a_long_command_leaves_dollar_zero_and_its_arguments_alone(sh: Session) -> None:
    sh.run("set -- one two")
    assert sh.run("#" + "x" * 5000 + "\necho $0 $1 $# ${BASH_SOURCE[0]-none}").stdout == "bash one 2 none\n"


def test_text_with_surrogates_stands_for_bytes(sh: Session) -> None:
    assert sh.run(b"printf %s \xff\xfe".decode("utf-8", "surrogateescape")).stdout_bytes == b"\xff\xfe"


SIZES = [0, 1, 4095, 4096, 65536, 65537, 5_000_000]


@pytest.mark.parametrize("size", SIZES)
@STREAMS
def test_stdin_of_any_size_is_fed_whole(sh: Session, size: int, tty: bool) -> None:
    data = (EVERY_BYTE * (size // 256 + 1))[:size]
    result = sh.run("sha256sum; head -c1 | wc -c", stdin=data, tty=tty)
    assert result.stdout.split()[0] == hashlib.sha256(data).hexdigest()
    assert result.stdout.split()[-1] == "0"


@pytest.mark.parametrize("size", [0, 1, 100_000])
def test_stdin_comes_back_out(sh: Session, size: int) -> None:
    data = (EVERY_BYTE * (size // 256 + 1))[:size]
    assert sh.run("cat", stdin=data).stdout_bytes == data


def test_stdin_may_be_text(sh: Session) -> None:
    assert sh.run("tr a-z A-Z", stdin="zoë\n").stdout == "ZOë\n"


def test_stdin_is_read_line_by_line_and_the_rest_is_dropped(sh: Session) -> None:
    assert sh.run("read a; read b; echo $b-$a", stdin="1\n2\n3\n").stdout == "2-1\n"
    assert sh.run("read c; echo $?").stdout == "1\n"


def test_stdin_that_nobody_reads_is_dropped(sh: Session) -> None:
    assert sh.run("true", stdin=b"x" * 3_000_000).exit_code == 0
    assert sh.run("cat").stdout == ""


@pytest.mark.parametrize(
    "command", ["cat", "read x", "cat - /dev/stdin", "wc -c | grep -x 0 >/dev/null", "sort", "bash"]
)
def test_without_stdin_nothing_waits_for_any(sh: Session, command: str) -> None:
    result = sh.run(command)
    assert (result.outcome, result.stdout) == ("exited", "")


@pytest.mark.parametrize("stdin", [subprocess.DEVNULL, ["x"], sys.stdin], ids=["number", "list", "file"])
def test_a_stdin_of_another_kind_is_refused(sh: Session, stdin: object) -> None:
    """Also what subprocess would take."""
    with pytest.raises(InvalidRequest, match=r"stdin is None \(/dev/null\), TTY, str or bytes, not "):
        sh.run("cat", stdin=stdin)  # type: ignore[arg-type]


@STREAMS
def test_every_byte_comes_out(sh: Session, tty: bool) -> None:
    octal = "".join(f"\\{value:03o}" for value in EVERY_BYTE)
    result = sh.run(f"printf {shlex.quote(octal)}; printf {shlex.quote(octal)} >&2", tty=tty)
    assert (result.stdout_bytes, result.stderr_bytes) == (EVERY_BYTE, EVERY_BYTE)


@STREAMS
@pytest.mark.parametrize("size", [4096, 65536, 65537, 1_000_000])
def test_much_output_is_whole(sh: Session, size: int, tty: bool) -> None:
    result = sh.run(f"head -c {size} /dev/zero | tr '\\0' e >&2; head -c {size} /dev/zero | tr '\\0' o", tty=tty)
    assert (result.stdout_bytes, result.stderr_bytes) == (b"o" * size, b"e" * size)


@pytest.mark.parametrize("count", [1, 64, 65, 1000, 200_000])
def test_any_number_of_newlines_may_follow(sh: Session, count: int) -> None:
    assert sh.run("echo hi" + "\n" * count).stdout == "hi\n"
    if count <= 1000:
        assert sh.run("cat <<END\nhi" + "\n" * count).stdout == "hi" + "\n" * count
