"""Stories that call the tools of a session: of one in this process, of one for threads, and of one in the daemon."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from system import PATIENCE

from shellsession import AsyncSession, Session, aconnect
from shellsession.integrations.toolbox import Toolbox

Call = Callable[..., Awaitable[str]]
Story = Callable[[Call], Awaitable[None]]
Play = Callable[[Story], None]
KINDS: Final = ["here", "threads", "daemon"]


def player(kind: str, agent: str, socket: str, options: dict[str, Any], **tools: Any) -> Play:
    """A function that plays a story in such a session. ``tools``: the options of the toolbox."""

    async def main(story: Story) -> None:
        session: Any
        if kind == "daemon":
            session = await aconnect(agent, socket, False, **options)
        else:
            session = Session(**options) if kind == "threads" else AsyncSession(**options)
        toolbox = Toolbox(session, patience=PATIENCE, **tools)

        async def call(verb: str, **arguments: Any) -> str:
            return await toolbox.call(verb, arguments)

        try:
            await story(call)
        finally:
            closing = session.close()
            if closing is not None:
                await closing

    return lambda story: asyncio.run(main(story))
