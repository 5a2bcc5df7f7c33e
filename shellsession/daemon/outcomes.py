"""What came of commands that were handed back, or whose client had gone when it was to be told.

Law: what nobody was told of a command goes once, with its output, to whoever waits next; when another one has begun, to
who names it. Of each, who names it hears how it ended. A command goes by the id of the request that ran it.
"""

from __future__ import annotations

from typing import Final

from ..errors import NotRunning
from ..models import Result
from .pieces import counted, joined, together

# Ends that are kept for who has not asked yet; the last alone with its output.
_KEPT: Final = 16


class Outcomes:
    """Of one session."""

    def __init__(self) -> None:
        self.current = ""  # handed back last, and nobody was told of its end; "" for none
        self._results: dict[str, Result] = {}  # an end; or a piece that nobody was told
        self._unheard = self._asked = ""  # what nobody was told though somebody asked, and that request

    def begin(self) -> None:
        """Another command begins, or the shell has ended: what is kept is for who names it."""
        self.current = self._unheard = self._asked = ""

    def keep(self, command: str, result: Result) -> None:
        """What came of it. An end is final; of pieces the last is kept, or they would pile up."""
        if (before := self._results.pop(command, None)) is not None:
            piece = together(counted(before), result) if result.runs_on else joined(before, result)
            result = piece if before.runs_on else before
        self._results = {other: counted(one) for other, one in self._results.items()}
        self._results[command] = result
        if len(self._results) > _KEPT:
            del self._results[next(iter(self._results))]

    def miss(self, request: str, command: str, result: Result) -> None:
        """The client whose request was to tell it has gone. It may come back (see ``hear``)."""
        self.keep(command, result)
        self._unheard, self._asked = command, request
        if not result.runs_on:
            self.current = ""

    def hear(self, request: str | None = None) -> None:
        """That client came back (None: another one had waited with it), and was told: it is nobody else's any more."""
        if request in (None, self._asked) and self._unheard in self._results:
            self._told(self._unheard)

    def tell(self, result: Result) -> Result:
        """Somebody is told of the current one: all that nobody was told of it."""
        command = self.current
        if not command:
            return result
        if result.runs_on:
            before = self._results.pop(command, None)
            return result if before is None else joined(before, result)
        self.current = ""
        self.keep(command, result)
        return self._told(command)

    def _told(self, command: str) -> Result:
        self._unheard = self._asked = ""
        result = self._results.pop(command)
        if not result.runs_on:
            self._results[command] = counted(result)
        return result

    def end_of(self, command: str | None) -> Result | None:
        """The end of that one, or of what nobody was told; None where it is the session's to tell.

        Raises NotRunning where it is not known any more.
        """
        if command and command != self.current:
            if (result := self._results.pop(command, None)) is None:
                raise NotRunning("the command that was handed back here has ended, and how is no longer known")
            return result
        return None if self.current or self._unheard not in self._results else self._told(self._unheard)

    def check(self, command: str | None) -> None:
        """Refuse to go on with a command that has ended. Raises NotRunning."""
        if command and command != self.current:
            raise NotRunning(
                "there is no running command to send to: the one that was handed back here has ended; wait() tells how"
            )
