"""Every error of a session, of agents and of the daemon, each with a stable code.

ShellSessionError            error
├── InvalidRequest           invalid_request     bad arguments; nothing was run (also a ValueError)
├── SessionBusy              busy                a command still owns this shell
├── NotRunning               not_running         send, wait, poll or interrupt with no command running
├── SessionClosed            closed              the session was closed
├── ShellUnavailable         unavailable         bash could not be started, or is too old
│   ├── LimitReached         limit_reached       no room: descriptors, terminals, space for files
│   │   └── TooManySessions  too_many_sessions   no room for one more agent; carries ``idle``
│   ├── SandboxUnavailable   sandbox_unavailable  no bubblewrap, or a limit that cannot be held here
│   └── StartupFailed        startup_failed      a command of ``startup`` failed, and the session was not opened
├── NoSuchAgent              no_such_agent       no agent of this name is known
├── DaemonUnavailable        daemon_unavailable  no daemon was reached or started, or the session went with it
├── ProtocolError            protocol            the peer broke the wire format
│   └── VersionMismatch      version_mismatch    the peer speaks another version of it
├── OutcomeUnknown           outcome_unknown     the daemon that got the request is gone; it was not run again
├── ResultExpired            result_expired      the request was taken long ago; its result is no longer kept
├── ContractError            contract            a tool contract's documented error; each contract has its own below it
└── CommandError             command             raised only with check=True; carries ``result``
    ├── CommandFailed        command_failed      the exit status was not 0, or it was not run
    └── CommandTimeout       command_timeout     the time limit passed (also a TimeoutError)

Rooms above add their own, where they are raised: PolicyRefused (policy.rules), CallCancelled (contracts.waiting),
MissingExtra (integrations.extras), the errors of each contract, and AgentFailed (cli.agent).

Law: a message says what happened, with what, and what to do next.
"""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Final


class ShellSessionError(Exception):
    """The root of the tree: catch this to catch everything that is ours."""

    code = "error"


# What who types is told where another thread, task or client is in the command.
NOT_YOURS: Final = "somebody else is in the command that runs, and was not handed it back: nothing was typed"
ENDED: Final = "there is no running command to send to: the one that ran has ended, and nothing was typed"
# What a client of the daemon is told whose turn does not come.
LATE: Final = "its turn did not come in time, as somebody else is at it: it was not run"
HELD: Final = "a person holds this session alone (attach) until he leaves: nothing was run or typed; try again later"
# What every verb of a closed session is told, also who waited for its bash just then.
IS_CLOSED: Final = "this session is closed: make a new one"
# Why a command's shell was ended by somebody else.
CLOSED: Final = "the session was closed meanwhile"
RESTARTED: Final = "the session was restarted meanwhile"
# What the next command is told, of a shell that ended between two.
GONE: Final = "the shell had ended before this command, which was not run; the next one gets a fresh shell"
# Where fork(2) says EAGAIN.
NO_PROCESS: Final = (
    "no process more can be started: raise the limit (`ulimit -u` for all of this user's, pids.max for a container's or"
    " a service's), or end some"
)
FORKED: Final = "this session belongs to the process that made it; a forked child makes its own"


class InvalidRequest(ShellSessionError, ValueError):
    """The arguments are invalid; nothing was run."""

    code = "invalid_request"


class SessionBusy(ShellSessionError):
    """A command that was handed back running still owns the shell."""

    code = "busy"


STILL_RUNS: Final = "a command still runs in this session: wait(), poll(), send() or interrupt() it first, or restart()"
IN_CALLBACK: Final = (
    "a callback of a running command, or a signal handler that strikes in one, cannot use its session: use another"
    " session, or interrupt from another thread"
)
ANOTHER_LOOP: Final = (
    "this session is in use on another event loop, which runs in another thread: give each loop a session of its own,"
    " or use a Session, which is safe from many threads"
)


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
    """A limit of this process or machine (open files, terminals, room in the runtime directory) stands in the way."""

    code = "limit_reached"


class TooManySessions(LimitReached):
    """There are as many sessions as there may be; ``idle`` names the agents that could be closed to make room."""

    code = "too_many_sessions"

    def __init__(self, message: str, idle: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.idle = idle

    def __reduce__(self) -> tuple[type[TooManySessions], tuple[str, tuple[str, ...]]]:
        return type(self), (str(self), self.idle)  # to cross processes with its names


class SandboxUnavailable(ShellUnavailable):
    """The sandbox cannot be made here as asked for: bubblewrap, user namespaces or control groups are missing."""

    code = "sandbox_unavailable"


class StartupFailed(ShellUnavailable):
    """A command of ``startup`` failed, so the session was not opened; the next verb opens it again."""

    code = "startup_failed"


class NoSuchAgent(ShellSessionError):
    """No agent of this name is known: it never was, or it was closed."""

    code = "no_such_agent"


class DaemonUnavailable(ShellSessionError):
    """No daemon could be reached or started, or the one that held the session is gone."""

    code = "daemon_unavailable"


class ProtocolError(ShellSessionError):
    """The peer broke the wire format; nothing that it sends afterwards can be read."""

    code = "protocol"


class VersionMismatch(ProtocolError):
    """The peer speaks another version of the protocol."""

    code = "version_mismatch"


class OutcomeUnknown(ShellSessionError):
    """The daemon that ran the request is gone: it may or may not have run, and was not run again."""

    code = "outcome_unknown"


class ResultExpired(ShellSessionError):
    """The request was taken, or may have been, and its result is no longer kept; it was not run again."""

    code = "result_expired"


class ContractError(ShellSessionError):
    """What a tool's document calls an error; its message is the document's."""

    code = "contract"
