"""strands (document 001): one bash that stays for each agent; ``mode: execute | restart``, ``{output, error}``.

Law: what the session's users must know and ``{output, error}`` cannot tell is an error: BashTimeoutError or
BashSessionError, with what the command had printed until then.

Where the document is silent: a command that ends the shell (``exit 3``, ``exec true``, ``set -e; false``) is a
BashSessionError, as the session that it promises is gone; the next command starts afresh where the first one did. So
is a command that was ended because it blocked reading the terminal (stdin is /dev/null). An exit status other than 0 is
no error. Wrong arguments are a BashInputError: nothing is run, and the session goes on. Fields that no mode has are
ignored, as the SDK does; ``restart`` looks at none but ``mode``, and starts nothing before the first command. A session
lasts until its agent is collected or restarts it. Only ``Agents(idle_ttl=...)`` close one for being idle; then the next
command is a BashSessionError. No limit of output is documented: of each stream 16 MiB are kept, and a line in the
middle says how much was not. As bash stays interactive, ``command &`` says ``[1] PID`` in ``error``.
"""

from __future__ import annotations

from typing import Any, Final, Literal, TypedDict

from pydantic import ConfigDict, Field, model_validator

from ..errors import ShellSessionError
from ..models import LONGEST, Limits, Request, Result
from .cancel import CallCancelled
from .contract import (
    KEPT,
    LOST,
    BadCall,
    CallError,
    Contract,
    Input,
    Restart,
    Steps,
    definition,
    ending,
    limit_of,
    shown,
    to_text,
    without_default,
)
from .tool import Binder

TIMEOUT: Final = 120.0  # seconds
RESTARTED: Final = "Bash session restarted"
_LIMITS: Final = Limits(max_output=16 << 20)
_DESCRIPTION: Final = (
    "Execute bash commands in a persistent session: variables, functions and the working directory are kept between"
    " calls. stdout comes back as `output`, stderr as `error`. A command that runs into its timeout is killed together"
    " with the session. Security warning: this tool executes arbitrary bash commands without sandboxing or"
    " restrictions, with the permissions and the environment of the process that it is part of. Only use it with"
    " trusted input."
)


class BashSessionError(CallError):
    """The session failed: nothing more is to be expected of this command."""

    code = "strands_session"


class BashTimeoutError(CallError, TimeoutError):
    """The command ran into its timeout; bash was killed, and the next command starts in a fresh one."""

    code = "strands_timeout"


class BashInputError(CallError, ValueError):
    """The arguments of the call are wrong: nothing was run, and the session is as it was."""

    code = "strands_input"


class Output(TypedDict):
    """What a command printed, without the newline at the end."""

    output: str
    error: str


Payload = Output | str


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
        """Some providers fill in null for what the model left out, and 0 or "" for what a restart has no use for."""
        unused = ("command", "timeout") if call.get("mode") == "restart" else ()
        return {name: value for name, value in call.items() if value is not None and name not in unused}


class Strands(Contract[Payload]):
    """The tool of document 001."""

    Input = StrandsInput
    persistent = True
    lasts = True

    @property
    def description(self) -> str:
        return _DESCRIPTION

    def parse(self, call: object) -> Request | Restart:
        """The call as what it asks for. Raises BadCall."""
        given = StrandsInput.read(call)
        if given.mode == "restart":
            return Restart()
        if not given.command:
            raise BadCall('command is required when mode is "execute"')  # the SDK's words
        return Request(
            to_text("command", given.command),
            timeout=given.timeout,
            on_timeout="kill",
            tty=False,
            limits=_LIMITS,
        )

    def steps(self, call: object) -> Steps[Payload]:
        """Raises BashInputError, BashTimeoutError and BashSessionError."""
        try:
            asked = self.parse(call)
        except (BadCall, ShellSessionError) as error:
            raise BashInputError(f"Invalid input: {error}") from None
        try:
            result = yield asked
        except CallCancelled as error:
            raise _cancelled(error) from None
        except ShellSessionError as error:
            raise BashSessionError(f"Bash session error: {error}") from error
        return RESTARTED if isinstance(asked, Restart) else render(result, asked.timeout)


def _cancelled(error: CallCancelled) -> BashSessionError:
    if (result := error.result) is None:
        return BashSessionError(f"Bash session error: {error}")
    return BashSessionError(f"Bash session error: {error}; {KEPT if result.state_kept else LOST}", *shown(result))


def render(result: Result, timeout: float | None = TIMEOUT) -> Output:
    """The documented payload; ``timeout`` is what the call asked for. Raises BashTimeoutError and BashSessionError."""
    output, error = shown(result)
    if result.outcome == "timed_out":
        lost = f"bash was killed: {LOST}"
        raise BashTimeoutError(f"Command timed out after {limit_of(result, timeout)} seconds; {lost}", output, error)
    if why := ending(result):
        raise BashSessionError(f"Bash session error: {why}", output, error)
    return {"output": output.removesuffix("\n"), "error": error.removesuffix("\n")}


TOOL: Final = definition(Strands())
parse: Final = Strands().parse
tool = Binder(Strands)
