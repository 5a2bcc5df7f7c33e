"""``shellsession run``: a command in an agent's session, with its output as it comes and its exit status.

Law: what the command prints is passed on byte by byte, and nothing of ours gets between.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from ..models import MAX_COMMAND, OPTIONS, TTY, Result, Stdin
from . import arguments, results, words
from .arguments import show_json, talk
from .output import Passed

if TYPE_CHECKING:
    from ..daemon.client.session import RemoteSession


EXAMPLES: Final = (
    ("shellsession run -- 'cd /srv/app && . venv/bin/activate'", "one argument is a script; what it sets stays"),
    ("shellsession run -s builder --timeout 600 -- make test", "several are a command and its arguments"),
    ("shellsession run --timeout 5 --on-timeout yield -- ./watch.sh", "after 5 s it is `shellsession wait`'s"),
    ("shellsession run -i -- 'read -p \"name? \" name; echo $name'", "when it asks, `shellsession send` answers it"),
    ("shellsession run - < deploy.sh", "a script from stdin"),
    ("shellsession run --stdin -- 'sort | uniq -c' < words.txt", "stdin for the command itself"),
)
_DESCRIPTION: Final = """\
Run a command in the session of an agent, which is opened if there is none, here and with this environment.
If the session is busy the command waits for its turn (and says so if stderr is a terminal); Ctrl-C gives up.
It exits with the command's status; 124 when a time limit passed or the command waits for input (-i), 125 when nothing
could be run, 130 after Ctrl-C (which ends the command and keeps the session), 128 + n when signal n killed the
session's shell. If this process itself is killed, the command runs on."""

_SOURCE: Final = "put the script into a file, and run `source FILE`"
_NOT_RUN: Final = "given up by Ctrl-C before its turn had come: nothing was run"
_UNKNOWN: Final = "left by Ctrl-C, and what came of the command is not known: look at what it was to do"
_REDIRECT: Final = "put it into a file, and have the command read that (`COMMAND <FILE`)"


def own_parser() -> argparse.ArgumentParser:
    own = arguments.parser("run", "[OPTIONS] [--] [SCRIPT | COMMAND ARGUMENT... | -]", _DESCRIPTION, EXAMPLES)
    own.add_argument(
        "-s",
        "--session",
        metavar="AGENT",
        type=words.name,
        help="whose session (default: $SHELLSESSION_AGENT, or default)",
    )
    arguments.add_timeout(own, "let it run")
    own.add_argument(
        "--on-timeout",
        choices=("interrupt", "kill", "yield"),
        help="what then: end the command, end its shell too, or hand it back running (default: the session's choice,"
        " usually interrupt)",
    )
    own.add_argument("--idle-timeout", metavar="S", type=arguments.seconds, help="end it after so long without output")
    own.add_argument("--tty", action="store_true", help="its stdout is a terminal: columns and colours")
    own.add_argument("--isolated", action="store_true", help="it sees the session's state and leaves none")
    own.add_argument("--stdin", action="store_true", help="it gets this process's stdin, read to its end first")
    own.add_argument(
        "-i",
        "--interactive",
        action="store_true",
        help="its stdin is the session's terminal: when it waits for input this ends with 124, and `shellsession send`"
        " answers it",
    )
    own.add_argument("--merge-stderr", action="store_true", help="both streams as one, in order, on stdout")
    own.add_argument("--cwd", metavar="DIR", help="where the session starts, if it is opened now (default: here)")
    own.add_argument("--no-start", action="store_true", help="start no daemon if none runs")
    arguments.add_json(
        own,
        "print the whole result as one JSON object at the end, instead of the output as it comes: both ends of each"
        " stream, together 1 MiB at most unless the session was opened with other limits, as text, and as"
        " stdout_base64 and stderr_base64 (exact bytes) where they are no UTF-8",
    )
    arguments.add_socket(own)
    own.add_argument("command", metavar="COMMAND", nargs=argparse.REMAINDER, help="a script, or words; - is stdin")
    return own


def main(typed: Sequence[str]) -> int:
    own = own_parser()
    given = own.parse_args(typed)
    command = given.command[1:] if given.command[:1] == ["--"] else given.command
    reads_script = command in ([], ["-"])
    if reads_script and given.stdin:
        own.error("stdin cannot be both the script and the command's input: give the command as an argument")
    if given.interactive and given.stdin:
        own.error("--interactive gives the command a terminal as its stdin, --stdin what comes on ours: choose one")
    from ..daemon.client.session import connect

    script = results.read_stdin(MAX_COMMAND, _SOURCE) if reads_script else words.script(command)
    agent = words.default_agent() if given.session is None else given.session
    with connect(agent, given.socket, not given.no_start, cwd=given.cwd) as session:
        if given.cwd is not None and not session.opened_here:
            talk(f"agent {agent!r} has a session, which stays where it is: --cwd is for a new one")
        if sys.stderr.isatty():
            session.on_wait = lambda message: results.tell_of_waiting(agent, message)
        passed = Passed()
        result, interrupted = _run(session, script, given, passed)
    if not given.json:
        return results.conclude(result, agent, passed, interrupted)
    show_json(results.as_json(result))
    return results.status(result, interrupted)


def _run(session: RemoteSession, script: bytes, given: argparse.Namespace, passed: Passed) -> tuple[Result, bool]:
    """What came of it; and was it ended by Ctrl-C? Raises KeyboardInterrupt where nothing is known to have come."""

    options = {name: value for name, value in vars(given).items() if name in OPTIONS}
    options["stdin"] = _stdin(given, len(script))
    options["tty"] = given.tty or given.interactive
    options["on_output"] = None if given.json else passed
    try:
        return results.until_ctrl_c(lambda: session.run(script, **options))
    except results.LeftByCtrlC as left:
        raise KeyboardInterrupt(_NOT_RUN if left.ended else _UNKNOWN) from None


def _stdin(given: argparse.Namespace, beside: int) -> Stdin:
    """What the command gets as its stdin; it goes into one message with the command."""
    if given.stdin:
        from ..daemon.protocol.wire import PARTS_MAX

        return results.read_stdin(PARTS_MAX - beside, _REDIRECT)
    return TTY if given.interactive else None
