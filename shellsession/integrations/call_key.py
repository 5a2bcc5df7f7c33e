"""The idempotency key of a tool call, made from what an SDK says about the call."""

from __future__ import annotations

import json
from hashlib import sha256


def call_key(sdk: str, *parts: str | None) -> str | None:
    """The key of a call, which names it among all calls of an agent; None if the SDK does not give one of the parts.

    ``parts``: the conversation, the turn or message in it, and the id of the call, as the SDK stores them, so that a
    step that it replays has the same key. An id alone names no call, as models repeat ids. A daemon keeps the keys of
    each agent apart.
    """
    if not all(parts):
        return None
    return f"{sdk}-{sha256(json.dumps(parts).encode()).hexdigest()}"
