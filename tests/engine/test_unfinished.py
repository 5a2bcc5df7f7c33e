"""A text that ends unfinished keeps its shell, also where bash would end: 5.0 does where such a text is evaluated."""

from __future__ import annotations

import pytest
from bashes import SYNTAX_ERROR
from scripts import corpus
from system import PATIENCE

from shellsession import Session
from shellsession.engine.wire import ends_unfinished

pytestmark = pytest.mark.usefixtures("company")

UNFINISHED = [
    "if true; then",
    "if true; then echo fi",
    "for x in a b; do\n  echo $x",
    "while true\ndo",
    "until",
    "select x in a",
    "case x in",
    "f() {",
    "f()\n",
    "function f # none",
    "f() { echo a; }; { f",
    "(cd /; ls",
    "true &&",
    "false || # why\n\n  # and why not",
    "ls |",
    "if x; then { y; } fi; if z; then while a; do b; done",
]
FINISHED = [
    "ls -l | wc -l && (cd /; ls) || echo $(pwd) ${HOME}",
    "if a; then b; fi; case x in a) b;; (c) d;; esac; f() { g; }; f; f(){ g;}",
    "for x in a; do if b; then c; fi done; while a; do { b; } done",
    'echo {a,b} $((1 + 1)) "$(f() { g; }; f)" # why',
    "bash -c 'if a; then b; fi'",
    "a |\nb &&\n\n# c\nd",
]


@pytest.mark.parametrize("text", UNFINISHED)
def test_the_shell_lives(sh: Session, text: str) -> None:
    sh.run("x=5")
    result = sh.run(text, timeout=PATIENCE)
    assert (result.outcome, result.exit_code, result.stdout) == ("exited", SYNTAX_ERROR, "")
    assert "syntax error: unexpected end of file" in result.stderr
    assert sh.run("echo $? $x").stdout == f"{SYNTAX_ERROR} 5\n"


@pytest.mark.parametrize("text", UNFINISHED)
def test_it_is_known_before(text: str) -> None:
    assert ends_unfinished(text.encode(), 500)
    assert not ends_unfinished(text.encode(), 501)


@pytest.mark.parametrize("text", FINISHED)
def test_what_is_finished_is_known_as_well(text: str) -> None:
    assert not ends_unfinished(text.encode(), 500)


def test_of_the_corpus_hardly_any_that_is_finished_is_taken_for_another() -> None:
    finished = [text for script in corpus() if "syntax" not in script.name for text in script.calls]
    assert sum(ends_unfinished(text, 500) for text in finished) < len(finished) / 100


def test_a_long_text_is_looked_through_soon() -> None:
    for piece in (b"| # ", b"fi \t", b"\n#", b"{ ", b"function ", b"do\n"):
        assert ends_unfinished(piece * 100_000, 500) in (True, False)
