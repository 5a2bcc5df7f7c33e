"""The bash that the tests run, which is the one that a session finds, and what its version does."""

from __future__ import annotations

import os
import shutil
import subprocess
from typing import Final

BASH: Final = shutil.which("bash") or "/bin/bash"
# More of them for the fixture ``each_bash``, by name or path: SHELLSESSION_TEST_BASHES=bash-4.4:bash-5.3
OTHERS: Final = [shutil.which(one) or one for one in os.environ.get("SHELLSESSION_TEST_BASHES", "").split(":") if one]


def version_of(bash: str) -> tuple[int, int]:
    """The major and the minor version."""
    question = [bash, "-c", "echo ${BASH_VERSINFO[@]:0:2}"]
    major, minor = subprocess.run(question, capture_output=True, check=True).stdout.split()
    return int(major), int(minor)


def _status_at_prompt(text: bytes) -> int:
    asked = [BASH, "--noprofile", "--norc", "--noediting", "+o", "history", "-i"]
    return subprocess.run(asked, input=text, capture_output=True, start_new_session=True, check=False).returncode


# For example (5, 2). A test that holds only for some versions checks this, and says why.
VERSION: Final = version_of(BASH)
# The line number in bash's errors for the first line of a `-c`: for a command not found, and for a builtin. Before 5.1
# bash counts from 0, and names the line only for builtins.
FIRST_LINE: Final = "line 1: " if VERSION >= (5, 1) else ""
BUILTINS_FIRST_LINE: Final = FIRST_LINE or "line 0: "
# The prompt of bash 5.2 forgot the status of an error in `[[`. One of its patches fixes that (5.2.15 lacks it, 5.2.37
# has it), so this runs the bash to find out.
FORGETS_STATUS: Final = _status_at_prompt(b"[[ a b ]]\n") == 0
# The status that `eval` leaves after a syntax error. The prompt leaves 2.
SYNTAX_ERROR: Final = 2 if VERSION >= (5, 0) else 1
# True if a background subshell that sets a trap for another signal still ignores SIGINT.
BACKGROUND_IGNORES_INTERRUPT: Final = VERSION >= (5, 0)
# True if an interrupt ends the first process of a PID namespace despite its EXIT trap. Bash 4.4 runs the trap, and goes
# on.
INTERRUPT_ENDS_INIT: Final = VERSION >= (5, 0)
# The status with which `set -t` ends bash after success. Our line inverts it; before 5.1 a word behind it does too.
LEAVES_SUCCESS_WITH: Final = 1 if VERSION >= (5, 1) else 0
# True if a process substitution reacts to SIGINT: that distinguishes it from a job.
SUBSTITUTION_HEEDS_INTERRUPT: Final = VERSION < (5, 3)
