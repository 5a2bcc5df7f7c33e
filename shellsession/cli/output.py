"""``shellsession output``: show parts of a command's output, even if it was too long for its result."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from . import arguments

EXAMPLES: Final = (
    ("shellsession output builder", "the latest output, from its first line"),
    ("shellsession output builder c17 --lines 200:300", "some lines of the result with this id"),
    ("shellsession output builder j1 --tail 50", "the last lines of a job, and the number for --since"),
    ("shellsession output builder --grep 'error|warning'", "the lines that match, with their numbers"),
)
_DESCRIPTION: Final = """\
Show a part of what a command or job of the agent printed. The session keeps the last 20 short outputs and the last 20
others, 64 MiB together. If there is more than --max-chars, the last line names the next call. `shellsession run --json`
prints the id of each result. Secrets that the session's redact= finds are shown as ***."""


def own_parser() -> argparse.ArgumentParser:
    parser = arguments.parser("output", "[OPTIONS] AGENT [ID]", _DESCRIPTION, EXAMPLES)
    parser.add_argument(
        "--stream", choices=("stdout", "stderr"), default="stdout", help="which stream (default: stdout)"
    )
    parser.add_argument("--lines", metavar="A:B", type=_range, help="the lines from A to B, counted from 1; A: goes on")
    parser.add_argument("--grep", metavar="RE", help="only the lines that match a Python regular expression")
    parser.add_argument(
        "--bytes", metavar="A:B", type=_range, help="the bytes from A up to B (excluded), counted from 0"
    )
    parser.add_argument("--tail", metavar="N", type=arguments.positive, help="the last N lines")
    new = "only what is new since the answer that gave this number, if more may come; 0 gives the first one"
    parser.add_argument("--since", metavar="N", type=arguments.count, help=new)
    most = "how much to show at most (default: 30000)"
    parser.add_argument("--max-chars", metavar="N", type=arguments.positive, default=30_000, help=most)
    arguments.add_place(parser)
    arguments.add_agent(parser)
    parser.add_argument(
        "id", metavar="ID", nargs="?", default="", help="id of a result or job (default: the latest result with output)"
    )
    return parser


def _range(text: str) -> tuple[int, int | None]:
    first, colon, last = text.partition(":")
    with suppress(ValueError):
        if colon:
            return int(first), int(last) if last else None
    raise argparse.ArgumentTypeError(f"{text!r:.40} is not a range of numbers such as 200:300 or 200:")


def main(words: Sequence[str]) -> int:
    args = own_parser().parse_args(words)
    import shlex

    from ..daemon.client.admin import Visit
    from ..paging import query_for
    from ..redact import masker
    from .relay import write

    query = query_for(
        args.id, args.stream, args.lines, args.bytes, args.grep, args.max_chars, None, args.tail, args.since
    )
    with Visit(args.agent, args.socket) as visit:
        query = query._replace(mask=masker(visit.redact))
        text = visit.read_page(query._replace(verb=f"shellsession output {shlex.quote(args.agent)}"))
    if not text:
        arguments.talk(f"nothing to show: {args.stream} has no such part, or no line matches")
    ends = args.bytes or not text or text.endswith("\n")
    write("stdout", (text if ends else f"{text}\n").encode("utf-8", "replace"))
    return 0
