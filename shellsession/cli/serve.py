"""``shellsession serve``: run the daemon that holds the sessions."""

from __future__ import annotations

import argparse
import logging
import os
from collections.abc import Sequence

from ..daemon.place import socket_path


def main(arguments: Sequence[str]) -> int:
    """Run the daemon until it is ended."""
    parser = argparse.ArgumentParser(prog="shellsession serve", description=__doc__)
    parser.add_argument("--socket")
    parser.add_argument("--detach", action="store_true", help="come back when it listens")
    parser.add_argument("--lock", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--audit", help="where the audit log goes; '' for none")
    given = parser.parse_args(arguments)
    from ..daemon import audit, service

    path = socket_path(given.socket)
    listening = service.listen(path, given.lock)
    if given.detach and not service.detach():
        os._exit(0)
    logging.basicConfig(level=logging.WARNING)
    service.run(service.Settings(path, audit=audit.default_path() if given.audit is None else given.audit), listening)
    return 0
