"""``shellsession run``: run a command in an agent's session, relay its output as it arrives, exit with its status.

stdout gets exactly the bytes that the command printed, and nothing else.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Final

from ..models import MAX_COMMAND, OPTIONS, TTY, Request, Result, Stdin
from ..options import SessionOptions
from . import arguments, flags, results, words
from .arguments import show_json
from .relay import OutputRelay

if TYPE_CHECKING:
    from ..daemon.client.session import RemoteSession


EXAMPLES: Final = (
    ("shellsession run -- 'cd /srv/app && . venv/bin/activate'", "one argument is a script; its changes persist"),
    ("shellsession run -s builder --timeout 600 -- make test", "several arguments are a command and its arguments"),
    ("shellsession run --timeout 5 --on-timeout yield -- ./watch.sh", "hand it to `shellsession wait` after 5 s"),
    ("shellsession run -i -- 'read -p \"name? \" name; echo $name'", "`shellsession send` answers the question"),
    ("shellsession run -s a1 --sandbox --write . --hide ~/.ssh --deny 'git push' -- make", "in a sandbox, with rules"),
    ("shellsession run - < deploy.sh", "a script from stdin"),
    ("shellsession run --stdin -- 'sort | uniq -c' < words.txt", "stdin for the command itself"),
)
_DESCRIPTION: Final = """\
Run a command in the session of an agent. If the agent has no session, one is opened with this directory and
environment. If the session is busy, or a person is attached, the command waits (with a note on stderr after a second)
for --patience at most; Ctrl-C gives up. The exit status is the command's; 124 if a time limit passed or the command
waits for input (-i), 125 if nothing could be run, 130 after Ctrl-C (which ends the command and keeps the session), 128
+ n if signal n killed the session's shell. If this process itself is killed, the command continues."""

_RULES: Final = """\
The daemon enforces them for every client of the session. They need the extra "policy"."""
_SOURCE: Final = "put the script into a file, and run `source FILE`"
_NOT_RUN: Final = "cancelled by Ctrl-C while it was waiting for the session: nothing was run"
_UNKNOWN: Final = "cancelled by Ctrl-C, and the command may or may not have run: check its effects"
_REDIRECT: Final = "put it into a file that the command reads (`COMMAND <FILE`)"


def own_parser() -> argparse.ArgumentParser:
    parser = arguments.parser("run", "[OPTIONS] [--] [SCRIPT | COMMAND ARGUMENT... | -]", _DESCRIPTION, EXAMPLES)
    parser.add_argument(
        "-s",
        "--session",
        metavar="AGENT",
        type=words.name,
        help="whose session (default: $SHELLSESSION_AGENT, or default)",
    )
    arguments.add_timeout(parser, "let it run")
    parser.add_argument(
        "--patience",
        metavar="S",
        type=arguments.seconds,
        default=...,
        help="wait at most S seconds for other commands, or for a person who is attached (0: no limit; default: as long"
        " as the time limit)",
    )
    parser.add_argument(
        "--on-timeout",
        choices=("interrupt", "kill", "yield"),
        help="at the time limit, end the command, end its shell, too, or hand it back running (default: the session's"
        " choice, usually interrupt)",
    )
    parser.add_argument(
        "--idle-timeout",
        metavar="S",
        type=arguments.seconds,
        default=...,
        help="end it after S seconds without output (0: no limit)",
    )
    arguments.add_idle_ttl(parser)
    flags.add_recover(parser)
    parser.add_argument("--tty", action="store_true", help="its stdout is a terminal: columns and colours")
    parser.add_argument(
        "--isolated", action="store_true", help="run it in a subshell: the session's state is not changed"
    )
    parser.add_argument(
        "--errexit", action="store_true", help="end it where its first command fails, as `bash -e` does; keep the shell"
    )
    parser.add_argument("--stdin", action="store_true", help="pass it this process's stdin, read to its end first")
    parser.add_argument(
        "-i",
        "--interactive",
        action="store_true",
        help="its stdin is the session's terminal; when it waits for input, exit with 124; `shellsession send`"
        " answers it",
    )
    parser.add_argument(
        "--merge-stderr", action="store_true", default=None, help="write both streams to stdout, in order"
    )
    parser.add_argument(
        "-C", dest="cwd", metavar="DIR", help="run only this command in DIR; a relative DIR is below the session's"
    )
    parser.add_argument(
        "--env",
        metavar="NAME=VALUE",
        type=arguments.variable,
        action="append",
        help="an environment variable for this command only; can be repeated",
    )
    parser.add_argument(
        "--idempotency-key",
        metavar="KEY",
        help="run it once: the same key again prints the first result, or waits for it, whatever has died meanwhile",
    )
    parser.add_argument("--no-start", action="store_true", help="start no daemon if none runs")
    arguments.add_json(
        parser,
        "print the whole result as one JSON object at the end, instead of the output as it arrives: both ends of each"
        " stream, together 1 MiB at most unless the session was opened with other limits, as text, and as"
        " stdout_base64 and stderr_base64 (exact bytes) if the text is not exact",
    )
    arguments.add_place(parser)
    flags.add_session(parser, beside_command=True)
    flags.add_rules(parser, _RULES)
    parser.add_argument(
        "--confirm",
        action="store_true",
        help="ask at this terminal before it runs; with --allow, only if that does not cover it. Other clients of the"
        " session are not asked",
    )
    flags.add_max_chars(parser)
    parser.add_argument("command", metavar="COMMAND", nargs=argparse.REMAINDER, help="a script, or words; - is stdin")
    return parser


