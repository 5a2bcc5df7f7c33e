"""bashtool (document 003): check deny patterns, ask for confirmation, run the command, return a text and ``details``.

The document states no defaults and leaves the wording of two errors open. Here nothing is denied by default
(``YOAGENT_DENY_PATTERNS`` is yoagent's list), the time limit is 120 s, and the output limit is 256 KiB per stream. The
document cuts a stream at a byte; here the cut is at the last whole character before it. A bash that a signal killed has
no exit code: the payload says -1.

A job that still has the output open 0.5 s after bash has ended (``server &``) keeps running; a line on stderr says so.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypedDict

from pydantic import Field

from ..errors import ContractError, InvalidRequest, ShellSessionError
from ..models import Limits, Request, Result, check_flag, check_seconds, streams_of
from ..text import LOST, unfinished
from .cancel import CallCancelled
from .contract import (
    Ask,
    BadCall,
    Contract,
    HostPath,
    Input,
    Judge,
    Look,
    Steps,
    WrappedRequest,
    append_line,
    definition,
    display,
    first,
    limit_of,
    notice,
    to_path,
    to_text,
)
from .one_shot import REPORT_MAX, bash_c_with_report, read_report
from .tool import Binder

TIMEOUT: Final = 120.0  # seconds
MAX_OUTPUT: Final = 256 << 10  # bytes per stream
SUFFIX: Final = "\n... (output truncated)"
# What yoagent, whose tool the document describes, denies by default.
YOAGENT_DENY_PATTERNS: Final = ("rm -rf /", "rm -rf /*", "mkfs", "dd if=", ":(){:|:&};:")
_DESCRIPTION: Final = "Execute a bash command. Returns its exit code, and what it wrote to stdout and stderr"
_STATE: Final = ". Working directory, variables and functions persist between calls"


class ToolError(ContractError):
    """An error that document 003 defines."""

    code = "bashtool"


class InvalidArgs(ToolError):
    """The arguments are wrong: there is no command, or bash could not read it."""

    code = "bashtool_invalid_args"


class Failed(ToolError):
    """The command was refused, could not be started, or reached its time limit; the message is the document's."""

    code = "bashtool_failed"


class Cancelled(ToolError):
    """The call was cancelled before the command ended."""

    code = "bashtool_cancelled"


class Text(TypedDict):
    type: Literal["text"]
    text: str


class Details(TypedDict):
    exit_code: int
    success: bool


class BashToolPayload(TypedDict):
    """What the tool returns, also for a command that fails: the model needs its output to correct itself."""

    content: list[Text]
    details: Details


class BashToolInput(Input):
    command: str = Field(description="The bash command to execute")


