"""``shellsession serve``: run the daemon that holds the sessions.

It reports every problem of the start before it detaches, on the stderr of its caller.
"""

from __future__ import annotations

import argparse
import gc
import os
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from ..engine.io.directories import state_directory
from ..engine.kernel import activity
from ..errors import InvalidRequest, ShellSessionError
from ..options import Rules, SessionOptions
from . import arguments, flags
from .arguments import talk

if TYPE_CHECKING:
    from ..daemon.server.audit import Audit


EXAMPLES: Final = (
    ("shellsession serve", "in the foreground, until Ctrl-C"),
    ("shellsession serve --detach --idle-ttl 900", "in the background; sessions idle for 15 minutes are closed"),
    ("shellsession serve --detach --sandbox --write ~/work --deny sudo", "all its sessions are in such a sandbox"),
    ("shellsession serve --socket /run/ci/socket --max-sessions 64 --log-file /var/log/ci/shells.log", "a second one"),
)
_DEFAULTS: Final = """\
Of each session that this daemon opens, unless its client names others (by flags, or options of connect). Variables are
added to those of the client."""
_RULES: Final = """\
The daemon enforces them for every client, unless the one that opens the session names other rules. They need the extra
"policy". To ask a person at a terminal, use --confirm of `run` and `mcp`."""
_DESCRIPTION: Final = """\
Run the daemon that holds the sessions, until SIGTERM, Ctrl-C or `shellsession stop`. `shellsession run` starts one
itself if none is running. It listens only on a socket that is private to you. Its own log consists of JSON lines, on
stderr unless --log-file or --detach is used."""


def own_parser() -> argparse.ArgumentParser:
    parser = arguments.parser("serve", "[OPTIONS]", _DESCRIPTION, EXAMPLES)
    arguments.add_socket(parser)
    parser.add_argument(
        "--max-sessions",
        metavar="N",
        type=arguments.positive,
        default=1000,
        help="at most N agents with a session (default: 1000)",
    )
    parser.add_argument(
        "--idle-ttl",
        metavar="S",
        type=arguments.seconds,
        default=3600.0,
        help="close a session that was idle for S seconds (default: 3600; 0: never)",
    )
    parser.add_argument(
        "--patience",
        metavar="S",
        type=arguments.seconds,
        default=5.0,
        help="when it stops, give running commands S seconds to end (default: 5)",
    )
    parser.add_argument(
        "--lease",
        metavar="S",
        type=arguments.seconds,
        help="end it and its sessions at once if no client renews its lease for S seconds (default: 0, no lease)",
    )
    parser.add_argument("--audit", metavar="PATH", help="the audit log (off: none; see `shellsession log`)")
    parser.add_argument(
        "--log-level",
        choices=("debug", "info", "warning", "error"),
        help="the level of its own log (default: info; warning with --detach)",
    )
    parser.add_argument("--log-file", metavar="PATH", help="its own log, 0600, rotated (default: stderr; see --detach)")
    parser.add_argument(
        "--detach",
        action="store_true",
        help="return when it listens; its log is $XDG_STATE_HOME/shellsession/daemon.log by default",
    )
    flags.add_session(parser, _DEFAULTS)
    flags.add_rules(parser, _RULES)
    flags.add_max_chars(parser)
    parser.add_argument(
        "--timeout",
        metavar="S",
        type=arguments.seconds,
        default=...,
        help="how many seconds a command may run if its caller names no limit (default: 120; 0: no limit)",
    )
    parser.add_argument(
        "--lock", type=int, help=argparse.SUPPRESS
    )  # from a client that starts it: see ``_start`` in daemon.client.transport
    return parser


def _check_audit_log(log: Audit) -> None:
    """Raise ShellSessionError if the audit log that the caller named cannot be written."""
    try:
        log.check()
    except OSError as error:
        raise ShellSessionError(
            f"the audit log {log.path} cannot be written: {error.strerror}; use --audit or SHELLSESSION_AUDIT to"
            " name another (off: none)"
        ) from error
    log.close()


def _close_inherited(lock: int | None) -> None:
    """Close all descriptors inherited from the process that started the daemon.

    Otherwise a reader of a pipe, or anybody who waits for a lock on a file, would wait as long as the daemon lives.
    """
    for fd in activity.descriptors(os.getpid()) - {0, 1, 2, lock}:
        with suppress(OSError):  # one was open only for the listing itself
            os.close(fd)


def _defaults(args: argparse.Namespace) -> dict[str, Any]:
    """The options of new sessions, as fields of the request that opens one. Raises InvalidRequest."""
    options: SessionOptions = {**flags.options_of(args), **flags.output_limits(args.max_chars)}
    if args.timeout is not ...:
        options["timeout"] = args.timeout
    if not options:
        return {}
    if (cwd := options.get("cwd")) is not None and not os.path.isdir(cwd):
        raise InvalidRequest(f"-C {cwd!r} is not a directory")
    if (sandbox := options.get("sandbox")) is not None:
        from ..engine.bash.confine import existing

        write, hide = sandbox.paths
        for name, paths in (("write", write), ("hide", () if sandbox.missing_ok else hide)):
            for path in paths:
                existing(name, path)
    from ..daemon.client.remote import opening  # the daemon itself does not need it

    fields = opening(options)
    return {name: fields[name] for name in options}


def main(words: Sequence[str]) -> int:
    """Run the daemon until it is ended."""
    args = own_parser().parse_args(words)
    defaults = _defaults(args)
    if args.detach:
        _close_inherited(args.lock)  # before we open any ourselves
    # Searching for pydantic plugins takes a tenth of the start, and no plugin should see what clients send.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")
    gc.disable()  # objects made during the start stay alive: collecting them again and again takes a twentieth of it
    from ..daemon.protocol.endpoint import socket_path
    from ..daemon.server import audit, log

    path = socket_path(args.socket)
    audit_path = audit.path_for(path, args.audit)
    log_file = args.log_file
    if args.detach and log_file is None:
        log_file = os.path.join(state_directory(), "daemon.log")
    log.begin(args.log_level or ("warning" if args.detach else "info"), log_file, wanted=args.log_file is not None)
    if audit_path and (args.audit or os.environ.get(audit.VARIABLE)):
        _check_audit_log(audit.Audit(audit_path))

    from ..daemon.server import service

    settings = service.Settings(
        path,
        max_sessions=args.max_sessions,
        idle_ttl=args.idle_ttl,
        patience=args.patience or 0.0,
        lease=args.lease,
        audit=audit_path or None,
        defaults=defaults,
    )
    listening = service.listen(path, args.lock, confines=any(name in Rules._fields for name in defaults))
    if args.detach and not service.detach(listening):
        talk(f"a daemon listens at {path}")
        os._exit(0)
    # Thousands of objects live as long as the daemon. Without this, each collection walks over them (10 ms for 1000
    # sessions) and finds nothing.
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()
    service.run(settings, listening)
    return 0
