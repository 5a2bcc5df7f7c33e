"""The public surface: these names, these errors, and the same words in sync and async."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from typing import Any, get_type_hints

import pytest

import shellsession
from shellsession import (
    AsyncRemoteSession,
    AsyncSession,
    RemoteSession,
    Session,
    ShellSessionError,
    errors,
    models,
    redact,
)
from shellsession.daemon.client.remote import Remote
from shellsession.inner import InnerHere, InnerRemote
from shellsession.options import SessionOptions
from shellsession.signatures import RunOptions

_PUBLIC = [
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
_VERBS = {
    "open",
    "run",
    "stream",
    "events",
    "wait",
    "poll",
    "send",
    "type",
    "interrupt",
    "read_output",
    "read_file",
    "write_file",
    "expect",
    "expect_exact",
    "restart",
    "restore",
    "snapshot",
    "checkpoint",
    "rollback",
    "checkpoints",
    "drop_checkpoint",
    "fork",
    "attempt",
    "why",
    "close",
}
_OF_THIS_PROCESS = {"fork_many"}

_STATE = {
    "after",
    "before",
    "branch",
    "closed",
    "command",
    "cwd",
    "idle",
    "jobs",
    "match",
    "pid",
    "policy",
    "redact",
    "resize",
    "restored",
    "size",
    "state",
}


def inner(kind: type) -> set[str]:
    """The names of the inner interface of that kind of session."""
    declared = InnerRemote if issubclass(kind, Remote) else InnerHere
    names = {name for one in declared.__mro__ if one.__module__ == declared.__module__ for name in vars(one)}
    return {name for name in names | declared.__annotations__.keys() if not name.startswith("_")}


twins = pytest.mark.parametrize(
    "kinds", [(Session, AsyncSession), (RemoteSession, AsyncRemoteSession)], ids=["here", "in the daemon"]
)


def verbs(kind: type) -> dict[str, Callable[..., Any]]:
    """Those that are awaited by one kind and not by the other: of its own, and of what it shares with the daemon's."""
    own = [item for one in (kind, *kind.__bases__[-1].__mro__[:-1]) for item in vars(one).items()]
    return {name: value for name, value in own if callable(value) and not name.startswith("_")}


def tree(root: type[Exception], depth: int = 0) -> Iterator[tuple[int, str, str]]:
    """A class of ours and everything below it: depth, name, code. (Each tool contract has its own, elsewhere.)"""
    yield depth, root.__name__, root.__dict__["code"]
    for child in root.__subclasses__():
        if child.__module__ in {errors.__name__, models.__name__}:
            yield from tree(child, depth + 1)


def test_the_public_names_are_these() -> None:
    assert shellsession.__all__ == _PUBLIC


def test_the_names_stand_as_ruff_sorts_them() -> None:
    """Constants, then classes, then the rest."""
    assert shellsession.__all__ == sorted(
        shellsession.__all__, key=lambda name: (not name.isupper(), name[0].islower(), name)
    )


@pytest.mark.parametrize("name", _PUBLIC)
def test_every_name_can_be_imported(name: str) -> None:
    assert getattr(shellsession, name) is not None
    assert name in dir(shellsession)


@pytest.mark.parametrize("name", [name for name in _PUBLIC if name != "TTY"])
def test_the_annotations_of_every_name_can_be_looked_up(name: str) -> None:
    """As pydantic does for the fields of a model."""
    get_type_hints(getattr(shellsession, name))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Sessions'"):
        _ = shellsession.Sessions


@twins
def test_both_sessions_have_these_verbs(kinds: tuple[type, type]) -> None:
    # ``jobs`` is awaited by neither, and each kind has jobs of its own.
    wanted = _VERBS | (_OF_THIS_PROCESS if kinds[0] is Session else set())
    assert [set(verbs(kind)) - {"connect", "jobs"} - inner(kind) for kind in kinds] == [wanted] * 2


@pytest.mark.parametrize("kind", [Session, AsyncSession, RemoteSession, AsyncRemoteSession])
def test_public_names_of_a_session_are_documented_or_of_the_inner_interface(kind: type) -> None:
    public = {name for name in dir(kind) if not name.startswith("_")}
    own = {"connect", "disconnect"} if issubclass(kind, Remote) else _OF_THIS_PROCESS
    assert public - _VERBS - _STATE - own == inner(kind) & public
    made = kind() if kind is Session else AsyncSession() if kind is AsyncSession else kind("a", None, False, {})
    assert inner(kind) <= set(dir(made))


@twins
@pytest.mark.parametrize("verb", sorted(_VERBS))
def test_a_verb_has_the_same_parameters_in_sync_and_async(kinds: tuple[type, type], verb: str) -> None:
    """Names, order, kinds, defaults and annotations."""
    sync, asynchronous = (inspect.signature(verbs(kind)[verb]).parameters for kind in kinds)
    assert list(sync.values()) == list(asynchronous.values())


@twins
@pytest.mark.parametrize("verb", sorted(_VERBS - {"stream", "events", "attempt"}))
def test_a_verb_gives_the_same_in_sync_and_async(kinds: tuple[type, type], verb: str) -> None:
    sync, asynchronous = (inspect.signature(verbs(kind)[verb]).return_annotation for kind in kinds)
    assert sync == asynchronous
    assert [inspect.iscoroutinefunction(verbs(kind)[verb]) for kind in kinds] == [False, True]


def test_both_sessions_are_made_alike_and_look_alike() -> None:
    assert inspect.signature(Session) == inspect.signature(AsyncSession)
    public = [{name for name in dir(kind) if not name.startswith("_")} for kind in (Session, AsyncSession)]
    assert public[0] == public[1]


@pytest.mark.parametrize(
    ("made", "options"), [(Session, SessionOptions), (Session.run, RunOptions)], ids=["Session", "run"]
)
def test_options_that_are_passed_on_are_typed_as_where_they_go(
    made: Callable[..., object], options: type[SessionOptions] | type[RunOptions]
) -> None:
    late = {
        "Policy": shellsession.Policy,
        "Sandbox": shellsession.Sandbox,
        "Snapshot": shellsession.Snapshot,
        "Redact": redact.Redact,
        "re": re,
    }
    taken = inspect.signature(made, eval_str=True, locals=late).parameters
    kinds = {name: parameter.annotation for name, parameter in taken.items() if name not in ("self", "command")}
    assert get_type_hints(options, localns=late) == kinds


@pytest.mark.parametrize("kind", [Session, AsyncSession, RemoteSession, AsyncRemoteSession])
def test_every_verb_says_what_it_does(kind: type) -> None:
    assert [name for name, verb in verbs(kind).items() if not inspect.getdoc(verb)] == []


def test_the_codes_of_the_errors_are_unique() -> None:
    codes = [code for _, _, code in tree(ShellSessionError)]
    assert len(codes) == len(set(codes))


def test_the_tree_of_errors_is_the_one_that_is_drawn() -> None:
    drawn = [
        (len(match[1]) // 4, match[2], match[3])
        for match in re.finditer(r"^((?:│   |    |├── |└── )*)(\w+) {2,}(\w+)", errors.__doc__ or "", re.MULTILINE)
    ]
    assert drawn == list(tree(ShellSessionError))


def test_every_error_is_public() -> None:
    assert {name for _, name, _ in tree(ShellSessionError)} <= set(shellsession.__all__)


def test_errors_can_be_caught_as_what_python_has_for_them() -> None:
    assert issubclass(shellsession.InvalidRequest, ValueError)
    assert issubclass(shellsession.CommandTimeout, TimeoutError)
