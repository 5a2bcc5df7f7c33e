"""What a session and a command may be given by name, where that is passed on: a type checker knows it there, too.

Law: types alone, and those of ``Session`` and of its ``run``; a test holds them together.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, TypedDict

from .any_session import Seconds, Text
from .models import Limits, OnOutput, OnTimeout, Stdin

if TYPE_CHECKING:  # who has no sandbox does not load what it needs
    from .policy.sandbox import Sandbox


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


class RunOptions(TypedDict, total=False):
    """Those of ``Session.run``."""

    timeout: Seconds
    idle_timeout: float | None
    on_timeout: OnTimeout | None
    stdin: Stdin
    tty: bool | None
    merge_stderr: bool
    isolated: bool
    limits: Limits | None
    on_output: OnOutput | None
    echo: bool
    check: bool
