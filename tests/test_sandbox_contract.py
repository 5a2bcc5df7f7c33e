"""What every session promises, a sandboxed one does: the tests of ``test_contract``, with another session."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import test_contract
from sandboxes import needs_bwrap

from shellsession import AsyncSession, Sandbox, Session

pytestmark = needs_bwrap

globals().update({name: value for name, value in vars(test_contract).items() if name.startswith("test_")})


@pytest.fixture(params=["sync", "async"])
def sh(request: pytest.FixtureRequest, place: Path) -> Iterator[Session]:
    """A sandboxed session of each kind."""
    sandbox = Sandbox(write=[place])
    if request.param == "sync":
        with Session(cwd=place, timeout=20, sandbox=sandbox) as session:
            yield session
    else:
        with test_contract.in_a_loop(lambda: AsyncSession(cwd=place, timeout=20, sandbox=sandbox)) as session:
            yield session
