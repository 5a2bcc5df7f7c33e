"""What is known of a bash: a value, which says the same after any order of the same facts."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from shellsession import Session
from shellsession.engine.verbs.known import ALWAYS, NEVER, ONCE, Known
from shellsession.engine.wire import Mark
from shellsession.models import Request

TEXTS = st.sampled_from(
    [b"true", b"", b"# a", b"trap 'x' EXIT", b"trap x DEBUG", b"eval x", b". ./f", b"enable -n eval", b"f", b"source f"]
)


def mark(status: int, flags: bytes = b"himBs") -> Mark:
    return Mark(status, flags, b"/")


@given(st.lists(st.tuples(TEXTS, st.integers(0, 255), st.booleans())))
def test_known_after_any_commands_keeps_what_cannot_be_undone(commands: list[tuple[bytes, int, bool]]) -> None:
    known = Known()
    for text, status, isolated in commands:
        earlier, known = known, known.before(Request(text, isolated=isolated))
        assert known.trapping >= earlier.trapping
        assert known.debugging >= earlier.debugging
        assert known.debugging <= known.trapping
        if isolated:
            assert known is earlier
        known = known.after(text, mark(status))
        assert known.guard == ALWAYS if earlier.guard == ALWAYS else True
        assert known.status == (status or (earlier.status if text in (b"", b"# a") else 0))
        assert known.named == earlier.named


@pytest.mark.parametrize(
    ("flags", "facts"),
    [
        (b"hBs", (False, False, False)),
        (b"ehBs", (True, False, False)),
        (b"hxBs", (False, True, False)),
        (b"hBTs", (False, True, True)),
    ],
)
def test_flags_of_a_mark_are_facts(flags: bytes, facts: tuple[bool, ...]) -> None:
    known = Known().after(b"true", mark(0, flags))
    assert (known.errexit, known.echoes, known.functions_trap) == facts
    assert (known.guard, known.is_usual) == (NEVER, not known.echoes and not known.errexit)


def test_fresh_bash_is_asked_once_whether_builtin_is_the_builtin() -> None:
    assert (Known().guard, Known().is_usual) == (ONCE, False)


def test_session_knows_what_its_commands_have_done() -> None:
    with Session(tty=False) as sh:
        assert sh.engine.known == Known()
        sh.run("(exit 3)")
        sh.run("true; trap 'true' EXIT; exec 11</dev/null; (exit 4)")
        known = sh.engine.known
        assert (known.status, known.trapping, known.named, known.is_usual) == (4, True, frozenset({11}), False)
        sh.restart()
        sh.run("true")
        assert sh.engine.known == Known(flags=known.flags, guard=NEVER)
