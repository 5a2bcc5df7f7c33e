"""Long output in pages: some lines of it, some bytes, or the lines that match a pattern, as text of limited length.

Pure. ``page`` yields which bytes of the stream it needs next, and is sent a ``Piece`` with them. It never holds more of
the stream than it shows, or one line. With a mask it reads the whole stream first: a secret may have several lines.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Generator
from typing import Any, Final, NamedTuple, TypeVar

from .errors import InvalidRequest
from .patterns import compiled
from .text import MAX_CHARS, call_for, grouped, text_of

Range = tuple[int, int | None]
# The most bytes that are requested at a time.
PIECE: Final = 1 << 18
# A longer line is searched in parts of about this many bytes.
_LONGEST_LINE: Final = 1 << 20
# Of a longer line that matches, only this many characters around the match are shown.
_WINDOW: Final = 1000
# The smallest limit for a text: a mark and some output fit into it.
LEAST_CHARS: Final = 200
# The first number of a call counts as this many digits, so that a mark has the same form on each page.
_DIGITS: Final = 10


class Query(NamedTuple):
    """The checked arguments of ``read_output``.

    ``verb``: the start of a command line that shows more; "" for Python. ``mask``: replaces secrets in the stream.
    ``json``: show ranges in calls as JSON, for models.
    """

    id: str
    stream: str
    lines: Range | None
    bytes: Range | None
    grep: re.Pattern[str] | None
    max_chars: int
    verb: str = ""
    mask: Callable[[str], str] | None = None
    json: bool = False

    def call(self, id: str, name: str, first: int, last: int | None, search: bool = False) -> tuple[str, str]:
        """Return the call that shows the lines or bytes from ``first`` to ``last``, and only the arguments that change.

        ``search``: show only those of the lines that match.
        """
        pattern = "" if self.grep is None or not search else self.grep.pattern
        if self.verb:
            stream = "" if self.stream == "stdout" else f" --stream {self.stream}"
            part = f"--{name} {first}:{'' if last is None else last}"
            return f"{self.verb} {id}{stream} {part}{f' --grep {shlex.quote(pattern)}' if pattern else ''}", part
        part = f"{name}=[{first}, {'null' if last is None else last}]" if self.json else f"{name}=({first}, {last})"
        return call_for(id, self.stream, f"{part}, grep={pattern!r}" if pattern else part), part


class Piece(NamedTuple):
    """A part of one stream of one command. ``kept`` bytes of the stream can be read; ``size`` is how many it had."""

    id: str
    data: bytes
    kept: int
    size: int


T = TypeVar("T")
Reading = Generator[tuple[int, int], Piece, T]
Pages = Reading[str]
# What is done with a stream: ``page``, or ``whole``.
Read = Callable[[Query], Reading[Any]]


def check_chars(max_chars: object) -> None:
    """Raise InvalidRequest for a ``max_chars`` that is not a length, or too small to hold output."""
    if isinstance(max_chars, bool) or not isinstance(max_chars, int) or max_chars < LEAST_CHARS:
        raise InvalidRequest(f"max_chars must be a number of characters, {LEAST_CHARS} or more, not {max_chars!r:.100}")


def query_for(
    id: object,
    stream: object = "stdout",
    lines: object = None,
    bytes: object = None,
    grep: object = None,
    max_chars: int = MAX_CHARS,
    mask: Callable[[str], str] | None = None,
) -> Query:
    """Return the checked arguments of ``read_output``. Raises InvalidRequest."""
    if not isinstance(id, str):
        raise InvalidRequest(f"id must be the id of a result (str), not {id!r:.100}")
    if stream not in ("stdout", "stderr"):
        raise InvalidRequest(f'stream is "stdout" or "stderr", not {stream!r:.100}')
    if bytes is not None and (lines is not None or grep is not None):
        raise InvalidRequest("bytes= names a part of the stream by itself: leave out lines= and grep=")
    check_chars(max_chars)
    pattern = None if grep is None else compiled("grep", grep)
    return Query(id, str(stream), _range("lines", lines, 1), _range("bytes", bytes, 0), pattern, max_chars, "", mask)


def _range(name: str, value: object, least: int) -> Range | None:
    if value is None:
        return None
    if isinstance(value, tuple | list) and len(value) == 2:
        first, last = value
        if type(first) is int and first >= least and (last is None or (type(last) is int and last >= first)):
            return first, last
    raise InvalidRequest(f"{name} is (first, last), from {least} on, with None for the end; not {value!r:.100}")


class _Line(NamedTuple):
    """A line of a page. ``is_cut``: it is only the text around the match."""

    number: int
    text: str
    is_cut: bool = False


def page(query: Query) -> Pages:
    """Return the text for a query. It has at most ``max_chars`` characters, and a mark names the next call."""
    if query.mask is not None:
        return page_of(query, (yield from whole(query)))
    if query.bytes is not None:
        return (yield from _bytes(query, *query.bytes))
    first, last = query.lines or (1, None)
    number, at, rest = 1, 0, b""  # the line that comes next, and where ``rest``, its beginning, was
    shown, size, start = list[_Line](), 0, 0  # ``start``: where the first line shown begins
    is_whole = True  # the next part of the text begins a line
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
                return _fit(query, shown, piece)
            is_known = query.grep is not None and shown and shown[-1].number == number  # an earlier part matched
            if not is_known and (entry := _entry(query, number, line, is_whole)):
                shown.append(entry)
                if (size := size + len(entry.text)) > query.max_chars:
                    return _fit(query, shown, piece) or (yield from _bytes(query, start, None))
            is_whole = line.endswith("\n")
            number += is_whole
        at += len(block)
        if is_end:
            break
    if lost := _lost(piece):
        shown.append(_Line(number + 1, lost))
    return _fit(query, shown, piece) or ((yield from _bytes(query, start, None)) if size else "")


def whole(query: Query) -> Reading[Piece]:
    """Return the whole stream, masked: its lines and bytes are those of the text after the mask."""
    read = bytearray()
    while True:
        piece = yield len(read), PIECE
        read += piece.data
        if not piece.data or len(read) >= piece.kept:
            break
    data = bytes(read)
    if query.mask is not None:
        data = query.mask(text_of(data)).encode("utf-8", "replace")
    return Piece(piece.id, data, len(data), len(data) + piece.size - piece.kept)


def page_of(query: Query, stream: Piece) -> str:
    """Return the text for a query about a stream that ``whole`` returned."""
    pages = page(query._replace(mask=None))
    begin, most = next(pages)
    try:
        while True:
            begin, most = pages.send(stream._replace(data=stream.data[begin : begin + most]))
    except StopIteration as end:
        text: str = end.value
        return text


def _split(text: str) -> list[str]:
    """Return the lines of a text, each with its newline."""
    *lines, last = text.split("\n")
    return [line + "\n" for line in lines] + [last] * bool(last)


def _entry(query: Query, number: int, line: str, is_whole: bool) -> _Line | None:
    """Return a line as a page shows it: with a pattern, as ``grep -n`` does, and None if it does not match.

    For a long line that matches, return only the text around the match. ``is_whole``: the text begins with the line.
    """
    if query.grep is None:
        return _Line(number, line)
    text = line.removesuffix("\n")
    if (found := query.grep.search(text)) is None:
        return None
    size = min(_WINDOW, query.max_chars // 2 - 40)  # the other half is for the mark
    begin = max(0, min(found.start() - size // 4, len(text) - size))
    end = min(len(text), begin + size)
    head = "[...]" if begin or not is_whole else ""
    tail = "[...]" if end < len(text) else ""
    return _Line(number, f"{number}:{head}{text[begin:end]}{tail}\n", bool(head or tail))


def _fit(query: Query, shown: list[_Line], piece: Piece) -> str:
    """Return the lines as text, or as many of them as fit, with a mark that names the calls for the rest.

    Returns "" if not even the first line fits. A line that matches always fits.
    """
    size, next_line = sum(len(line.text) for line in shown), 0
    while shown:
        mark = _line_mark(query, piece, shown, next_line)
        if size + len(mark) <= query.max_chars:
            return "".join(line.text for line in shown) + mark
        next_line = shown[-1].number
        while shown and shown[-1].number == next_line:  # a very long line has several parts
            size -= len(shown.pop().text)
    return ""


def _line_mark(query: Query, piece: Piece, shown: list[_Line], next_line: int) -> str:
    """Return the mark of a page of lines; "" if it shows all. ``next_line``: the one after it, 0 for none."""
    whole, short = list[str](), list[str]()
    if (cut := next((line.number for line in shown if line.is_cut), 0)) != 0:
        whole.append(f"{query.call(piece.id, 'lines', cut, cut)[0]} shows all of line {cut}")
        short.append(f"line {cut} is cut: read it without grep")
    if next_line:
        last = None if query.lines is None else query.lines[1]
        call, part = query.call(piece.id, "lines", next_line, last, search=True)
        whole.append(_more(piece, call))
        short.append(f"more follows: the same call with {part}")
    return _mark(query, next_line, whole, short)


def _more(piece: Piece, call: str) -> str:
    return f"more follows, of {grouped(piece.size)} bytes in all; {call} shows the next"


def _mark(query: Query, first: int, whole: list[str], short: list[str]) -> str:
    """Return a mark with these notes: the short ones if the whole ones would take more than half of the page."""
    text = "; ".join(whole)
    fits = len(text) - len(str(first)) + _DIGITS + len("[...  ...]") <= query.max_chars // 2
    return f"[... {text if fits else '; '.join(short)} ...]" if text else ""


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
    data = _first(data, room - len(_byte_mark(query, piece, last, end)))
    begin += len(data)
    return data.decode("utf-8", "replace") + _byte_mark(query, piece, begin, end)


def _byte_mark(query: Query, piece: Piece, first: int, end: int | None) -> str:
    """Return the mark of a page of bytes that is not the last one."""
    call, part = query.call(piece.id, "bytes", first, end)
    instead = "" if query.lines is None else " instead of lines"
    return _mark(query, first, [_more(piece, call)], [f"more follows: the same call with {part}{instead}"])


def _first(data: bytes, room: int) -> bytes:
    """Return the bytes of the first characters that fit into the room."""
    return data.decode("utf-8", "surrogateescape")[: max(0, room)].encode("utf-8", "surrogateescape")


def _lost(piece: Piece) -> str:
    """Return a note that the end of a stream was not kept; "" if all of it was."""
    if piece.kept >= piece.size:
        return ""
    kept, size = grouped(piece.kept), grouped(piece.size)
    return f"[... the kept part ends here: the first {kept} of {size} bytes ...]"