def main(typed: Sequence[str]) -> int:
    parser = own_parser()
    args = parser.parse_args(typed)
    command = args.command[1:] if args.command[:1] == ["--"] else args.command
    reads_script = command in ([], ["-"])
    if reads_script and args.stdin:
        parser.error("stdin cannot be both the script and the command's input: give the command as an argument")
    if args.interactive and args.stdin:
        parser.error("--interactive makes stdin a terminal, --stdin passes this process's stdin: choose one")
    from ..daemon.client.session import RemoteSession

    script = results.read_stdin(MAX_COMMAND, _SOURCE) if reads_script else words.script(command)
    agent = words.default_agent() if args.session is None else args.session
    options: SessionOptions = {**flags.options_of(args, asks=args.confirm), **flags.output_limits(args.max_chars)}
    unnamed = {"recover": args.recover}
    with RemoteSession.for_arguments(
        agent, args.socket, not args.no_start, options, idle_ttl=args.idle_ttl, defaults=unnamed
    ) as session:
        session.connect()
        if args.confirm:
            from .terminal import confirm

            place = session.cwd if args.cwd is None else os.path.join(session.cwd, args.cwd)
            flags.asking_policy(args, confirm).check(Request(script), agent, place)
        session.on_wait = lambda message: results.report_waiting(agent, message)
        relay = OutputRelay()
        result, interrupted = _run(session, script, args, relay)
    if not args.json:
        return results.conclude(result, agent, relay, interrupted)
    show_json(result.to_dict())
    return results.status(result, interrupted)


def _run(session: RemoteSession, script: bytes, args: argparse.Namespace, relay: OutputRelay) -> tuple[Result, bool]:
    """Run it. Returns the result, and whether Ctrl-C ended it. Raises KeyboardInterrupt if there is no result."""
    options = {name: value for name, value in vars(args).items() if name in OPTIONS}
    options["stdin"] = _stdin(args, len(script))
    options["tty"] = args.tty or args.interactive
    options["env"] = None if args.env is None else dict(args.env)
    options["on_output"] = None if args.json else relay
    try:
        return results.until_ctrl_c(lambda: session.run(script, **options))
    except results.NoOutcome as no_outcome:
        raise KeyboardInterrupt(_NOT_RUN if no_outcome.ended else _UNKNOWN) from None


def _stdin(args: argparse.Namespace, beside: int) -> Stdin | EllipsisType:
    """The command's stdin. It shares one message with the command, which takes ``beside`` bytes of it."""
    if args.stdin:
        from ..daemon.protocol.wire import PARTS_MAX

        return results.read_stdin(PARTS_MAX - beside, _REDIRECT)
    return TTY if args.interactive else ...
