"""``Checkpoint``: a moment of a branch, and how callers name one."""

from __future__ import annotations

from typing import Final, NamedTuple

from ..errors import InvalidRequest

# The first checkpoint of a fork: the moment at which it was made.
FORKED: Final = "fork"
_NAME_MAX: Final = 100


class Checkpoint(NamedTuple):
    """A moment of a branch to which ``rollback`` brings back the files, and the shell.

    ``at``: the moment that it has kept, as by time.time. ``size``: the bytes of what was written since the checkpoint
    before it, ``parent``; that is "" for the first.
    """

    name: str
    at: float
    size: int
    parent: str


def name_of_checkpoint(checkpoint: object) -> str:
    """The name of a checkpoint that a caller means; "" if any will do. Raises InvalidRequest."""
    name = checkpoint.name if isinstance(checkpoint, Checkpoint) else checkpoint
    if not isinstance(name, str) or len(name) > _NAME_MAX or not (name.isprintable() and name.isascii()):
        raise InvalidRequest(
            f"a checkpoint must be named by at most {_NAME_MAX} printable characters, not {name!r:.100}"
        )
    return name
