"""How the commands of one session ended: their deliveries, by the requests that ran them.

Law: pure; no byte of output is delivered twice.
"""

from __future__ import annotations

from typing import Final

from ...engine.verbs.delivery import DELIVERED, PENDING, Delivery
from ...errors import NotRunning
from ...models import Result

# Endings that are kept for clients that have not asked yet; the last one alone with its output.
_KEPT: Final = 16


def end_of(result: Result) -> dict[str, object]:
    """What a watcher gets of it."""
    return {"exit_code": result.exit_code, "outcome": result.outcome, "reason": result.reason}


class Outcomes:
    """Of one session."""

    def __init__(self) -> None:
        self.last = Delivery()  # of the command begun last
        self._ended: dict[str, Delivery] = {}  # by name, the oldest first: for who names it

    def begin(self, request: str) -> Delivery:
        """Another command begins, which that request runs."""
        self.release()
        self.last = Delivery()
        self.last.name = request
        return self.last

    def release(self) -> None:
        """Another command begins, or the shell has ended: the last ending is only for a client that names it."""
        last = self.last
        last.withdraw()
        if last.is_due:
            self.keep(last)
        if last.state != PENDING:  # else `run` is still to bring its ending
            last.abandon()

    def keep(self, outcome: Delivery) -> None:
        """It has ended: keep how for a client that names it."""
        self._ended.pop(outcome.name, None)
        for other in self._ended.values():
            other.forget_output()
        self._ended[outcome.name] = outcome
        if len(self._ended) > _KEPT:
            del self._ended[next(iter(self._ended))]

    def take(self, command: str | None, missed_by: str = "") -> Result | None:
        """Deliver the ending of that command, or the last one if it has not been; None: the session has to give it.

        ``missed_by``: the request that asks, if its client has gone. Raises NotRunning if the command is not known
        any more.
        """
        last, command = self.last, command or None
        if last.handed_back and command in (None, last.name):
            return None
        outcome = None if command is None else self._ended.get(command)
        if outcome is None and last.is_due and command in (None, last.name):
            outcome = last
        if outcome is None and command is not None:
            raise NotRunning("the command that was handed back here has ended, and how is no longer known")
        if outcome is None or outcome.result is None:
            return None
        result = self.send(outcome, outcome.result, missed_by)
        if command is not None and outcome.state == DELIVERED:
            self._ended.pop(command, None)
        return result

    def send(self, outcome: Delivery, result: Result, missed_by: str = "") -> Result:
        """Deliver a result of that command, as ``Delivery.send``; no output is kept that was delivered."""
        result = outcome.send(result, missed_by)
        if outcome.state == DELIVERED:
            outcome.forget_output()
        return result

    def acknowledge(self, request: str) -> None:
        """The client of that request came back, and got the answer that it had missed."""
        self.last.acknowledge(request)
        if self.last.state == DELIVERED:
            self.last.forget_output()

    def check(self, command: str | None) -> None:
        """Refuse to go on with a command that has ended. Raises NotRunning."""
        if command and not (self.last.handed_back and command == self.last.name):
            raise NotRunning(
                "there is no running command to send to: the one that was handed back here has ended; wait() tells how"
            )
