"""The ways to sessions that the adapters for harnesses take: here, in the daemon, and through a program."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, Final

import pytest
from daemons import Daemon
from system import unique_seconds

from shellsession import AsyncSession, aconnect
from shellsession.integrations.harness import Connect

KINDS: Final = ("local", "daemon", "via")
_PROGRAM: Final = str(Path(sys.executable).with_name("shellsession"))


@pytest.fixture(params=KINDS)
def connect(request: pytest.FixtureRequest, daemon: Daemon) -> Connect:
    if request.param == "local":
        return lambda name: AsyncSession(timeout=30)
    way: dict[str, Any] = {"via": ["env"], "remote": _PROGRAM} if request.param == "via" else {}
    prefix = unique_seconds()
    return lambda name: aconnect(f"{prefix}-{name}", daemon.socket, False, timeout=30, **way)
