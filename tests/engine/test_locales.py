"""Locales in which the second byte of a character may look like a backslash: commands are read correctly."""

from __future__ import annotations

import gzip
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st
from reference import ENVIRONMENT
from system import SOAK

from shellsession import Session, SnapshotUnavailable
from shellsession.engine.wire import quote

LOCALES = {"zh_CN.GBK": ("zh_CN", "GBK"), "ja_JP.SJIS": ("ja_JP", "SHIFT_JIS"), "zh_TW": ("zh_TW", "BIG5")}
# 0x5c is a backslash; 0x96, the last byte of the first word, may be a first one in GBK and Shift-JIS, 0xa4 in Big5.
HIGH = ["世".encode(), b"\x95\x5c", b"\x96", b"\xa4", b"\xff", b"\x80"]
WORDS = [*HIGH, b"\\", b"'", b"\n", b"n", b"x", b"41", b"a", b" ", b'"']
CHARMAPS = Path("/usr/share/i18n/charmaps")


@pytest.fixture(scope="module", params=LOCALES)
def foreign(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a bash in that locale."""
    return made(request.param, *LOCALES[request.param], tmp_path_factory.mktemp("locales"))


def made(name: str, language: str, charmap: str, place: Path) -> dict[str, str]:
    """The environment of a bash in a new locale."""
    packed = CHARMAPS / f"{charmap}.gz"
    if shutil.which("localedef") is None or not packed.exists():
        pytest.skip("needs localedef and its charmaps (apt install locales)")
    (place / charmap).write_bytes(gzip.decompress(packed.read_bytes()))
    make = ["localedef", "-c", "-i", language, "-f", str(place / charmap), str(place / name)]
    subprocess.run(make, check=False, capture_output=True)  # 1: a warning, as for a backslash that is a yen sign
    env = {**ENVIRONMENT, "LOCPATH": str(place), "LC_ALL": name}
    said = subprocess.run(["locale", "charmap"], env=env, capture_output=True, check=True)
    if said.stdout.strip() in (b"", b"ANSI_X3.4-1968"):
        pytest.skip(f"localedef makes no {name}: {said.stderr!r}")
    return env


def printed(texts: list[bytes], env: dict[str, str]) -> list[bytes]:
    program = b"".join(b"printf %s " + quote(text) + b"; printf '\\0'\n" for text in texts)
    return subprocess.run(["bash"], input=program, env=env, capture_output=True, check=True).stdout.split(b"\0")[:-1]


EXAMPLES = 40 if SOAK else 10
TEXTS = st.lists(st.lists(st.sampled_from(WORDS)).map(b"".join), min_size=1, max_size=20)


@settings(max_examples=EXAMPLES, deadline=None)
@given(texts=TEXTS)
def test_quoting_is_read_back_in_such_a_locale(texts: list[bytes], foreign: dict[str, str]) -> None:
    assert printed(texts, foreign) == texts


@settings(max_examples=EXAMPLES, deadline=None)
@given(texts=TEXTS)
def test_quoting_is_read_back_in_any_other(texts: list[bytes]) -> None:
    for locale in ("C", "C.UTF-8"):
        assert printed(texts, {**ENVIRONMENT, "LC_ALL": locale}) == texts


def test_a_line_behind_such_a_character_runs_as_itself(
    foreign: dict[str, str], new_session: Callable[..., Session], place: Path
) -> None:
    inner = place / "世'世"
    inner.mkdir()
    with new_session(env=foreign, agent_env=False, cwd=inner) as sh:
        for said in (
            "echo 世\necho ok",
            "echo 让\necho ok",
            "# 世\necho ok",
            "echo '世' \necho ok",
            "echo 世; echo it\\'s\necho ok",
        ):
            result = sh.run(said, tty=False)
            assert (result.stdout.splitlines()[-1], result.exit_code, result.outcome) == ("ok", 0, "exited"), said


def test_what_stands_before_no_escape_is_typed_as_it_is() -> None:
    assert quote("echo 世 world".encode()) == "$'echo 世 world'".encode()


def test_state_of_a_shell_in_such_a_locale_is_refused(
    foreign: dict[str, str], new_session: Callable[..., Session]
) -> None:
    with new_session(env=foreign, agent_env=False) as sh:
        sh.run(rb"X=$'\x95\x5c'")
        with pytest.raises(SnapshotUnavailable, match="use UTF-8"):
            sh.snapshot()
        assert sh.run('printf %s "$X"', tty=False).stdout_bytes == b"\x95\x5c"


def test_state_of_a_shell_in_a_locale_without_backslashes_in_characters_is_restored(
    new_session: Callable[..., Session], tmp_path: Path
) -> None:
    with new_session(env=made("zh_CN.GB2312", "zh_CN", "GB2312", tmp_path), agent_env=False) as sh:
        sh.run(rb"X=$'\xca\xc0\'\\ \xff'; f() { echo $'\xca\xc0'; }; declare -A m=([$'\xca\xc0']=1)")
        ask = 'printf %s "$X"; f; declare -p m'
        before = sh.run(ask, tty=False).stdout_bytes
        assert sh.restore(sh.snapshot()).complete
        assert sh.run(ask, tty=False).stdout_bytes == before
