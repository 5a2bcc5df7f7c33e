"""An option is declared once, in ``Request`` or in ``Options``; these tests name every place that lacks it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from inspect import signature
from typing import Any, Final

import pytest

from shellsession import (
    TTY,
    AsyncAgents,
    AsyncRemoteSession,
    AsyncSession,
    Limits,
    RemoteSession,
    Result,
    Sandbox,
    Session,
    ShellSessionError,
    Snapshot,
)
from shellsession.cli.run import own_parser
from shellsession.contracts.one_shot import OneShot
from shellsession.contracts.tool import Tool
from shellsession.daemon.client.remote import PreparedRun, opening
from shellsession.daemon.protocol.wire import PROTOCOL, Decoder, encode
from shellsession.daemon.server import requests
from shellsession.daemon.server.journal import Journal
from shellsession.daemon.server.shared import Sessions
from shellsession.integrations.toolbox import Toolbox
from shellsession.models import OPTIONS, Request
from shellsession.options import Options, SessionOptions
from shellsession.policy.rules import Policy
from shellsession.signatures import RunOptions
from shellsession.store import Store

# A value that is nobody's default, for each option of a command and of a session.
_RUN: Final[dict[str, Any]] = {
    "timeout": 7.0,
    "idle_timeout": 8.0,
    "on_timeout": "kill",
    "stdin": b"input",
    "tty": False,
    "echo": True,
    "merge_stderr": True,
    "isolated": True,
    "limits": Limits(7),
    "on_output": print,
    "cwd": "/usr",
    "env": {"A": "1"},
    "patience": 9.0,
    "changes": True,
    "errexit": True,
    "idempotency_key": "a key",
}
_SESSION: Final[dict[str, Any]] = {
    "cwd": "/usr",
    "env": {"A": "1"},
    "extra_env": {"B": "2"},
    "agent_env": False,
    "timeout": 7.0,
    "on_timeout": "kill",
    "tty": False,
    "limits": Limits(7),
    "idle_timeout": 8.0,
    "stdin": TTY,
    "merge_stderr": True,
    "startup": (b"X=1",),
    "check_startup": False,
    "shutdown": (b"X=2",),
    "size": (81, 25),
    "bash": "/bin/bash",
    "sandbox": Sandbox(network=False),
    "policy": Policy(deny_commands=["rm"], deny=[re.compile("x", re.IGNORECASE)], secrets=["pin"], mask_secrets=True),
    "redact": (re.compile("pin-[0-9]", re.IGNORECASE),),
    "snapshot": Snapshot("/usr"),
    "recover": True,
    "branch": "/usr",
    "branch_dir": "/var/tmp/branch",
    "auto_checkpoints": 9,
}
# What an option is given together with.
_WITH: Final[dict[str, dict[str, Any]]] = {"branch_dir": {"branch": "/usr"}, "auto_checkpoints": {"branch": "/usr"}}
# Who does without these, and why.
_NOT_STREAMED: Final = {
    "on_timeout": "who iterates cannot go on with a command that is handed back",
    "on_output": "the iterator is for that",
    "echo": "there is no terminal to type at",
    "changes": "they are of a command that has ended in the call",
    "idempotency_key": "what was iterated over is not printed again",
}
_NOT_HERE: Final = {"idempotency_key": "a session of this process has no receipts, and refuses it"}
_NOT_SENT: Final = {"on_output": "it is called here"}
_NO_FLAGS: Final = {
    "echo": "`send` shows what it types",
    "changes": "a program asks for them",
    "limits": "output is passed on as it comes; with --json they are the session's",
    "on_output": "it is what prints",
}
_NOT_THE_MODELS: Final = {
    **dict.fromkeys(["on_timeout", "idle_timeout", "limits", "on_output", "patience"], "the toolbox's own"),
    **dict.fromkeys(
        ["tty", "echo", "merge_stderr", "isolated", "changes"], "how the toolbox reads output; nothing to choose"
    ),
    **dict.fromkeys(["cwd", "env", "errexit"], "a model writes them into its command"),
    "idempotency_key": "models repeat themselves; who calls the toolset knows which call this is",
}
_NOT_OPENED: Final = {"snapshot"}  # it does not fit into a header: `restore` sends it as a part
_RESULT: Final = Result(b"", b"", 0, None, "/", 0.1, "exited")


def lacking(place: str, has: Callable[[str], bool], names: Any, without: Any = ()) -> Iterator[str]:
    """In words, which of the options that place lacks."""
    for name in names:
        is_there = False
        with suppress(AttributeError, TypeError, ShellSessionError):  # it is said by name
            is_there = name in without or has(name)
        if not is_there:
            yield f"{place} lacks {name}"
    yield from (f"{place} has {name}, and this test says that it does without" for name in without if has(name))


def request_of(header: dict[str, Any]) -> requests.Envelope:
    """What the daemon takes that for which its client sends."""
    (message,) = Decoder().feed(encode({"agent": "a", "protocol": PROTOCOL, "id": "1", **header}))
    return requests.parse(message.header)


def test_each_place_has_each_option_of_a_command(monkeypatch: pytest.MonkeyPatch) -> None:
    came: list[Any] = []

    def note(_: object, request: Request | PreparedRun) -> Result:
        came.append(request)
        return _RESULT

    for kind, verb in ((Session, "_run"), (Session, "_stream"), (RemoteSession, "_run")):
        monkeypatch.setattr(kind, verb, note)
    here, there = Session(), RemoteSession.for_arguments("a", "/nowhere", False, {})
    flags = {"stdin" if name == "interactive" else name for name in vars(own_parser().parse_args(["x"]))}
    offered = {"stdin" if name == "interactive" else name for name in signature(Toolbox.bash).parameters}
    tool = Tool(OneShot[object](), here, None, None)

    def given(name: str) -> dict[str, Any]:
        return {name: _RUN[name]}

    def request(name: str, verb: Callable[..., object]) -> bool:
        """Does the value get into the request?"""
        verb("true", **given(name))
        made: Request = came[-1]
        return bool(getattr(made, name) == _RUN[name])

    def message(name: str) -> bool:
        """Does the daemon give its session the value that its client was given?"""
        there.run("true", **given(name))
        prepared: PreparedRun = came[-1]
        (header, parts), _ = prepared
        asked = request_of(header)
        assert isinstance(asked, requests.Run)
        return asked.given(parts[1] if len(parts) > 1 else None) == given(name)

    def passed_on(name: str) -> bool:
        return bool(tool._prepare(Request(b"true", **given(name)))[2].get(name) == _RUN[name])

    said = [*lacking("_RUN in this test", _RUN.__contains__, OPTIONS)]
    said += lacking("RunOptions", RunOptions.__annotations__.__contains__, ["check", *OPTIONS])
    for one in (Session, AsyncSession, RemoteSession, AsyncRemoteSession):
        runs, streams = signature(one.run).parameters, signature(one.stream).parameters
        said += lacking(f"{one.__name__}.run()", runs.__contains__, ["check", *OPTIONS])
        said += lacking(f"{one.__name__}.stream()", streams.__contains__, OPTIONS, _NOT_STREAMED)
    if not said:  # else the rest cannot be tried
        taken = set(OPTIONS) - _NOT_HERE.keys()
        said += lacking("the request that run() makes", lambda name: request(name, here.run), taken)
        streamed = set(OPTIONS) - _NOT_STREAMED.keys()
        said += lacking("the request that stream() makes", lambda name: request(name, here.stream), streamed)
        said += lacking("the message to the daemon", message, OPTIONS, _NOT_SENT)
        said += lacking("what a tool passes to its session", passed_on, OPTIONS)
        said += lacking("`shellsession run --help`", flags.__contains__, OPTIONS, _NO_FLAGS)
        said += lacking("the tool that Toolbox.bash() is", offered.__contains__, OPTIONS, _NOT_THE_MODELS)
    if said:
        pytest.fail("\n".join(said), pytrace=False)


def test_each_place_has_each_option_of_a_session() -> None:
    names = set(Options._types) - {"umask"}

    def here(**given: Any) -> Options:
        return Session(**given).engine.options

    async def opened(given: SessionOptions) -> Options:
        asked = request_of({"verb": "open", **opening(given)})
        assert isinstance(asked, requests.Open)
        async with AsyncAgents() as agents:
            sessions = Sessions(agents, Journal(None), Store())
            sessions.open(asked)
            return sessions.of("a").engine.options

    def there(**given: Any) -> Options:
        options: Any = given
        return asyncio.run(opened(options))

    def arrives(name: str, make: Callable[..., Options]) -> bool:
        with_it, without = make(**{name: _SESSION[name]}, **_WITH.get(name, {})), make()
        return bool(getattr(with_it, name) == _SESSION[name] != getattr(without, name))

    said = [*lacking("_SESSION in this test", _SESSION.__contains__, names)]
    said += lacking("SessionOptions", SessionOptions.__annotations__.__contains__, names)
    for kind in (Session, AsyncSession):
        said += lacking(f"{kind.__name__}()", signature(kind).parameters.__contains__, names)
    said = said or [*lacking("what a session keeps", lambda name: arrives(name, here), names)]
    said = said or [
        *lacking("what the daemon opens for connect()", lambda name: arrives(name, there), names - _NOT_OPENED)
    ]
    if said:
        pytest.fail("\n".join(said), pytrace=False)
