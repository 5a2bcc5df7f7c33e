"""One bash that stays open for your AI agent: exact results, and state that a time limit does not lose.

::

    Session.run --> Request --> engine.verbs --> [ bash: terminal + FIFOs ] --> engine.wire --> Result
                    (models)    types it           engine.bash owns it          the mark        (models)

The public names, loaded when first used, so that a program pays only for what it uses. What the pages do not name
may change in any release.
"""

import sys

if sys.platform != "linux":
    raise ImportError(
        f"shellsession needs Linux: it drives bash through /proc and Linux's own calls, and this is {sys.platform};"
        " use a virtual machine or a container"
    )

TYPE_CHECKING = False  # to load ``typing`` for that would take most of the time that this takes
if TYPE_CHECKING:
    from .agents import AgentInfo, Agents, AsyncAgents
    from .async_session import AsyncSession
    from .branch.checkpoint import Checkpoint
    from .daemon.client.async_daemon import AsyncDaemon
    from .daemon.client.async_session import AsyncRemoteSession, aconnect
    from .daemon.client.daemon import Daemon
    from .daemon.client.session import RemoteSession, connect
    from .engine.io.jobs import AsyncJob, Job
    from .errors import (
        AlreadyOpen,
        ApplyFailed,
        BranchUnavailable,
        Conflict,
        ContractError,
        DaemonUnavailable,
        InvalidRequest,
        InvalidWorkflow,
        JobsRunning,
        KeyConflict,
        LimitReached,
        MissingExtra,
        NoSuchAgent,
        NoSuchOutput,
        NotRunning,
        OutcomeUnknown,
        PolicyRefused,
        ProtocolError,
        ReceiptUnavailable,
        ResultExpired,
        SandboxUnavailable,
        SessionBusy,
        SessionClosed,
        ShellSessionError,
        ShellUnavailable,
        SnapshotDamaged,
        SnapshotTooNew,
        SnapshotUnavailable,
        StartupFailed,
        StateLost,
        TooManySessions,
        VersionMismatch,
    )
    from .models import TTY, CommandError, CommandFailed, CommandTimeout, Limits, Result
    from .notices import Notice
    from .policy.rules import Policy
    from .sandbox import Sandbox
    from .session import Session
    from .state.snapshot import Snapshot
    from .workflow.model import Step
    from .workflow.workflow import Workflow

# All other names are of ``errors``.
_HOMES = {
    "branch.checkpoint": ("Checkpoint",),
    "daemon.client.session": ("RemoteSession", "connect"),
    "daemon.client.async_session": ("AsyncRemoteSession", "aconnect"),
    "daemon.client.daemon": ("Daemon",),
    "daemon.client.async_daemon": ("AsyncDaemon",),
    "agents": ("AgentInfo", "Agents", "AsyncAgents"),
    "engine.io.jobs": ("AsyncJob", "Job"),
    "models": ("TTY", "CommandError", "CommandFailed", "CommandTimeout", "Limits", "Result"),
    "notices": ("Notice",),
    "policy.rules": ("Policy",),
    "sandbox": ("Sandbox",),
    "async_session": ("AsyncSession",),
    "session": ("Session",),
    "state.snapshot": ("Snapshot",),
    "workflow.model": ("Step",),
    "workflow.workflow": ("Workflow",),
}

__all__ = [
    "TTY",
    "AgentInfo",
    "Agents",
    "AlreadyOpen",
    "ApplyFailed",
    "AsyncAgents",
    "AsyncDaemon",
    "AsyncJob",
    "AsyncRemoteSession",
    "AsyncSession",
    "BranchUnavailable",
    "Checkpoint",
    "CommandError",
    "CommandFailed",
    "CommandTimeout",
    "Conflict",
    "ContractError",
    "Daemon",
    "DaemonUnavailable",
    "InvalidRequest",
    "InvalidWorkflow",
    "Job",
    "JobsRunning",
    "KeyConflict",
    "LimitReached",
    "Limits",
    "MissingExtra",
    "NoSuchAgent",
    "NoSuchOutput",
    "NotRunning",
    "Notice",
    "OutcomeUnknown",
    "Policy",
    "PolicyRefused",
    "ProtocolError",
    "ReceiptUnavailable",
    "RemoteSession",
    "Result",
    "ResultExpired",
    "Sandbox",
    "SandboxUnavailable",
    "Session",
    "SessionBusy",
    "SessionClosed",
    "ShellSessionError",
    "ShellUnavailable",
    "Snapshot",
    "SnapshotDamaged",
    "SnapshotTooNew",
    "SnapshotUnavailable",
    "StartupFailed",
    "StateLost",
    "Step",
    "TooManySessions",
    "VersionMismatch",
    "Workflow",
    "aconnect",
    "connect",
]


def __getattr__(name: str) -> object:
    if name in __all__:
        from importlib import import_module

        home = next((home for home, names in _HOMES.items() if name in names), "errors")
        globals()[name] = value = getattr(import_module(f".{home}", __name__), name)
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
