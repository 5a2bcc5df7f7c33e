"""spec (document 000): one-shot bash that returns ``{stdout, stderr, exitCode}`` or ``{error}``.

If a command is not found, the document contradicts itself: its table of outputs calls that an error, its table of
results a command that fails. The payload satisfies both: it has ``error`` beside stdout, stderr and exitCode. The case
is recognized by bash's own message, on either stream (``2>&1``), together with the status 127 or 126:

* A program that prints exactly such a message and ends with such a status is taken for the case.
* A command that a sourced file cannot run is not recognized, as bash begins that message with the name of the file.
* A hidden message (``2>/dev/null``) is not recognized; nor is, with ``persistent``, one in another language.
* Without ``persistent``, in another language, the last line of bash before status 127 or 126 is taken for the message.
* Bash before 5.1 does not number the first line. There the case is not recognized in another language, and a command
  that a ``bash -c`` inside the command cannot run is taken for the case.

A job that still has the output open 0.5 s after bash has ended (``server &``) keeps running. The payload has no field
for this, so it does not say so.
"""

from __future__ import annotations

import re
from typing import Final, TypedDict

from ..errors import ShellSessionError
from ..models import Limits, Request, Result, streams_of
from ..text import LOST, reason_of
from .contract import BadCall, Log, Steps, append_line, definition, describe_stop, first, limit_of, notice
from .one_shot import OneShot
from .tool import Binder

TIMEOUT: Final = 30.0  # seconds
MAX_OUTPUT: Final = 1 << 20  # bytes per stream; the document's MB is read as 2^20
SUFFIX: Final = "... (truncated)"
# The message of bash itself before status 127 or 126; a program that returns 127 prints none. Its beginning is the name
# of bash: in a ``-c``, in a function there, and in a persistent bash. A ``bash -c`` inside the command says
# "bash: line 1: ..." instead. The line number is missing before 5.1 in the first line, and in some versions if a script
# has no interpreter.
_BASH_PREFIX: Final = r"(?:/bin/bash|environment): (?:line \d+: )?+"
_BASH: Final = rf"(?:{_BASH_PREFIX}|bash: (?!line \d))(?!(?:cd|pushd|warning: setlocale): )"
_MISSING: Final = r".*(?:command not found|No such file or directory|cannot execute.*)|exec: .*: not found"
_FORBIDDEN: Final = r".*(?:Permission denied|Is a directory|bad interpreter: .*|cannot execute.*)"
# In another language (`Zeile 1: `, `1. sor: `, `第 1 行` and a wide colon) the message is recognized by the number of
# the line, and only as the last line of output.
_OTHER_LANGUAGE: Final = (
    r"/bin/bash: (?!line \d)[^:\uff1a\n]{0,40}\d[^:\uff1a\n]{0,40}[:\uff1a](?! ?(?:cd|pushd): ).*(?=\n?\Z)"
)
_CANNOT_RUN: Final = {
    status: re.compile(rf"^(?:{_BASH}(?:{said})|{_OTHER_LANGUAGE})$", re.MULTILINE)
    for status, said in ((127, _MISSING), (126, _FORBIDDEN))
}


class SpecPayload(TypedDict, total=False):
    """What the tool returns: the output and exit code, with ``error`` if bash could not run it; or an error alone."""

    stdout: str
    stderr: str
    exitCode: int | None
    error: str


class Spec(OneShot[SpecPayload]):
    """The tool of document 000."""

    shell = "/bin/bash"

    def parse(self, call: object) -> Request:
        """The call as a request. Raises BadCall."""
        # A session keeps the start and the end of a stream, half each. The payload shows the start: keep twice as much.
        return self.request(call, TIMEOUT, Limits(max_output=2 * MAX_OUTPUT))

    def steps(self, call: object) -> Steps[SpecPayload]:
        try:
            request = self.parse(call)
        except BadCall as error:
            return {"error": f"Invalid input: {error}"}
        except ShellSessionError as error:
            return {"error": f"Failed to execute: {error}"}
        record = {"tool": "bash", "command": request.command.decode(), "exitCode": None, "outputSize": 0}
        try:
            result: Result = yield request
        except ShellSessionError as error:
            yield Log(record)
            return {"error": f"Failed to execute: {error}"}
        exit_code = None if result.outcome == "timed_out" else result.exit_code
        size = sum(len(data) + omitted for _, data, omitted, _ in streams_of(result))
        yield Log({**record, "exitCode": exit_code, "outputSize": size})
        payload = render(result)
        if self.persistent and not result.state_kept:
            if "stderr" in payload:
                payload["stderr"] = append_line(payload["stderr"], notice(result, stateful=True))
            else:
                payload["error"] += f"; {LOST}"
        return payload


def render(result: Result) -> SpecPayload:
    """The documented payload."""
    if result.outcome == "timed_out":
        return {"error": f"Command timed out after {limit_of(result, TIMEOUT)} seconds"}
    stdout, stderr = _stream_text(result.stdout_bytes, result.stdout), _stream_text(result.stderr_bytes, result.stderr)
    payload: SpecPayload = {"stdout": stdout, "stderr": stderr, "exitCode": result.exit_code}
    pattern = _CANNOT_RUN.get(result.exit_code or 0)
    if pattern is not None and (said := pattern.findall(result.stderr) or pattern.findall(result.stdout)):
        payload["error"] = _stream_text(said[-1].encode(), said[-1])
    elif why := describe_stop(result):
        payload["error"] = why
    elif result.exit_code is None:
        payload["error"] = reason_of(result)[0] or f"The command ended without an exit code ({result.outcome})"
    return payload


def _stream_text(data: bytes, text: str) -> str:
    """The text of a stream, or of a message, cut at a whole character within the limit."""
    if len(data) <= MAX_OUTPUT:
        return text
    return first(data, MAX_OUTPUT) + SUFFIX


TOOL: Final = definition(Spec())
parse: Final = Spec().parse
tool = Binder(Spec)
