"""The options of a session: the record of them, their types where they are passed on by name, and their checks.

Law: ``Options`` declares each option of ``Session``; a test says which place lacks one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, TypedDict

from .errors import InvalidRequest
from .models import Limits, OnTimeout, Record, Request, path_text, to_bytes
from .signatures import Text

if TYPE_CHECKING:
    from .sandbox import Sandbox


class Options(Record, unshown=("env", "extra_env")):
    """The options of a session; see ``Session`` for the meaning of each field."""

    cwd: str | None = None
    env: Mapping[str, str] | None = None
    extra_env: Mapping[str, str] | None = None
    agent_env: bool = True
    timeout: float | None = None
    on_timeout: OnTimeout = "interrupt"
    tty: bool = True
    limits: Limits = Limits()
    startup: tuple[bytes, ...] = ()
    check_startup: bool = True
    size: tuple[int, int] = (200, 50)
    bash: str = "bash"
    sandbox: Sandbox | None = None
    umask: int | None = None  # of the client that opened it; None: the host's


def path_of(name: str, value: object) -> str:
    """A path as text."""
    with suppress(UnicodeEncodeError):
        if (path := path_text(value)) is not None:
            os.fsencode(path)  # not in every locale can it be said
            return path
    raise InvalidRequest(f"{name} is a path (str), not {_shown(value)}")


def absolute(path: str) -> str:
    """The path, from where the host is now: later it may be elsewhere. ``..`` leads up from where a link leads.

    Raises InvalidRequest.
    """
    try:
        return path if os.path.isabs(path) else os.path.join(os.getcwd(), path)
    except FileNotFoundError as error:
        raise InvalidRequest(f"the host's own working directory is gone, and {path!r} is relative to it") from error


def place_of(cwd: object) -> str | None:
    """Where bash starts; whether that is there is not asked here."""
    if cwd is None:
        return None
    if (place := path_of("cwd", cwd)) == "":
        raise InvalidRequest("cwd '' is not a directory")
    return place


def bash_of(bash: object) -> str:
    """The name or path of bash."""
    if (found := path_of("bash", bash)) == "":
        raise InvalidRequest("bash is the name or path of one, not ''")
    return found


def commands_of(startup: object) -> tuple[bytes, ...]:
    """The startup commands; a text alone is one."""
    if isinstance(startup, str | bytes):
        startup = (startup,)
    if not isinstance(startup, Iterable) or isinstance(startup, Mapping):
        raise InvalidRequest(f"startup is a sequence of commands, not {_shown(startup)}")
    return tuple(Request(to_bytes("startup", text)).command for text in startup)


def check_options(env: object, extra_env: object, agent_env: object, size: object) -> None:
    """Refuse what these options cannot be. No error shows a variable's value, which may be a secret."""
    for name, value in (("env", env), ("extra_env", extra_env)):
        if value is not None and not isinstance(value, Mapping):
            raise InvalidRequest(f"{name} is a mapping of names to values, not {type(value).__name__}")
        for variable in (value or {}).items():
            _check_variable(*variable)
    if not isinstance(agent_env, bool):  # perhaps a mapping that was meant as extra_env
        raise InvalidRequest(f"agent_env is True or False, not {type(agent_env).__name__}")
    check_size(size)


def _check_variable(name: object, value: object) -> None:
    """Refuse what no program can get."""
    fit = isinstance(name, str) and isinstance(value, str) and name != "" and "=" not in name
    with suppress(UnicodeEncodeError):
        if fit and b"\0" not in os.fsencode(f"{name}{value}"):
            return
    # Behind a "=" in a name is what was meant as its value.
    shown = repr(name.partition("=")[0]) if isinstance(name, str) else f"its name is {type(name).__name__}"
    raise InvalidRequest(
        f"the environment holds a variable that no program can get: {shown} (names and values are str; no name holds a"
        ' "=")'
    )


def check_size(size: object) -> None:
    """Refuse what no terminal can have."""
    if not isinstance(size, tuple | list) or len(size) != 2 or not all(map(_is_length, size)):
        raise InvalidRequest(f"size is (columns, rows), two numbers from 1 to 65535; not {_shown(size)}")


def _is_length(one: object) -> bool:
    return isinstance(one, int) and not isinstance(one, bool) and 0 < one < 1 << 16


def _shown(value: object) -> str:
    """Some of it: a person reads this, and it may be long."""
    return f"{value!r:.100}"


class SessionOptions(TypedDict, total=False):
    """Those of ``Session``."""

    cwd: str | os.PathLike[str] | None
    env: Mapping[str, str] | None
    extra_env: Mapping[str, str] | None
    agent_env: bool
    timeout: float | None
    on_timeout: OnTimeout
    tty: bool
    limits: Limits | None
    startup: Iterable[Text]
    check_startup: bool
    size: tuple[int, int]
    bash: str | os.PathLike[str]
    sandbox: Sandbox | None
