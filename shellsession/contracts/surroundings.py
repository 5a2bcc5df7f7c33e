"""Surroundings: the host's directory and environment of now, and bash text that takes a call there.

Law: only names that bash can set are touched; all text is quoted.
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

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
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
    return [f"\\builtin cd -- {_word(place)}", f"\\builtin unset -v {' '.join(_CHANGED)}", *changes({}, before)]


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
    gone = [name for name in then if name not in now and _can_be_set(name)]
    new = {name: value for name, value in now.items() if then.get(name) != value and _can_be_set(name)}
    unset = [f"\\builtin unset -v {name}" for name in gone]
    return unset + [f"\\builtin export {name}={_word(value)}" for name, value in new.items()]


def _can_be_set(name: str) -> bool:
    return name not in _READ_ONLY and _NAME.fullmatch(name) is not None


def _word(text: str) -> str:
    return quoted(os.fsencode(text)).decode("utf-8", "surrogateescape")
