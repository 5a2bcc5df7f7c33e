"""``shellsession run [-s AGENT] [--timeout S] [--] COMMAND...`` where a daemon listens: the common call, at once.

Law: it takes only words that mean the same to the parser of ``run``, and sends what ``run`` sends; all else is left to
``run`` before anything was sent. To load the parser, and what shows any end but the ordinary one, would take longer
than Python's own start.
"""

from __future__ import annotations

import os

from ..daemon.blocking import messages
from ..daemon.endpoint import reach, socket_path
from ..daemon.exchange import Exchange, GivenUp
from ..daemon.inherited import inherited
from ..daemon.link import Pool
from ..daemon.records import closed_meanwhile, exit_code_of, field, to_result
from ..engine.waiting import Poller
from ..errors import NoSuchAgent, SessionClosed
from .passed import Passed
from .words import default_agent, name, script

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _socket import socket
    from collections.abc import Callable, Sequence
    from typing import Any, Final

_OPTIONS: Final = ("-s", "--session", "--timeout")
_DIGITS: Final = 9  # of seconds; more than the parser allows have more


class Call:
    """What the words of a call ask for."""

    def __init__(self, agent: str | None, timeout: float | None, command: Sequence[str]) -> None:
        self.agent, self.timeout, self.command = agent, timeout, command


def understood(words: Sequence[str]) -> Call | None:
    """What these words behind ``run`` ask for; None where that is for the parser to say."""
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
    return None if list(command) in ([], ["-"]) else Call(agent, timeout, command)


def run(words: Sequence[str], begin: Callable[[], object]) -> int | None:
    """The exit status; None where it is left to ``run``. ``begin`` is called before anything is sent."""
    if (call := understood(words)) is None:
        return None
    path = socket_path()
    if (ours := reach(path)) is None:
        return None
    pool = Pool()
    try:
        begin()
        return _run(call, path, pool, ours)
    finally:
        pool.close()


def _run(call: Call, path: str, pool: Pool, ours: socket) -> int:
    agent = default_agent() if call.agent is None else call.agent
    passed, interrupted = Passed(), False
    opening = Exchange(pool, path, {"verb": "open", "agent": agent, **inherited()})
    opening.use(ours, Poller())
    *_, opened = messages(opening, path, start=True)
    incarnation = field(opened.header, "id", str).partition(".")[0]
    header: dict[str, Any] = {"verb": "run", "agent": agent, "tty": False, "idle_timeout": None, "live": True}
    if call.timeout is not None:
        header["timeout"] = call.timeout
    if os.isatty(2):
        header["tell"] = True
    with GivenUp() as given_up:
        events = messages(Exchange(pool, path, header, (script(call.command),), incarnation), path, start=True)
        try:
            try:
                for message in events:
                    if message.header.get("event") == "output":
                        passed(message.header["stream"], message.parts[0])
                    elif message.header.get("event") == "waits":
                        from .results import tell_of_waiting

                        tell_of_waiting(agent, message)
            finally:
                events.close()
        except KeyboardInterrupt:
            from .results import partial

            result, interrupted = partial(given_up), True
        except NoSuchAgent:
            raise SessionClosed(closed_meanwhile(agent)) from None
    if not interrupted:
        if (code := exit_code_of(message.header.get("result"))) is not None:
            return code
        result = to_result(field(message.header, "result", dict), message.parts)
    from .results import conclude

    return conclude(result, agent, passed, interrupted)
