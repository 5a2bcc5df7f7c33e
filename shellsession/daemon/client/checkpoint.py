"""The checkpoint of an agent in the daemon: bytes of a client, and the state of the shell at that moment.

``close``, ``kill`` and ``forget`` delete it; the end of the daemon, a restart and an idle hour do not.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...state.snapshot import Snapshot
from ..protocol.messages import to_part
from ..protocol.wire import Message


def put(session: Any, data: bytes, with_state: bool, secrets: Sequence[str] = ()) -> Any:
    """Keep these bytes and, ``with_state``, the state of the idle shell, without whatever contains a secret.

    Otherwise the state that was kept before stays. Returns the reply, or an awaitable of it.
    """
    return session.ask(session.message("checkpoint", data, to_part(list(secrets)), put=True, with_state=with_state))


def get(session: Any) -> Any:
    """Ask for what is kept. Returns the reply for ``read``, or an awaitable of it."""
    return session.ask(session.message("checkpoint"))


def read(reply: Message) -> tuple[bytes, Snapshot | None]:
    """Return the bytes that are kept, b"" if there are none, and the state."""
    data, state = reply.parts
    return data, Snapshot.from_bytes(state) if state else None
