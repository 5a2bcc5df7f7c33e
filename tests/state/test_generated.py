"""States that hypothesis makes, and the functions of real scripts, through two shells."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, given, settings, strategies as st
from states import listed
from system import SOAK

from shellsession import Session, Snapshot
from shellsession.state.values import Variable

pytestmark = pytest.mark.usefixtures("each_bash")

_RAW = st.binary(max_size=12).map(lambda data: data.replace(b"\0", b"$(touch executed)"))
_TEXTS = st.one_of(
    _RAW.map(lambda data: data.decode("utf-8", "surrogateescape")),
    st.text(st.sampled_from("\\'\"$`!(){}[]<>|&;*?~# \n\t=x1é"), max_size=8),
    st.sampled_from(["a[$(touch executed)]", "declare -i x", "\x01\x7f", "$'\\n'", "'\\''", "1+1"]),
)
_KEYS = _TEXTS.filter(bool)
_NAMES = st.sampled_from([f"v{number}" for number in range(8)])
_VARIABLES = st.one_of(
    st.builds(Variable, st.none() | _TEXTS, st.sampled_from(["", "x", "r", "ux", "l", "i", "t"])),
    st.builds(Variable, st.dictionaries(st.integers(0, 99).map(str), _TEXTS, max_size=4), st.sampled_from(["a", "ai"])),
    st.builds(Variable, st.dictionaries(_KEYS, _TEXTS, max_size=4), st.sampled_from(["A", "Ar", "Aux"])),
)
_ALIASES = st.dictionaries(st.from_regex(r"\A[a-z][a-z0-9_.-]{0,6}\Z").map(lambda name: f"x{name}"), _TEXTS, max_size=3)
# To `trap`, a number is no command but a signal.
_ACTIONS = _TEXTS.filter(lambda text: not text.isdigit())
_TRAPS = st.dictionaries(st.sampled_from(["USR1", "USR2", "ALRM"]), _ACTIONS, max_size=2)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("states")


@pytest.fixture(scope="module")
def pair(place: Path, each_bash: tuple[int, int]) -> Iterator[tuple[Session, Session, Snapshot]]:
    with Session(cwd=place, tty=False) as first, Session(cwd=place, tty=False) as second:
        second.open()
        yield first, second, first.snapshot()


@settings(max_examples=200 if SOAK else 15, phases=[Phase.generate])  # to shrink a failure would take minutes
@given(st.dictionaries(_NAMES, _VARIABLES), _ALIASES, _TRAPS, st.lists(_TEXTS, max_size=4).map(tuple))
def test_generated_state_survives_two_shells(
    pair: tuple[Session, Session, Snapshot], place: Path, variables: Any, aliases: Any, traps: Any, arguments: Any
) -> None:
    first, second, fresh = pair
    made = fresh.__replace__(
        variables={**fresh.variables, **variables}, aliases=aliases, traps=traps, arguments=arguments
    )
    assert first.restore(made).not_restored == ()
    snapshot = first.snapshot()
    for name in ("variables", "aliases", "traps", "arguments"):
        assert getattr(snapshot, name) == getattr(made, name)
    assert second.restore(Snapshot.from_bytes(snapshot.to_bytes())).not_restored == ()
    assert listed(second) == listed(first)
    assert list(place.rglob("executed")) == []


def _scripts() -> list[Path]:
    """Scripts of this machine for a shell, smaller than 20 kB."""
    found = []
    for directory in (
        "/usr/bin",
        "/usr/sbin",
        "/etc/init.d",
        "/usr/share/bash-completion/completions",
        "/usr/lib/git-core",
    ):
        for path in sorted(Path(directory).glob("*")):
            if path.is_file() and not path.is_symlink() and path.stat().st_size < 20_000:
                with path.open("rb") as file:
                    begin = file.read(60)
                if re.match(rb"#! ?/bin/(ba|da)?sh\b", begin) or "bash-completion" in directory:
                    found.append(path)
    return found[:150]


def test_real_scripts_survive_as_functions(place: Path, each_bash: tuple[int, int]) -> None:
    with Session(cwd=place, tty=False) as sh:
        for number, path in enumerate(_scripts()):
            text = f"script_{number}() {{\n".encode() + path.read_bytes() + b"\n}\n"
            (place / "script").write_bytes(text)
            sh.run("bash -n script 2>/dev/null && . ./script")
        snapshot = sh.snapshot()
        if len(snapshot.functions) < 10:
            pytest.skip("this machine has few scripts")
        report = sh.restore(snapshot)
        lost = {one.name for one in report.not_restored}
        # Before 5.1, bash prints a function in a function wrongly if it ends with a here document.
        assert len(lost) <= len(snapshot.functions) // (50 if each_bash >= (5, 1) else 20)
        assert {name: one for name, one in snapshot.functions.items() if name not in lost} == sh.snapshot().functions
