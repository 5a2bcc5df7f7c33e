"""Show a command's result: as an exit status for shells, as one line for people, as JSON for programs.

Here are also ``until_ctrl_c``, which lets Ctrl-C end a command, ``follow``, which ``wait`` and ``send`` share, and
``read_stdin``. Our own exit statuses are those of ``timeout``: 124 if the command did not end in time, 125 if this
program refused the command or failed itself.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any, Final

from ..daemon.client.admin import Visit
from ..daemon.protocol.wire import Message
from ..engine.io.threads import Poller, Wait
from ..errors import InvalidRequest
from ..models import OnOutput, Result, streams_of
from ..signatures import Seconds
from ..text import reason_of, waits
from .arguments import show_json, span, talk
from .relay import OutputRelay, report_gap, write
from .wording import for_cli
from .words import INTERRUPTED, REFUSED

_CHUNK: Final = 1 << 16
# How many characters of a running command a waiting one shows.
_COMMAND_LENGTH: Final = 60
_CTRL_C: Final = "ended by Ctrl-C"
_STATUS: Final = {
    "timed_out": 124,
    "idle": 124,
    "running": 124,
    "input": 124,
    "interrupted": INTERRUPTED,
    "overflow": REFUSED,
}
# Part of the reason for a command that reads the terminal, and the advice if it does not have one.
_READS_TERMINAL: Final = "waits for input from the terminal"
_USE_INTERACTIVE: Final = "with `shellsession run -i` it can be answered"


class NoOutcome(KeyboardInterrupt):
    """Ctrl-C ended a verb, and no result arrived. ``ended``: the daemon confirmed that nothing was started."""

    def __init__(self, ended: bool) -> None:
        super().__init__()
        self.ended = ended


def status(result: Result, interrupted: bool = False) -> int:
    """Our exit status for a result; 124 also for a command that is still running, 130 after Ctrl-C."""
    if interrupted:
        return INTERRUPTED
    if not result.ran:
        return REFUSED
    if result.matched:  # it runs on, as requested
        return 0
    if result.outcome in _STATUS:
        return _STATUS[result.outcome]
    return REFUSED if result.exit_code is None else result.exit_code


def until_ctrl_c(verb: Callable[[], Result]) -> tuple[Result, bool]:
    """Run a verb, which Ctrl-C cancels. Returns its result, and whether Ctrl-C ended it. Raises NoOutcome."""
    from ..daemon.client.exchange import CancelOutcome  # imported here, as not every use of this module needs it

    with CancelOutcome() as outcome:
        try:
            return verb(), False
        except KeyboardInterrupt:
            if outcome.result is None:
                raise NoOutcome(outcome.ended) from None
    return mark_ended_by_ctrl_c(outcome.result), True


def mark_ended_by_ctrl_c(result: Result) -> Result:
    """The result with a reason that says that Ctrl-C ended the command."""
    return result.__replace__(reason=f"{_CTRL_C}; {result.reason}" if result.reason else _CTRL_C)


def conclude(result: Result, agent: str, relay: OutputRelay, interrupted: bool) -> int:
    """Show the rest of a result whose output was relayed as it arrived, and return our exit status."""
    if interrupted or (result.replayed and not relay.has_written):
        relay.write_rest(result)
    elif result.replayed:
        relay.report_missing(result)
    explain_ending(result, agent, interrupted)
    if result.replayed:
        talk("nothing was run: an earlier call had this key, and this is its result")
    return status(result, interrupted)


def explain_ending(result: Result, agent: str, interrupted: bool = False) -> None:
    """Say on stderr why the command returned, unless it simply exited, or Ctrl-C ended it (``interrupted``).

    Also say that an earlier session has expired.
    """
    if interrupted and result.state_kept:
        return
    reason, waited = reason_of(result)[0], waits(result)
    if result.outcome == "input":
        name = _word(agent)
        how = f"`shellsession send {name} TEXT` answers it, `shellsession interrupt {name}` ends it"
        talk(f"{reason}: {how}{waited}")
    elif result.runs_on:
        said = reason or "the command was handed back"
        talk(f"{said}{waited}; it is still running: `shellsession wait {_word(agent)}` waits for it")
    elif not result.ran and result.state_kept:
        talk(f"{for_cli(result.reason)}; nothing was run")
    elif result.outcome != "exited" or not result.state_kept:
        after = f" after {result.duration:.1f} s" if result.outcome in ("timed_out", "idle") else ""
        answer = f"; {_USE_INTERACTIVE}" if _READS_TERMINAL in result.reason else ""
        talk(f"{reason}{after}{waited}; {_state(result)}{answer}")
    elif said := "; ".join(filter(None, (result.reason, result.recovered))):  # its session is a new one, for example
        talk(said)


def report_waiting(agent: str, message: Message, done: str = "run") -> None:
    """Say on stderr what a queued request waits for. ``done``: what the request would have done ("run", "typed")."""
    if (asked := message.header.get("question")) is not None:
        talk(f"waiting for a person: `shellsession approvals accept {asked['id']}` lets it run; Ctrl-C gives up")
        return
    line, cut, _ = message.parts[0].decode("utf-8", "replace").strip().partition("\n")
    shown = line[:_COMMAND_LENGTH] + ("…" if cut or len(line) > _COMMAND_LENGTH else "")
    seconds = message.header["seconds"]
    runs = f"`{shown}` has run there for {span(seconds)}" if seconds is not None else "nothing runs there"
    attached = "; a person is attached (`shellsession attach`)" if message.header["held"] else ""
    talk(f"waiting for agent {agent!r}: {runs}{attached}; Ctrl-C gives up, and nothing was {done}")


def _word(agent: str) -> str:
    """The name quoted for a shell."""
    import shlex  # slow to import, and rarely needed

    return shlex.quote(agent)


def _state(result: Result) -> str:
    if result.state_kept:
        return "the session's state is kept"
    return result.recovered or "the session's state is lost: the next command starts in a fresh shell"


def show_result(result: Result, agent: str, json: bool) -> None:
    """Show a whole result: as JSON, or its output and then why it ended."""
    if json:
        show_json(result.to_dict())
        return
    for stream, data, omitted, _ in streams_of(result):
        write(stream, data)
        report_gap(stream, omitted)
    explain_ending(result, agent)


def read_stdin(most: int, instead: str) -> bytes:
    """Read stdin to its end. Raises InvalidRequest beyond ``most`` bytes; ``instead`` is the advice for that case."""
    if sys.stdin.isatty():
        talk("reading from the terminal: end with Ctrl-D on its own line")
    pieces: list[bytes] = []
    size = 0
    while True:
        try:
            piece = os.read(0, _CHUNK)
        except BlockingIOError:  # stdin is non-blocking, as in `write`: wait for more, as half a script must not run
            Poller().wait(Wait((0,)))
            continue
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
        if (size := size + len(piece)) > most:
            raise InvalidRequest(f"stdin holds more than {most} bytes, and nothing was run: {instead}")


class _FollowingVisit(Visit):
    """A visit whose verbs relay a command's output, including what it printed before."""

    def __init__(self, agent: str, socket: str | None, relay: OutputRelay) -> None:
        super().__init__(agent, socket)
        self._on_output = self._relay = relay

    def _wait_message(self, verb: str, timeout: Seconds, *parts: bytes, **fields: object) -> Message:
        header, parts = super()._wait_message(verb, timeout, *parts, **fields)
        return Message({**header, "so_far": True}, parts)

    def _call_back(self, on_output: OnOutput, message: Message) -> None:
        try:
            if missing := message.header.get("so_far"):
                self._relay.skip(message.header["stream"], missing)
            super()._call_back(on_output, message)
        except BrokenPipeError:  # die here: if the error reached the daemon, it would end the command
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGPIPE)
            raise


def follow(args: Any, verb: Callable[[Visit], Result]) -> tuple[Result, bool]:
    """Call the verb for a handed-back command and show its output. Returns the result, and whether Ctrl-C ended it."""
    relay = OutputRelay()
    with Visit(args.agent, args.socket) if args.json else _FollowingVisit(args.agent, args.socket, relay) as visit:
        visit.on_wait = lambda message: report_waiting(args.agent, message, "typed")
        result, interrupted = until_ctrl_c(lambda: verb(visit))
    if args.json:
        show_result(result, args.agent, json=True)
    else:
        relay.write_rest(result)
        explain_ending(result, args.agent, interrupted)
    return result, interrupted
