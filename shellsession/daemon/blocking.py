"""Requests to the daemon from a plain thread, which blocks until each answer comes.

Law: a caller that leaves a request (Ctrl-C, an exception) has the daemon end what it asked for. Each start of the
command line loads this; what only such a caller needs is loaded then.
"""

from __future__ import annotations

from ..engine.waiting import Poller, drive
from ..errors import DaemonUnavailable, ShellSessionError
from .endpoint import reach
from .exchange import LOST

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from typing import Any

    from .exchange import Exchange
    from .wire import Message


def messages(
    exchange: Exchange, path: str, start: bool, on_ended: Callable[[str], None] = lambda command: None
) -> Generator[Message]:
    """Every event of a request, and its reply as the last. Closed before that, it cancels the request.

    ``start``: a daemon may be started. ``on_ended``: called with the id of a command that the cancellation has ended.
    """
    answered = False  # also by an error; not while the request is on its way, as Ctrl-C may come there, too
    try:
        while not exchange.done:
            if (message := next_message(exchange, path, start)) is not LOST:
                yield message
        answered = True
    except ShellSessionError:
        answered = True
        raise
    finally:
        if not (answered or exchange.cancelled):
            try:
                _cancel(exchange, path, on_ended)
            except BaseException:
                if not exchange.cancelled:  # a second Ctrl-C was quicker than we
                    _cancel(exchange, path, on_ended)
                raise
        exchange.close()


def next_message(exchange: Exchange, path: str, start: bool) -> Message:
    """The next event or the reply; LOST where the connection was lost, and the next call makes another."""
    if (wire := exchange.wire) is None:
        try:
            if (ours := reach(path)) is None:
                from .autostart import find

                ours = find(path, start and exchange.may_start)
        except DaemonUnavailable as error:
            raise exchange.unreachable(error) from error
        wire = exchange.use(ours, Poller())
    poller: Any = wire.poller  # a Poller, as all that are given here
    return drive(exchange.next(), poller)


def _cancel(exchange: Exchange, path: str, on_ended: Callable[[str], None]) -> None:
    """Have the daemon end what was asked for, whether it runs or waits for its turn, and note what came of it."""
    exchange.close()
    if not exchange.request:
        return
    from .giving_up import Cancellation

    cancellation = Cancellation(exchange, path, Poller())
    try:
        cancellation.until_said()
        while not cancellation.exchange.done:
            on_ended(exchange.note(next_message(cancellation.exchange, path, False)))
    except ShellSessionError:
        return  # what came of it is not known
    finally:
        cancellation.leave()
