"""A sandboxed session keeps every promise of a session: it runs the tests of ``test_contract*``."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import test_contract
import test_contract_elsewhere
from kinds import in_a_loop
from sandboxes import needs_bwrap

from shellsession import AsyncSession, Sandbox, Session

pytestmark = needs_bwrap

# bubblewrap tells of bash's end a moment late: what is typed meanwhile is not known to have been lost.
_NOT_HERE = {"test_a_command_that_was_not_run_is_reported_as_that"}
_TESTS = vars(test_contract) | vars(test_contract_elsewhere)
globals().update({name: _TESTS[name] for name in _TESTS if name.startswith("test_") and name not in _NOT_HERE})


@pytest.fixture(params=["sync", "async"])
def sh(request: pytest.FixtureRequest, place: Path) -> Iterator[Session]:
    """A sandboxed session of each kind."""
    sandbox = Sandbox(write=[place])
    if request.param == "sync":
        with Session(cwd=place, timeout=20, sandbox=sandbox) as session:
            yield session
    else:
        with in_a_loop(lambda: AsyncSession(cwd=place, timeout=20, sandbox=sandbox)) as session:
            yield session


def test_a_directory_and_variables_of_one_command(sh: Session) -> None:
    """Bash saves what they hide, where it can write and nobody else can read."""
    sh.run("declare -A X=([a]=before)")
    assert sh.run("echo $PWD $X", cwd="/usr", env={"X": "within"}).stdout == "/usr within\n"
    assert sh.run("echo ${X[a]}; pwd").stdout == f"before\n{sh.cwd}\n"
