"""phoenix (document 004): combined output, two time limits, background commands, a co-author on commits.

Where the document is silent, or its parts differ:

* Its patterns are looked for as plain text, as its code does, so ``dd if=.* of=/dev/`` means these very characters.
* The output is limited as text: bytes that are no UTF-8 become U+FFFD before it is measured.
* A bash that a signal ended has no exit code and is told as -1.
* A background command is part of the agent's session and ends with it; its output file stays, and is the host's to
  remove (``phoenix.*`` in its directory for temporary files: nothing in the name tells whether somebody still wants to
  read it). At the session's end nobody is left to write the completion line. In a sandbox what is told is what there is
  inside, where the next calls read the file and run the reminder's ``kill``: the process id is the one there, and the
  file is in the private /tmp; for the host to see it, too, have TMPDIR name a directory of the sandbox's ``write``.
* In a session that somebody else started with secrets (its caller, or another tool of the same agent), /proc still
  shows them; names that bash itself cannot hold (``OPENAI_X-Y``) are handed on with ``persistent``, and in a session
  of the caller's own. Start it without them.
* A job that still holds the output 0.5 s after bash's end (``server &``) is left running; a line after the output says
  so.
* A policy masks what a call returns; the output file of a background command holds secrets as they were printed.
* ``persistent``: one bash for all calls; it loses the secrets and gets EDITOR, VISUAL and what adds the trailer (see
  ``phoenix_git``) at the first call, and again where another tool of the same agent has other trailers. The working
  directory that is checked is still the one it was given.
"""

from __future__ import annotations

import re
import secrets
import zlib
from collections.abc import Generator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from pydantic import ConfigDict, Field

from ..engine.wire import quote
from ..errors import InvalidRequest, ShellSessionError, ShellUnavailable
from ..models import Limits, Result, check_flag
from ..text import decoded
from .contract import (
    Action,
    BadCall,
    Contract,
    Dressed,
    Input,
    Look,
    Place,
    Steps,
    definition,
    display,
    limit_of,
    notice,
    on_its_own,
    quoted,
    to_path,
    to_text,
    without_default,
)
from .one_shot import SAID_MAX, become, ended, watched
from .phoenix_git import COUNTED, entry, hooks, may_commit
from .tool import Binder

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


# The element that is set tells for what bash was prepared last. No array comes from an environment, where an older bash
# or somebody else may have put the name; what is there is element 0.
_MARK: Final = "\n\\builtin unset -v _phoenix; _phoenix=([%d]=)"
# The question is an expansion, and not a command of its own: `$?` is still the last call's. An error would be the
# answer, too, but one that ends the shell under `set -e`.
_ASK: Final = b"\\builtin printf '_phoenix: %%s\\n' %b"
# Both streams are one, so stderr is there to be had again from stdout; the trace goes to what cannot be written, stdin.
# Without a trace both redirections are of a stream to itself, which does nothing: `set -e` would undo them before an
# EXIT trap runs.
_TRACED: Final = b"36#0${-//[!x]}"
_RUN: Final = b'{ %b ${_phoenix[%d]+%b}${_phoenix[%d]-%b} 2>&"$(( %b ? 1 : 2 ))"; } 2>&"$(( %b ? 0 : 2 ))"'


class Lasting:
    """A bash that is prepared by this text; the nonce is what one that is not answers with."""

    def __init__(self, text: str, nonce: bytes) -> None:
        self._nonce, self._number = nonce, 1 + zlib.crc32(text.encode())
        self.preparation = (text + _MARK % self._number).encode()

    def run(self, text: bytes, setting: str = "") -> bytes:
        """Bash text that runs this one where bash is prepared; ``setting``: assignments for it alone."""
        # What stands before `builtin eval` is gone behind the first builtin in it; before `eval` it is not.
        way = b"%b \\eval" % setting.encode() if setting else b"\\builtin eval"
        ask = quoted(_ASK % self._nonce)
        return _RUN % (way, self._number, quoted(text), self._number, ask, _TRACED, _TRACED)


def asks_for_preparation(said: bytes, nonce: bytes) -> bool:
    """Is that a bash which is yet to be prepared, or anew?"""
    return said.endswith(b"_phoenix: %b\n" % nonce)


