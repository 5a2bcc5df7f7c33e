"""phoenix (document 004): combined output, two time limits, background commands, a co-author trailer on commits.

The tool comes first, then the bash text that launches background commands, then the preparation of a bash that all
calls share. How this module reads the document where it is silent or contradicts itself:

* Its patterns are searched for as plain text, as its code does: ``dd if=.* of=/dev/`` means exactly these characters.
* The output limit counts bytes of text: bytes that are not UTF-8 become U+FFFD before they are counted.
* A bash that a signal ended has no exit code; the output says -1.
* A background command belongs to the agent's session and ends with it. Then nothing writes its completion line. Its
  output file stays; the host must remove it (``phoenix.*`` in the directory for temporary files), as nothing shows
  whether somebody still wants to read it.
* In a sandbox, the process id and the path of the output file are those inside, where the next calls read the file and
  run the reminder's ``kill``. The file is in the private /tmp. To see it on the host, too, set TMPDIR to a directory
  in the sandbox's ``write``.
* If its caller, or another tool of the same agent, started the session with secrets, /proc still shows them. Names that
  bash itself cannot hold (``OPENAI_X-Y``) reach commands with ``persistent``, and in a session of the caller's own.
  Start such a session without them.
* A job that still has the output open 0.5 s after bash has ended (``server &``) keeps running; a line after the output
  says so.
* A policy masks what a call returns. The output file of a background command has secrets as they were printed.
* ``persistent``: one bash for all calls. The first call removes the secrets from it, and sets EDITOR, VISUAL and the
  hooks that add the trailer (see ``phoenix_git``). A later call repeats this if another tool of the same agent has set
  another trailer. The working directory that is checked is still the one that the tool was given.
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
    HostPath,
    Input,
    Look,
    Steps,
    WrappedRequest,
    append_line,
    definition,
    display,
    limit_of,
    notice,
    quoted,
    to_path,
    to_text,
    without_default,
)
from .one_shot import REPORT_MAX, bash_c_with_report, exec_bash_c, read_report
from .phoenix_git import COUNTED, entry, hooks, may_commit
from .tool import Binder

TIMEOUT: Final = 30.0  # seconds
SLOW_TIMEOUT: Final = 15 * 60.0  # seconds
MAX_OUTPUT_LENGTH: Final = 128 * 1024  # bytes
SNIP_SIZE: Final = 4 * 1024  # bytes kept at each end of a longer output
TRAILER: Final = "Co-authored-by: Phoenix <phoenix@exe.dev>"
DANGEROUS: Final = ("rm -rf /", "rm -rf /*", "> /dev/sda", "mkfs.", "dd if=.* of=/dev/")
SECRET_PREFIXES: Final = ("ANTHROPIC_", "OPENAI_", "GEMINI_", "AWS_SECRET", "PHOENIX_")
_NO_EDITOR: Final = {"EDITOR": "/bin/false", "VISUAL": "/bin/false"}
_REBASE: Final = "GIT_SEQUENCE_EDITOR=\"echo 'Interactive rebase requires background=true' && exit 1\""
_STATELESS_WORDS: Final = "don't persist"
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
    """What the tool returns.

    ``code`` names the error: ``invalid_args``, ``invalid_working_dir``, ``safety_violation``, ``timed_out``,
    ``command_failed``, or the code of the session's error (``shellsession.errors``) if the command could not be run.
    None: there is no error.
    """

    output: str
    is_error: bool = False
    code: str | None = None


class PhoenixInput(Input):
    model_config = ConfigDict(extra="ignore")  # the document's schema allows other fields

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

    ``working_dir``: where commands run (None: the host's working directory at the time of the call). With
    ``persistent`` it is only where an agent's bash starts.
    ``trailer``: the line ``Key: value`` that commits get; None: no trailer.
    Raises InvalidRequest.
    """

    Input = PhoenixInput
    wraps = True
    needs_host = True

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
        return _DESCRIPTION.replace(_STATELESS_WORDS, "persist") if self.persistent else _DESCRIPTION

    def session_options(self, environ: Mapping[str, str]) -> dict[str, Any]:
        shown = {name: value for name, value in environ.items() if not name.startswith(SECRET_PREFIXES)}
        return {**super().session_options({**shown, **_NO_EDITOR}), "cwd": self.cwd}

    def parse(self, call: object) -> WrappedRequest:
        """The call as a request. Raises BadCall."""
        return self.request(_parse_input(call))

    def steps(self, call: object) -> Steps[ToolResult]:
        try:
            arguments = _parse_input(call)
            place: HostPath = yield Look(self.cwd)
            path = display(place.path)
            if place.kind == "missing":
                return _failed("invalid_working_dir", f"Working directory does not exist: {path}{_RECREATE}")
            if place.kind != "directory":
                return _failed("invalid_working_dir", f"Working directory is not a directory: {path}")
            for pattern in DANGEROUS:
                if pattern in arguments.command:
                    return _failed("safety_violation", f"Command contains dangerous pattern: {pattern}")
            directory: str | None = None
            if self._hooks is not None and (self.persistent or may_commit(arguments.command)):
                directory = yield self._hooks
            result = yield from self._run(self.request(arguments, directory), self._shared_bash(directory))
            if not isinstance(result, Result):
                pid, output_file = result
                return ToolResult(
                    f"<pid>{pid}</pid>\n<output_file>{output_file}</output_file>\n"
                    f"<reminder>To stop: kill -9 -{pid}</reminder>"
                )
            payload = render(result, arguments.slow_ok and not arguments.background)
            return replace(payload, output=append_line(payload.output, notice(result, self.persistent)))
        except BadCall as error:
            return _failed("invalid_args", f"Invalid input: {error}")
        except ShellSessionError as error:
            return _failed(error.code, str(error))

    def request(self, arguments: PhoenixInput, directory: str | None = None) -> WrappedRequest:
        """The request of a call. ``directory``: where the hooks of git are, if it gets any."""
        return WrappedRequest(
            arguments.command.encode(),
            text=self._text(arguments, directory),
            timeout=SLOW_TIMEOUT if arguments.slow_ok and not arguments.background else TIMEOUT,
            tty=False,
            merge_stderr=True,
            isolated=not self.persistent,
            limits=Limits(max_output=MAX_OUTPUT_LENGTH + 2 * REPORT_MAX),
            reads=self._read_launch if arguments.background else self._read_foreground,
        )

    def _read_foreground(self, result: Result) -> Result | None:
        """The result of a foreground command; None if the shared bash must be prepared first."""
        asks = self.persistent and result.stdout_bytes.endswith(_ASKED % self._nonce)
        return None if asks else read_report(result, self._nonce)

    def _read_launch(self, result: Result) -> Result | tuple[int, str] | None:
        """The process id and output file of a background command; the result if it was not started."""
        fence = self._nonce.decode()
        found = re.search(rf"^{fence}(\d+) (.*){fence}$", result.stdout, re.MULTILINE | re.DOTALL | re.ASCII)
        return (int(found[1]), found[2]) if found and result.ok else self._read_foreground(result)

    def _shared_bash(self, directory: str | None) -> SharedBash:
        return SharedBash(_preparation(directory), self._nonce)

    def _run(self, request: WrappedRequest, shared: SharedBash) -> Generator[Action, Any, Result | tuple[int, str]]:
        """Run the request. If the shared bash must be prepared first, prepare it and run the request again."""
        result: Result | tuple[int, str] | None = yield request
        if result is None:
            request = replace(request, command=b"")  # the policy has judged it already
            yield replace(request, text=shared.preparation, reads=None)
            result = yield request
        if result is None:
            raise ShellUnavailable("the session's bash cannot be prepared for this tool: restart it, or use another")
        return result

    def _text(self, arguments: PhoenixInput, directory: str | None) -> bytes:
        command = arguments.command.encode()
        guard = _REBASE if not arguments.background and "git rebase -i" in arguments.command else ""
        settings = f"{guard} {COUNTED if directory is not None and may_commit(arguments.command) else ''}".strip()
        if self.persistent:
            text = launch(command, self._nonce, stateful=True) if arguments.background else command
            return self._shared_bash(directory).run(text, settings)
        before = _preparation(directory) + (f"\\builtin export {settings}\n" if settings else "")
        start = (
            launch(command, self._nonce, stateful=False)
            if arguments.background
            else bash_c_with_report(command, self._nonce)
        )
        return b"\\builtin eval %b; %b" % (quote(before.encode()), start)


