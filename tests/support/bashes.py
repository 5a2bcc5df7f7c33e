"""Which bash the tests run: the one that a session finds."""

from __future__ import annotations

import shutil
import subprocess
from typing import Final

BASH: Final = shutil.which("bash") or "/bin/bash"


def _version() -> tuple[int, int]:
    question = [BASH, "-c", "echo ${BASH_VERSINFO[@]:0:2}"]
    major, minor = subprocess.run(question, capture_output=True, check=True).stdout.split()
    return int(major), int(minor)


def _status_at_prompt(text: bytes) -> int:
    asked = [BASH, "--noprofile", "--norc", "--noediting", "+o", "history", "-i"]
    return subprocess.run(asked, input=text, capture_output=True, start_new_session=True, check=False).returncode


# (5, 2): what holds for one bash alone asks for it, and says why.
VERSION: Final = _version()
# How bash names the first line of a `-c`, when it finds no such command, and when a builtin complains: before 5.1 it
# counts from 0, and tells that of builtins alone.
FIRST_LINE: Final = "line 1: " if VERSION >= (5, 1) else ""
BUILTINS_FIRST_LINE: Final = FIRST_LINE or "line 0: "
# The prompt of bash 5.2 forgot the status of an error in `[[`. One of its patches mends that (5.2.15 lacks it, 5.2.37
# has it), so the bash is asked.
FORGETS_STATUS: Final = _status_at_prompt(b"[[ a b ]]\n") == 0
# What `eval` leaves behind a text with an error of syntax; the prompt leaves 2.
SYNTAX_ERROR: Final = 2 if VERSION >= (5, 0) else 1
# A subshell in the background that sets a trap for another signal goes on ignoring SIGINT.
BACKGROUND_IGNORES_INTERRUPT: Final = VERSION >= (5, 0)
# An interrupt ends the first process of a PID namespace that has an EXIT trap; bash 4.4 runs the trap, and goes on.
INTERRUPT_ENDS_INIT: Final = VERSION >= (5, 0)
# What `set -t` ends it with after success: our line turns that round, and before 5.1 a word behind it does so again.
LEAVES_SUCCESS_WITH: Final = 1 if VERSION >= (5, 1) else 0
# A process substitution heeds SIGINT, by which it is told from a job.
SUBSTITUTION_HEEDS_INTERRUPT: Final = VERSION < (5, 3)
