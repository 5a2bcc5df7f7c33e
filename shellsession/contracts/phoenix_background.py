"""phoenix's background commands: the bash text that starts one and stays to tell its end, and what that text says.

Law: the command leads a process group of its own and holds nothing of the call; who watches it is outside that group,
so that the end is told even of a group that was killed.
"""

from __future__ import annotations

import re
from typing import Final

from ..engine.framing import quote
from .contract import quoted
from .one_shot import become

# The launch is heard nowhere (see ``phoenix_lasting``), and the command as the session has it. With `set -T` a DEBUG
# trap would speak in our substitutions. In posix mode no bash before 5.1 has `<(...)`; that mode is the variable.
_QUIET: Final = (
    rb"{ \builtin trap - DEBUG; _phoenix_options=$- _phoenix_posix=; \builtin set +avx; "
    rb"(( BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] > 500 )) || [[ ! -o posix ]] || "
    rb"{ _phoenix_posix=${POSIXLY_CORRECT@A}; \builtin set +o posix; }; } >/dev/null 2>&1; "
)
_SUBSHELL: Final = (
    r'{ \builtin eval "$_phoenix_posix"; \builtin set -"${_phoenix_options//[!avx]}"; '
    r'\builtin eval "$_phoenix_command" 2>&1; } 2>/dev/null'
)

# Said by the completion line in Rust's words: its ExitStatus shows "exit status: 3" or "signal: 9 (SIGKILL)". What
# `wait` gives cannot tell `exit 137` from a SIGKILL; what `jobs` says while the job is not yet forgotten can, and
# that is in a trap of SIGCHLD alone, which would end the wait in posix mode. What it says goes to a file without a
# name: nothing is left when we are killed. Since bash 5.3 what a substitution runs ignores an interrupt, and so would
# the command. (Before that, this would take back what the session itself ignores.) The document opens the file for its
# last line without creating it: one that somebody has removed stays gone. It is open for the command before its pid is
# told, as who removes it then is quicker than a process that was only just forked.
_WATCH: Final = r"""
\builtin set -m
(( BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] < 503 )) || \builtin trap - INT QUIT
\builtin exec {_phoenix_jobs}<>"$_phoenix_place/jobs" {_phoenix_output}>>"$_phoenix_place/output"
\command rm -f -- "$_phoenix_place/jobs"
\builtin trap 'LC_ALL=C; \builtin jobs -l >&"$_phoenix_jobs"' CHLD
( %(start)s ) >&"$_phoenix_output" 2>&1 {_phoenix_jobs}>&- {_phoenix_output}>&- &
_phoenix_pid=$! _phoenix_status=0 _phoenix_said= _phoenix_line=
\builtin printf '%%s\n' "$_phoenix_pid"
\exec </dev/null >/dev/null 2>&1 {_phoenix_output}>&-
\builtin set +o posix
\builtin wait "$_phoenix_pid" || _phoenix_status=$?
\builtin trap - CHLD
while IFS= \builtin read -r _phoenix_line; do _phoenix_said=$_phoenix_line; done <"/dev/fd/$_phoenix_jobs" || :
IFS=' ' \builtin read -r _ _ _phoenix_said <<<"$_phoenix_said" || :
case $_phoenix_status:$_phoenix_said in
  0:*) _phoenix_line=completed ;;
  127:) _phoenix_line='error: No child processes (os error 10)' ;;
  *:Exit* | *:Done* | *:) _phoenix_line="failed: exit status: $_phoenix_status" ;;
  *)
    _phoenix_line=$(\builtin kill -l "$_phoenix_status") || :
    _phoenix_line=${_phoenix_line#SIG}  # so bash 4.4 says it
    case $_phoenix_line in
      RT* | '') _phoenix_line= ;;
      *) _phoenix_line=" (SIG$_phoenix_line)" ;;
    esac
    _phoenix_line="failed: signal: $(( _phoenix_status - 128 ))$_phoenix_line"
    [[ $_phoenix_said == *'(core dumped)'* ]] && _phoenix_line+=' (core dumped)' ;;
esac
[[ ! -e $_phoenix_place/output ]] ||
  \builtin printf '\n\n[background process %%s]\n' "$_phoenix_line" >>"$_phoenix_place/output"
"""
_LAUNCH: Final = r"""_phoenix_place=$(\command mktemp -d "${TMPDIR:-/tmp}/phoenix.XXXXXXXXXX") || \builtin exit 1
( \builtin umask 077; >>"$_phoenix_place/output" ) || \builtin exit 1
\builtin exec {_phoenix_watch}< <(%(watch)s) || \builtin exit 1
IFS= \builtin read -r -u "$_phoenix_watch" _phoenix_pid || \builtin exit 1
\builtin printf '\n%(nonce)s%%s %%s%(nonce)s\n' "$_phoenix_pid" "$_phoenix_place/output"
"""


def launch(command: bytes, nonce: bytes, stateful: bool) -> bytes:
    """Bash text that starts the command, with the stdin of the call, and says its process id and output file.

    The command runs in a bash of its own, so that its process id is the command's; ``stateful``: in a subshell, which
    knows the functions and variables of the session.
    """
    watch = _WATCH % {"start": _SUBSHELL if stateful else become("_phoenix_command", command)}
    script = _LAUNCH % {"watch": watch, "nonce": nonce.decode()}
    return b"( %b_phoenix_command=%b; \\builtin eval %b )" % (_QUIET, quoted(command), quote(script.encode()))


def started(said: str, nonce: bytes) -> tuple[int, str] | None:
    """Process id and output file, as ``launch`` says them, whatever else is said; None when it did not get so far."""
    fence = nonce.decode()
    found = re.search(rf"^{fence}(\d+) (.*){fence}$", said, re.MULTILINE | re.DOTALL | re.ASCII)
    return (int(found[1]), found[2]) if found else None
