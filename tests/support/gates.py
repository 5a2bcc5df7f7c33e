"""A command that counts its runs, and clients that request it, again over another connection too."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from daemons import Raw
from system import wait_until

from shellsession import Result, aconnect, connect
from shellsession.daemon.protocol.wire import Message, encode


class Gate:
    """A command that counts its runs, and ends once the test calls ``open``."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.text = f"cd {place}; echo run >>count; echo begun; until [ -e open ]; do sleep 0.05; done; echo ended"

    @property
    def count(self) -> int:
        path = self.place / "count"
        return len(path.read_text(encoding="ascii").splitlines()) if path.exists() else 0

    def open(self) -> None:
        (self.place / "open").touch()

    def until_begun(self) -> None:
        wait_until(lambda: self.count, "the command")


def blocking(agent: str, socket: str, text: str) -> Result:
    with connect(agent, socket, False, cwd="/") as session:
        return session.run(text)


def with_asyncio(agent: str, socket: str, text: str) -> Result:
    async def main() -> Result:
        async with await aconnect(agent, socket, False, cwd="/") as session:
            return await session.run(text)

    return asyncio.run(main())


def again(path: str, request: dict[str, Any], *parts: bytes) -> Message:
    """Send the same request, with the same id, over another connection."""
    with Raw(path) as raw:
        raw.socket.sendall(encode(request, *parts))
        return raw.receive()
