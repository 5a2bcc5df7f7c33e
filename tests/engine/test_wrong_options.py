"""Unknown options and invalid values are refused before anything runs, by each kind of session."""

from __future__ import annotations

import asyncio
import inspect
import re
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from daemons import Daemon, Raw

from shellsession import (
    TTY,
    Agents,
    AsyncAgents,
    AsyncSession,
    InvalidRequest,
    Limits,
    RemoteSession,
    Session,
    ShellSessionError,
    aconnect,
    connect,
)
from shellsession.integrations.toolbox import Toolbox

pytestmark = pytest.mark.usefixtures("company")


class BytesPath:
    """A path, but none of text."""

    def __fspath__(self) -> bytes:
        return b"/"


class NumberPath:
    """No path, though it says so."""

    def __fspath__(self) -> int:
        return 5


# Of many kinds; those that an option does take are named below.
_VALUES: Final[dict[str, Any]] = {
    "a number": 5,
    "zero": 0,
    "a negative number": -1,
    "a fraction": 1.5,
    "no number": float("nan"),
    "endless": float("inf"),
    "a huge number": 10**400,
    "True": True,
    "None": None,
    "a text": "5",
    "an empty text": "",
    "a text with NUL": "a\0b",
    "a text that is no Unicode": "\ud800",
    "bytes": b"5",
    "an empty list": [],
    "a list": [1, 2, 3],
    "a pair": ("a", 2),
    "a pair of fractions": (80.0, 24.0),
    "a pair of flags": (True, True),
    "a pair of zeros": (0, 0),
    "a pair of numbers": (80, 24),
    "an empty mapping": {},
    "a mapping of numbers": {1: 2},
    "a mapping to numbers": {"A": 3},
    "a mapping from numbers": {1: "a"},
    "a mapping from None": {None: "a"},
    "an object": object(),
    "a path of bytes": BytesPath(),
    "a path of a number": NumberPath(),
    "a class of paths": Path,
    "a function": len,
}
_NUMBERS: Final = {"a number", "a fraction", "None"}
_PLACES: Final = {"a text"}  # and where they lead is seen when they are used
_TEXTS: Final = {"a text", "an empty text", "bytes"}
_SESSION: Final[dict[str, set[str]]] = {
    "cwd": {"None"},
    "env": {"None", "an empty mapping"},
    "extra_env": {"None", "an empty mapping"},
    "agent_env": {"True"},
    "timeout": _NUMBERS,
    "on_timeout": set(),
    "tty": {"True"},
    "limits": {"None"},
    "idle_timeout": _NUMBERS,
    "stdin": {"None"},
    "merge_stderr": {"True"},
    "startup": {*_TEXTS, "an empty list"},
    "check_startup": {"True"},
    "shutdown": {*_TEXTS, "an empty list"},
    "size": {"a pair of numbers"},
    "bash": _PLACES,
    "sandbox": {"None"},
    "branch": {*_PLACES, "None"},
    "branch_dir": {*_PLACES, "None"},
    "auto_checkpoints": {"zero", "a number"},
    "policy": {"None"},
    "redact": {"True", "an empty list"},
    "snapshot": {"None"},
    "recover": {"True"},
}
_RUN: Final[dict[str, set[str]]] = {
    "command": _TEXTS,
    "timeout": _NUMBERS,
    "idle_timeout": _NUMBERS,
    "patience": _NUMBERS,
    "on_timeout": {"None"},
    "stdin": {*_TEXTS, "a text with NUL", "None"},
    "tty": {"True", "None"},
    "merge_stderr": {"True", "None"},
    "isolated": {"True"},
    "limits": {"None"},
    "on_output": {"None", "a function", "a class of paths"},
    "echo": {"True"},
    "cwd": {"None", "a text"},
    "env": {"None", "an empty mapping"},
    "changes": {"True"},
    "errexit": {"True"},
    "idempotency_key": {"a text", "a text with NUL", "None"},
    "check": {"True"},
}


def refused(do: Callable[[Any], object], *fit: str) -> None:
    """Every value but those that ``fit`` is refused, as what it is."""
    said: dict[str, str] = {}
    for what, value in _VALUES.items():
        if what not in fit:
            said[what] = "taken"
            try:
                do(value)
            except Exception as error:
                said[what] = type(error).__name__
    assert {what: how for what, how in said.items() if how != "InvalidRequest"} == {}


def named(function: Callable[..., object]) -> set[str]:
    return {*inspect.signature(function).parameters} - {"self"}


def test_none_is_forgotten() -> None:
    assert named(Session.__init__) == named(AsyncSession.__init__) == {*_SESSION}
    assert named(Session.run) == named(AsyncSession.run) == named(RemoteSession.run) == {*_RUN}


@pytest.mark.parametrize("make", [Session, AsyncSession, Agents, AsyncAgents], ids=lambda make: make.__name__)
@pytest.mark.parametrize("name", _SESSION)
def test_of_a_session(make: Any, name: str) -> None:
    refused(lambda value: make(**{name: value}), *_SESSION[name])


