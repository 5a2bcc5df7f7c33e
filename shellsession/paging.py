"""Long output by pages: some lines of it, some bytes, or the lines that match a pattern, as text of limited length.

Pure. ``page`` yields which bytes of the stream it needs next, and is sent a ``Piece`` with them. It never holds more of
the stream than it shows, or one line.
"""

from __future__ import annotations

import re
from collections.abc import Generator
from typing import Final, NamedTuple

from .errors import InvalidRequest
from .text import MAX_CHARS, call_for, grouped, text_of, unfinished

Range = tuple[int, int | None]
# At most so many bytes are requested at a time.
PIECE: Final = 1 << 18
# A longer line is searched in parts of about so many bytes.
_LONGEST_LINE: Final = 1 << 20
# A longer line that matches is shown around the match, in so many characters.
_WINDOW: Final = 1000


class Query(NamedTuple):
    """What ``read_output`` is asked for. ``verb``: the start of a command line that shows more; "" for Python."""

    id: str
    stream: str
    lines: Range | None
    bytes: Range | None
    grep: re.Pattern[str] | None
    max_chars: int
    verb: str = ""

    def more(self, id: str, name: str, first: int, last: int | None) -> str:
        """Return the call that shows more: the lines or bytes from ``first`` to ``last``."""
        if self.verb:
            stream = "" if self.stream == "stdout" else f" --stream {self.stream}"
            return f"{self.verb} {id}{stream} --{name} {first}:{'' if last is None else last}"
        return call_for(id, self.stream, f"{name}=({first}, {last})")


class Piece(NamedTuple):
    """A part of one stream of one command. ``kept`` bytes of the stream can be read; ``size`` is how many it had."""

    id: str
    data: bytes
    kept: int
    size: int


Pages = Generator[tuple[int, int], Piece, str]


def check_chars(max_chars: object) -> None:
    """Raise InvalidRequest for a ``max_chars`` that is no length of a text."""
    if isinstance(max_chars, bool) or not isinstance(max_chars, int) or max_chars < 1:
        raise InvalidRequest(f"max_chars is a number of characters, 1 or more, not {max_chars!r:.100}")


def query_for(
    id: object,
    stream: object = "stdout",
    lines: object = None,
    bytes: object = None,
    grep: object = None,
    max_chars: int = MAX_CHARS,
) -> Query:
    """Return the checked arguments of ``read_output``. Raises InvalidRequest."""
    if not isinstance(id, str):
        raise InvalidRequest(f"id is the id of a result (str), not {id!r:.100}")
    if stream not in ("stdout", "stderr"):
        raise InvalidRequest(f'stream is "stdout" or "stderr", not {stream!r:.100}')
    if bytes is not None and (lines is not None or grep is not None):
        raise InvalidRequest("bytes= names a part of the stream by itself: leave out lines= and grep=")
    check_chars(max_chars)
    pattern = None
    if grep is not None:
        try:
            pattern = re.compile(grep)  # type: ignore[call-overload]  # what is not text raises TypeError
            pattern.search("")
        except (re.error, TypeError, OverflowError, RecursionError) as error:
            raise InvalidRequest(f"grep is a regular expression (str), not {grep!r:.100}: {error}") from None
    return Query(id, str(stream), _range("lines", lines, 1), _range("bytes", bytes, 0), pattern, max_chars)


def _range(name: str, value: object, least: int) -> Range | None:
    if value is None:
        return None
    if isinstance(value, tuple | list) and len(value) == 2:
        first, last = value
        if type(first) is int and first >= least and (last is None or (type(last) is int and last >= first)):
            return first, last
    raise InvalidRequest(f"{name} is (first, last), from {least} on, with None for the end; not {value!r:.100}")


