"""What the daemon does for its clients beside the verbs of sessions: it opens, cancels, lists, counts and ends.

Law: none of it waits for a command.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

from . import requests
from .incoming import Answer, Incoming, room_for
from .records import from_result, to_part

if TYPE_CHECKING:
    from .server import Server


async def _open(server: Server, incoming: Incoming) -> Answer:
    made = server.sessions.open(incoming.request)
    session = server.sessions.of(incoming.request.agent).session
    return Answer({"value": made, "pid": session.pid, "timeout": session._defaults.timeout})


async def _cancel(server: Server, incoming: Incoming) -> Answer:
    request = incoming.request.request
    cancelled = await server.cancel(request)
    partial = cancelled.partial if cancelled is not None else await server.sessions.end_untold(request)
    if partial is None:
        return Answer({"value": cancelled is not None})
    if incoming.request.reads:
        server.sessions.heard(partial)
    header, parts = from_result(partial)
    return Answer({"value": True, "result": header}, parts)


async def _list(server: Server, _: Incoming) -> Answer:
    infos = server.agents.list()
    room = room_for(len(infos))
    runs = {shared.agent: shared.command[:room] for shared in server.sessions}
    told = [{**asdict(info), "cwd": info.cwd[:room], "command": runs.get(info.agent, "")} for info in infos]
    return Answer({"value": None}, (to_part(told),))


async def _stats(server: Server, _: Incoming) -> Answer:
    return Answer({"value": server.stats()})


async def _shutdown(server: Server, _: Incoming) -> Answer:
    server.stop()
    return Answer({"value": None})


OF_DAEMON: dict[type, Callable[[Server, Incoming], Awaitable[Answer]]] = {
    requests.Open: _open,
    requests.Cancel: _cancel,
    requests.List: _list,
    requests.Stats: _stats,
    requests.Shutdown: _shutdown,
}
