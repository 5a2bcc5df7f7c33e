"""``output --follow``: prints an output while it grows, and then that of the agent's next commands."""

from __future__ import annotations

import time
from functools import partial
from typing import Final

from ..daemon.client.admin import Visit
from ..engine.io.threads import Poller, Wait
from ..errors import NoSuchOutput
from ..paging import Growth, Query, grown
from .relay import write

# Seconds between two looks for new output.
_EVERY: Final = 0.25


def follow(visit: Visit, query: Query) -> None:
    """Print the output until it ends; without an id, also the outputs of later commands, without an end.

    A line that has begun is printed when it is complete, or when nothing came to it from one look to the next.
    """
    goes_on, in_lines, poller = not query.id, True, Poller()
    while True:
        try:
            growth: Growth = visit.read_page(query, partial(grown, in_lines=in_lines))
        except NoSuchOutput:
            if query.id:
                raise
            growth = Growth("", "", 0, True)  # it has printed nothing yet
        write("stdout", growth.text.encode("utf-8", "replace"))
        in_lines = bool(growth.text)
        query = query._replace(id=growth.id, since=growth.end, tail=None)
        if not (growth.grows or goes_on):
            return
        if not growth.grows and (later := _next_id(visit, query)):
            query, in_lines = query._replace(id=later, since=0), True
        else:
            poller.wait(Wait(until=time.monotonic() + _EVERY))


def _next_id(visit: Visit, query: Query) -> str:
    """The id of the first output after that one; "" if there is none yet."""
    latest = visit.read_page(query._replace(id=""), grown).id
    for number in range(int(query.id[1:]) + 1, int(latest[1:]) + 1):
        try:
            return str(visit.read_page(query._replace(id=f"c{number}"), grown).id)
        except NoSuchOutput:  # it printed nothing
            pass
    return ""
