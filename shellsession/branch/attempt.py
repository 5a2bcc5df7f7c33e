"""``Attempt``: a command that was tried on a fork of a session, and its outcome."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from ..errors import InvalidRequest
from .checkpoint import FORKED

if TYPE_CHECKING:
    from ..models import Result
    from ..signatures import Command, RunOptions
    from ..state.values import Restored
    from .changes import Change


class _Tried:
    """The common part of ``Attempt`` and ``AsyncAttempt``."""

    _is_over = False

    def __init__(
        self, result: Result, changes: tuple[Change, ...], apply: Callable[[], Any], discard: Callable[[], Any]
    ) -> None:
        self.result, self.changes = result, changes
        self._apply, self._discard = apply, discard

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.result!r}, {len(self.changes)} changes>"

    def _refuse_over(self) -> None:
        if self._is_over:
            raise InvalidRequest("this attempt was applied or discarded already: try the command again")


class Attempt(_Tried):
    """A command that was tried on a fork of a session: ``session.attempt`` returns it.

    ``result``: of the command. ``changes``: what it wrote on the branch, sorted by path. The end of a ``with`` block
    discards it, unless it was applied.
    """

    @classmethod
    def of(cls, fork: Any, apply: Callable[[Any], Any], command: Command, options: RunOptions) -> Self:
        """Run the command on the fork of a session, and close the fork if that fails. ``apply`` takes the fork over."""
        try:
            result = fork.run(command, **options)
            return cls(result, fork.branch.diff(FORKED), partial(apply, fork), fork.close)
        except BaseException:
            fork.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.discard()

    def apply(self) -> Restored:
        """Continue the session with the files and the shell of the attempt. The result lists what is missing.

        Raises Conflict, and changes nothing, if the files or the shell of the session have changed since: only one of
        several attempts can be applied. Raises JobsRunning and SessionBusy, too.
        """
        self._refuse_over()
        restored: Restored = self._apply()
        self._is_over = True
        return restored

    def discard(self) -> None:
        """Throw away the files and the shell of the attempt. A second call does nothing."""
        if not self._is_over:
            self._is_over = True
            self._discard()


class AsyncAttempt(_Tried):
    """As ``Attempt``, for asyncio."""

    @classmethod
    async def of(cls, fork: Any, apply: Callable[[Any], Any], command: Command, options: RunOptions) -> Self:
        """As ``Attempt.of``."""
        try:
            result = await fork.run(command, **options)
            return cls(result, await fork.branch.diff(FORKED), partial(apply, fork), fork.close)
        except BaseException:
            await fork.close()
            raise

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.discard()

    async def apply(self) -> Restored:
        """As ``Attempt.apply``."""
        self._refuse_over()
        restored: Restored = await self._apply()
        self._is_over = True
        return restored

    async def discard(self) -> None:
        """As ``Attempt.discard``."""
        if not self._is_over:
            self._is_over = True
            await self._discard()