_RECREATE: Final = " (conversation may need to be recreated)"
_NAMES: Final = " ".join(f'"${{!{prefix}@}}"' for prefix in SECRET_PREFIXES)
# Removes the secrets from a bash that somebody else may have started. A read-only variable is at least not exported.
_CLEAN_ENVIRONMENT: Final = (
    f"\\builtin unset -v {_NAMES} 2>/dev/null || \\builtin export -n {_NAMES} >/dev/null\n"
    + "".join(f"\\builtin export {name}={value} 2>/dev/null || :\n" for name, value in _NO_EDITOR.items())
)


def _preparation(directory: str | None) -> str:
    """Bash text that prepares a bash for this tool. ``directory``: where the hooks of git are, if it gets any."""
    return _CLEAN_ENVIRONMENT if directory is None else _CLEAN_ENVIRONMENT + entry(directory)


def _parse_input(call: object) -> PhoenixInput:
    arguments = PhoenixInput.read(call)
    to_text("command", arguments.command)
    return arguments


def _failed(code: str, output: str) -> ToolResult:
    return ToolResult(output, is_error=True, code=code)


def render(result: Result, slow_ok: bool = False) -> ToolResult:
    """The payload for the result of a foreground command."""
    if result.outcome == "timed_out":
        limit = limit_of(result, SLOW_TIMEOUT if slow_ok else TIMEOUT)
        return _failed("timed_out", f"[command timed out after {limit}s]")
    output = format_output(result.stdout_bytes, result.stdout_omitted, result.stdout_cut)
    code = -1 if result.exit_code is None or result.signal is not None else result.exit_code
    if code == 0:
        return ToolResult(output)
    return _failed("command_failed", f"[command failed: exit code {code}]\n{output}")


