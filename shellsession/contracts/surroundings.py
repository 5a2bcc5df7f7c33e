"""Surroundings: the host's directory and environment of now, and bash text that takes a call there.

Law: all text is quoted, and no value gets into the words of a program, where everybody could read it.

What the host's environment has now and the session did not start with is set in the subshell of a call, functions that
were exported too. A name that bash cannot hold (``X-Y``) it only hands on: one that is gone is taken away by ``env -u``
in front of the call's bash; one that has come since, or has another value, is not there in this session.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Mapping
from typing import Any, Final

from ..engine import processes
from ..engine.spawn import AGENT_ENV
from .contract import quoted
from .one_shot import WITHOUT

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FUNCTION: Final = re.compile(r"BASH_FUNC_([\w.:+@-]+)%%")
# Bash sets these itself, and lets nobody else.
_READ_ONLY: Final = frozenset({"BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID"})
# What the session's bash sets itself: of its own life, not of the command's.
_CHANGED: Final = ("OLDPWD", "SHLVL", "COLUMNS", "LINES")


def cwd() -> str:
    """The host's working directory."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        # Removed under us: said by whoever goes there.
        return processes.link("/proc/self/cwd").removesuffix(" (deleted)") or "."


def enter(place: str, environ: Mapping[str, str]) -> list[str]:
    """Bash text that goes there, and undoes what a bash has changed in its environment; it takes a directory only."""
    before = {name: environ[name] for name in _CHANGED if name in environ}
    if (path := environ.get("PWD", "")) and _is_same(path, place):
        before["PWD"] = path  # perhaps another name of it
    return [
        f"\\builtin cd -- {_word(place)}",
        f"\\builtin unset -v {' '.join(_CHANGED)} {WITHOUT}",
        *changes({}, before),
    ]


def added_to(session: Any) -> dict[str, str]:
    """What ``agent_env`` has added to the environment of a session that somebody made himself."""
    given = _given(session)
    inherits = given.get("inherited") and given.get("agent_env", True)
    extra = given.get("extra_env") or {}
    return {name: value for name, value in AGENT_ENV.items() if name not in extra} if inherits else {}


def its_bash(session: Any) -> list[str]:
    """Bash text that names the program that the session runs, where that is not the one that bash would find."""
    path = str(_given(session).get("bash", "bash"))
    return [] if path == "bash" else [f"BASH={_word(shutil.which(path) or path)}"]


def _given(session: Any) -> Mapping[str, Any]:
    """With which options somebody made the session, here or in a daemon."""
    if (engine := getattr(session, "_engine", None)) is None:
        opening: Mapping[str, Any] = getattr(session, "_opening", {})
        return opening
    options = engine.options
    given = {name: getattr(options, name) for name in ("agent_env", "extra_env", "bash")}
    return {**given, "inherited": options.env is None}


def _is_same(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except (OSError, ValueError):
        return False


def changes(then: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Bash text that makes one environment of another."""
    text: list[str] = []
    for name, value in then.items():
        if name not in now or (now[name] != value and not _NAME.fullmatch(name)):
            text += _without(name)
    for name, value in now.items():
        if then.get(name) != value:
            text += _with(name, value)
    return text


def _without(name: str) -> list[str]:
    if name in _READ_ONLY:
        return []
    if _NAME.fullmatch(name):
        return [f"\\builtin unset -v {name}"]
    if function := _FUNCTION.fullmatch(name):
        return [f"\\builtin unset -f -- {function[1]}"]
    program = _word(shutil.which("env", path=os.defpath) or "env")
    return [f"{{ [[ -v {WITHOUT} ]] || {WITHOUT}=({program}); }}", f"{WITHOUT}+=(-u {_word(name)})"]


def _with(name: str, value: str) -> list[str]:
    if name in _READ_ONLY:
        return []
    if _NAME.fullmatch(name):
        return [f"\\builtin export {name}={_word(value)}"]
    if (function := _FUNCTION.fullmatch(name)) and value.startswith("() {"):
        # Aliases of the session are none of the function's. One that is no function does not stop the command.
        made = f"\\builtin eval {_word(f'function {function[1]} {value}')} && \\builtin export -f -- {function[1]}"
        return ["\\builtin shopt -u expand_aliases", f"{{ {made} || :; }}"]
    return []


def _word(text: str) -> str:
    return quoted(os.fsencode(text)).decode("utf-8", "surrogateescape")
