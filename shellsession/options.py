"""The options of a session: their record (``Options``), their types as keyword arguments, and their checks.

``Options`` declares every option of ``Session``. A test fails if another place lacks one.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypedDict

from .errors import InvalidRequest
from .models import TTY, Limits, OnTimeout, Record, Request, Terminal, check_flag, path_text, to_bytes
from .redact import redaction
from .signatures import RunOptions, Text

if TYPE_CHECKING:
    import re

    from .policy.rules import Policy
    from .redact import Redact
    from .sandbox import Sandbox
    from .state.snapshot import Snapshot


# The kernel mounts some hundreds of layers.
_MOST: Final = 100


class Options(Record, unshown=("env", "extra_env")):
    """The options of a session. ``Session`` explains each one."""

    cwd: str | None = None
    env: Mapping[str, str] | None = None
    extra_env: Mapping[str, str] | None = None
    agent_env: bool = True
    timeout: float | None = 120.0
    on_timeout: OnTimeout = "interrupt"
    tty: bool = True
    limits: Limits = Limits()
    idle_timeout: float | None = None
    stdin: Terminal | None = None
    merge_stderr: bool = False
    startup: tuple[bytes, ...] = ()
    check_startup: bool = True
    shutdown: tuple[bytes, ...] = ()
    size: tuple[int, int] = (200, 50)
    bash: str = "bash"
    sandbox: Sandbox | None = None
    policy: Policy | None = None
    redact: bool | tuple[re.Pattern[str], ...] = False
    snapshot: Snapshot | None = None
    recover: bool = False
    branch: str | None = None
    branch_dir: str | None = None
    auto_checkpoints: int = 0
    umask: int | None = None  # of the client that opened it; None: the host's

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Options:
        """The options that a caller names, checked and copied; all else in ``given`` is ignored. Raises InvalidRequest.

        Paths are as they were given: they may be those of another machine.
        """
        options = {name: given[name] for name in cls._types if name in given}
        for name in ("sandbox", "policy", "limits"):
            if options.get(name, ...) is None:
                del options[name]
        made = cls(**options)
        check_sandbox(made.sandbox)
        if not isinstance(made.limits, Limits):
            raise InvalidRequest(f"limits must be a Limits, not {made.limits!r}")
        made.defaults()
        check_options(made.env, made.extra_env, made.agent_env, made.size)
        check_flag("check_startup", made.check_startup)
        check_flag("recover", made.recover)
        check_policy(made.policy)
        if made.branch is None and made.branch_dir is not None:
            raise InvalidRequest("branch_dir= says where the layers of a branch are: give branch=, too")
        if _checkpoints_of(made.auto_checkpoints) and made.branch is None:
            raise InvalidRequest("auto_checkpoints= needs branch=")
        return made.__replace__(
            cwd=place_of(made.cwd),
            branch=place_of(made.branch, "branch"),
            branch_dir=place_of(made.branch_dir, "branch_dir"),
            bash=bash_of(made.bash),
            env=None if made.env is None else dict(made.env),
            extra_env=None if made.extra_env is None else dict(made.extra_env),
            startup=commands_of("startup", made.startup),
            shutdown=commands_of("shutdown", made.shutdown),
            size=(made.size[0], made.size[1]),
            redact=redaction(made.redact),
        )

    def defaults(self) -> Request:
        """The defaults of ``run``. Raises InvalidRequest."""
        if self.stdin not in (None, TTY):
            raise InvalidRequest("stdin of a session is None or TTY: give a command its input with run(stdin=...)")
        defaults = Request(b"", limits=self.limits, **{name: getattr(self, name) for name in _DEFAULTS})
        if defaults.stdin is TTY and not defaults.tty:
            raise InvalidRequest("stdin=TTY gives each command the terminal: leave out tty=False")
        return defaults

    @property
    def rules(self) -> Rules:
        """The rules of the session."""
        return Rules(self.sandbox, self.policy, self.redact, self.branch, self.auto_checkpoints)


class Rules(NamedTuple):
    """What confines an agent, which secrets are masked, and what can be taken back. None, False and 0 name no rule.

    ``branch``: the directory that it does not change, as it has a branch of it.
    """

    sandbox: Sandbox | None = None
    policy: Policy | None = None
    redact: bool | tuple[re.Pattern[str], ...] = False
    branch: str | None = None
    auto_checkpoints: int = 0

    @classmethod
    def of(cls, options: SessionOptions) -> Rules:
        """The rules that options of a session name. Raises InvalidRequest."""
        check_sandbox(sandbox := options.get("sandbox"))
        check_policy(policy := options.get("policy"))
        redact: Any = options.get("redact")
        branch = place_of(options.get("branch"), "branch")
        kept = _checkpoints_of(options.get("auto_checkpoints", 0))
        redact = redaction(False if redact is None else redact)
        return cls(sandbox, policy, redact, branch and absolute(branch), kept)

    def next(self, named: Rules) -> Rules:
        """The rules of the next session of an agent that has these, if its caller names those.

        Each rule stays until another one is named in its place, or the agent is closed.
        """
        redact = self.redact if named.redact is False else named.redact
        most = max(self.auto_checkpoints, named.auto_checkpoints)
        sandbox, policy = named.sandbox or self.sandbox, named.policy or self.policy
        return Rules(sandbox, policy, redact, named.branch or self.branch, most)

    def lacks(self, named: Rules) -> list[str]:
        """Which of the rules that are named these do not have."""
        then = self.next(named)
        return [name for name, old, new in zip(self._fields, self, then, strict=True) if old != new]

    def options(self) -> SessionOptions:
        """The rules that are named, as options of a session."""
        named: Any = {name: value for name, value in self._asdict().items() if value not in (None, False)}
        options: SessionOptions = named
        return options


_DEFAULTS: Final = ("timeout", "on_timeout", "tty", "idle_timeout", "stdin", "merge_stderr")


def _checkpoints_of(most: object) -> int:
    """Return how many automatic checkpoints are kept. Raises InvalidRequest."""
    if type(most) is int and 0 <= most <= _MOST:
        return most
    raise InvalidRequest(f"auto_checkpoints must be a number from 0 to {_MOST}, not {most!r:.100}")


def path_of(name: str, value: object) -> str:
    """Return a path as text. Raises InvalidRequest with a message that begins with ``name``."""
    with suppress(UnicodeEncodeError):
        if (path := path_text(value)) is not None:
            os.fsencode(path)  # raises if this locale cannot encode it
            return path
    raise InvalidRequest(f"{name} must be a path (str), not {_shown(value)}")


def absolute(path: str) -> str:
    """Return an absolute path. A relative path starts at the host's current directory, which may change later.

    It keeps ``..``, which at a symbolic link means the parent of the link's target. Raises InvalidRequest.
    """
    try:
        return path if os.path.isabs(path) else os.path.join(os.getcwd(), path)
    except FileNotFoundError as error:
        raise InvalidRequest(f"the host's own working directory is gone, and {path!r} is relative to it") from error


def check_sandbox(sandbox: object) -> None:
    """Raise InvalidRequest unless this is a Sandbox or None."""
    if sandbox is not None:
        from .sandbox import Sandbox

        if not isinstance(sandbox, Sandbox):
            raise InvalidRequest(f"sandbox must be a Sandbox, not {type(sandbox).__name__}")


def check_policy(policy: object) -> None:
    """Raise InvalidRequest unless this is a Policy or None."""
    if policy is not None:
        from .policy.rules import Policy  # 13 ms, and rarely needed

        if not isinstance(policy, Policy):
            raise InvalidRequest(f"policy must be a Policy, not {_shown(policy)}")


def refuse_queue(policy: Policy | None) -> None:
    """Raise InvalidRequest if the questions of this policy wait in a daemon: here is none."""
    if policy is not None:
        from .policy import rules

        rules.refuse_queue(policy)


def place_of(cwd: object, name: str = "cwd") -> str | None:
    """Return ``cwd`` as text, without a check that the directory exists. Raises InvalidRequest."""
    if cwd is None:
        return None
    if (place := path_of(name, cwd)) == "":
        raise InvalidRequest(f"{name} '' is not a directory")
    return place


def scope_of(given: RunOptions) -> dict[str, Any]:
    """Return the ``cwd`` of a call as text, and a copy of its ``env``. Raises InvalidRequest."""
    scope: dict[str, Any] = {}
    if "cwd" in given:
        scope["cwd"] = place_of(given["cwd"])
    if isinstance(env := given.get("env"), Mapping):  # ``Request`` refuses anything else
        scope["env"] = dict(env)
    return scope


def bash_of(bash: object) -> str:
    """Return the name or path of bash as text. Raises InvalidRequest."""
    if (found := path_of("bash", bash)) == "":
        raise InvalidRequest("bash is the name or path of a bash, not ''")
    return found


def commands_of(name: str, commands: object) -> tuple[bytes, ...]:
    """Return the commands of ``startup`` or ``shutdown`` as bytes. One text is one command. Raises InvalidRequest."""
    if isinstance(commands, str | bytes):
        commands = (commands,)
    if not isinstance(commands, Iterable) or isinstance(commands, Mapping):
        raise InvalidRequest(f"{name} must be a sequence of commands, not {_shown(commands)}")
    return tuple(Request(to_bytes(name, text)).command for text in commands)


def check_options(env: object, extra_env: object, agent_env: object, size: object) -> None:
    """Raise InvalidRequest if one of these options is invalid.

    No message shows the value of a variable, which may be a secret.
    """
    for name, value in (("env", env), ("extra_env", extra_env)):
        if value is not None and not isinstance(value, Mapping):
            raise InvalidRequest(f"{name} must be a mapping of names to values, not {type(value).__name__}")
        for variable in (value or {}).items():
            _check_variable(*variable)
    if not isinstance(agent_env, bool):  # perhaps a mapping that was meant as extra_env
        raise InvalidRequest(f"agent_env is True or False, not {type(agent_env).__name__}")
    check_size(size)


def _check_variable(name: object, value: object) -> None:
    """Raise InvalidRequest if this variable cannot be in the environment of a process."""
    if not isinstance(name, str):
        why = f"its name is {type(name).__name__}, not str"
    elif not name:
        why = "its name is empty"
    elif "=" in name:  # the rest was probably meant as the value, which must not be shown
        why = f'its name, {name.partition("=")[0] + "=..."!r}, contains "="'
    elif not isinstance(value, str):
        why = f"the value of {name!r} is {type(value).__name__}, not str"
    else:
        with suppress(UnicodeEncodeError):
            if b"\0" not in os.fsencode(f"{name}{value}"):
                return
        why = f"{name!r} (name or value contain a NUL byte, or a character that cannot be encoded)"
    raise InvalidRequest(f"a variable cannot be put into the environment: {why}")


def check_size(size: object) -> None:
    """Raise InvalidRequest unless this is a size that a terminal can have."""
    if not isinstance(size, tuple | list) or len(size) != 2 or not all(map(_is_length, size)):
        raise InvalidRequest(f"size is (columns, rows), two numbers from 1 to 65535; not {_shown(size)}")


def _is_length(one: object) -> bool:
    return isinstance(one, int) and not isinstance(one, bool) and 0 < one < 1 << 16


def _shown(value: object) -> str:
    """Return the beginning of the value's repr, for a message. The value may be long."""
    return f"{value!r:.100}"


class SessionOptions(TypedDict, total=False):
    """The keyword arguments of ``Session``."""

    cwd: str | os.PathLike[str] | None
    env: Mapping[str, str] | None
    extra_env: Mapping[str, str] | None
    agent_env: bool
    timeout: float | None
    on_timeout: OnTimeout
    tty: bool
    limits: Limits | None
    idle_timeout: float | None
    stdin: Terminal | None
    merge_stderr: bool
    startup: Iterable[Text]
    check_startup: bool
    shutdown: Iterable[Text]
    size: tuple[int, int]
    bash: str | os.PathLike[str]
    sandbox: Sandbox | None
    policy: Policy | None
    redact: Redact
    snapshot: Snapshot | None
    recover: bool
    branch: str | os.PathLike[str] | None
    branch_dir: str | os.PathLike[str] | None
    auto_checkpoints: int
