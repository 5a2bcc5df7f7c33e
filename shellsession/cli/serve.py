"""``shellsession serve``: run the daemon that holds the sessions.

Law: whatever is wrong is said before it detaches, to who can still hear it.
"""

from __future__ import annotations

import argparse
import gc
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from ..engine.kernel import readers
from ..errors import ShellSessionError
from . import arguments
from .arguments import talk

if TYPE_CHECKING:
    from ..daemon.server.audit import Audit


EXAMPLES: Final = (
    ("shellsession serve", "in the foreground, until Ctrl-C"),
    ("shellsession serve --detach --idle-ttl 900", "in the background; sessions idle for 15 minutes are closed"),
    ("shellsession serve --socket /run/ci/socket --max-sessions 64 --log-file /var/log/ci/shells.log", "a second one"),
)
_DESCRIPTION: Final = """\
Run the daemon that holds the sessions, until SIGTERM, Ctrl-C or `shellsession stop`. `shellsession run` starts one by
itself when there is none. It listens on a private socket of this user and on nothing else.
Its own log is JSON lines, on stderr unless it goes to a file."""


def own_parser() -> argparse.ArgumentParser:
    own = arguments.parser("serve", "[OPTIONS]", _DESCRIPTION, EXAMPLES)
    arguments.add_socket(own)
    own.add_argument(
        "--max-sessions",
        metavar="N",
        type=arguments.positive,
        default=1000,
        help="at most so many agents (default: 1000)",
    )
    own.add_argument(
        "--idle-ttl",
        metavar="S",
        type=arguments.seconds,
        default=3600.0,
        help="close a session that was idle for so many seconds (default: 3600; 0: never)",
    )
    own.add_argument(
        "--patience",
        metavar="S",
        type=arguments.seconds,
        default=5.0,
        help="seconds that running commands have to end when it stops (default: 5)",
    )
    own.add_argument("--audit", metavar="PATH", help="where the audit log goes ('' for none; see `shellsession log`)")
    own.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        help="what its own log tells (default: info; warning when detached)",
    )
    own.add_argument("--log-file", metavar="PATH", help="its own log, 0600, rotated (default: stderr; see --detach)")
    own.add_argument(
        "--detach",
        action="store_true",
        help="come back when it listens; its log is $XDG_STATE_HOME/shellsession/daemon.log by default",
    )
    own.add_argument("--lock", type=int, help=argparse.SUPPRESS)  # from a client that starts it: see daemon.autostart
    return own


def _check(log: Audit) -> None:
    """What was asked for is to be had, or nothing is served."""
    try:
        log.check()
    except OSError as error:
        raise ShellSessionError(
            f"the audit log {log.path} cannot be written: {error.strerror}; --audit names another ('' for none)"
        ) from error
    log.close()


def _give_up_inherited(lock: int | None) -> None:
    """What its starter has open is none of the daemon's: who reads a pipe to its end, or wants what is locked there,
    would wait as long as the daemon lives."""
    for fd in readers.descriptors(os.getpid()) - {0, 1, 2, lock}:
        with suppress(OSError):  # by which they were looked for
            os.close(fd)


def main(words: Sequence[str]) -> int:
    """Run the daemon until it is ended."""
    given = own_parser().parse_args(words)
    if given.detach:
        _give_up_inherited(given.lock)  # while nothing of ours is open
    # To look for plugins of pydantic takes a tenth of a start, and none is to see what clients send.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    gc.disable()  # all that is made until it serves stays: to look through it again and again takes a twentieth
    from ..daemon.protocol.endpoint import socket_path
    from ..daemon.server import audit, log

    path = socket_path(given.socket)
    audit_path = audit.default_path() if given.audit is None else given.audit and os.path.abspath(given.audit)
    log_file = given.log_file
    if given.detach and log_file is None:
        log_file = os.path.join(os.path.dirname(audit.default_path()), "daemon.log")
    log.begin(given.log_level or ("warning" if given.detach else "info"), log_file, wanted=given.log_file is not None)
    if given.audit:
        _check(audit.Audit(audit_path))

    from ..daemon.server import service

    settings = service.Settings(
        path,
        max_sessions=given.max_sessions,
        idle_ttl=given.idle_ttl,
        patience=given.patience or 0.0,
        audit=audit_path or None,
    )
    listening = service.listen(path, given.lock)
    if given.detach and not service.detach(listening):
        talk(f"a daemon listens at {path}")
        os._exit(0)
    # Thousands of objects live as long as the daemon: walking over them (10 ms for 1000 sessions) finds nothing.
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()
    service.run(settings, listening)
    return 0
