"""Does a client ask from inside the very session that it asks for? Its command would wait for itself.

Law: it looks and never acts; only where a command runs is there anything to look at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..engine import processes
from ..engine.tags import GENERATIONS
from ..errors import InvalidRequest

if TYPE_CHECKING:
    from ..engine.shell import Shell
    from ..engine.steps import Engine


def refuse_from_inside(engine: Engine, agent: str, verb: str, pid: int, looks_on: bool) -> None:
    """Who stays with a command is not to be that command: it would wait for itself, or print what it prints.

    ``pid``: who asks. Raises InvalidRequest.
    """
    shell = engine.shell
    if shell is None or not (looks_on or engine.state == "running") or not _is_of(shell, pid):
        return
    # What an earlier command has left in the background may have its turn: nobody waits for it.
    if looks_on or not shell.family.tags.is_earlier(pid):
        asked = "attach" if looks_on else verb  # that is what watches and holds
        raise InvalidRequest(
            f"{asked} was asked for inside its own session, that of agent {agent!r}, which would wait for itself: take"
            " another agent's session, or just run the command"
        )


def _is_of(shell: Shell, pid: int) -> bool:
    """Was it started in the session of that shell? Also by a session within it, whose tag is another."""
    first = shell.seat.tag
    return any(one == shell.pid or first <= processes.tag(one) < first + GENERATIONS for one in processes.lineage(pid))
