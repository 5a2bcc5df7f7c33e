"""Which command was handed back, to whom it belongs, and how those before it have ended.

Law: who was handed back a command hears of that very one, and never of another's.
"""

from __future__ import annotations

from typing import Final

from ..errors import NotRunning
from ..models import Result
from .pieces import counted

# Ends that are kept for who has not asked yet; without their output, which somebody else was given.
_KEPT: Final = 16


class Handed:
    """Of one session. A command goes by the id of the request that ran it."""

    def __init__(self) -> None:
        self.current = ""  # handed back last, and nobody was told of its end; "" for none
        self._ends: dict[str, Result] = {}

    def hand(self, command: str) -> None:
        """It was handed back."""
        self.current = command

    def end(self, result: Result) -> None:
        """The current one has ended; its result may still be asked for."""
        if self.current:
            self._ends[self.current] = counted(result)
            if len(self._ends) > _KEPT:
                del self._ends[next(iter(self._ends))]

    def leave(self) -> None:
        """Somebody was told of its end, or another command begins."""
        self.current = ""

    def end_of(self, command: str | None) -> Result | None:
        """How that one ended, if somebody else was told; None where it is the current one, or none is meant.

        Raises NotRunning where that is not known any more.
        """
        if not command or command == self.current:
            return None
        if (result := self._ends.pop(command, None)) is None:
            raise NotRunning("the command that was handed back here has ended, and how is no longer known")
        return result

    def check(self, command: str | None) -> None:
        """Refuse to go on with a command that has ended. Raises NotRunning."""
        if command and command != self.current:
            raise NotRunning(
                "there is no running command to send to: the one that was handed back here has ended; wait() tells how"
            )