def test_an_unknown_option_is_a_type_error_that_names_a_similar_one(daemon: Daemon) -> None:
    def of(make: Callable[..., Any], *arguments: object) -> str:
        """The message for an option whose name is nearly right."""

        async def call() -> None:
            if asyncio.iscoroutine(work := make(*arguments, timout=1)):
                await work

        with pytest.raises(TypeError) as error:
            asyncio.run(call())
        return str(error.value).replace(" got an unexpected keyword argument 'timout': did you mean timeout?", "")

    with Session() as sh, Agents() as agents, connect("a", daemon.socket, False) as remote:
        agents.session("a")
        tried: dict[str, tuple[Any, ...]] = {
            "Session()": (Session,),
            "AsyncSession()": (AsyncSession,),
            "Agents()": (Agents,),
            "AsyncAgents()": (AsyncAgents,),
            "connect()": (connect, "a", daemon.socket, False),
            "aconnect()": (aconnect, "a", daemon.socket, False),
            "Toolbox()": (Toolbox, sh),
            "Session.run()": (sh.run, "true"),
            "Session.stream()": (sh.stream, "true"),
            "AsyncSession.run()": (AsyncSession().run, "true"),
            "RemoteSession.run()": (remote.run, "true"),
            "Agents.session()": (agents.session, "a"),  # also if the session is there, and no option would apply
        }
        assert {name: of(*call) for name, call in tried.items()} == {name: name for name in tried}
        remote.close()


def test_other_type_errors_name_what_was_called(sh: Session) -> None:
    def broken(*_: object) -> None:
        raise TypeError("mine: run() got an unexpected keyword argument")

    with pytest.raises(TypeError, match=r"^Session\.run\(\) takes 2 positional arguments but 3 were given$"):
        sh.run("true", 5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"'max_chars': its options are command, timeout, .*, check$"):
        sh.run("true", max_chars=5)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"^mine: "):
        sh.run("echo", on_output=broken)


def test_what_is_right_is_taken() -> None:
    for name, fit in _SESSION.items():
        for what in fit:
            options: dict[str, Any] = {name: _VALUES[what]}
            Session(**({"branch": "/"} if name in ("branch_dir", "auto_checkpoints") else {}) | options)
    options = {"bash": Path("/bin/bash"), "cwd": Path("/"), "size": [80, 24], "startup": iter(["X=1"])}
    with Session(**options) as session:
        assert session.run("echo $X $PWD $COLUMNS").stdout == "1 / 80\n"


@pytest.mark.parametrize("make", [Agents, AsyncAgents], ids=lambda make: make.__name__)
def test_of_agents(make: Any) -> None:
    refused(lambda value: make(max_sessions=value), "a number", "a huge number")
    refused(lambda value: make(idle_ttl=value), *_NUMBERS)


def test_of_one_agents_session() -> None:
    with Agents() as agents:
        for name, fit in _SESSION.items():
            # None names no redaction, as it names no sandbox.
            allowed = fit | {"None"} if name == "redact" else fit
            refused(lambda value, name=name: agents.session("a", **{name: value}), *allowed)  # type: ignore[misc]
        assert agents.list() == []
        assert agents.session("a", redact=None).redact is False  # type: ignore[arg-type]


@pytest.mark.parametrize("name", _RUN)
def test_of_a_command(name: str, place: Path, sh: Session) -> None:
    refused(lambda value: sh.run(**{"command": "touch ran", name: value}), *_RUN[name])
    assert (sh.state, list(place.iterdir())) == ("new", [])


@pytest.mark.parametrize("kind", ["local", "remote"])
def test_of_a_command_that_has_the_terminal_anyway(sh: Session, remote: RemoteSession, kind: str) -> None:
    session: Any = sh if kind == "local" else remote
    refused(lambda value: session.run("true", stdin=TTY, tty=value), *_RUN["tty"])


@pytest.mark.parametrize("name", _RUN)
def test_of_a_command_in_a_loop(name: str, place: Path) -> None:
    with asyncio.Runner() as runner:
        session: Any = AsyncSession(cwd=place)
        refused(lambda value: runner.run(session.run(**{"command": "touch ran", name: value})), *_RUN[name])
        assert (session.state, list(place.iterdir())) == ("new", [])


@pytest.mark.parametrize("kind", ["local", "remote"])
def test_of_other_verbs(sh: Session, remote: RemoteSession, kind: str) -> None:
    session: Any = sh if kind == "local" else remote
    session.run("read x", stdin=TTY, timeout=0.05, on_timeout="yield")
    refused(lambda value: session.wait(timeout=value), *_NUMBERS)
    refused(lambda value: session.send("x", timeout=value), *_NUMBERS)
    refused(lambda value: session.expect("x", timeout=value), *_NUMBERS)
    refused(session.send, *_TEXTS, "a text with NUL")
    refused(session.type, *_TEXTS, "a text with NUL")
    refused(lambda value: session.resize(80, value), "a number")
    refused(lambda value: session.resize(value, 24), "a number")
    with pytest.raises(InvalidRequest, match=r"size is .* not \('a', 24\)"):
        session.resize("a", 24)
    assert session.interrupt().outcome == "interrupted"


