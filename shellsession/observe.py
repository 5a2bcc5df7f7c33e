"""Reports what a session does to ``logging`` and to observers of its commands.

Law: neither ever gets the output of a caller's command. Only observers get its text, with the environment's secrets
masked.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from .models import Result

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


class Observers:
    """The observers of one session's commands, and the name of its agent."""

    def __init__(self, agent: str = "") -> None:
        self.agent = agent
        self.callbacks: tuple[Observer, ...] = ()
        self._secrets: Secrets | None = None

    @property
    def owner(self) -> str:
        """The agent, as a message of the log begins; "" if the session has none."""
        return f"agent {self.agent!r}: " if self.agent else ""

    @property
    def wanted(self) -> bool:
        """Whether the commands have any observer."""
        return bool(self.callbacks) or logger(DEBUG) is not None

    def ended(self, command: bytes, result: Result, masking: Callable[[], Secrets]) -> None:
        """Report the end of a command to the observers and the log. ``masking``: returns the secrets of the session.

        An exception of one of them goes to ``sys.excepthook``: the caller of the command gets its result.
        """
        if self.callbacks:
            self._secrets = self._secrets or masking()
            text = self._secrets.mask(command.decode("utf-8", "replace"), _SHOWN)
        else:
            text = ""
        for callback in (*self.callbacks, _log):
            try:
                callback(self.agent, text, result)
            except Exception as error:
                sys.excepthook(type(error), error, error.__traceback__)


def _log(agent: str, _: str, result: Result) -> None:
    if (log := logger(DEBUG)) is not None:
        fields: dict[str, Any] = {"agent": agent, "exit_code": result.exit_code, "outcome": result.outcome}
        fields |= {"duration": round(result.duration, 6), **sizes(result)}
        shown = " ".join(f"{name}={value!r}" for name, value in fields.items())
        log.debug("command ended: %s", shown, extra={"shellsession": fields})