def format_output(output: bytes, omitted: int = 0, cut: int = 0) -> str:
    """The output; if it is longer than the limit, both its ends. ``omitted`` bytes are missing at ``cut``."""
    text = decoded(output, omitted, cut)
    whole = text.encode()
    size = len(whole) + omitted
    if size <= MAX_OUTPUT_LENGTH:
        return text
    head, tail = whole[:SNIP_SIZE].decode(errors="ignore"), whole[-SNIP_SIZE:].decode(errors="ignore")
    header = f"[output truncated in middle: got {humanize_bytes(size)}, max is {humanize_bytes(MAX_OUTPUT_LENGTH)}]"
    return f"{header}\n{head}\n\n[snip]\n\n{tail}"


def humanize_bytes(size: int) -> str:
    """A number of bytes for people, rounded up to one decimal: 128KB, 128.1KB, 1.5MB."""
    unit, name = next(((unit, name) for unit, name in _UNITS if size >= unit), (1, "B"))
    tenths = -(-size * 10 // unit)
    return f"{tenths // 10}{name}" if tenths % 10 == 0 else f"{tenths // 10}.{tenths % 10}{name}"


_UNITS: Final = ((1 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB"))

# Our own commands must print nothing, while the command keeps the options of the session: they are saved here, and
# `_SUBSHELL` restores them. With `set -T`, a DEBUG trap would print inside our substitutions. In posix mode, which
# POSIXLY_CORRECT switches on, bash before 5.1 has no `<(...)`.
_SET_QUIET: Final = (
    rb"{ \builtin trap - DEBUG; _phoenix_options=$- _phoenix_posix=; \builtin set +avx; "
    rb"(( BASH_VERSINFO[0] * 100 + BASH_VERSINFO[1] > 500 )) || [[ ! -o posix ]] || "
    rb"{ _phoenix_posix=${POSIXLY_CORRECT@A}; \builtin set +o posix; }; } >/dev/null 2>&1; "
)
_SUBSHELL: Final = (
    r'{ \builtin eval "$_phoenix_posix"; \builtin set -"${_phoenix_options//[!avx]}"; '
    r'\builtin eval "$_phoenix_command" 2>&1; } 2>/dev/null'
)

# Starts the command, prints its process id, waits for it, and writes the completion line. That line uses Rust's words,
# as the document's ExitStatus does: "exit status: 3" or "signal: 9 (SIGKILL)".
# * The status of `wait` cannot tell `exit 137` from a SIGKILL. Only `jobs`, called in a trap of SIGCHLD before bash
#   forgets the job, can; in posix mode the trap would end the wait. The output of `jobs` goes to a file that is removed
#   at once, so nothing is left if this process is killed.
# * Since bash 5.3, what a substitution runs ignores an interrupt, and the command would, too: hence `trap -`. Before
#   5.3 that would undo what the session itself ignores.
# * The document opens the file for its last line without creating it: a file that somebody has removed stays removed.
# * The output file is opened before the process id is printed. Otherwise a reader of the id could remove the file
#   before the new process opens it.
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
    """Bash text that starts the command with the stdin of the call, and prints its process id and output file.

    The command runs in its own bash, so that the process id is the command's. ``stateful``: it runs in a subshell
    instead, which has the functions and variables of the session.
    """
    watch = _WATCH % {"start": _SUBSHELL if stateful else exec_bash_c("_phoenix_command", command)}
    script = _LAUNCH % {"watch": watch, "nonce": nonce.decode()}
    return b"( %b_phoenix_command=%b; \\builtin eval %b )" % (_SET_QUIET, quoted(command), quote(script.encode()))


# The only element of the array `_phoenix` is at the number of the preparation that bash had last. An environment cannot
# hold an array: a variable of this name from there, set by an older bash or anybody else, is element 0.
_SET_MARK: Final = "\n\\builtin unset -v _phoenix; _phoenix=([%d]=)"
# Printed by a bash that must be prepared first. `_RUN` decides this in an expansion, not in its own command, which
# would change the `$?` of the last call. A failing expansion would also answer, but end the shell under `set -e`.
_ASK: Final = b"\\builtin printf '_phoenix: %%s\\n' %b"
_ASKED: Final = b"_phoenix: %b\n"
# Runs the text, or asks for the preparation. With `set -x`, stderr is redirected to stdin, which cannot be written, so
# that bash does not trace our own line. The text gets stderr back from stdout, as both are one stream. Otherwise both
# redirections lead a stream to itself and do nothing. That matters under `set -e`, which would undo real ones before an
# EXIT trap runs.
_IS_TRACING: Final = b"36#0${-//[!x]}"
_RUN: Final = b'{ %b ${_phoenix[%d]+%b}${_phoenix[%d]-%b} 2>&"$(( %b ? 1 : 2 ))"; } 2>&"$(( %b ? 0 : 2 ))"'


class SharedBash:
    """One bash for all calls, which runs the text ``preparation`` once, before its first call.

    ``nonce``: an unprepared bash prints it instead of running a call.
    """

    def __init__(self, text: str, nonce: bytes) -> None:
        self._nonce, self._number = nonce, 1 + zlib.crc32(text.encode())
        self.preparation = (text + _SET_MARK % self._number).encode()

    def run(self, text: bytes, setting: str = "") -> bytes:
        """Bash text that runs ``text`` if bash is prepared. ``setting``: assignments that hold for this text alone."""
        # Assignments before `builtin eval` end with the first builtin that the text runs; those before `eval` do not.
        eval_text = b"%b \\eval" % setting.encode() if setting else b"\\builtin eval"
        ask = quoted(_ASK % self._nonce)
        return _RUN % (eval_text, self._number, quoted(text), self._number, ask, _IS_TRACING, _IS_TRACING)


TOOL: Final = definition(Phoenix())
parse: Final = Phoenix().parse
tool = Binder(Phoenix)
