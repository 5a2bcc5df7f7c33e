"""Does a client ask from inside the very session that it asks for? Its command would wait for itself.

Law: it looks and never acts; only where a command runs is there anything to look at.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..engine import processes
from ..engine.marks import GENERATIONS

if TYPE_CHECKING:
    from ..engine.shell import Shell


def is_of(shell: Shell, pid: int) -> bool:
    """Was it started in the session of that shell? Also by a session within it, whose mark is another."""
    first = shell.seat.mark
    return any(one == shell.pid or first <= processes.mark(one) < first + GENERATIONS for one in processes.lineage(pid))


def is_of_the_running(shell: Shell, pid: int) -> bool:
    """The same, and not by what an earlier command has left in the background, for which nobody waits?"""
    return is_of(shell, pid) and not shell.family.marks.is_earlier(pid)
