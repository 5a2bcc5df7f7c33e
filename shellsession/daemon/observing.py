"""Verbs that only look at what was handed back: nobody is kept waiting by one whose client has left for good.

Law: what it looks at is not touched.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from .listener import Listener

if TYPE_CHECKING:
    from ..engine.steps import Engine

# How soon a verb is called back again that has not heard it, in seconds.
_AGAIN: Final = 0.05


@contextmanager
def observing(engine: Engine, listener: Listener) -> Iterator[None]:
    """While a verb only looks at what was handed back: once its client has left for good it looks no more."""
    call = engine.call
    looking = True

    def let_go(_: object = None) -> None:
        if looking and call is not None and call is engine.call:
            if call is engine.attended and engine.shell is not None:
                call.following = call.has_news = True  # it is news enough
                engine.shell.wake()
            asyncio.get_running_loop().call_later(_AGAIN, let_go)  # perhaps its turn has not come yet

    listener.abandoned.add_done_callback(let_go)
    try:
        yield
    finally:
        looking = False
        listener.abandoned.remove_done_callback(let_go)
        if call is not None:
            call.following = False
