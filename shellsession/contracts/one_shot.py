"""One-shot calls: bash text that runs a command in a fresh ``bash -c``, and the base class of documents 000 and 002.

The fresh bash knows nothing of the session's options, functions and variables, and its exit status or signal is
reported as if the host had started it. A command that is too long for an argument reaches it through a pipe, which its
``eval`` reads; a syntax error then names ``eval`` instead of ``-c``.

The documents read both pipes to their end. So does a call, for process substitutions (``> >(tee log)``). In the
documents, a job that keeps a pipe open (``server &``) delays a call until its time limit, which then kills the job.
Here it delays the call for 0.5 s after bash's end, and keeps running (see ``engine.verbs.substitutions``).
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final

from pydantic import Field

from ..models import Limits, Result, check_flag, streams_of
from .contract import BadCall, Contract, Input, P, WrappedRequest, quoted, to_text

# The kernel refuses arguments longer than MAX_ARG_STRLEN, 128 KiB. Bash reads a command beyond this size from a pipe.
_ARGUMENT_MAX: Final = 100_000
# The most bytes of a report: each half of a stream needs room for this many more.
REPORT_MAX: Final = 1 << 10
# A bash array: the program, and its arguments, that removes names from the environment. Unset if there are none.
WITHOUT: Final = "_shellsession_without"
# A bash variable that holds a nonce. Bash takes the nonce for its name (BASH_ARGV0, not in bash 4.4) and begins its
# message about a failed `exec` with it; no other line begins so. Such a failure ends the subshell at once, whatever
# `execfail` says.
NONCE: Final = "_shellsession_nonce"
_SET_NAME: Final = f"\\builtin export -n BASH_ARGV0; BASH_ARGV0=${NONCE}"
# Before bash 5.0, `exec` decrements SHLVL in a subshell, too; the new bash increments it.
_LEVEL: Final = "(( BASH_VERSINFO[0] > 4 )) || [[ ${SHLVL-} != [1-9]*([0-9]) ]] || (( ++SHLVL ))"

_PROGRAM: Final = rb"\builtin set -- %b; %b"
_PIPE: Final = r'\builtin exec {_shellsession_text}< <(\builtin printf %%s "$%s"); '
_READ: Final = r'"\\builtin eval \"\$(</dev/fd/$_shellsession_text)\" $_shellsession_text<&-"'
# `$?` is 128 + n both for signal n and for `exit 128+n`. Only `jobs`, called in a trap of SIGCHLD before bash forgets
# the job, tells them apart; in posix mode the trap would end the wait. `exec` restores the signals that a background
# job ignores.
_PROGRAM_WITH_REPORT: Final = (
    rb"\builtin set +o posix -m -- %b; \builtin trap 'LC_ALL=C; \builtin jobs -l >&2' CHLD; \builtin trap '' INT TERM; "
    rb'( : %b; \builtin trap - INT TERM; %b ) <&0 & \builtin wait "$!"'
)
_REPORT: Final = re.compile(rb"\[\d+\][+-]? +\d+ (?P<exited>Done|Exit)?.* \( : ")


def exec_bash_c(variable: str, command: bytes, name: str = "bash") -> str:
    """Bash text that replaces the shell with ``NAME -c COMMAND``. ``name`` is a word of bash; ``variable`` has COMMAND.

    If ``WITHOUT`` is set, its program removes the names from the environment that bash cannot unset (see ``tool``). In
    that case the name of bash is passed as the word after the command.
    """
    bash = '"${BASH:-bash}"'
    is_long = len(command) > _ARGUMENT_MAX
    text = _READ if is_long else f'"${variable}"'
    with_it = f'\\builtin exec "${{{WITHOUT}[@]}}" {bash} -c {text} {name}'
    without = f"\\builtin exec -a {name} {bash} -c {text}"
    return f"{_PIPE % variable if is_long else ''}{_SET_NAME}; {_LEVEL}; [[ -v {WITHOUT} ]] && {with_it}; {without}"


def bash_c(command: bytes, name: str = "bash") -> bytes:
    """Bash text for a subshell that replaces itself with ``NAME -c COMMAND``."""
    return _PROGRAM % (quoted(command), exec_bash_c("1", command, name).encode())


def bash_c_with_report(command: bytes, nonce: bytes) -> bytes:
    """As ``bash_c``, but the command leads a process group of its own, and the subshell waits for it and reports.

    The report is the last line on stderr, and says how the command ended.
    """
    return _PROGRAM_WITH_REPORT % (quoted(command), nonce, exec_bash_c("1", command).encode())


def read_report(result: Result, nonce: bytes) -> Result:
    """The result of ``bash_c_with_report`` without the report, but with the signal that it names, if any."""
    stream = "stderr" if nonce in result.stderr_bytes else "stdout"
    data: bytes = getattr(result, f"{stream}_bytes")
    at = data.rfind(nonce)
    begin = data.rfind(b"[", 0, max(at, 0))
    said = _REPORT.fullmatch(data, max(begin, 0), max(at, 0))
    if said is None or result.exit_code is None:
        return result
    rest = data[:begin] + data[data.find(b"\n", at) + 1 :]
    signal = result.signal if said["exited"] else result.exit_code - 128
    cut = {f"{stream}_bytes": rest, f"{stream}_cut": min(getattr(result, f"{stream}_cut"), len(rest))}
    return replace(result, signal=signal, **cut)


def without(result: Result, echo: bytes) -> Result:
    """The result without the echo of our own text, which ``set -v`` prints before everything else."""
    for stream, data, _, cut in streams_of(result):
        if data.startswith(echo):
            rest: dict[str, Any] = {f"{stream}_bytes": data[len(echo) :], f"{stream}_cut": max(cut - len(echo), 0)}
            return replace(result, **rest)
    return result


class CommandInput(Input):
    command: str = Field(description="The bash command to execute")


class OneShot(Contract[P]):
    """The base of the tools of documents 000 and 002, whose wording is the same.

    ``persistent``: one bash for all calls, and the description says so. Raises InvalidRequest.
    """

    Input = CommandInput

    def __init__(self, persistent: bool = False) -> None:
        check_flag("persistent", persistent)
        self.persistent = persistent

    @property
    def description(self) -> str:
        state = ". Working directory, variables and functions persist between calls" if self.persistent else ""
        return f"Execute a bash command and return stdout/stderr{state}"

    def request(self, call: object, timeout: float, limits: Limits) -> WrappedRequest:
        """The call as a request. Raises BadCall."""
        command = CommandInput.read(call).command
        if not command:
            raise BadCall("command: is empty")
        text = to_text("command", command)
        return WrappedRequest(text, timeout=timeout, tty=False, isolated=not self.persistent, limits=limits)
