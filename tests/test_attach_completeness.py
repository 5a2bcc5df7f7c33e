"""attach and commands of several lines: bash is believed about what is whole, and asked as seldom as that allows."""

from __future__ import annotations

import os
import subprocess
from typing import Any

import pexpect
import pytest
from support import PATIENCE

from shellsession.cli.completeness import Typed

LINES = [
    *(
        "echo a",
        "",
        " ",
        "# x",
        "# x \\",
        "echo 'a",
        'echo "a',
        "echo 'a\\",
        "echo a \\",
        "echo a \\\\",
        "for i in 1 2",
        "if :; then",
    ),
    *(
        "cat <<X",
        "cat <<X; for i in 1",
        "echo a |",
        "echo a &&",
        "f() {",
        "(",
        "case x in",
        "echo $(",
        "echo ${x",
        "[[ a",
    ),
    *(
        "[[ a &&",
        "echo `x",
        "fi",
        "echo )",
        "echo unexpected EOF )",
        "x=(",
        "echo $((1",
        "while",
        "echo 'unexpected EOF '",
    ),
    *("! :", "{ :;", ": \\# \\", "echo line 1: unexpected EOF here )", "until :", "cat <<'a b'\n\\", "coproc x {"),
    *(
        "cat <<XY\na\nXYZ\nXY",
        "cat <<A <<B\nB\nA\nA\nB",
        "cat <<-'X)'\nX\n\tX)",
        "cat <<''\na\n",
        "if :; then cat <<X\nfi\nX\nfi",
        'echo "$(cat <<X\n)\nX\n)\na"',
        "echo 'a\n\"\nb' \"'\nc\"",
        "echo ${x:-'a\n}\n'\n}",
        "echo 'a \\\nb\\\n'",
        "echo $((\n1 +\n(1)\n))",
    ),
]


@pytest.mark.parametrize("text", LINES)
def test_bash_is_believed_about_what_is_no_whole_command(text: str) -> None:
    """It prompts for more where the real one at a terminal does."""
    environment = {"PATH": os.environ["PATH"], "PS1": "<1>", "PS2": "<2>", "TERM": "dumb", "LC_ALL": "C"}
    bash: pexpect.spawn[str] = pexpect.spawn(
        "bash",
        ["--norc", "--noprofile", "--noediting"],
        env=environment,
        echo=False,
        encoding="utf-8",
        timeout=PATIENCE,
    )
    bash.delaybeforesend = None
    typed = Typed()
    try:
        bash.expect_exact("<1>")
        for line in text.split("\n"):
            bash.sendline(line)
            assert typed.add(line) == (bash.expect_exact(["<1>", "<2>"]) == 1), line
    finally:
        bash.close(force=True)


@pytest.mark.parametrize(
    ("first", "last"), [("cat <<X", "X"), ("cat <<'a b' | wc", "a b"), ("echo '", "'"), ("x=(", ")")]
)
def test_bash_is_asked_of_long_ones_no_more_often_than_of_short_ones(
    monkeypatch: pytest.MonkeyPatch, first: str, last: str
) -> None:
    """It reads all of it each time."""
    run, asked = subprocess.run, []

    def noted(*words: Any, **how: Any) -> Any:
        asked.append(words)
        return run(*words, **how)

    monkeypatch.setattr(subprocess, "run", noted)
    typed = Typed()
    assert [typed.add(line) for line in [first, *["a line"] * 1000, last]] == [True] * 1001 + [False]
    assert len(asked) == 2


def test_the_end_of_a_here_document_may_be_in_two_lines() -> None:
    """Without a prompt for the second: bash joins them as it reads."""
    typed = Typed()
    assert [typed.add(line) for line in ("cat <<XY", "a\\", "X\\", "Y", "X\\", "Y")][-3:] == [True, True, False]