def page(query: Query) -> Pages:
    """Return the text for a query. It has at most ``max_chars`` characters, and a mark names the call that goes on."""
    if query.bytes is not None:
        return (yield from _bytes(query, *query.bytes))
    first, last = query.lines or (1, None)
    number, at, rest = 1, 0, b""  # the line that comes next, and where ``rest``, its beginning, was
    shown, size, start = list[tuple[int, str]](), 0, 0  # ``start``: where the first line shown begins
    while True:
        piece = yield at + len(rest), PIECE
        data = rest + piece.data
        is_end = not piece.data or at + len(data) >= piece.kept
        cut = len(data) if is_end or len(data) > _LONGEST_LINE else data.rfind(b"\n") + 1
        block, rest = data[:cut], data[cut:]
        skipped = min(max(0, first - number), block.count(b"\n"))
        number += skipped
        wanted = block.split(b"\n", skipped)[-1] if number >= first else b""
        start = start if shown else at + len(block) - len(wanted)
        for line in _split(text_of(wanted)):
            if last is not None and number > last:
                return "".join(text for _, text in shown)
            if entry := line if query.grep is None else _match(query.grep, number, line):
                shown.append((number, entry))
                if (size := size + len(entry)) > query.max_chars:
                    return _fit(query, shown, piece) or (yield from _bytes(query, start, None))
            number += line.endswith("\n")
        at += len(block)
        if is_end:
            break
    if lost := _lost(piece):
        shown.append((number, lost))
    return _fit(query, shown, piece) or ((yield from _bytes(query, start, None)) if size else "")


def _split(text: str) -> list[str]:
    """Return the lines of a text, each with its newline."""
    *lines, last = text.split("\n")
    return [line + "\n" for line in lines] + [last] * bool(last)


def _match(pattern: re.Pattern[str], number: int, line: str) -> str:
    """Return a line that matches as ``grep -n`` shows it, or "". Of a long line only what is around the match."""
    line = line.removesuffix("\n")
    if (found := pattern.search(line)) is None:
        return ""
    begin = max(0, min(found.start() - _WINDOW // 4, len(line) - _WINDOW))
    end = begin + _WINDOW
    return f"{number}:{'[...]' * (begin > 0)}{line[begin:end]}{'[...]' * (end < len(line))}\n"


def _fit(query: Query, shown: list[tuple[int, str]], piece: Piece) -> str:
    """Return what is to be shown, or as much of it as fits, with a mark that names the call for the rest.

    Returns "" if not even the first line fits. Of a single line that matches, the beginning is shown.
    """
    room, size = query.max_chars, sum(len(text) for _, text in shown)
    mark = ""
    while shown and size + len(mark) > room:
        number, text = shown.pop()
        size -= len(text)
        if not shown and query.grep is None:
            return ""
        if not shown:
            mark = _mark(query, piece, "lines", number + 1, None)
            return text[: max(0, room - len(mark))] + mark[:room]
        last = None if query.lines is None else query.lines[1]
        if query.grep is None:
            guess = number + max(1, len(shown)) - 1
            last = guess if last is None else min(last, guess)
        mark = _mark(query, piece, "lines", number, last)
    return ("".join(text for _, text in shown) + mark)[:room]


def _bytes(query: Query, begin: int, end: int | None) -> Pages:
    room, data = query.max_chars, b""
    want = 4 * room if end is None else min(end - begin, 4 * room)
    while True:
        piece = yield begin + len(data), min(want - len(data), PIECE)
        data += piece.data
        if len(data) >= want or not piece.data:
            break
    last = piece.kept if end is None else min(end, piece.kept)
    if begin + len(data) >= last:
        text = data.decode("utf-8", "replace") + (_lost(piece) if last == piece.kept else "")
        if len(text) <= room:
            return text
    data = _first(data, room - len(_mark(query, piece, "bytes", last, last)))
    begin += len(data)
    return (data.decode("utf-8", "replace") + _mark(query, piece, "bytes", begin, last))[:room]


def _first(data: bytes, room: int) -> bytes:
    """Return the bytes of the first characters that fit into the room."""
    whole = data[: len(data) - len(unfinished(data))]
    return whole.decode("utf-8", "surrogateescape")[: max(0, room)].encode("utf-8", "surrogateescape")


def _mark(query: Query, piece: Piece, name: str, first: int, last: int | None) -> str:
    """Return the mark of a page that is not the last one."""
    what = "more lines match" if query.grep is not None else "more follows"
    more = f"the same call with {name}=({first}, {last})" if query.grep else query.more(piece.id, name, first, last)
    return f"[... {what}, of {grouped(piece.size)} bytes in all; {more} shows the next ...]"


def _lost(piece: Piece) -> str:
    """Return a note about the end of a stream that was too long to be kept; "" if it is all there."""
    if piece.kept >= piece.size:
        return ""
    kept, size = grouped(piece.kept), grouped(piece.size)
    return f"[... this is the end of what was kept: the first {kept} of {size} bytes ...]"
