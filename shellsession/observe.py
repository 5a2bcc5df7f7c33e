"""Reports what a session does to ``logging`` and to observers of its commands.

Law: neither ever gets the output of a caller's command. Only observers get its text, with the environment's secrets
masked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from .models import Request, Result, Stream

if TYPE_CHECKING:
    import logging

    from .policy.secrets import Secrets

DEBUG: Final = 10  # as in logging
WARNING: Final = 30
# How many characters of a command observers get.
_SHOWN: Final = 500

# Called with the agent's name ("" for none), the masked text of a command that has ended, and its result.
Observer = Callable[[str, str, Result], object]

_logger: logging.Logger | None = None


def logger(level: int) -> logging.Logger | None:
    """Return the logger "shellsession", or None if nobody reads its records of that level.

    Its import takes 5 ms. A program that has not imported ``logging`` has no handler for our records.
    """
    global _logger
    if _logger is None:
        if (module := sys.modules.get("logging")) is None:
            return None
        _logger = module.getLogger("shellsession")
        _logger.addHandler(module.NullHandler())
    return _logger if _logger.isEnabledFor(level) else None


def sizes(result: Result) -> dict[str, int]:
    """Return how many bytes the command wrote to each stream."""
    return {
        "stdout_bytes": len(result.stdout_bytes) + result.stdout_omitted,
        "stderr_bytes": len(result.stderr_bytes) + result.stderr_omitted,
    }


class Tap:
    """Sees what the commands of one session do. Each method does nothing by default.

    It is appended to ``Core.taps``, between two commands. Each ``begin`` then has one ``end``. Startup and shutdown
    commands reach no tap, nor do commands that bash did not get. The output of a short command comes at its end.

    The methods are called by whoever works in the session at that moment: the thread or task that is in a verb, or the
    reader of the output between two verbs. So they must be quick. What ``output`` raises ends the command, as what
    ``on_output`` raises does; the others must not raise.
    """

    def begin(self, id: str, request: Request) -> None:
        """A command is given to bash."""

    def output(self, id: str, stream: Stream, data: bytes) -> None:
        """It has printed something."""

    def input(self, id: str, data: bytes) -> None:
        """Something was typed into its terminal."""

    def hand_back(self, id: str, asks: bool) -> None:
        """Its caller has got it back while it runs. ``asks``: it waits for input. This may come more than once."""

    def resize(self, columns: int, rows: int) -> None:
        """The terminal of the session has got another size, also while no command runs."""

    def end(self, command: bytes, result: Result) -> None:
        """A command has ended, however that came. ``result`` has its output since the result before."""

    def job(self, id: str) -> None:
        """A command has left a job running."""

    def job_output(self, id: str, stream: str, data: bytes) -> None:
        """A job has printed something; b"" if the stream has ended. The threads that read for jobs call this, too."""

    def close(self) -> None:
        """The session is closed. It may still have to end what runs."""


class Observing(Tap):
    """Tells an observer of each command that has ended. ``masking``: returns the secrets of the session."""

    def __init__(self, observer: Observer, agent: str, masking: Callable[[], Secrets]) -> None:
        self._observer, self._agent, self._masking = observer, agent, masking
        self._secrets: Secrets | None = None

    def end(self, command: bytes, result: Result) -> None:
        """Call the observer. What it raises goes to ``sys.excepthook``: the caller of the command gets the result."""
        try:
            self._secrets = self._secrets or self._masking()
            text = self._secrets.mask(command.decode("utf-8", "replace"), _SHOWN)
            self._observer(self._agent, text, result)
        except Exception as error:
            sys.excepthook(type(error), error, error.__traceback__)


def log_end(agent: str, result: Result) -> None:
    """Log that a command has ended, if anybody reads that. An exception goes to ``sys.excepthook``."""
    if (log := logger(DEBUG)) is None:
        return
    fields: dict[str, Any] = {"agent": agent, "exit_code": result.exit_code, "outcome": result.outcome}
    fields |= {"duration": round(result.duration, 6), **sizes(result)}
    shown = " ".join(f"{name}={value!r}" for name, value in fields.items())
    try:
        log.debug("command ended: %s", shown, extra={"shellsession": fields})
    except Exception as error:
        sys.excepthook(type(error), error, error.__traceback__)
