"""langchain (document 002, SPEC-06): return a command's stdout as text; raise an error for every failure.

Nothing registers this tool. The host adds ``tool`` to an agent's tools where a condition (``--bash``) is met.

How this module reads the document:

* It says "return stdout/stderr" to the model, and "returns stdout as string" in its criteria. A command that succeeds
  returns its stdout alone, as with execSync. One that fails has both streams in its error.
* 1 MB means 2^20 bytes per stream. A command that prints more is ended, and its error has the first 2^20 bytes, as with
  execSync.
* Wrong arguments are an error, too.
* With ``persistent``, a command that ends the shell is an error even with status 0, as the promised state is lost.
* A job that still has the output open 0.5 s after bash has ended (``server &``) keeps running. The tool returns stdout
  alone, so it does not say so.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from ..errors import ShellSessionError
from ..models import Limits, Result, Stream
from .contract import (
    BadCall,
    CallError,
    Steps,
    WrappedRequest,
    definition,
    describe_ending,
    first,
    limit_of,
    output_texts,
)
from .one_shot import OneShot
from .tool import Binder

TIMEOUT: Final = 30.0  # seconds
MAX_BUFFER: Final = 1 << 20  # bytes per stream


class BashToolError(CallError):
    """The command failed, was ended, or could not be run.

    ``stdout`` and ``stderr`` are what it had printed. ``exit_status`` is None if the command did not exit by itself.
    """

    code = "langchain_tool"

    def __init__(self, message: str, stdout: str = "", stderr: str = "", exit_status: int | None = None) -> None:
        super().__init__(message, stdout, stderr)
        self.exit_status = exit_status

    def __reduce__(self) -> tuple[type[BashToolError], tuple[object, ...]]:
        return type(self), (self.message, self.stdout, self.stderr, self.exit_status)


class _FirstBytes:
    """Collects the first bytes of each stream as they arrive. A Result keeps both ends of a stream instead."""

    def __init__(self) -> None:
        self._heads: dict[Stream, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        self._sizes: dict[Stream, int] = dict.fromkeys(self._heads, 0)

    def add(self, stream: Stream, data: bytes) -> None:
        head = self._heads[stream]
        head += data[: MAX_BUFFER - len(head)]
        self._sizes[stream] += len(data)

    def replace_output(self, result: Result) -> Result:
        """The result, whose output is replaced by the first bytes if the command printed too much."""
        if result.outcome != "overflow":
            return result
        changes: dict[str, Any] = {}
        for stream, head in self._heads.items():
            names = (f"{stream}_bytes", f"{stream}_omitted", f"{stream}_cut")
            changes.update(zip(names, (bytes(head), self._sizes[stream] - len(head), len(head)), strict=True))
        return replace(result, **changes)


class LangChain(OneShot[str]):
    """The tool of document 002."""

    def parse(self, call: object) -> WrappedRequest:
        """The call as a request. Raises BadCall."""
        return self.request(call, TIMEOUT, Limits(max_output=MAX_BUFFER, on_overflow="kill"))

    def steps(self, call: object) -> Steps[str]:
        """The steps of a call. Raises BashToolError."""
        try:
            request, first_bytes = self.parse(call), _FirstBytes()
            result: Result = yield replace(request, on_output=first_bytes.add, reads=first_bytes.replace_output)
        except BadCall as error:
            raise BashToolError(f"Invalid input: {error}") from None
        except ShellSessionError as error:
            raise BashToolError(f"Failed to execute: {error}") from error
        return render(result)


def render(result: Result) -> str:
    """The stdout of a command that succeeded. Raises BashToolError for any other."""
    stdout, stderr = output_texts(result)
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
    if why := describe_ending(result):
        raise BashToolError(f"Command failed: {why}", stdout, stderr, status)
    if status != 0:
        raise BashToolError(f"Command failed with exit status {status}", stdout, stderr, status)
    return stdout


def _lost(result: Result) -> str:
    return "" if result.state_kept else "; bash was killed with it, and its state is lost"


TOOL: Final = definition(LangChain())
parse: Final = LangChain().parse
tool = Binder(LangChain)
