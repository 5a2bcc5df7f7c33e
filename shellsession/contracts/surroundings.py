"""Surroundings: the host's directory, umask and environment of now, and bash text that takes a call there.

Law: all text is quoted, no value gets into the words of a program, where everybody could read it, and nothing is said
but why a call could not be begun.

What the host's environment has now and the session did not start with is set in the subshell of a call, functions that
were exported too. A name that bash cannot hold (``X-Y``) it only hands on: one that is gone is taken away by ``env -u``
in front of the call's bash; one that has come since, or has another value, is not there in this session. A variable
that a command has made read-only stays as it is, or is not handed on.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Mapping
from typing import Any, Final

from ..engine import processes
from ..engine.environment import AGENT_ENV
from ..policy.sandbox import USABLE
from .contract import quoted
from .one_shot import NONCE, WITHOUT

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FUNCTION: Final = re.compile(r"BASH_FUNC_([\w.:+@-]+)%%")
# Bash sets these itself, whatever it is given: most are read-only, by BASH we know which program to run, and BASH_ARGV0
# would be `$0`.
_ITS_OWN: Final = frozenset({"BASH", "BASH_ARGV0", "BASHOPTS", "BASH_VERSINFO", "EUID", "PPID", "SHELLOPTS", "UID"})
# What the session's bash sets itself: of its own life, not of the command's.
_CHANGED: Final = ("OLDPWD", "SHLVL", "COLUMNS", "LINES")
# What of a session would be heard at our words, or change what they mean. No function stands before a special builtin
# in posix mode, which an assignment can begin.
_CALM: Final = (
    r"(( POSIXLY_CORRECT = 1 )); \unset -f builtin",
    r"\builtin trap - DEBUG ERR RETURN",
    r"\builtin set +aefkuvxCEPT +o posix",
    r"\builtin shopt -u expand_aliases cdspell",
)
# A `builtin` that is none (a read-only function, or disabled) would do nothing of all this, without a word. A `cd` that
# goes there fails all the same where PWD or OLDPWD is read-only. One that does not says why.
_GO: Final = r"""%(name)s=%(nonce)s
\builtin set -- %(place)s "$%(name)s"
[[ ${2-} == "$%(name)s" || ${_shellsession_builtin?%(nonce)s} ]]
{ \builtin cd -- "$1" || [[ . -ef $1 ]]; } 2>/dev/null || {
\builtin cd -- "$1" >/dev/null
\builtin printf '%%s\n' "$2" >&2
\builtin exit 1
}"""


def cwd() -> str:
    """The host's working directory."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        # Removed under us: said by whoever goes there.
        return processes.link("/proc/self/cwd").removesuffix(" (deleted)") or "."


def begun(title: str, place: str, nonce: str) -> str:
    """Bash text that begins a call: in silence, whatever the session is set to, and there; or says why it cannot, and
    the nonce, and ends. The title does nothing: by it who looks on (lists, logs, jobs) sees at once what all the rest
    is to run.

    ``set -v`` shows the first line, as bash shows a line before it runs anything of it, and no other.
    """
    calm = "; ".join((f"\\builtin : {shlex.quote(title)}", *_CALM))
    go = _GO % {"name": NONCE, "nonce": nonce, "place": _word(place)}
    return f"{{ {calm}; }} >/dev/null 2>&1\n{go}"


def dressed(place: str, environ: Mapping[str, str]) -> list[str]:
    """Bash text that takes the host's umask, and undoes what a bash has changed in its environment."""
    before = {name: environ[name] for name in _CHANGED if name in environ}
    if (path := environ.get("PWD", "")) and _is_same(path, place):
        before["PWD"] = path  # perhaps another name of it
    return [
        f"\\builtin umask {processes.umask():04o}",
        f"\\builtin unset -v {' '.join(_CHANGED)} {WITHOUT}",
        *changes({}, before),
    ]


def since_start(session: Any, environ: Mapping[str, str], over_agents: bool) -> list[str]:
    """Bash text that makes ``environ`` of what the session's bash has started with, where that is the host's: also over
    agents, and not where whoever made the session has named another (``env``). What was added (``extra_env``) stays.
    """
    given = _given(session)
    if not (over_agents or given["inherited"]):
        return []
    text = changes(given["started"], {**environ, **(given["extra_env"] or {})})
    return [*text, f"{{ {USABLE}; }}"] if given["sandbox"] else text


def its_bash(session: Any) -> list[str]:
    """Bash text that names the program that the session runs, where that is not the one that bash would find."""
    path = str(_given(session)["bash"])
    return [] if path == "bash" else [f"BASH={_word(shutil.which(path) or path)}"]


def started(session: Any) -> Mapping[str, str]:
    """The environment that the session's bash was started with, or will be."""
    environ: Mapping[str, str] = _given(session)["started"]
    return environ


def _given(session: Any) -> dict[str, Any]:
    """With which options somebody made the session, here or in a daemon; and ``started``, its bash's environment."""
    if (engine := getattr(session, "_engine", None)) is None:
        return _given_to_daemon(session)
    options, shell = engine.options, engine.shell
    given = {name: getattr(options, name) for name in ("extra_env", "bash", "sandbox")}
    started = engine.environment() if shell is None else processes.environment(shell.pid)
    return {**given, "inherited": options.env is None, "started": started}


def _given_to_daemon(session: Any) -> dict[str, Any]:
    """It keeps for all its shells what it was opened with: another client's follows what changes here."""
    opening: Mapping[str, Any] = getattr(session, "_opening", {})
    options = {"extra_env": None, "bash": "bash", "sandbox": None, "inherited": False, **opening}
    started = {**options.get("env", {}), **(AGENT_ENV if options.get("agent_env", True) else {})}
    return {**options, "started": {**started, **(options["extra_env"] or {})}}


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
    if name in _ITS_OWN:
        return []
    if _NAME.fullmatch(name):
        return [f"\\builtin unset -v {name} || \\builtin export -n {name}"]  # a read-only one is not handed on
    if function := _FUNCTION.fullmatch(name):
        return [f"\\builtin unset -f -- {function[1]}"]
    program = _word(shutil.which("env", path=os.defpath) or "env")
    return [f"{{ [[ -v {WITHOUT} ]] || {WITHOUT}=({program}); }}", f"{WITHOUT}+=(-u {_word(name)})"]


def _with(name: str, value: str) -> list[str]:
    if name in _ITS_OWN:
        return []
    if _NAME.fullmatch(name):
        # Not as the session has it: an array, or a number, which a value that is none would end our text with.
        return [f"\\builtin unset -v {name}; \\builtin export {name}={_word(value)}"]
    if (function := _FUNCTION.fullmatch(name)) and value.startswith("() {"):
        return [f"\\builtin eval {_word(f'function {function[1]} {value}')} && \\builtin export -f -- {function[1]}"]
    return []


def _word(text: str) -> str:
    return quoted(os.fsencode(text)).decode("utf-8", "surrogateescape")
