"""A fast path for ``shellsession run [-s AGENT] [--timeout S] [--] COMMAND...`` when a daemon is running.

Loading the argument parser, and the code that shows unusual results, would take longer than the start of Python. This
module accepts only words that the parser of ``run`` would read in the same way, and sends what ``run`` would send. It
leaves every other call to ``run``, before it sends anything.
"""

from __future__ import annotations

import os

from ..daemon.client.exchange import Backend, CancelOutcome, Exchange
from ..daemon.client.link import Link
from ..daemon.client.process_state import process_state
from ..daemon.client.transport import UnixTransport
from ..daemon.protocol.endpoint import socket_path
from ..daemon.protocol.messages import closed_meanwhile, exit_code_of, field, to_result
from ..daemon.protocol.wire import Message
from ..engine.io.threads import Poller
from ..errors import NoSuchAgent, SessionClosed, ShellSessionError
from .relay import OutputRelay
from .words import VIA, default_agent, name, script

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from typing import Any, Final


_OPTIONS: Final = ("-s", "--session", "--timeout")
_DIGITS: Final = 9  # of a number of seconds; the parser refuses some numbers with more


class ParsedRun:
    """The parsed words of a call."""

    def __init__(self, agent: str | None, timeout: float | None, command: Sequence[str]) -> None:
        self.agent, self.timeout, self.command = agent, timeout, command


def parse(words: Sequence[str]) -> ParsedRun | None:
    """Parse the words after ``run``; None if only the parser of ``run`` can."""
    agent, timeout, at = None, None, 0
    while at + 1 < len(words) and words[at] in _OPTIONS:
        option, value = words[at : at + 2]
        if option == "--timeout":
            if not (value.isascii() and value.isdigit() and len(value) <= _DIGITS and int(value)):
                return None
            timeout = float(value)
        elif not value or value[0] == "-":
            return None
        else:
            agent = name(value)
        at += 2
    command = words[at:]
    if command and command[0][:1] == "-":
        if command[0] != "--":
            return None
        command = command[1:]
    return None if list(command) in ([], ["-"]) else ParsedRun(agent, timeout, command)


def run(words: Sequence[str], begin: Callable[[], object]) -> int | None:
    """Run the call and return its exit status; None leaves it to ``run``. ``begin`` is called before sending."""
    if os.environ.get(VIA) or (call := parse(words)) is None:
        return None
    transport = UnixTransport(socket_path())
    if (channel := transport.reach()) is None:
        return None
    backend = Backend()
    backend.pool.give_back(Link(channel, Poller()))
    try:
        begin()
        return _run(call, backend, transport)
    finally:
        backend.pool.close()


def _run(call: ParsedRun, backend: Backend, transport: UnixTransport) -> int:
    agent = default_agent() if call.agent is None else call.agent
    opening = Message({"verb": "open", "agent": agent, **process_state(), "recover": True}, ())
    *_, opened = _messages(Exchange(backend, transport, opening, start=True), backend)
    incarnation = field(opened.header, "id", str).partition(".")[0]
    session = field(opened.header, "session", int)
    header: dict[str, Any] = {"verb": "run", "agent": agent, "session": session, "tty": False, "live": True}
    header["tell"] = True
    if call.timeout is not None:
        header["timeout"] = call.timeout
    request = Message(header, (script(call.command),))
    relay, interrupted = OutputRelay(), False
    with CancelOutcome() as outcome:
        messages = _messages(Exchange(backend, transport, request, incarnation, start=True), backend)
        try:
            try:
                for message in messages:
                    if message.header.get("event") == "output":
                        relay(message.header["stream"], message.parts[0])
                    elif message.header.get("event") in ("waits", "asks"):
                        from .results import report_waiting

                        report_waiting(agent, message)
            finally:
                messages.close()
        except KeyboardInterrupt:
            if (ended := outcome.result) is None:  # read before the import below, during which a result may arrive
                raise
            from .results import mark_ended_by_ctrl_c

            result, interrupted = mark_ended_by_ctrl_c(ended), True
        except NoSuchAgent:
            raise SessionClosed(closed_meanwhile(agent)) from None
    if not interrupted:
        if (code := exit_code_of(message.header.get("result"))) is not None:
            return code
        result = to_result(field(message.header, "result", dict), message.parts)
    from .results import conclude

    return conclude(result, agent, relay, interrupted)


def _messages(exchange: Exchange, backend: Backend) -> Generator[Message]:
    """Yield every event of a request and, last, its reply. Closing the generator before that cancels the request.

    ``Remote`` does the same, and more. The two cannot share a function: Ctrl-C could come during its call.
    """
    replied = False  # not ``exchange.done``: Ctrl-C may come while the reply is being returned to the caller
    try:
        while not exchange.done:
            yield backend.give(exchange.next())
        replied = True
    except ShellSessionError:
        replied = True
        raise
    finally:
        if not (replied or exchange.cancel_begun):
            try:
                backend.give(exchange.cancel())
            except BaseException:
                if not exchange.cancel_begun:  # a second Ctrl-C came before the cancellation was sent
                    backend.give(exchange.cancel())
                raise
        exchange.close()
