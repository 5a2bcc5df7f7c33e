"""Marks are found on every cut of the input and amid garbage; a real bash checks the quoting of every byte."""

from __future__ import annotations

import functools
import random
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from shellsession.engine.wire import (
    NOISE_MAX,
    SOURCE,
    Frame,
    Mark,
    MarkFinder,
    from_file,
    mark_line,
    quote,
    version_line,
)

NONCE = b"0123456789abcdef0123456789abcdef"
FOREIGN = b"fedcba9876543210fedcba9876543210"
ALL_BYTES = bytes(range(1, 256))
INTERACTIVE = ("--noediting", "+H", "+o", "history", "-i")


@functools.cache
def answer() -> bytes:
    """The line with which a real bash answers to the line of the mark, after status 3 in /home/me."""
    typed = b"PS1= PS2=\nunset DIRSTACK\nDIRSTACK=/home/me\n! (exit 3)\n" + mark_line(NONCE)
    lines = bash(typed, *INTERACTIVE).stderr.splitlines(keepends=True)
    return next(line for line in lines if NONCE in line)


def marked(nonce: bytes = NONCE, cwd: bytes = b"/home/me") -> bytes:
    """A mark as it comes over the wire."""
    return answer().replace(b"/home/me", cwd).replace(NONCE, nonce)


def fed(chunks: list[bytes], nonce: bytes = NONCE) -> MarkFinder:
    finder = MarkFinder(nonce)
    for chunk in chunks:
        finder.feed(chunk)
    return finder


def is_it(mark: Mark | None) -> bool:
    return mark is not None and (mark.status, mark.cwd, mark.skipped) == (3, b"/home/me", False)


def bash(program: bytes, *options: str, locale: str = "C.UTF-8") -> subprocess.CompletedProcess[bytes]:
    command = ["bash", "--noprofile", "--norc", *options]
    return subprocess.run(command, input=program, capture_output=True, env={"LC_ALL": locale}, check=False)


NOISES = {
    "nothing": b"",
    "a line of talk": b"bash: warning: something\n",
    "half a mark": b"bash: /" + NONCE[:-1],
    "a foreign mark": marked(FOREIGN),
    "our own line, echoed": mark_line(NONCE),
    "our own command, echoed": Frame(NONCE, b"0</dev/null 1>&2", b"").lines(quote(b"echo hi"), 3),
    "our nonce alone": b"/" + NONCE + b" ",
    "slashes and spaces": b"/ / // \n " * 20,
    "binary": bytes(range(256)) * 3,
    "a long line": b"a" * 5000,
}


