"""Every error a caller can meet, each with a stable code.

ShellSessionError            error
├── InvalidRequest           invalid_request   bad arguments; nothing was run (also a ValueError)
├── SessionBusy              busy              a command still owns this shell
├── NotRunning               not_running       send, wait, poll or interrupt with no command running
├── SessionClosed            closed            the session was closed
├── ShellUnavailable         unavailable       bash could not be started, or is too old
│   └── LimitReached         limit_reached     no room: descriptors, space for files
└── CommandError             command           raised only with check=True; carries ``result``
    ├── CommandFailed        command_failed    the exit status was not 0
    └── CommandTimeout       command_timeout   the time limit passed (also a TimeoutError)

Law: a message says what happened, with what, and what to do next.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from .models import Result


class ShellSessionError(Exception):
    """The root of the tree: catch this to catch everything that is ours."""

    code: ClassVar[str] = "error"


class InvalidRequest(ShellSessionError, ValueError):
    """The arguments cannot be meant; nothing was run."""

    code = "invalid_request"


class SessionBusy(ShellSessionError):
    """A command that was handed back running still owns the shell."""

    code = "busy"


class NotRunning(ShellSessionError):
    """There is no running command to wait for, to answer or to interrupt."""

    code = "not_running"


class SessionClosed(ShellSessionError):
    """The session was closed; make a new one."""

    code = "closed"


class ShellUnavailable(ShellSessionError):
    """Bash could not be started, is missing, or is older than 4.4."""

    code = "unavailable"


class LimitReached(ShellUnavailable):
    """A limit of this process or machine (open files, room in the runtime directory) stands in the way."""

    code = "limit_reached"


class CommandError(ShellSessionError):
    """A command that did not do well, raised because ``check=True`` asked for it."""

    code = "command"

    def __init__(self, message: str, result: Result) -> None:
        super().__init__(message)
        self.result = result

    def __reduce__(self) -> tuple[type[CommandError], tuple[str, Result]]:
        return type(self), (str(self), self.result)  # to cross processes with its result


class CommandFailed(CommandError):
    """The command ended with a status other than 0; ``result`` has its output."""

    code = "command_failed"


class CommandTimeout(CommandError, TimeoutError):
    """The time limit passed; ``result`` has the output so far and what was killed."""

    code = "command_timeout"
