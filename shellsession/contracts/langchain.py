"""langchain (document 002, SPEC-06): a command's stdout as text; all else is an error that tells the agent what came.

Law: an agent has this tool only where somebody asked for it: ``tool`` is a named export, to be put among an agent's
tools under a condition (``--bash``), and nothing registers it.

The document says "return stdout/stderr" to the model, and "returns stdout as string" in its criteria: a command that
succeeds gives its stdout alone, as execSync's does; one that fails gives both, in the error. The 1 MB are 2^20 bytes
per stream; more is an error with the first of them, as execSync's is, and the command is ended. Arguments that are none
are an error, too. With ``persistent`` a command that ends the shell is one even with status 0, as the state that was
promised is gone. A job that still holds the output 0.5 s after bash's end (``server &``) is left running, and nothing
says so: what is returned is stdout alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from ..errors import ShellSessionError
from ..models import Limits, Result, Stream
from .contract import BadCall, CallError, Dressed, Steps, definition, ending, first, limit_of, shown
from .one_shot import OneShot
from .tool import Binder

TIMEOUT: Final = 30.0  # seconds
MAX_BUFFER: Final = 1 << 20  # bytes per stream


class BashToolError(CallError):
    """The command failed, was ended, or was none.

    ``stdout`` and ``stderr`` are what it had printed; ``exit_status`` is None where there is none of its own.
    """

    code = "langchain_tool"

    def __init__(self, message: str, stdout: str = "", stderr: str = "", exit_status: int | None = None) -> None:
        super().__init__(message, stdout, stderr)
        self.exit_status = exit_status

    def __reduce__(self) -> tuple[type[BashToolError], tuple[object, ...]]:
        return type(self), (self.message, self.stdout, self.stderr, self.exit_status)


class _Heads:
    """The first bytes of each stream, heard as they came: a Result has both ends of what is too long."""

    def __init__(self) -> None:
        self._heads: dict[Stream, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self._sizes: dict[Stream, int] = dict.fromkeys(self._heads, 0)

    def hear(self, stream: Stream, data: bytes) -> None:
        head = self._heads[stream]
        head += data[: MAX_BUFFER - len(head)]
        self._sizes[stream] += len(data)

    def cut(self, result: Result) -> Result:
        """The result of what went over the limit with what was heard of each stream first, and nothing after it."""
        if result.outcome != "overflow":
            return result
        changes: dict[str, Any] = {}
        for stream, head in self._heads.items():
            names = (f"{stream}_bytes", f"{stream}_omitted", f"{stream}_cut")
            changes.update(zip(names, (bytes(head), self._sizes[stream] - len(head), len(head)), strict=True))
        return replace(result, **changes)


class LangChain(OneShot[str]):
    """The tool of document 002."""

    def parse(self, call: object) -> Dressed:
        """The call as a request. Raises BadCall."""
        return self.request(call, TIMEOUT, Limits(max_output=MAX_BUFFER, on_overflow="kill"))

    def steps(self, call: object) -> Steps[str]:
        """Raises BashToolError."""
        try:
            request, heads = self.parse(call), _Heads()
            result: Result = yield replace(request, on_output=heads.hear, reads=heads.cut)
        except BadCall as error:
            raise BashToolError(f"Invalid input: {error}") from None
        except ShellSessionError as error:
            raise BashToolError(f"Failed to execute: {error}") from error
        return render(result)


def render(result: Result) -> str:
    """The command's stdout. Raises BashToolError."""
    stdout, stderr = shown(result)
    status = result.exit_code if result.outcome in ("exited", "shell_exited") else None
    if result.outcome == "timed_out":
        raise BashToolError(
            f"Command timed out after {limit_of(result, TIMEOUT)} seconds{_lost(result)}", stdout, stderr
        )
    if result.outcome == "overflow":
        stdout, stderr = first(result.stdout_bytes, MAX_BUFFER), first(result.stderr_bytes, MAX_BUFFER)
        raise BashToolError(
            f"Command ended: it printed more than {MAX_BUFFER} bytes{_lost(result)}; print less, or write to a file",
            stdout,
            stderr,
        )
    if why := ending(result):
        raise BashToolError(f"Command failed: {why}", stdout, stderr, status)
    if status != 0:
        raise BashToolError(f"Command failed with exit status {status}", stdout, stderr, status)
    return stdout


def _lost(result: Result) -> str:
    return "" if result.state_kept else "; bash was killed with it, and its state is lost"


TOOL: Final = definition(LangChain())
parse: Final = LangChain().parse
tool = Binder(LangChain)