TIMEOUT: Final = 30.0  # seconds
SLOW_TIMEOUT: Final = 15 * 60.0  # seconds
MAX_OUTPUT_LENGTH: Final = 128 * 1024  # bytes
SNIP_SIZE: Final = 4 * 1024  # bytes kept at each end of what is longer
TRAILER: Final = "Co-authored-by: Phoenix <phoenix@exe.dev>"
DANGEROUS: Final = ("rm -rf /", "rm -rf /*", "> /dev/sda", "mkfs.", "dd if=.* of=/dev/")
SECRET_PREFIXES: Final = ("ANTHROPIC_", "OPENAI_", "GEMINI_", "AWS_SECRET", "PHOENIX_")
_NO_EDITOR: Final = {"EDITOR": "/bin/false", "VISUAL": "/bin/false"}
_REBASE: Final = "GIT_SEQUENCE_EDITOR=\"echo 'Interactive rebase requires background=true' && exit 1\""
_FORGOTTEN: Final = "don't persist"
_DESCRIPTION: Final = """\
Executes shell commands via bash -c, returning combined stdout/stderr.
Bash state changes (working dir, variables, aliases) don't persist between calls.

With background=true, returns immediately with output redirected to a file.
Use background for servers/demos that need to stay running.

MUST set slow_ok=true for potentially slow commands: builds, downloads,
installs, tests, or any other substantive operation.

IMPORTANT: Keep commands concise. The command input must be less than 60k tokens.
For complex scripts, write them to a file first and then execute the file.

<pwd>{working_directory}</pwd>"""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What the tool returns. ``code`` names the error (None when there is none):

    ``invalid_args``, ``invalid_working_dir``, ``safety_violation``, ``timed_out``, ``command_failed``, or the code of
    the session's error (``shellsession.errors``) when the command could not be run.
    """

    output: str
    is_error: bool = False
    code: str | None = None


class PhoenixInput(Input):
    model_config = ConfigDict(extra="ignore")  # the document's schema refuses no other field

    command: str = Field(description="Shell command to execute via bash -c")
    slow_ok: bool = Field(
        default=False,
        description="Use extended 15-minute timeout for builds, tests, installs",
        json_schema_extra=without_default,
    )
    background: bool = Field(
        default=False,
        description="Run detached, return immediately with PID and output file",
        json_schema_extra=without_default,
    )


class Phoenix(Contract[ToolResult]):
    """The tool of document 004.

    ``working_dir``: where commands run (None: where the host is at the time of the call; with ``persistent`` only where
    an agent's bash starts). ``trailer``: what commits carry, one line ``Key: value``; None: nothing.
    Raises InvalidRequest.
    """

    Input = PhoenixInput

    def __init__(
        self,
        persistent: bool = False,
        working_dir: str | Path | None = None,
        trailer: str | None = TRAILER,
    ) -> None:
        if trailer is not None and not (isinstance(trailer, str) and trailer.isprintable() and ":" in trailer):
            raise InvalidRequest(f"trailer is one line 'Key: value', or None for no trailer, not {trailer!r}")
        check_flag("persistent", persistent)
        self._nonce = secrets.token_hex(8).encode()
        self.persistent, self.cwd, self.trailer = persistent, to_path("working_dir", working_dir), trailer
        self._hooks = None if trailer is None else hooks(trailer)

    @property
    def description(self) -> str:
        return _DESCRIPTION.replace(_FORGOTTEN, "persist") if self.persistent else _DESCRIPTION

    def session_options(self, environ: Mapping[str, str]) -> dict[str, Any]:
        options = super().session_options(filter_environment(environ))
        return {**options, "env": {**options["env"], **_NO_EDITOR}, "cwd": self.cwd}

    def parse(self, call: object) -> Dressed:
        """The call as a request. Raises BadCall."""
        return self.request(_read(call))

    def steps(self, call: object) -> Steps[ToolResult]:
        try:
            wanted = _read(call)
            place: Place = yield Look(self.cwd)
            path = display(place.path)
            if place.kind == "missing":
                return _failed("invalid_working_dir", f"Working directory does not exist: {path}{_RECREATE}")
            if place.kind != "directory":
                return _failed("invalid_working_dir", f"Working directory is not a directory: {path}")
            for pattern in DANGEROUS:
                if pattern in wanted.command:
                    return _failed("safety_violation", f"Command contains dangerous pattern: {pattern}")
            directory: str | None = None
            if self._hooks is not None and (self.persistent or may_commit(wanted.command)):
                directory = yield self._hooks
            result = yield from self._run(self.request(wanted, directory), self._lasting(directory))
            if not isinstance(result, Result):
                return _started(*result)
            told = render(result, wanted.slow_ok and not wanted.background)
            return replace(told, output=on_its_own(told.output, notice(result, self.persistent)))
        except BadCall as error:
            return _failed("invalid_args", f"Invalid input: {error}")
        except ShellSessionError as error:
            return _failed(error.code, str(error))

    def request(self, wanted: PhoenixInput, directory: str | None = None) -> Dressed:
        """What bash is to run for the call, where git's hooks are in this directory."""
        return Dressed(
            wanted.command.encode(),
            text=self._text(wanted, directory),
            timeout=SLOW_TIMEOUT if wanted.slow_ok and not wanted.background else TIMEOUT,
            tty=False,
            merge_stderr=True,
            isolated=not self.persistent,
            limits=Limits(max_output=MAX_OUTPUT_LENGTH + 2 * SAID_MAX),
            reads=self._launched if wanted.background else self._ended,
        )

    def _ended(self, result: Result) -> Result | None:
        """None: the bash that all calls share is yet to be prepared."""
        asks = self.persistent and asks_for_preparation(result.stdout_bytes, self._nonce)
        return None if asks else ended(result, self._nonce)

    def _launched(self, result: Result) -> Result | tuple[int, str] | None:
        """Process id and output file of a background command; the result of one that was not started."""
        return (started(result.stdout, self._nonce) if result.ok else None) or self._ended(result)

    def _lasting(self, directory: str | None) -> Lasting:
        return Lasting(_prepared(directory), self._nonce)

    def _run(self, request: Dressed, lasting: Lasting) -> Generator[Action, Any, Result | tuple[int, str]]:
        """Run it; in a bash that all calls share, which was not prepared yet or anew, prepare it and run it then."""
        result: Result | tuple[int, str] | None = yield request
        if result is None:
            request = replace(request, command=b"")  # it has been judged
            yield replace(request, text=lasting.preparation, reads=None)
            result = yield request
        if result is None:
            raise ShellUnavailable("the session's bash cannot be prepared: use another, or a fresh one")
        return result

    def _text(self, wanted: PhoenixInput, directory: str | None) -> bytes:
        command = wanted.command.encode()
        guard = _REBASE if not wanted.background and "git rebase -i" in wanted.command else ""
        settings = f"{guard} {COUNTED if directory is not None and may_commit(wanted.command) else ''}".strip()
        if self.persistent:
            text = launch(command, self._nonce, stateful=True) if wanted.background else command
            return self._lasting(directory).run(text, settings)
        before = _prepared(directory) + (f"\\builtin export {settings}\n" if settings else "")
        start = launch(command, self._nonce, stateful=False) if wanted.background else watched(command, self._nonce)
        return b"\\builtin eval %b; %b" % (quote(before.encode()), start)


_RECREATE: Final = " (conversation may need to be recreated)"
_NAMES: Final = " ".join(f'"${{!{prefix}@}}"' for prefix in SECRET_PREFIXES)
# What a bash that somebody else has started may know. One that may not be unset is at least not handed on.
_CLEAN: Final = f"\\builtin unset -v {_NAMES} 2>/dev/null || \\builtin export -n {_NAMES} >/dev/null\n" + "".join(
    f"\\builtin export {name}={value} 2>/dev/null || :\n" for name, value in _NO_EDITOR.items()
)


def _prepared(directory: str | None) -> str:
    """Bash text that makes a bash one of this tool's, with git's hooks in this directory."""
    return _CLEAN if directory is None else _CLEAN + entry(directory)


def _read(call: object) -> PhoenixInput:
    wanted = PhoenixInput.read(call)
    to_text("command", wanted.command)
    return wanted


def is_secret_env(name: str) -> bool:
    """Is this environment variable the host's alone?"""
    return name.startswith(SECRET_PREFIXES)


def filter_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """The environment without the host's secrets."""
    return {name: value for name, value in environ.items() if not is_secret_env(name)}


def _failed(code: str, output: str) -> ToolResult:
    return ToolResult(output, is_error=True, code=code)


def _started(pid: int, path: str) -> ToolResult:
    return ToolResult(
        f"<pid>{pid}</pid>\n<output_file>{path}</output_file>\n<reminder>To stop: kill -9 -{pid}</reminder>"
    )


def render(result: Result, slow_ok: bool = False) -> ToolResult:
    """What came of a foreground command, in the document's words."""
    if result.outcome == "timed_out":
        limit = limit_of(result, SLOW_TIMEOUT if slow_ok else TIMEOUT)
        return _failed("timed_out", f"[command timed out after {limit}s]")
    output = format_output(result.stdout_bytes, result.stdout_omitted, result.stdout_cut)
    code = -1 if result.exit_code is None or result.signal is not None else result.exit_code
    if code == 0:
        return ToolResult(output)
    return _failed("command_failed", f"[command failed: exit code {code}]\n{output}")


def format_output(output: bytes, omitted: int = 0, cut: int = 0) -> str:
    """Output within the limit as it is; of a longer one both ends. ``omitted`` bytes are missing at ``cut``."""
    text = decoded(output, omitted, cut)
    whole = text.encode()
    size = len(whole) + omitted
    if size <= MAX_OUTPUT_LENGTH:
        return text
    head, tail = whole[:SNIP_SIZE].decode(errors="ignore"), whole[-SNIP_SIZE:].decode(errors="ignore")
    header = f"[output truncated in middle: got {humanize_bytes(size)}, max is {humanize_bytes(MAX_OUTPUT_LENGTH)}]"
    return f"{header}\n{head}\n\n[snip]\n\n{tail}"


def humanize_bytes(size: int) -> str:
    """A number of bytes as people read it, to one decimal and never too small: 128KB, 128.1KB, 1.5MB."""
    unit, name = next(((unit, name) for unit, name in _UNITS if size >= unit), (1, "B"))
    tenths = -(-size * 10 // unit)
    return f"{tenths // 10}{name}" if tenths % 10 == 0 else f"{tenths // 10}.{tenths % 10}{name}"


_UNITS: Final = ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB"))

TOOL: Final = definition(Phoenix())
parse: Final = Phoenix().parse
tool = Binder(Phoenix)
