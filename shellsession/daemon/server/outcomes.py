"""Results of one command that came in pieces, and what others are told of them.

Law: pure; no byte of output is counted twice.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from ...engine.io.output import counted
from ...errors import NotRunning
from ...models import Result


def end_of(result: Result) -> dict[str, object]:
    """What who looks on is told of it."""
    return {"exit_code": result.exit_code, "outcome": result.outcome, "reason": result.reason}


def together(before: Result, now: Result) -> Result:
    """The later piece, with what both have omitted."""
    return replace(
        now,
        stdout_omitted=now.stdout_omitted + before.stdout_omitted,
        stderr_omitted=now.stderr_omitted + before.stderr_omitted,
    )


def joined(before: Result, now: Result) -> Result:
    """The later piece, with the output of both."""
    return replace(
        together(before, now),
        stdout_bytes=before.stdout_bytes + now.stdout_bytes,
        stderr_bytes=before.stderr_bytes + now.stderr_bytes,
        stdout_cut=before.stdout_cut if before.stdout_omitted else len(before.stdout_bytes) + now.stdout_cut,
        stderr_cut=before.stderr_cut if before.stderr_omitted else len(before.stderr_bytes) + now.stderr_cut,
    )


# Ends that are kept for who has not asked yet; the last alone with its output.
_KEPT: Final = 16


class Missed(NamedTuple):
    """What was to be told by the answer to a request whose client had gone. It may come back for that."""

    request: str
    command: str
    result: Result


class Outcomes:
    """Of one session."""

    def __init__(self) -> None:
        self.last = ""  # begun last; "" for none of this shell
        self.current = ""  # that one, if it was handed back and nobody was told of its end
        self._missed: Missed | None = None  # of the command begun last
        self._ends: dict[str, Result] = {}  # with the output that nobody was told, but for what was missed

    def begin(self, command: str = "") -> None:
        """Another command begins, or the shell has ended: what is kept is for who names it."""
        if self._missed is not None:
            self._put(self._missed.command, self._taken(self._missed.command))
        self.last, self.current = command, ""

    def keep(self, command: str, end: Result) -> None:
        """How it ended, which nobody was told as yet."""
        if command not in self._ends:
            self._put(command, end)

    def tell(self, command: str, result: Result, missed_by: str = "") -> Result:
        """All that nobody was told of that command, and this: somebody is told now.

        ``missed_by``: or would be, but the client of that request has gone (see ``hear``). Nothing is kept for one who
        was told beside another, nor where another command has begun since: it was told, or kept, before.
        """
        if command != self.last:
            return result
        missed, self._missed = self._missed, None
        if self.current:
            if missed is not None:
                # Of pieces that one client after the other has missed the last is kept, or they would pile up.
                before = counted(missed.result) if missed_by and result.runs_on else missed.result
                result = joined(before, result)
            if not result.runs_on:
                self.current = ""
                self._put(command, counted(result))
        elif missed is not None:
            result = missed.result  # the same end: who was to be told of it beside this one had gone
        elif missed_by != command:
            return result
        if missed_by:
            self._missed = Missed(missed_by, command, result)
        return result

    def misses(self, result: Result) -> bool:
        """Is that one kept, as nobody was told of it?"""
        return self._missed is not None and self._missed.result is result

    def hear(self, request: str) -> Result | None:
        """That client came back, and was told (what nobody else had been told): it is nobody else's any more."""
        if self._missed is None or self._missed.request != request:
            return None
        heard, self._missed = self._missed.result, None
        return heard

    def end_of(self, command: str | None) -> Result | None:
        """The end of that one, or of what nobody was told; None where it is the session's to tell.

        Raises NotRunning where it is not known any more.
        """
        if command and command != self.current:
            result = self._taken(command)
            self._ends.pop(command, None)
            return result
        if self.current or self._missed is None:
            return None
        return self._taken(self._missed.command)

    def check(self, command: str | None) -> None:
        """Refuse to go on with a command that has ended. Raises NotRunning."""
        if command and command != self.current:
            raise NotRunning(
                "there is no running command to send to: the one that was handed back here has ended; wait() tells how"
            )

    def _taken(self, command: str) -> Result:
        """All that nobody was told of one that has ended; how, is still known. Raises NotRunning where it is not."""
        end, missed = self._ends.get(command), self._missed
        if missed is None or missed.command != command:
            if end is None:
                raise NotRunning("the command that was handed back here has ended, and how is no longer known")
            result = end
        else:
            self._missed = None
            result = joined(missed.result, end) if end is not None and missed.result.runs_on else missed.result
        if end is not None:
            self._ends[command] = counted(end)
        return result

    def _put(self, command: str, end: Result) -> None:
        self._ends.pop(command, None)
        self._ends = {other: counted(one) for other, one in self._ends.items()}
        self._ends[command] = end
        if len(self._ends) > _KEPT:
            del self._ends[next(iter(self._ends))]
