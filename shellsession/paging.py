"""Long output in pages: some lines of it, some bytes, the lines that match, the last ones, or only what is new.

Pure. ``page`` yields which bytes of the stream it needs next, and is sent a ``Piece`` with them. It never holds more of
the stream than it shows, or one line. With a mask it reads the whole stream first: a secret may have several lines.
"""

from __future__ import annotations

import builtins
import re
import shlex
from collections.abc import Callable, Generator
from typing import Any, Final, NamedTuple, TypeVar

from .errors import InvalidRequest
from .patterns import compiled
from .text import MAX_CHARS, call_for, clean, decoded, edited, fitted, grouped, text_of, unfinished, unfinished_escape

Range = tuple[int, int | None]
# The most bytes that are requested at a time.
PIECE: Final = 1 << 18
# A longer line is searched in parts of about this many bytes.
_LONGEST_LINE: Final = 1 << 20
# Of a longer line that matches, only this many characters around the match are shown.
_WINDOW: Final = 1000
# The smallest limit for a text: a mark and some output fit into it.
LEAST_CHARS: Final = 200
# The most lines that ``tail`` takes.
_MOST_LINES: Final = 100_000
# The start of the text for a stream that still grows and has nothing to show.
NOTHING_NEW: Final = "[nothing new"
# The first number of a call counts as this many digits, so that a mark has the same form on each page.
_DIGITS: Final = 10


