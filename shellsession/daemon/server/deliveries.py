"""The ends of a session's commands, kept for clients that ask for them later.

A command is named by the request that ran it. Its end goes to one client, as its ``Delivery`` says.

Law: pure. No byte of output is delivered twice.
"""

from __future__ import annotations

from typing import Final

from ...engine.verbs.delivery import DELIVERED, PENDING, Delivery
from ...errors import NotRunning
from ...models import Result

# This many ends are kept for clients that have not asked yet. Only the last one keeps its output.
_KEPT: Final = 16


def end_of(result: Result) -> dict[str, object]:
    """The fields of a result that watchers get."""
    return {"exit_code": result.exit_code, "outcome": result.outcome, "reason": result.reason}


class Deliveries:
    """The deliveries of one session: of its last command, and of earlier ones whose ends nobody has asked for."""

    def __init__(self) -> None:
        self.last = Delivery()  # of the command that began last
        self._ended: dict[str, Delivery] = {}  # by the command's name, the oldest first

    def begin(self, request: str) -> Delivery:
        """Begin the delivery of a command that this request runs."""
        self.release()
        self.last = Delivery()
        self.last.name = request
        return self.last

    def release(self) -> None:
        """Let go of the last command, as another one begins, or the shell has ended.

        From now on its end is only for a client that names it.
        """
        last = self.last
        last.withdraw()
        if last.is_due:
            self.keep(last)
        if last.state != PENDING:  # else its `run` has not returned, and will deliver the end
            last.abandon()

    def keep(self, delivery: Delivery) -> None:
        """Keep the end of a command for a client that names it."""
        self._ended.pop(delivery.name, None)
        for other in self._ended.values():
            other.forget_output()
        self._ended[delivery.name] = delivery
        if len(self._ended) > _KEPT:
            del self._ended[next(iter(self._ended))]

    def take(self, command: str | None, missed_by: str = "") -> Result | None:
        """Deliver the end of that command, or of the last one. None if the caller must ask the session.

        ``missed_by``: the request that asks, if its client is gone. Raises NotRunning if the command is not known.
        """
        last = self.last
        means_last = not command or command == last.name
        if means_last and last.handed_back:  # it still runs
            return None
        delivery = self._ended.get(command) if command else None
        if delivery is None and means_last and last.is_due:
            delivery = last
        if delivery is None and command:
            raise NotRunning("the command that was handed back here has ended, and its result is no longer kept")
        if delivery is None or delivery.result is None:
            return None
        result = self.send(delivery, delivery.result, missed_by)
        if command and delivery.state == DELIVERED:
            self._ended.pop(command, None)
        return result

    def send(self, delivery: Delivery, result: Result, missed_by: str = "") -> Result:
        """Deliver a result of that command, as ``Delivery.send`` does, and forget output that was delivered."""
        result = delivery.send(result, missed_by)
        if delivery.state == DELIVERED:
            delivery.forget_output()
        return result

    def acknowledge(self, request: str) -> None:
        """Note that the client of that request came back, and got the answer that it had missed."""
        self.last.acknowledge(request)
        if self.last.state == DELIVERED:
            self.last.forget_output()

    def check(self, command: str | None) -> None:
        """Raise NotRunning unless that command still runs, handed back."""
        if command and not (self.last.handed_back and command == self.last.name):
            raise NotRunning(
                "there is no running command to send to: the one that was handed back here has ended; wait() returns"
                " its result"
            )
