"""Delivery: how the results of one command reach its owner.

A command is pending while it runs. It has ended once its ending is known. It is delivered once its owner has that.

    pending --end--> ended --deliver--> delivered
                       ^----take_back------'

A session has one Delivery for each command: its owner is the caller. A daemon has another one, named by the request
that ran the command: its owner is a client, which may have gone when a result is sent to it.

Law: pure. An ending is delivered once, and not before the command has ended. It is dropped only where its owner has
left; and even then the next command reports a shell that it cost (see ``loss``).
"""

from __future__ import annotations

from copy import copy
from typing import Final, Literal

from ...errors import NotRunning
from ...models import Result
from ...text import news, sentences
from ..io.output import without_output

State = Literal["pending", "ended", "delivered"]
PENDING: Final = "pending"
ENDED: Final = "ended"
DELIVERED: Final = "delivered"


class Delivery:
    """The results of one command, on their way to its owner.

    It has no ``__init__``: one is made for every command, and most change nothing but ``state`` and ``result``.
    """

    name = ""  # the request that ran the command; "" without a daemon
    owner = ""  # the request that was last answered while it ran on
    handed_back = False  # its owner has it back running, and asks for the rest
    abandoned = False  # its owner has left, and does not ask for its ending
    state: State = PENDING
    result: Result | None = None  # its ending
    _missed: Result | None = None  # all that was sent, and reached no client
    _missed_by = ""  # the request whose client missed it last

    @property
    def runs_on(self) -> bool:
        """True while it runs, handed back."""
        return self.handed_back and self.state == PENDING

    @property
    def is_due(self) -> bool:
        """True if its ending is there for whoever asks next."""
        return self.state == ENDED and not self.abandoned

    @property
    def loss(self) -> Result | None:
        """Its ending, if that cost the shell and is not delivered: the next command is to report it."""
        return self.result if self.state == ENDED and self.result is not None and not self.result.state_kept else None

    def hand_back(self) -> None:
        """It runs on; its owner is to ask for the rest."""
        self.handed_back = True

    def withdraw(self) -> None:
        """Somebody ends it, or gives it up: its owner can no longer go on with it."""
        self.handed_back = False

    def abandon(self) -> None:
        """Its owner has left: nobody is to ask for its ending."""
        self.abandoned = True

    def end(self, result: Result) -> None:
        """It has ended. A second ending of the same command changes nothing."""
        if self.state == PENDING:
            self.state, self.result = ENDED, result

    def deliver(self, missed_by: str = "") -> Result:
        """Deliver its ending. Raises NotRunning if it has none."""
        if self.result is None:
            raise NotRunning("the command was given up meanwhile, and its shell with it")
        return self.send(self.result, missed_by)

    def send(self, result: Result, missed_by: str = "") -> Result:
        """Deliver a result, the ending or what was printed so far; returns it with all that was missed before.

        ``missed_by``: the request whose client has gone. The result is kept, for whoever asks next. Where another
        caller waited for the same ending, it is delivered already, and changes no more.
        """
        if self.state == DELIVERED:
            return result
        if (missed := self._missed) is not None:
            if not missed.runs_on:
                result = missed
            else:  # where one client after the other misses its piece, the last piece is kept, or they would pile up
                result = joined(without_output(missed) if missed_by and result.runs_on else missed, result)
        self._missed, self._missed_by = (result, missed_by) if missed_by else (None, "")
        if not result.runs_on:
            self.state, self.result, self.handed_back = ENDED if missed_by else DELIVERED, result, False
        return result

    def take_back(self) -> None:
        """Its ending did not reach its owner after all: it is there for whoever asks next."""
        self.state = ENDED

    def acknowledge(self, request: str) -> None:
        """The client of that request came back, and got the answer that it had missed."""
        if self._missed is not None and self._missed_by == request:
            if not self._missed.runs_on:
                self.state = DELIVERED
            self._missed = None

    def forget_output(self) -> None:
        """Keep of its results how they ended, and how many bytes they had."""
        if self.result is not None:
            self.result = without_output(self.result)
        if self._missed is not None:
            self._missed = without_output(self._missed)

    def without_output(self) -> Delivery:
        """A copy that keeps no output."""
        light = copy(self)
        light.forget_output()
        return light


def together(before: Result, now: Result) -> Result:
    """The later of two results of a command, with what both have omitted."""
    return now.__replace__(
        stdout_omitted=now.stdout_omitted + before.stdout_omitted,
        stderr_omitted=now.stderr_omitted + before.stderr_omitted,
        stdout_omitted_lines=now.stdout_omitted_lines + before.stdout_omitted_lines,
        stderr_omitted_lines=now.stderr_omitted_lines + before.stderr_omitted_lines,
    )


def joined(before: Result, now: Result) -> Result:
    """The later of two results of a command, with the output of both, and with what the first one had to tell."""
    return together(before, now).__replace__(
        reason=sentences(news(before), now.reason),
        stdout_bytes=before.stdout_bytes + now.stdout_bytes,
        stderr_bytes=before.stderr_bytes + now.stderr_bytes,
        stdout_cut=before.stdout_cut if before.stdout_omitted else len(before.stdout_bytes) + now.stdout_cut,
        stderr_cut=before.stderr_cut if before.stderr_omitted else len(before.stderr_bytes) + now.stderr_cut,
    )
