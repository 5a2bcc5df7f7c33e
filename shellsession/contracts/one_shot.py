"""One-shot: the bash text by which a call is a ``bash -c`` of its own, and what documents 000 and 002 share.

Law: the command is run by a fresh bash, which knows nothing of the session's options, functions and variables; how it
ended is told as it would be to who had started it. One that is too long for an argument is what no ``bash -c`` can be
given: bash reads it from a pipe for its own ``eval``, which a complaint about its syntax names in place of ``-c``.

The documents read both pipes to their end. So does a call, for process substitutions (``> >(tee log)``). A job that
holds a pipe (``server &``) would hold such a call until its time limit, which then kills the job. Here it holds the
call for 0.5 s after bash's end, and is left running (see ``engine.held_output``).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final

from pydantic import Field

from ..models import Limits, Result, check_flag, streams_of
from .contract import BadCall, Contract, Dressed, Input, P, quoted, to_text

# Longer than this, and the kernel takes it for no argument of a program (MAX_ARG_STRLEN, 128 KiB): bash reads it then.
_ARGUMENT_MAX: Final = 100_000
# What is said of the end, at the most: so much more is to be kept in each half of a stream.
SAID_MAX: Final = 1 << 10
# An array, where it is set.
WITHOUT: Final = "_shellsession_without"
# Under this name bash tells of an `exec` that failed (bash 4.4 cannot be named), which ends the subshell at once,
# whatever `execfail` says: nobody else begins a line so.
NONCE: Final = "_shellsession_nonce"
_NAMED: Final = f"\\builtin export -n BASH_ARGV0; BASH_ARGV0=${NONCE}"
# Before bash 5.0 `exec` takes one from SHLVL in a subshell, too, for the bash that adds one.
_LEVEL: Final = "(( BASH_VERSINFO[0] > 4 )) || [[ ${SHLVL-} != [1-9]*([0-9]) ]] || (( ++SHLVL ))"

_PROGRAM: Final = rb"\builtin set -- %b; %b"
_PIPE: Final = r'\builtin exec {_shellsession_text}< <(\builtin printf %%s "$%s"); '
_READ: Final = r'"\\builtin eval \"\$(</dev/fd/$_shellsession_text)\" $_shellsession_text<&-"'
# `$?` shows 128 + n both for signal n and for `exit 128+n`. What `jobs` says while a job is not yet forgotten can tell
# them apart, and that is in a trap of SIGCHLD alone; in posix mode that would end the wait. `exec` gives a
# background job back the signals that it ignores.
_WATCHED: Final = (
    rb"\builtin set +o posix -m -- %b; \builtin trap 'LC_ALL=C; \builtin jobs -l >&2' CHLD; \builtin trap '' INT TERM; "
    rb'( : %b; \builtin trap - INT TERM; %b ) <&0 & \builtin wait "$!"'
)
_SAID: Final = re.compile(rb"\[\d+\][+-]? +\d+ (?P<exited>Done|Exit)?.* \( : ")


def become(variable: str, command: bytes, name: str = "bash") -> str:
    """Bash text: from here on it is ``NAME -c COMMAND``. The name is a word of bash; the command is in the variable.

    Where a name is to leave the environment that no bash can unset (see ``surroundings``), ``WITHOUT`` holds the
    program that does it, and its words. Then bash learns its own name from a word behind the command.
    """
    bash = '"${BASH:-bash}"'
    is_long = len(command) > _ARGUMENT_MAX
    text = _READ if is_long else f'"${variable}"'
    with_it = f'\\builtin exec "${{{WITHOUT}[@]}}" {bash} -c {text} {name}'
    without = f"\\builtin exec -a {name} {bash} -c {text}"
    return f"{_PIPE % variable if is_long else ''}{_NAMED}; {_LEVEL}; [[ -v {WITHOUT} ]] && {with_it}; {without}"


def bash_c(command: bytes, name: str = "bash") -> bytes:
    """Bash text for a subshell, which becomes ``NAME -c COMMAND``."""
    return _PROGRAM % (quoted(command), become("1", command, name).encode())


def watched(command: bytes, nonce: bytes) -> bytes:
    """As ``bash_c``, but that the command leads a process group of its own, and that the subshell stays: it says on
    stderr at last how the command ended."""
    return _WATCHED % (quoted(command), nonce, become("1", command).encode())


def ended(result: Result, nonce: bytes) -> Result:
    """The result of ``watched``: with the signal that ended the command, if one did, and without what was said."""
    stream = "stderr" if nonce in result.stderr_bytes else "stdout"
    data: bytes = getattr(result, f"{stream}_bytes")
    at = data.rfind(nonce)
    begin = data.rfind(b"[", 0, max(at, 0))
    said = _SAID.fullmatch(data, max(begin, 0), max(at, 0))
    if said is None or result.exit_code is None:
        return result
    rest = data[:begin] + data[data.find(b"\n", at) + 1 :]
    signal = result.signal if said["exited"] else result.exit_code - 128
    cut = {f"{stream}_bytes": rest, f"{stream}_cut": min(getattr(result, f"{stream}_cut"), len(rest))}
    return replace(result, signal=signal, **cut)


def without(result: Result, echo: bytes) -> Result:
    """The result without what ``set -v`` has shown of our text, which comes before all else."""
    for stream, data, _, cut in streams_of(result):
        if data.startswith(echo):
            rest: dict[str, Any] = {f"{stream}_bytes": data[len(echo) :], f"{stream}_cut": max(cut - len(echo), 0)}
            return replace(result, **rest)
    return result


class CommandInput(Input):
    command: str = Field(description="The bash command to execute")


class OneShot(Contract[P]):
    """What documents 000 and 002 have word for word. ``persistent``: one bash for all calls, and the model knows.
    Raises InvalidRequest."""

    Input = CommandInput

    def __init__(self, persistent: bool = False) -> None:
        check_flag("persistent", persistent)
        self.persistent = persistent

    @property
    def description(self) -> str:
        state = ". Working directory, variables and functions persist between calls" if self.persistent else ""
        return f"Execute a bash command and return stdout/stderr{state}"

    def request(self, call: object, timeout: float, limits: Limits) -> Dressed:
        """The call as a request. Raises BadCall."""
        command = CommandInput.read(call).command
        if not command:
            raise BadCall("command: is empty")
        text = to_text("command", command)
        return Dressed(text, timeout=timeout, tty=False, isolated=not self.persistent, limits=limits)