# What holds a variable's value, and is no environment.
_SECRET: Final = "opensesame"
_NO_ENVIRONMENTS: Final[dict[str, Any]] = {
    "a text": f"TOKEN={_SECRET}",
    "bytes": f"TOKEN={_SECRET}".encode(),
    "a list": [f"TOKEN={_SECRET}"],
    "pairs": [("TOKEN", _SECRET)],
    "a value of bytes": {"TOKEN": _SECRET.encode()},
    "a value in a list": {"TOKEN": [_SECRET]},
    "a value with NUL": {"TOKEN": f"{_SECRET}\0"},
    "a value that is no Unicode": {"TOKEN": f"\ud800{_SECRET}"},
    "a value that is too long": {"TOKEN": _SECRET * 200_000},
    "a name with its value": {f"TOKEN={_SECRET}": 1},
    "a name of bytes": {f"TOKEN={_SECRET}".encode(): ""},
    "a pair for a name": {("TOKEN", _SECRET): ""},
    "an environment": {"TOKEN": _SECRET},
}


def said_of(kind: str, name: str, value: Any, socket: str) -> str:
    """What is said to a session of that kind with such an option, to its opening, or to its first command."""
    try:
        if kind == "raw":
            with Raw(socket) as raw:
                return str(raw.open("nobody", **{name: value}).header)
        with Session(**{name: value}) if kind == "local" else connect("nobody", socket, False, **{name: value}) as sh:
            return sh.run("true").reason
    except ShellSessionError as error:
        return "".join(traceback.format_exception(error))


@pytest.mark.parametrize("name", ["env", "extra_env", "agent_env", "sandbox"])
@pytest.mark.parametrize("kind", ["local", "remote", "raw"])
def test_no_error_shows_the_value_of_a_variable(daemon: Daemon, kind: str, name: str) -> None:
    for what, value in _NO_ENVIRONMENTS.items():
        said = said_of(kind, name, value, daemon.socket)
        assert _SECRET not in said, what
        assert said or what == "an environment"


# -- over the daemon


@pytest.mark.parametrize("name", [*_SESSION, "start"])
def test_of_a_connection(daemon: Daemon, agent: str, name: str) -> None:
    def options(value: object) -> dict[str, Any]:
        return {"start": False, "socket": daemon.socket, name: value}

    fit = {**_SESSION, "cwd": {"None", "a text"}, "start": {"True"}}[name]  # where cwd leads is seen by the daemon
    refused(lambda value: connect(agent, **options(value)), *fit)
    with asyncio.Runner() as runner:
        refused(lambda value: runner.run(aconnect(agent, **options(value))), *fit)


def test_of_the_way_to_a_daemon() -> None:
    fit = {"None", "a text"}
    refused(lambda value: connect("a", value), *fit)
    with asyncio.Runner() as runner:
        refused(lambda value: runner.run(aconnect("a", value)), *fit)


def test_of_an_agents_name(daemon: Daemon) -> None:
    refused(lambda value: connect(value, daemon.socket, False), "a text", "a text with NUL")


@pytest.mark.parametrize("name", _RUN)
def test_of_a_command_over_the_daemon(remote: RemoteSession, place: Path, name: str) -> None:
    refused(lambda value: remote.run(**{"command": "touch ran", name: value}), *_RUN[name])
    assert (remote.state, list(place.iterdir())) == ("new", [])


@pytest.mark.parametrize(
    ("env", "why"),
    [
        ({"A=B": "x"}, "its name, 'A=...', contains \"=\""),
        ({"A": 1}, "the value of 'A' is int, not str"),
        ({1: "x"}, "its name is int, not str"),
        ({"": "x"}, "its name is empty"),
        ({"A": "\0"}, "'A' (name or value contain a NUL byte, or a character that cannot be encoded)"),
    ],
)
def test_an_error_says_what_is_wrong_about_a_variable(env: Any, why: str) -> None:
    for options in ({"env": env}, {"extra_env": env}):
        with pytest.raises(InvalidRequest, match=re.escape(f"into the environment: {why}") + "$"):
            Session(**options)


def test_the_word_tty_is_not_taken_for_text(sh: Session) -> None:
    with pytest.raises(InvalidRequest, match=r"pass shellsession\.TTY for the terminal"):
        sh.run("cat", stdin="TTY")
    assert sh.run("cat", stdin=b"TTY").stdout == "TTY"


def test_a_job_has_no_other_output(sh: Session) -> None:
    sh.run("sleep 100 &")
    with pytest.raises(InvalidRequest, match="'before'"):
        sh.jobs()[0].output("before")


def test_of_limits() -> None:
    for name, fit in {
        "max_output": {"a number", "zero", "a huge number"},
        "spill_max": {"a number", "zero", "a huge number"},
        "spill": {"a text", "None"},
        "on_overflow": set[str](),
    }.items():
        refused(lambda value, name=name: Limits(**{name: value}), *fit)  # type: ignore[misc]
