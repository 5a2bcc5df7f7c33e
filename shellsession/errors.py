"""The errors of sessions, agents and the daemon, each with a stable code, and messages that several modules share.

ShellSessionError            error
├── InvalidRequest           invalid_request     bad arguments; nothing was run (also a ValueError)
│   ├── AlreadyOpen          already_open        the agent's session is open, with other options
│   ├── KeyConflict          key_conflict        the idempotency key is that of another command; nothing was run
│   └── InvalidWorkflow      invalid_workflow    the file of a workflow has mistakes; nothing was run
├── SessionBusy              busy                a command still owns this shell
│   └── JobsRunning          jobs_running        jobs still write to the files of a checkpoint; nothing was changed
├── NotRunning               not_running         send, wait, poll or interrupt with no command running
├── SessionClosed            closed              the session was closed
├── ShellUnavailable         unavailable         bash could not be started, or is too old
│   ├── LimitReached         limit_reached       a limit of the process or machine: descriptors, terminals, space
│   │   └── TooManySessions  too_many_sessions   the limit of sessions; carries ``idle``
│   ├── SandboxUnavailable   sandbox_unavailable  the sandbox cannot be made as requested
│   ├── BranchUnavailable    branch_unavailable  the branch of the files cannot be made as requested
│   └── StartupFailed        startup_failed      a command of ``startup`` failed; the session was not opened
├── NoSuchAgent              no_such_agent       no agent of this name is known
├── StateLost                state_lost          the agent's last session has ended with its state; nothing was run
├── NoSuchOutput             no_such_output      no output of this id is kept
├── DaemonUnavailable        daemon_unavailable  no daemon was reached or started, or it has ended with the session
├── ProtocolError            protocol            the peer broke the wire format
│   └── VersionMismatch      version_mismatch    the peer speaks another version of the protocol
├── OutcomeUnknown           outcome_unknown     the daemon that got the request has ended; it was not run again
├── ReceiptUnavailable       receipt_unavailable  no receipt of a command with a key can be written; nothing was run
├── ResultExpired            result_expired      the request is old, and its result is no longer kept
├── SnapshotUnavailable      snapshot_unavailable  bash did not list its state; nothing was changed
├── SnapshotDamaged          snapshot_damaged    the file is no snapshot, or it is damaged
├── SnapshotTooNew           snapshot_too_new    a newer version of shellsession has written the snapshot
├── Conflict                 conflict            it has changed since the branch or fork was made; carries ``paths``
├── ApplyFailed              apply_failed        the changes of a branch could not be written; nothing is torn
├── MissingExtra             missing_extra       an optional dependency is not installed (also an ImportError)
├── PolicyRefused            policy_refused      the session's policy, or a tool's, refuses the command; nothing was run
├── ContractError            contract            an error that a tool's document defines; each contract has its own
└── CommandError             command             raised only with check=True; carries ``result``
    ├── CommandFailed        command_failed      the exit status was not 0, or the command was not run
    └── CommandTimeout       command_timeout     the time limit passed (also a TimeoutError)

CommandError and the two below it are in ``models``, as they carry a Result. Modules of other packages add their own:
ExpectTimeout and ExpectEnded (engine.io.dialogue), CallCancelled (contracts.cancel), the errors of each contract, and
AgentFailed (cli.agent).

A message says what happened, with what, and what to do next.
"""

from __future__ import annotations

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Final


class ShellSessionError(Exception):
    """The base class of every error of shellsession."""

    code = "error"


# Messages of SessionBusy and NotRunning for input to a running command. NOT_YOURS: another caller waits for it.
NOT_YOURS: Final = "another caller is waiting for the running command, which was not handed back: nothing was typed"
ENDED: Final = "there is no running command to send to: it has ended, and nothing was typed"
# Messages of SessionBusy for a command whose patience ended before it began.
LATE: Final = (
    "another command kept the session busy for as long as this one may wait (patience=, by default as long as its time"
    " limit): nothing was run; try again later"
)
HELD: Final = "a person holds this session (`shellsession attach`): nothing was run or typed; try again later"
# The message of every verb of a closed session, including one that was waiting for its bash to start.
IS_CLOSED: Final = "this session is closed: make a new one"
# Why a command ended although its own caller did not end it.
CLOSED: Final = "the session was closed meanwhile"
RESTARTED: Final = "the session was restarted meanwhile"
# The reason in the result of the first command after the shell ended between two commands.
NEXT_IS_FRESH: Final = "; the next one gets a fresh shell"
GONE: Final = f"the shell had ended before this command, which was not run{NEXT_IS_FRESH}"
# For EAGAIN from fork(2).
NO_PROCESS: Final = (
    "no more processes can be started: end some, or raise the limit (`ulimit -u` for all processes of this user,"
    " pids.max for a container or a service)"
)
FORKED: Final = "this session belongs to the process that made it: make a new one in a forked child"


class InvalidRequest(ShellSessionError, ValueError):
    """The arguments are invalid; nothing was run."""

    code = "invalid_request"


class AlreadyOpen(InvalidRequest):
    """The agent already has a session, which was opened with other options."""

    code = "already_open"