class BashTool(Contract[BashToolPayload]):
    """The tool of document 003.

    ``deny_patterns``: a command that contains one of these texts is blocked.
    ``confirm``: a function of the command, for async tools also a coroutine function. The command runs only if it
    returns True. ``confirm_fn`` is the document's name for the same argument.
    ``cwd``: where commands run (default: the host's working directory).
    ``timeout``: seconds (None: no limit).
    ``max_output_bytes``: how many bytes of each stream the payload has.
    ``persistent``: one bash for all calls; the description says so, and ``cwd`` is where an agent's bash starts.
    Raises InvalidRequest.
    """

    Input = BashToolInput

    def __init__(
        self,
        deny_patterns: Iterable[str] = (),
        confirm: Callable[[str], Any] | None = None,
        cwd: str | Path | None = None,
        timeout: float | None = TIMEOUT,
        max_output_bytes: int = MAX_OUTPUT,
        persistent: bool = False,
        confirm_fn: Callable[[str], Any] | None = None,
    ) -> None:
        if confirm is not None and confirm_fn is not None:
            raise InvalidRequest("confirm and confirm_fn are two names of one argument: pass one of them")
        confirm = confirm if confirm_fn is None else confirm_fn
        patterns = () if isinstance(deny_patterns, str) or not isinstance(deny_patterns, Iterable) else deny_patterns
        self.deny_patterns = tuple(patterns)
        if patterns is not deny_patterns or not all(isinstance(one, str) and one for one in self.deny_patterns):
            raise InvalidRequest("deny_patterns is a list of texts, none of them empty")
        if confirm is not None and not callable(confirm):
            raise InvalidRequest(f"confirm must be a function of the command, not {confirm!r}")
        check_seconds("timeout", timeout)
        check_flag("persistent", persistent)
        self.confirm = confirm
        self.cwd, self.timeout, self.persistent = to_path("cwd", cwd), timeout, persistent
        # A session keeps the start and the end of a stream, half each. The payload shows the start: keep twice as much.
        Limits(max_output_bytes)
        self.max_output_bytes, self._limits = max_output_bytes, Limits(2 * (max_output_bytes + REPORT_MAX))
        self._nonce = secrets.token_hex(8).encode()

    @property
    def description(self) -> str:
        return _DESCRIPTION + (_STATE if self.persistent else "")

    def session_options(self, environ: Mapping[str, str]) -> dict[str, Any]:
        options = super().session_options(environ)
        return {**options, "cwd": self.cwd} if self.persistent else options

    def parse(self, call: object) -> Request:
        """The call as a request. Raises BadCall."""
        command = to_text("command", BashToolInput.read(call).command)
        if self.persistent:
            return Request(command, self.timeout, tty=False, limits=self._limits)
        text = bash_c_with_report(command, self._nonce)
        reads = partial(read_report, nonce=self._nonce)
        return WrappedRequest(
            command, self.timeout, tty=False, isolated=True, limits=self._limits, text=text, reads=reads
        )

    def steps(self, call: object) -> Steps[BashToolPayload]:
        try:
            request = self.parse(call)
        except BadCall as error:
            raise InvalidArgs(str(error)) from None
        except ShellSessionError as error:
            raise Failed(f"Failed to execute: {error}") from error
        command = request.command.decode()
        for pattern in self.deny_patterns:
            if pattern in command:
                raise Failed(f"Command blocked by safety policy: contains '{pattern}'")
        try:
            if self.confirm is not None:
                yield Judge(request)  # do not ask a person about a command that a policy refuses
                if not (yield Ask(self.confirm, (command,))):
                    raise Failed("Command was not confirmed by the user.")
            if self.cwd is not None:
                place: HostPath = yield Look(self.cwd)
                if place.kind != "directory":
                    reason = "No such file or directory" if place.kind == "missing" else "Not a directory"
                    raise Failed(f"Failed to execute: {display(place.path)}: {reason}")
            result: Result = yield request
        except CallCancelled as error:
            raise Cancelled(str(error)) from None
        except ToolError:
            raise
        except ShellSessionError as error:
            raise Failed(f"Failed to execute: {error}") from error
        if result.outcome == "timed_out":
            lost = "" if result.state_kept or not self.persistent else f"; {LOST}"
            raise Failed(f"Command timed out after {limit_of(result, self.timeout)}s{lost}")
        return render(result, self.max_output_bytes, notice(result, self.persistent))


def render(result: Result, max_output_bytes: int = MAX_OUTPUT, more: str = "") -> BashToolPayload:
    """The documented payload. ``more``: a line to add to stderr."""
    stdout, stderr = (
        _stream_text(data, omitted, cut, max_output_bytes) for _, data, omitted, cut in streams_of(result)
    )
    stderr = append_line(stderr, more)
    died = result.exit_code is None or result.signal is not None
    exit_code = -1 if died or result.exit_code is None else result.exit_code
    output = f"STDOUT:\n{stdout}\nSTDERR:\n{stderr}" if stderr else stdout
    return {
        "content": [{"type": "text", "text": f"Exit code: {exit_code}\n{output}"}],
        "details": {"exit_code": exit_code, "success": exit_code == 0},
    }


def _stream_text(data: bytes, omitted: int, cut: int, limit: int) -> str:
    """A stream as text within the limit, which counts bytes of the text: there an invalid byte takes three (U+FFFD)."""
    if omitted:
        data = data[:cut]
        data = data[: len(data) - len(unfinished(data))]
    text = data.decode("utf-8", "replace")
    encoded = text.encode()
    return first(encoded, limit) + SUFFIX if omitted or len(encoded) > limit else text


TOOL: Final = definition(BashTool())
parse: Final = BashTool().parse
tool = Binder(BashTool)
