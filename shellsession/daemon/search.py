"""``expect`` over the wire.

Law: the daemon tells what the terminal shows; the patterns stay here, and pexpect looks for them.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from .records import only_part
from .wire import Message

if TYPE_CHECKING:
    from ..engine.dialogue import Dialogue

# A request: its header, and what follows it.
Said = tuple[dict[str, Any], tuple[bytes, ...]]


class Search:
    """One ``expect``: ask as ``request`` says, and have ``step`` look at each answer."""

    def __init__(self, said: Said, dialogue: Dialogue, expecter: Any, seconds: float | None) -> None:
        self._said, self._dialogue, self._expecter = said, dialogue, expecter
        self._until = None if seconds is None else time.monotonic() + seconds

    def request(self) -> Said:
        header, parts = self._said
        left = None if self._until is None else max(0.001, self._until - time.monotonic())
        return {**header, "timeout": left}, parts

    def step(self, message: Message | None) -> int | None:
        """Which pattern was found in what came (None: before anything was asked)."""
        index: int | None
        if message is None:
            index = self._expecter.existing_data()
            return index
        index = self._dialogue.search(self._expecter, only_part(message.parts))
        if index is None and message.header.get("value"):
            index = self._expecter.eof()
        elif index is None and self._until is not None and time.monotonic() >= self._until:
            index = self._expecter.timeout()
        return index
