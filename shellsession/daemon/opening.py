"""The options with which a client opens a session, as fields of a message.

Law: they hold all that the client means (its directory, home, environment, bash); the daemon adds nothing of its own.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from ..checks import absolute, bash_of, check_options, commands_of, place_of
from ..errors import InvalidRequest
from ..models import Limits, Request, check_flag
from .inherited import inherited, wire_text
from .wire import OUTPUT_MAX

if TYPE_CHECKING:
    from ..policy.sandbox import Sandbox

_OPTIONS: Final = {"agent_env", "timeout", "on_timeout", "tty", "check_startup", "size", "bash"}


def _path(path: str) -> str:
    """An absolute path for the wire."""
    return wire_text(os.fsencode(absolute(path)))


def limits_fields(limits: Limits) -> dict[str, object]:
    """``Limits`` for the wire; a path for the spill is relative to the client's directory. Raises InvalidRequest."""
    if limits.max_output > OUTPUT_MAX:
        raise InvalidRequest(
            f"limits: max_output is {limits.max_output}, and over the daemon at most {OUTPUT_MAX} bytes: name a spill"
            " for more"
        )
    return {**vars(limits), "spill": None if limits.spill is None else _path(limits.spill)}


def _sandbox_fields(sandbox: object) -> dict[str, object]:
    """``Sandbox`` for the wire; ``~`` is the client's home."""
    from ..policy.sandbox import Sandbox

    if not isinstance(sandbox, Sandbox):
        raise InvalidRequest(f"sandbox is a Sandbox, not {type(sandbox).__name__}")
    write, hide = ([os.path.expanduser(path) for path in paths] for paths in sandbox.paths)
    limits = {"memory": sandbox.memory_bytes, "processes": sandbox.processes, "cpu": sandbox.cpu}
    return {"write": write, "hide": hide, "network": sandbox.network, **limits}


def opening(
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str] | None = None,
    extra_env: Mapping[str, str] | None = None,
    limits: Limits | None = None,
    startup: Iterable[str | bytes] = (),
    sandbox: Sandbox | None = None,
    **options: Any,
) -> dict[str, Any]:
    """The fields of a request that opens a session: the options of ``Session``, and this process's own directory,
    environment and umask where these are not among them.

    Raises InvalidRequest, and TypeError, as ``Session``, for an unknown option.
    """
    unknown = set(options) - _OPTIONS
    if unknown:
        raise TypeError(f"a session has no option {', '.join(sorted(unknown))}")
    check_options(env, extra_env, options.get("agent_env", True), options.get("size", (200, 50)))
    check_flag("check_startup", options.get("check_startup", True))
    defaults = {name: options[name] for name in ("timeout", "on_timeout", "tty") if name in options}
    Request(b"", limits=Limits() if limits is None else limits, **defaults)  # refuses what Session does
    if "bash" in options:  # the one that this client means
        from shutil import which  # 5 ms, and seldom needed

        bash = bash_of(options["bash"])
        options["bash"] = _path(which(bash) or bash)
    place = place_of(cwd)
    fields = {**inherited(), "startup": [wire_text(text) for text in commands_of(startup)], **options}
    if place is not None:
        fields["cwd"] = _path(place)
    if env is not None:
        fields |= {"env": dict(env), "inherited": False}
    if extra_env is not None:
        fields["extra_env"] = dict(extra_env)
    if limits is not None:
        fields["limits"] = limits_fields(limits)
    if sandbox is not None:
        fields["sandbox"] = _sandbox_fields(sandbox)
    return fields
