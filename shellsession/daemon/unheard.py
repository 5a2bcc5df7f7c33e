"""What came of a command whose client had gone when it was to be told.

Law: whoever comes to wait for that command gets it, once; of pieces the last is kept, or they would pile up.
"""

from __future__ import annotations

from ..models import Result
from .pieces import counted, joined, together


class Unheard:
    """Of one session."""

    def __init__(self) -> None:
        self._result: Result | None = None
        self._request = ""  # what the client asked that has gone: it may come back
        self._command = ""  # by its name in ``handed``; "" for one that never was

    def keep(self, request: str, command: str, result: Result) -> None:
        """The client that asked for it has gone. What others held is counted."""
        self._result = result if self._result is None else together(counted(self._result), result)
        self._request, self._command = request, command

    def heard(self, request: str) -> None:
        """Its client came back, and was given its result: that is nobody else's any more."""
        if self._request == request:
            self._result = None

    def forget(self) -> None:
        """Another command begins, or somebody has heard the end."""
        self._result = None

    def end(self, command: str | None) -> Result | None:
        """The command's end, if nobody has heard that, and that one is meant, or none."""
        if self._result is None or self._result.runs_on or (command and command != self._command):
            return None
        result, self._result = self._result, None
        return result

    def before(self, result: Result) -> Result:
        """The next piece of a command, or its end, and before it what nobody has heard."""
        before, self._result = self._result, None
        if before is None or not before.runs_on:  # its end is what this result is, too
            return result
        return joined(before, result)
