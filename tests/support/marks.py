"""Checks for the tests of marks: find a nonce or a word of ours, and check that a session still answers.

A nonce is any run of 20 hexadecimal digits. A mark is recognised by it.
"""

from __future__ import annotations

import re

from shellsession import Session

NONCE = re.compile(rb"[0-9a-f]{20}")


def no_word_of_ours(text: bytes) -> None:
    assert not NONCE.search(text), text
    assert b"shellsession" not in text, text
    assert b"eval" not in text, text


def answers(sh: Session) -> None:
    result = sh.run("echo out; echo err >&2; (exit 42)")
    assert (result.stdout, result.stderr, result.exit_code, result.outcome) == ("out\n", "err\n", 42, "exited")
