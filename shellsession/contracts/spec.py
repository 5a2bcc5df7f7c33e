"""spec (document 000): one-shot bash, ``{stdout, stderr, exitCode}`` or ``{error}``.

The document contradicts itself where a command is not found: an error (its table of outputs), or a command that fails
(its table of results). The payload satisfies both: ``error`` beside stdout, stderr and exitCode. It is known by bash's
own words, on either stream (``2>&1``): a program that prints just these, and ends with 127 or 126, is taken for it;
what a sourced file cannot run is not, as bash calls itself by that file's name there, as it does in a script; nor is
what it says where nobody can see it (``2>/dev/null``), or in another language than English where it stays
(``persistent``). In such a language whatever bash says last before it gives 127 or 126 is taken for it. Bash before 5.1
does not number the first line: there it is not known in another language, and what a ``bash -c`` of the command's own
cannot run is taken for it.

A job that still holds the output 0.5 s after bash's end (``server &``) is left running. The payload has no field for
that, so it does not say so.
"""

from __future__ import annotations

import re
from typing import Final, TypedDict

from ..errors import ShellSessionError
from ..models import Limits, Request, Result, streams_of
from .contract import LOST, BadCall, Log, Steps, definition, first, limit_of, notice, on_its_own, stopped
from .one_shot import OneShot
from .tool import Binder

TIMEOUT: Final = 30.0  # seconds
MAX_OUTPUT: Final = 1 << 20  # bytes per stream; the document's MB is read as 2^20
SUFFIX: Final = "... (truncated)"
# What bash itself says before it gives 127 or 126; a program's own status 127 comes without it. It calls itself so in
# a ``-c``, in a function there, and where it stays; a ``bash -c`` of the command's own says "bash: line 1: ...".
# No line is named before 5.1 where it is the first, and in some bashes where a script has no interpreter.
_NAMED: Final = r"(?:/bin/bash|environment): (?:line \d+: )?+"
_BASH: Final = rf"(?:{_NAMED}|bash: (?!line \d))(?!(?:cd|pushd|warning: setlocale): )"
_MISSING: Final = r".*(?:command not found|No such file or directory|cannot execute.*)|exec: .*: not found"
_FORBIDDEN: Final = r".*(?:Permission denied|Is a directory|bad interpreter: .*|cannot execute.*)"
# In another language (`Zeile 1: `, `1. sor: `, `第 1 行` and a wide colon) by the number of the line, and as the last
# word.
_OTHER_WORDS: Final = (
    r"/bin/bash: (?!line \d)[^:\uff1a\n]{0,40}\d[^:\uff1a\n]{0,40}[:\uff1a](?! ?(?:cd|pushd): ).*(?=\n?\Z)"
)
_REFUSED: Final = {
    status: re.compile(rf"^(?:{_BASH}(?:{said})|{_OTHER_WORDS})$", re.MULTILINE)
    for status, said in ((127, _MISSING), (126, _FORBIDDEN))
}


class Payload(TypedDict, total=False):
    """What the tool returns: an outcome (with ``error`` where bash could not run it), or an error alone."""

    stdout: str
    stderr: str
    exitCode: int | None
    error: str


class Spec(OneShot[Payload]):
    """The tool of document 000."""

    shell = "/bin/bash"

    def parse(self, call: object) -> Request:
        """The call as a request. Raises BadCall."""
        # Kept from both ends; twice the limit, so that all that is shown is in the first half.
        return self.request(call, TIMEOUT, Limits(max_output=2 * MAX_OUTPUT))

    def steps(self, call: object) -> Steps[Payload]:
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
                payload["stderr"] = on_its_own(payload["stderr"], notice(result, stateful=True))
            else:
                payload["error"] += f"; {LOST}"
        return payload


def render(result: Result) -> Payload:
    """The documented payload."""
    if result.outcome == "timed_out":
        return {"error": f"Command timed out after {limit_of(result, TIMEOUT)} seconds"}
    stdout, stderr = _shown(result.stdout_bytes, result.stdout), _shown(result.stderr_bytes, result.stderr)
    payload: Payload = {"stdout": stdout, "stderr": stderr, "exitCode": result.exit_code}
    pattern = _REFUSED.get(result.exit_code or 0)
    if pattern is not None and (said := pattern.findall(result.stderr) or pattern.findall(result.stdout)):
        payload["error"] = _shown(said[-1].encode(), said[-1])
    elif why := stopped(result):
        payload["error"] = why
    elif result.exit_code is None:
        payload["error"] = result.reason or f"The command ended without an exit code ({result.outcome})"
    return payload


def _shown(data: bytes, text: str) -> str:
    """A stream, or what was said on it, as text, cut at a whole character within the limit."""
    if len(data) <= MAX_OUTPUT:
        return text
    return first(data, MAX_OUTPUT) + SUFFIX


TOOL: Final = definition(Spec())
parse: Final = Spec().parse
tool = Binder(Spec)