class Query(NamedTuple):
    """The checked arguments of ``read_output``.

    ``verb``: the start of a command line that shows more; "" for Python. ``mask``: replaces secrets in the stream.
    ``starred``: see ``Secrets.starred``.
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
    tail: int | None = None
    since: int | None = None
    starred: Callable[[builtins.bytes, int, int], builtins.bytes] | None = None

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
    """A part of one stream of one command or job. ``kept`` bytes of it can be read; ``size`` is how many it had.

    ``cut``: where the others are missing in those kept; None is the end. ``grows``: more may come. A stream with a gap
    comes in one piece, as both halves change while it grows.
    """

    id: str
    data: bytes
    kept: int
    size: int
    cut: int | None = None
    grows: bool = False


def is_job(id: str) -> bool:
    """Whether an id is a job's, not a command's."""
    return id.startswith("j")


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
    tail: object = None,
    since: object = None,
) -> Query:
    """Return the checked arguments of ``read_output``. Raises InvalidRequest."""
    if not isinstance(id, str):
        raise InvalidRequest(f"id must be the id of a result (str), not {id!r:.100}")
    if stream not in ("stdout", "stderr"):
        raise InvalidRequest(f'stream is "stdout" or "stderr", not {stream!r:.100}')
    if bytes is not None and (lines is not None or grep is not None):
        raise InvalidRequest("bytes names a part of the stream by itself: leave out lines and grep")
    if sum((tail is not None, since is not None, not (lines is bytes is grep is None))) > 1:
        raise InvalidRequest("tail and since each name a part of the stream by themselves: leave out all others")
    check_chars(max_chars)
    pattern = None if grep is None else compiled("grep", grep)
    ranges = _range("lines", lines, 1), _range("bytes", bytes, 0)
    last, new = _number("tail", tail, 1, _MOST_LINES), _number("since", since, 0)
    return Query(id, str(stream), *ranges, pattern, max_chars, "", mask, tail=last, since=new)


def _number(name: str, value: object, least: int, most: int | None = None) -> int | None:
    if value is None or (type(value) is int and least <= value and (most is None or value <= most)):
        return value
    upper = "on" if most is None else f"to {most}"
    raise InvalidRequest(f"{name} must be a number from {least} {upper}, not {value!r:.100}")


def _range(name: str, value: object, least: int) -> Range | None:
    if value is None:
        return None
    if isinstance(value, tuple | list) and len(value) == 2:
        first, last = value
        if type(first) is int and first >= least and (last is None or (type(last) is int and last >= first)):
            return first, last
    advice = "; tail names the last lines" if name == "lines" else ""
    raise InvalidRequest(f"{name} is (first, last), from {least} on, with None for the end; not {value!r:.100}{advice}")


# Bytes that ``since`` and ``tail`` keep back at most: of an escape sequence, or of a line where secrets are masked.
_WITHHELD_MAX: Final = 4096
# Bytes before new output that is printed while it grows, with which it is masked.
_MASKED_WITH: Final = 1 << 14


class _Line(NamedTuple):
    """A line of a page. ``is_cut``: it is only the text around the match."""

    number: int
    text: str
    is_cut: bool = False


def page(query: Query) -> Pages:
    """Return the text for a query. It has at most ``max_chars`` characters, and a mark names the next call."""
    of_job = is_job(query.id)
    if of_job and all(part is None for part in (query.tail, query.lines, query.bytes, query.grep)):
        query = query._replace(since=query.since or 0)
    if query.tail is not None or query.since is not None:
        return newest(query, (yield from everything(query)))
    if query.mask is not None or of_job:
        return page_of(query, (yield from whole(query)))
    return (yield from _page(query))


def _page(query: Query) -> Pages:
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
    """Return the whole stream, masked, with a mark in a gap: its lines and bytes are those of that text."""
    piece = yield from everything(query)
    data, lost = piece.data, piece.size - piece.kept
    if piece.cut is not None and lost:
        cut = piece.cut
        if query.mask is not None:
            data, lost, cut = edited(data, lost, cut, _masking(query.mask))
        data, lost = decoded(data, lost, cut, marked=True).encode("utf-8", "replace"), 0
    elif query.mask is not None:
        data = query.mask(text_of(data)).encode("utf-8", "replace")
    return Piece(piece.id, data, len(data), len(data) + lost)


def _masking(mask: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: mask(clean(text))


def everything(query: Query, begin: int = 0) -> Reading[Piece]:
    """Return all that is kept of the stream, from ``begin`` on."""
    read = bytearray()
    while True:
        piece = yield begin + len(read), PIECE
        read += piece.data
        if not piece.data or begin + len(read) >= piece.kept:
            break
    data = bytes(read)
    if query.starred is not None and piece.cut is not None:
        data = query.starred(data, piece.size - piece.kept, piece.cut)
    return piece._replace(data=data)


def newest(query: Query, piece: Piece) -> str:
    """Return the text for ``tail`` or ``since``; while the stream grows, with the number for the next ``since``.

    It is cut in the middle like the text of a result.
    """
    shown, gap, end = _new(query, piece)
    lost = _lost(piece) if piece.cut is None else ""
    note = "\n".join(filter(None, (lost, _newest_note(query, end) if piece.grows else "")))
    call = "" if gap else query.call(piece.id, "lines", 1, None)[0]
    text = fitted(shown[0] + shown[1], gap, len(shown[0]), query.max_chars - len(note) - 1, call=call)
    if piece.grows and not text:
        return f"{NOTHING_NEW}{_newest_note(query, end).replace('[', '; ', 1)}" + (f"\n{lost}" if lost else "")
    return f"{text}\n{note}" if text and note and not text.endswith("\n") else text + note


def _new(query: Query, piece: Piece, in_lines: bool = False) -> tuple[tuple[bytes, bytes], int, int]:
    """Return what ``tail`` or ``since`` shows: before and after a gap, the size of that, and where the next one begins.

    While the stream grows, what may go on is left out: an escape sequence, a character, and ``in_lines`` the last line.
    """
    data, end = piece.data, piece.size
    if piece.grows:
        rest = len(unfinished_escape(data, _WITHHELD_MAX) or unfinished(data))
        if in_lines or query.mask is not None:  # the last line may be the beginning of a secret
            rest = min(max(rest, len(data) - data.rfind(b"\n") - 1), max(rest, _WITHHELD_MAX))
        data, end = data[: len(data) - rest], end - rest
    gap = 0 if piece.cut is None else piece.size - piece.kept
    cut = piece.cut if piece.cut is not None and gap else len(data)
    head, tail = data[:cut], data[cut:]
    since = query.since or 0
    shown = _after(head, since, query.mask), _after(tail, since - cut - gap, query.mask)
    gap = max(0, min(gap, cut + gap - since))
    if query.tail is not None:
        begin, after = (_last_lines(part, query.tail) for part in shown)
        if gap:  # all of these lines are after it, or it is not known how many are in it
            begin, gap = len(head), 0 if after else gap
        shown = shown[0][begin:], shown[1][after:]
    return shown, gap, end


class Growth(NamedTuple):
    """What came to a stream. ``end``: the next ``since``. ``grows``: more may come."""

    id: str
    text: str
    end: int
    grows: bool


def grown(query: Query, in_lines: bool = False) -> Reading[Growth]:
    """Return the text for ``tail`` or ``since``, whole and without notes: to print the stream while it grows.

    ``in_lines``: see ``_new``.
    """
    since, is_whole = query.since or 0, query.tail is not None or is_job(query.id)
    # Masking needs what was before: the secret may have begun there.
    start = 0 if is_whole else max(0, since - _MASKED_WITH)
    piece = yield from everything(query, start)
    size, kept = piece.size - start, piece.kept - start
    shown, gap, end = _new(query._replace(since=since - start), piece._replace(size=size, kept=kept), in_lines)
    text = decoded(shown[0] + shown[1], gap, len(shown[0]), marked=True)
    shown_to = max(since, start + end)  # the last line may have been shown before it was complete
    return Growth(piece.id, clean(text) + ("" if piece.grows else _lost(piece)), shown_to, piece.grows)


def _newest_note(query: Query, end: int) -> str:
    return f"[{'--since ' if query.verb else 'since='}{end} shows only what is new]"


def _after(data: bytes, begin: int, mask: Callable[[str], str] | None) -> bytes:
    """Return the bytes from ``begin`` on. With a mask: what it adds to the masked text of those before.

    So no ``since`` shows a part of a secret that is printed within one line.
    """
    begin = max(0, begin)
    if mask is None:
        return data[begin:]
    masked = _masking(mask)
    text, before = (masked(part.decode("utf-8", "replace")) for part in (data, data[:begin]))
    same = len(before)
    if not text.startswith(before):
        same = next((at for at, (one, other) in enumerate(zip(text, before, strict=False)) if one != other), len(text))
    return text[same:].encode("utf-8", "replace")


def _last_lines(data: bytes, count: int) -> int:
    """Return where the last lines begin."""
    at = len(data) - data.endswith(b"\n")
    for _ in range(count):
        if (at := data.rfind(b"\n", 0, at)) < 0:
            return 0
    return at + 1


def page_of(query: Query, stream: Piece) -> str:
    """Return the text for a query about a stream that ``whole`` returned."""
    pages = _page(query)
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