class KeyConflict(InvalidRequest):
    """The agent has used this idempotency key for another command, ``cwd``, ``env`` or ``stdin``. Nothing was run."""

    code = "key_conflict"


class InvalidWorkflow(InvalidRequest):
    """A workflow has mistakes, or lacks what is asked of it; the message has a line for each. Nothing was run."""

    code = "invalid_workflow"


class SessionBusy(ShellSessionError):
    """A command that was handed back running still owns the shell."""

    code = "busy"


class JobsRunning(SessionBusy):
    """Jobs of the session still run, and would write to files that are to be frozen. Nothing was changed."""

    code = "jobs_running"


STILL_RUNS: Final = "a command still runs in this session: wait(), poll(), send() or interrupt() it first, or restart()"
IN_CALLBACK: Final = (
    "a callback of a running command, or a signal handler that interrupts one, cannot use its session: use another"
    " session, or call interrupt() from another thread"
)
ANOTHER_LOOP: Final = (
    "this session is in use on another event loop, which runs in another thread: give each loop its own session,"
    " or use a Session, which is safe from many threads"
)


class NotRunning(ShellSessionError):
    """There is no running command to wait for, to send input to, or to interrupt."""

    code = "not_running"


class SessionClosed(ShellSessionError):
    """The session was closed; make a new one."""

    code = "closed"


class ShellUnavailable(ShellSessionError):
    """Bash could not be started, is missing, or is older than 4.4."""

    code = "unavailable"


class LimitReached(ShellUnavailable):
    """A limit of this process or machine was reached: open files, terminals, or space in the runtime directory."""

    code = "limit_reached"


class TooManySessions(LimitReached):
    """The limit of sessions was reached. ``idle`` names the agents whose sessions could be closed to make room."""

    code = "too_many_sessions"

    def __init__(self, message: str, idle: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.idle = idle

    def __reduce__(self) -> tuple[type[TooManySessions], tuple[str, tuple[str, ...]]]:
        return type(self), (str(self), self.idle)  # so that pickle keeps ``idle``


class SandboxUnavailable(ShellUnavailable):
    """The sandbox cannot be made here as requested.

    Bubblewrap, user namespaces, control groups or a path are missing, or its paths contradict each other.
    """

    code = "sandbox_unavailable"


class BranchUnavailable(ShellUnavailable):
    """The branch of the files cannot be made here as requested, or this session has none.

    User namespaces are missing, the layers cannot be where they would be, or its directory is gone or another one; the
    message says what, and what to do.
    """

    code = "branch_unavailable"


class StartupFailed(ShellUnavailable):
    """A command of ``startup`` failed, so the session was not opened. The next verb tries to open it again."""

    code = "startup_failed"


class NoSuchAgent(ShellSessionError):
    """No agent of this name is known: it never was, or it was closed."""

    code = "no_such_agent"


class StateLost(ShellSessionError):
    """The agent's last session has ended, with its state; the message says where it was. Nothing was run."""

    code = "state_lost"


class NoSuchOutput(ShellSessionError):
    """No output of this id is kept: there was none, it has expired, or it could not be kept."""

    code = "no_such_output"


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
    """The daemon that got the request has ended. The request may or may not have run, and was not run again."""

    code = "outcome_unknown"


class ReceiptUnavailable(ShellSessionError):
    """The daemon cannot write a receipt, so it did not run the command that has an idempotency key. Others it runs."""

    code = "receipt_unavailable"


class ResultExpired(ShellSessionError):
    """The request was run, or may have been, and its result is no longer kept. It was not run again."""

    code = "result_expired"


class SnapshotUnavailable(ShellSessionError):
    """Bash did not list its state, or did not take one; the message says why."""

    code = "snapshot_unavailable"


class SnapshotDamaged(ShellSessionError):
    """The file is no snapshot, or it is damaged. Nothing was changed."""

    code = "snapshot_damaged"


class SnapshotTooNew(ShellSessionError):
    """A newer version of shellsession has written the snapshot. Nothing was changed."""

    code = "snapshot_too_new"


class Conflict(ShellSessionError):
    """Paths that a branch changes have also changed in its directory since the branch was opened: ``paths``, below it.

    Or the session has changed since an attempt began, which then cannot be applied. Nothing was written.
    """

    code = "conflict"

    def __init__(self, message: str, paths: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.paths = paths

    def __reduce__(self) -> tuple[type[Conflict], tuple[str, tuple[str, ...]]]:
        return type(self), (str(self), self.paths)  # so that pickle keeps ``paths``


class ApplyFailed(ShellSessionError):
    """The changes of a branch could not be written, as on a full disk; the message says what to do."""

    code = "apply_failed"


class MissingExtra(ShellSessionError, ImportError):
    """An optional dependency is not installed; the message names the extra that installs it."""

    code = "missing_extra"


class PolicyRefused(ShellSessionError):
    """The policy refuses this command. Nothing was run; the message says why."""

    code = "policy_refused"


class ContractError(ShellSessionError):
    """An error that a tool's document defines; the message has the document's words."""

    code = "contract"