@pytest.mark.parametrize("noise", NOISES.values(), ids=NOISES)
def test_any_cut_gives_the_same_mark(noise: bytes) -> None:
    wire = noise + marked() + b"and what comes after"
    whole = fed([wire]).mark
    assert is_it(whole)
    assert fed([wire[i : i + 1] for i in range(len(wire))]).mark == whole
    for at in range(0, len(wire), max(1, len(wire) // 200)):
        assert fed([wire[:at], wire[at:]]).mark == whole


def test_the_mark_is_there_with_its_last_byte_and_not_before() -> None:
    wire = marked()
    end = wire.rindex(NONCE) + len(NONCE)
    finder = MarkFinder(NONCE)
    heard = [finder.feed(wire[i : i + 1]) is not None for i in range(len(wire))]
    assert heard == [i >= end - 1 for i in range(len(wire))]


def test_the_first_mark_stays() -> None:
    assert is_it(fed([marked(), marked(cwd=b"/elsewhere")]).mark)


@pytest.mark.parametrize("noise", [noise for name, noise in NOISES.items() if name != "nothing"])
def test_noise_without_our_mark_never_frames(noise: bytes) -> None:
    assert fed([noise, noise]).mark is None
    assert fed([noise[i : i + 1] for i in range(len(noise))]).mark is None


@given(st.lists(st.binary(max_size=80) | st.sampled_from([NONCE, b"/" + NONCE, b" ", b"0 0", b"/"]), max_size=8))
def test_garbage_never_raises(chunks: list[bytes]) -> None:
    fed(chunks)


def test_random_bytes_never_frame() -> None:
    source = random.Random(0)
    for _ in range(2000):
        assert fed([source.randbytes(source.randrange(64)) for _ in range(5)]).mark is None


@given(st.binary(max_size=200), st.binary(max_size=200), st.data())
def test_a_mark_is_found_between_any_two_noises(before: bytes, after: bytes, data: st.DataObject) -> None:
    wire = before + marked() + after
    at = data.draw(st.integers(0, len(wire)))
    assert is_it(fed([wire[:at], wire[at:]]).mark)


@pytest.mark.parametrize(
    "cwd", [b"/", b"", b"/a b", b"/a/b  c ", b"/new\nline", b"/\xff\xfe", b"/" + FOREIGN, b"/" * 4000]
)
def test_any_directory_comes_through(cwd: bytes) -> None:
    mark = fed([marked(cwd=cwd)]).mark
    assert mark is not None
    assert mark.cwd == cwd


def test_noise_is_bounded() -> None:
    finder = MarkFinder(NONCE)
    for _ in range(200):
        finder.feed(b"x" * 4001)
        assert len(finder.noise) <= NOISE_MAX + 4001
    assert is_it(finder.feed(marked()))


def test_a_mark_is_found_wherever_the_noise_is_cut_off() -> None:
    for length in range(NOISE_MAX - 150, NOISE_MAX + 150, 7):
        wire = b"x" * length + marked()
        for at in (length, length + 1, length + 20, length + 60, len(wire) - 40):
            assert fed([wire[:at], wire[at:]]).mark is not None, (length, at)


@pytest.mark.parametrize("status", [0, 1, 2, 126, 127, 128, 130, 255])
def test_any_status_comes_through(status: int) -> None:
    done = bash(b"PS1= PS2=\n! (exit %d)\n" % status + mark_line(NONCE), *INTERACTIVE)
    mark = fed([done.stderr]).mark
    assert mark is not None
    assert (mark.status, mark.skipped) == (status, False)
    assert mark.cwd == str(Path.cwd()).encode()


def test_the_version_comes_as_a_status() -> None:
    mark = fed([bash(b"PS1= PS2=\n" + version_line(NONCE), *INTERACTIVE).stderr]).mark
    assert mark is not None
    major, minor = bash(b'printf "%s %s" ${BASH_VERSINFO[@]:0:2}').stdout.split()
    assert mark.status == int(major) * 100 + int(minor)


@pytest.mark.parametrize("spelling", range(SOURCE))
@pytest.mark.parametrize("isolated", [False, True], ids=["here", "isolated"])
@pytest.mark.parametrize("before", [0, 1, 130, 255])
def test_what_is_typed_runs_the_text_with_its_status(
    spelling: int, isolated: bool, before: int, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    redirections = b"0</dev/null 1>" + bytes(out)
    text = b'printf "<%s>" "$?"; (exit 7)'
    lines = Frame(NONCE, redirections, b"2>&1", spelling, isolated).lines(quote(text), before)
    done = bash(b"PS1= PS2=\n" + lines, *INTERACTIVE)
    assert out.read_bytes() == b"<%d>" % before
    mark = fed([done.stderr]).mark
    assert mark is not None
    assert mark.status == 7


def hidden() -> bytes:
    """What bash says to a command where a function has the name by which it would be run."""
    lines = Frame(NONCE, b"0</dev/null", b"2>&1").lines(quote(b"echo ran"))
    done = bash(b"PS1= PS2=\nbuiltin() { echo hidden; }\nset -e\n" + lines, *INTERACTIVE)
    assert b"ran" not in done.stdout
    return done.stderr


def test_a_command_that_was_kept_from_running_is_reported_as_skipped() -> None:
    wire = hidden()
    for at in range(len(wire)):
        mark = fed([wire[:at], wire[at:]]).mark
        assert mark is not None
        assert (mark.skipped, mark.broken) == (True, False)
    report, line, rest = wire.partition(b"\n")
    mark = fed([report, line, *[b"x" * 4001] * 60, b"\n" + rest]).mark  # a DEBUG trap talks
    assert mark is not None
    assert mark.skipped


@pytest.mark.parametrize("statuses", [b"3 0", b"0 1", b"1 0", b"0 5", b" 0"])
def test_that_it_was_skipped_is_believed_of_no_command_that_left_a_status(statuses: bytes) -> None:
    forged = hidden().replace(NONCE + b" 0 0 ", NONCE + b" " + statuses + b" ")
    mark = fed([forged]).mark
    assert mark is not None
    assert (mark.skipped, mark.broken) == (False, True)


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_every_byte_can_be_quoted(locale: str) -> None:
    """Each twice in a row, and once more after a dot."""
    texts = [bytes([value]) * 2 + b"." + bytes([value]) for value in range(1, 256)]
    program = b"".join(b"printf %s " + quote(text) + b"; printf '\\0'\n" for text in texts)
    assert bash(program, locale=locale).stdout.split(b"\0")[:-1] == texts


@settings(max_examples=60)
@given(st.lists(st.binary(max_size=200).map(lambda data: data.replace(b"\0", b"")), min_size=1, max_size=20))
def test_quoting_is_read_back_byte_for_byte(texts: list[bytes]) -> None:
    program = b"".join(b"printf %s " + quote(text) + b"; printf '\\0'\n" for text in texts)
    assert bash(program).stdout.split(b"\0")[:-1] == texts


@settings(max_examples=40)
@given(st.text(st.sampled_from("\\'\"$`!\n\ta 世\x01\x7f\r")))
def test_what_bash_finds_special_is_read_back(text: str) -> None:
    assert bash(b"printf %s " + quote(text.encode()) + b"\n").stdout == text.encode()


def test_a_quoted_text_is_one_line() -> None:
    assert b"\n" not in quote(b"a\nb\n\n")


@pytest.mark.parametrize(
    "text", [b"", b"\n", b"a", b"a\n", b"a\n\n\n", ALL_BYTES, ALL_BYTES * 40, b"\n" * 50], ids=range(8)
)
def test_a_text_in_a_file_is_read_back(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "it's a\\file"
    path.write_bytes(text)
    assert bash(b"printf %s " + from_file(bytes(path), text) + b"\n").stdout == text
