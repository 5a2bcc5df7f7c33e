"""``Checkpoint``: a moment of a branch, and how callers name one."""

from __future__ import annotations

from typing import Final, NamedTuple

from ..errors import InvalidRequest

# The first checkpoint of a fork: the moment at which it was made.
FORKED: Final = "fork"
_NAME_MAX: Final = 100


class Checkpoint(NamedTuple):
    """A moment of a branch, to which ``rollback`` brings the files and the shell back.

    ``at``: the moment, as by time.time. ``size``: the bytes written since ``parent``, the checkpoint before it; for the
    first that is "".
    """

    name: str
    at: float
    size: int
    parent: str


def name_of_checkpoint(checkpoint: object) -> str:
    """The name of the checkpoint that a caller has passed, which may be "". Raises InvalidRequest."""
    name = checkpoint.name if isinstance(checkpoint, Checkpoint) else checkpoint
    if not isinstance(name, str) or len(name) > _NAME_MAX or not (name.isprintable() and name.isascii()):
        raise InvalidRequest(
            f"a checkpoint must be named by at most {_NAME_MAX} printable characters, not {name!r:.100}"
        )
    return name
