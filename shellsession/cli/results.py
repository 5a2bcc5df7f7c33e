"""What a command did, told to a shell (the exit status), to a person (one line), or to a program (JSON).

Law: the statuses of our own are those of ``timeout``: 124 when it did not end in time, 125 when we refused or failed.
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
from .arguments import show_json, span, talk
from .output import Passed, tell_of_gap, write
from .words import INTERRUPTED, REFUSED

_CHUNK: Final = 1 << 16
# Characters of the command that another one waits for.
_SHOWN: Final = 60
_CTRL_C: Final = "ended by Ctrl-C"
_STATUS: Final = {
    "timed_out": 124,
    "idle": 124,
    "running": 124,
    "input": 124,
    "interrupted": INTERRUPTED,
    "overflow": REFUSED,
}
# What the reason says of a command that reads the terminal, and what to do where it was not given that.
_WAITS: Final = "waits for input from the terminal"
_ASKED: Final = "with `shellsession run -i` it can be answered"


class LeftByCtrlC(KeyboardInterrupt):
    """Nothing is known to have come of it; ``ended``: the daemon knows that nothing has been begun for it."""

    def __init__(self, ended: bool) -> None:
        super().__init__()
        self.ended = ended


def status(result: Result, interrupted: bool = False) -> int:
    """The exit status that says how it went; 124 also for a command that runs on, 130 after Ctrl-C."""
    if interrupted:
        return INTERRUPTED
    if not result.ran:
        return REFUSED
    if result.outcome in _STATUS:
        return _STATUS[result.outcome]
    return REFUSED if result.exit_code is None else result.exit_code


def until_ctrl_c(verb: Callable[[], Result]) -> tuple[Result, bool]:
    """What came of a verb; and did Ctrl-C end it? Raises LeftByCtrlC where nothing is known to have come of it."""
    from ..daemon.client.exchange import Cancelled  # loaded by who has a verb

    with Cancelled() as cancelled:
        try:
            return verb(), False
        except KeyboardInterrupt:
            if cancelled.result is None:
                raise LeftByCtrlC(cancelled.ended) from None
    return by_ctrl_c(cancelled.result), True


def by_ctrl_c(result: Result) -> Result:
    """The result of a command that Ctrl-C has ended, which says so."""
    return result.__replace__(reason=f"{_CTRL_C}; {result.reason}" if result.reason else _CTRL_C)


def conclude(result: Result, agent: str, passed: Passed, interrupted: bool) -> int:
    """Show what is left to show of a command whose output was passed on as it came; the exit status."""
    if interrupted:
        passed.rest(result)
    explain(result, agent, interrupted)
    return status(result, interrupted)


def explain(result: Result, agent: str, interrupted: bool = False) -> None:
    """Say on stderr why it came back, unless it simply ended; ``interrupted``: by Ctrl-C, as who pressed it knows."""
    if interrupted and result.state_kept:
        return
    if result.outcome == "input":
        name = _word(agent)
        talk(f"{result.reason}: `shellsession send {name} TEXT` answers it, `shellsession interrupt {name}` ends it")
    elif result.runs_on:
        stay = f"`shellsession wait {_word(agent)}` stays with it"
        talk(f"{result.reason or 'the command runs on'}; it runs on: {stay}")
    elif result.outcome != "exited" or not result.state_kept:
        after = f" after {result.duration:.1f} s" if result.outcome in ("timed_out", "idle") else ""
        answer = f"; {_ASKED}" if _WAITS in result.reason else ""
        talk(f"{result.reason}{after}; {_state(result)}{answer}")


def tell_of_waiting(agent: str, message: Message, done: str = "run") -> None:
    """Say on stderr what a command waits for that has not had its turn yet; or what is to be ``done`` else."""
    line, cut, _ = message.parts[0].decode("utf-8", "replace").strip().partition("\n")
    shown = line[:_SHOWN] + ("…" if cut or len(line) > _SHOWN else "")
    seconds = message.header["seconds"]
    runs = f"`{shown}` has run there for {span(seconds)}" if seconds is not None else "nothing runs there"
    sits = "; somebody sits there (`shellsession attach`)" if message.header["held"] else ""
    talk(f"waiting for agent {agent!r}: {runs}{sits}; Ctrl-C gives up, and nothing was {done}")


def _word(agent: str) -> str:
    """The name as a shell takes it."""
    import shlex  # dear, and seldom needed

    return shlex.quote(agent)


def _state(result: Result) -> str:
    if result.state_kept:
        return "the session's state is kept"
    return "the session's state is lost: the next command starts in a fresh shell"


def tell(result: Result, agent: str, json: bool) -> None:
    """All of it: its output, which is not on its way yet, and what is to be said."""
    if json:
        show_json(as_json(result))
        return
    for stream, data, omitted, _ in streams_of(result):
        write(stream, data)
        tell_of_gap(stream, omitted)
    explain(result, agent)


def as_json(result: Result) -> dict[str, object]:
    """Every field of a Result, and whether it runs on; its output as text, and in base64 too where it is no UTF-8."""
    rest = {name: getattr(result, name) for name in Result._types if not name.endswith("_bytes")}
    told = {"stdout": result.stdout, "stderr": result.stderr, **rest, "runs_on": result.runs_on}
    for name, data, *_ in streams_of(result):
        try:
            data.decode()
        except UnicodeDecodeError:
            from base64 import b64encode

            told[f"{name}_base64"] = b64encode(data).decode()
    return told


def read_stdin(most: int, instead: str) -> bytes:
    """All that comes on stdin. Raises InvalidRequest where it is more than ``most`` bytes; ``instead``: what to do."""
    if sys.stdin.isatty():
        talk("reading from the terminal: end with Ctrl-D on a line of its own")
    pieces: list[bytes] = []
    size = 0
    while True:
        try:
            piece = os.read(0, _CHUNK)
        except BlockingIOError:  # as in `write`: there is more to come, and half a script must not run
            Poller().wait(Wait((0,)))
            continue
        if not piece:
            return b"".join(pieces)
        pieces.append(piece)
        if (size := size + len(piece)) > most:
            raise InvalidRequest(f"stdin holds more than {most} bytes, and nothing was run: {instead}")


class _Staying(Visit):
    """A visit whose verbs pass on what a command prints, and has printed."""

    def __init__(self, agent: str, socket: str | None, passed: Passed) -> None:
        super().__init__(agent, socket)
        self._on_output = self._passed = passed

    def _wait_message(self, verb: str, timeout: Seconds, *parts: bytes) -> Message:
        header, parts = super()._wait_message(verb, timeout, *parts)
        return Message({**header, "so_far": True}, parts)

    def _call_back(self, on_output: OnOutput, message: Message) -> None:
        try:
            if missing := message.header.get("so_far"):
                self._passed.gap(message.header["stream"], missing)
            super()._call_back(on_output, message)
        except BrokenPipeError:  # not to be told to the daemon, which would end the command
            signal.signal(signal.SIGPIPE, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGPIPE)
            raise


def stay(given: Any, verb: Callable[[Visit], Result]) -> tuple[Result, bool]:
    """Do that with the command, and tell what comes; its result, and did Ctrl-C end it?"""
    passed = Passed()
    with Visit(given.agent, given.socket) if given.json else _Staying(given.agent, given.socket, passed) as visit:
        if sys.stderr.isatty():
            visit.on_wait = lambda message: tell_of_waiting(given.agent, message, "typed")
        result, interrupted = until_ctrl_c(lambda: verb(visit))
    if given.json:
        tell(result, given.agent, json=True)
    else:
        passed.rest(result)
        explain(result, given.agent, interrupted)
    return result, interrupted
