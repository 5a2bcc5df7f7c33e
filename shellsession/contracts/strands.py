"""strands (document 001): one persistent bash per agent; ``mode: execute | restart``, returns ``{output, error}``.

What the caller must know and ``{output, error}`` cannot express is an exception: BashTimeoutError or BashSessionError,
with what the command had printed.

How this module reads the document where it is silent:

* A command that ends the shell (``exit 3``, ``exec true``) raises BashSessionError, as the promised
  session is gone. The next command starts afresh, in the directory of the first one.
* A command that was ended because it blocked reading the terminal (stdin is /dev/null) raises BashSessionError, too.
* An exit status other than 0 is not an error.
* Wrong arguments raise BashInputError: nothing is run, and the session goes on. Unknown fields are ignored, as in the
  SDK. ``restart`` ignores all fields but ``mode``, and starts no bash before the first command.
* A session lives until its agent is collected or restarts it. Only ``Agents(idle_ttl=...)`` closes one for being idle;
  then the next command raises BashSessionError.
* The document states no limit of output. We keep 16 MiB of each stream; a mark in the middle says how much was dropped.
  With ``max_chars``, as the adapter for the SDK has it, ``output`` and ``error`` together have no more characters.
* As bash is interactive, ``command &`` prints ``[1] PID`` in ``error``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Literal, TypedDict

from pydantic import ConfigDict, Field, model_validator

from ..errors import ShellSessionError
from ..models import LONGEST, Limits, Request, Result, streams_of
from ..paging import check_chars
from ..text import KEPT, LOST, shared
from .cancel import CallCancelled
from .contract import (
    BadCall,
    CallError,
    Contract,
    FreshShell,
    Input,
    Steps,
    definition,
    describe_ending,
    limit_of,
    output_texts,
    to_text,
    without_default,
)
from .tool import Binder

TIMEOUT: Final = 120.0  # seconds
MAX_OUTPUT: Final = 1 << 24  # bytes of each stream
RESTARTED: Final = "Bash session restarted"
_HEADINGS: Final = "\n[stdout]\n\n[stderr]\n"
_DESCRIPTION: Final = (
    "Execute bash commands in a persistent session: variables, functions and the working directory are kept between"
    " calls. stdout comes back as `output`, stderr as `error`. A command that runs into its timeout is killed together"
    " with the session. Security warning: this tool executes arbitrary bash commands without sandboxing or"
    " restrictions, with the permissions and the environment of the process that it is part of. Only use it with"
    " trusted input."
)


class BashSessionError(CallError):
    """The session failed, and this command has ended without a result."""

    code = "strands_session"


class BashTimeoutError(CallError, TimeoutError):
    """The command reached its timeout. Bash was killed; the next command starts in a fresh one."""

    code = "strands_timeout"


class BashInputError(CallError, ValueError):
    """The arguments of the call are wrong. Nothing was run, and the session is unchanged."""

    code = "strands_input"


class Printed(TypedDict):
    """What a command printed, without the newline at the end."""

    output: str
    error: str


Payload = Printed | str


class StrandsInput(Input):
    model_config = ConfigDict(extra="ignore")  # as the SDK's schema does

    mode: Literal["execute", "restart"] = Field(
        description='"execute" runs a command, "restart" gives the session a fresh bash'
    )
    command: str = Field(
        default="",
        description='The bash command to execute; required when mode is "execute"',
        json_schema_extra=without_default,
    )
    timeout: float = Field(
        default=TIMEOUT,
        gt=0,
        le=LONGEST,
        allow_inf_nan=False,
        description='Timeout in seconds (default: 120), for mode "execute"',
    )

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, call: dict[str, Any]) -> dict[str, Any]:
        """Drop fields that some providers fill in: null for any the model left out, 0 or "" for those of a restart."""
        unused = ("command", "timeout") if call.get("mode") == "restart" else ()
        return {name: value for name, value in call.items() if value is not None and name not in unused}


class Strands(Contract[Payload]):
    """The tool of document 001. ``max_chars``: characters of output that a call returns; None: all that is kept."""

    Input = StrandsInput
    persistent = True
    lasts = True

    def __init__(self, max_chars: int | None = None) -> None:
        if max_chars is not None:
            check_chars(max_chars)
        self._max_chars = max_chars
        self._limits = Limits(max_output=MAX_OUTPUT if max_chars is None else 4 * max_chars)

    @property
    def description(self) -> str:
        return _DESCRIPTION

    def parse(self, call: object) -> Request | FreshShell:
        """The call as an action. Raises BadCall."""
        arguments = StrandsInput.read(call)
        if arguments.mode == "restart":
            return FreshShell()
        if not arguments.command:
            raise BadCall('command is required when mode is "execute"')  # the SDK's words
        return Request(
            to_text("command", arguments.command),
            timeout=arguments.timeout,
            on_timeout="kill",
            tty=False,
            limits=self._limits,
        )

    def steps(self, call: object) -> Steps[Payload]:
        """The steps of a call. Raises BashInputError, BashTimeoutError and BashSessionError."""
        try:
            action = self.parse(call)
        except (BadCall, ShellSessionError) as error:
            raise BashInputError(f"Invalid input: {error}") from None
        try:
            result = yield action
        except CallCancelled as error:
            raise self._cancelled(error) from None
        except ShellSessionError as error:
            raise BashSessionError(f"Bash session error: {error}") from error
        return RESTARTED if isinstance(action, FreshShell) else render(result, action.timeout, self._max_chars)

    def _cancelled(self, error: CallCancelled) -> BashSessionError:
        if (result := error.result) is None:
            return BashSessionError(f"Bash session error: {error}")
        said = f"Bash session error: {error}; {KEPT if result.state_kept else LOST}"
        return BashSessionError(said, *_texts(result, self._max_chars, said))


def render(result: Result, timeout: float | None = TIMEOUT, max_chars: int | None = None) -> Printed:
    """The documented payload; ``timeout`` is that of the call. Raises BashTimeoutError and BashSessionError."""
    if result.outcome == "timed_out":
        said = f"Command timed out after {limit_of(result, timeout)} seconds; bash was killed: {LOST}"
        raise BashTimeoutError(said, *_texts(result, max_chars, said))
    if why := describe_ending(result):
        said = f"Bash session error: {why}"
        raise BashSessionError(said, *_texts(result, max_chars, said))
    output, error = _texts(result, max_chars)
    return {"output": output.removesuffix("\n"), "error": error.removesuffix("\n")}


def _texts(result: Result, max_chars: int | None, message: str = "") -> Sequence[str]:
    """The output of a command, which fits into ``max_chars`` with the message of an error and its headings."""
    if max_chars is None:
        return output_texts(result)
    room = max_chars - len(message) - len(_HEADINGS) if message else max_chars
    return shared(streams_of(result), max(0, room), cleaned=False)


TOOL: Final = definition(Strands())
parse: Final = Strands().parse
tool = Binder(Strands)
