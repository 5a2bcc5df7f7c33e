"""What ``wait`` and ``send`` have in common: they stay with a command that was handed back, and pass its output on.

Law: what it printed before comes first, and nothing twice; who reads us and goes does not end it.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from ..any_session import Seconds
from ..daemon.control import Visit
from ..daemon.wire import Message
from ..models import OnOutput, Result
from . import results
from .passed import Passed


class _Staying(Visit):
    """A visit whose verbs pass on what a command prints, and has printed."""

    def __init__(self, agent: str, socket: str | None, passed: Passed) -> None:
        super().__init__(agent, socket)
        self._on_output = self._passed = passed

    def _until(self, verb: str, timeout: Seconds, *parts: bytes) -> Message:
        header, parts = super()._until(verb, timeout, *parts)
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
            visit.on_wait = lambda message: results.tell_of_waiting(given.agent, message, "typed")
        result, interrupted = results.until_ctrl_c(lambda: verb(visit))
    if given.json:
        results.tell(result, given.agent, json=True)
    else:
        passed.rest(result)
        results.explain(result, given.agent, interrupted)
    return result, interrupted
