"""``BranchFiles``: what callers of a session do with its branch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, overload

from ..errors import BranchUnavailable, InvalidRequest
from ..signatures import awaited
from .checkpoint import Checkpoint, name_of_checkpoint

if TYPE_CHECKING:
    from .changes import Change


def arguments(
    since: Checkpoint | str = "", patch: bool = False, paths: Sequence[str] | None = None, overwrite: bool = False
) -> dict[str, Any]:
    """The arguments of any action, checked. Raises InvalidRequest."""
    for name, flag in (("patch", patch), ("overwrite", overwrite)):
        if not isinstance(flag, bool):
            raise InvalidRequest(f"{name} must be True or False, not {flag!r:.100}")
    if paths is not None and (isinstance(paths, str) or not all(isinstance(one, str) for one in paths)):
        raise InvalidRequest(f"paths must be a list of paths below the branch's directory, not {paths!r:.100}")
    listed = None if paths is None else list(paths)
    return {"since": name_of_checkpoint(since), "paths": listed, "overwrite": overwrite}


_NO_PATH: Final = (
    "there is no path to the branch: the session has none (branch=), a sandbox has it, or no bash runs: open() it"
)


class _Shown:
    """The common part of ``BranchFiles`` and ``AsyncBranchFiles``.

    ``act``: carries out a method, by its name. ``path``: returns the path of the branch; "" if there is none.
    """

    def __init__(self, act: Callable[[str, dict[str, Any]], Any], path: Callable[[], str]) -> None:
        self._act, self._path = act, path

    @property
    def path(self) -> str:
        """Where other programs of this user, such as an agent's edit tool, find the files of the branch.

        It is below /proc, and valid until this bash ends: read it again after a rollback or a restart. Raises
        BranchUnavailable, also in a sandbox and before bash has started.
        """
        if not (path := self._path()):
            raise BranchUnavailable(_NO_PATH)
        return path


class BranchFiles(_Shown):
    """What a session has written on its branch. ``session.branch`` is one.

    Each method raises BranchUnavailable if the session has no branch.
    """

    @overload
    def diff(self, since: Checkpoint | str = "", *, patch: Literal[False] = False) -> tuple[Change, ...]: ...
    @overload
    def diff(self, since: Checkpoint | str = "", *, patch: bool) -> tuple[Change, ...] | bytes: ...
    def diff(self, since: Checkpoint | str = "", *, patch: bool = False) -> tuple[Change, ...] | bytes:
        """Return what the branch changes, sorted by path. ``patch``: as bytes that ``git apply`` takes.

        ``since``: a checkpoint that the files are based on; by default the directory itself.
        """
        found: tuple[Change, ...] | bytes = self._act("patch" if patch else "diff", arguments(since, patch))
        return found

    def apply(self, paths: Sequence[str] | None = None, *, overwrite: bool = False) -> tuple[Change, ...]:
        """Write the changes to the directory itself, and return them.

        ``paths``: only these, below the directory, and what is in them. Without ``paths`` the branch then starts over,
        without checkpoints. Raises Conflict, and writes nothing, if one of the paths has changed in the directory since
        the branch began; ``overwrite`` writes anyway. Raises ApplyFailed and JobsRunning, too.
        """
        done: tuple[Change, ...] = self._act("apply", arguments(paths=paths, overwrite=overwrite))
        return done

    def discard(self) -> None:
        """Throw away all changes and checkpoints. Bash stays as it is. Raises JobsRunning."""
        done: None = self._act("discard", arguments())
        return done


class AsyncBranchFiles(_Shown):
    """As ``BranchFiles``, for asyncio."""

    @overload
    async def diff(self, since: Checkpoint | str = "", *, patch: Literal[False] = False) -> tuple[Change, ...]: ...
    @overload
    async def diff(self, since: Checkpoint | str = "", *, patch: bool) -> tuple[Change, ...] | bytes: ...
    async def diff(self, since: Checkpoint | str = "", *, patch: bool = False) -> tuple[Change, ...] | bytes:
        """As ``BranchFiles.diff``."""
        found: tuple[Change, ...] | bytes = await self._act("patch" if patch else "diff", arguments(since, patch))
        return found

    apply = awaited(BranchFiles.apply)
    discard = awaited(BranchFiles.discard)
