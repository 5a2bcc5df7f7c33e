"""Output as text: decoded, cleaned of what a terminal would not show, and cut to a length.

Nothing here invents data. Where bytes are missing a mark says so, at the very place; a cut falls between two lines, and
where one line is too long for that, the mark stands within the line.
"""

from __future__ import annotations

import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from typing import Final, Protocol

    class Ended(Protocol):
        """What ``ending`` reads of a result."""

        @property
        def exit_code(self) -> int | None: ...
        @property
        def duration(self) -> float: ...
        @property
        def outcome(self) -> str: ...
        @property
        def state_kept(self) -> bool: ...
        @property
        def reason(self) -> str: ...
        @property
        def background(self) -> tuple[int, ...]: ...
        @property
        def ran(self) -> bool: ...
        @property
        def matched(self) -> bool: ...
        @property
        def recovered(self) -> str: ...


# Bytes that a terminal does not show as they are. Tab and newline are text.
_CONTROLS: Final = bytes(sorted({*range(32), 127} - set(b"\t\n")))
_LEFT: Final = re.compile(r"\x1b\[(\d{0,4})D")
_COLUMNS: Final = 1000  # no line of a terminal is longer
_FIRST_COLUMN: Final = re.compile(r"\x1b\[[01]?G")
_ERASE_LINE: Final = re.compile(r"\x1b\[([012]?)K")
# How erasing stands in a line meanwhile: to its end, to its beginning, or all of it.
_ERASES: Final = {"": "\x1c", "0": "\x1c", "1": "\x1d", "2": "\x1e"}
# CSI, then OSC and other strings, then all other sequences: ECMA-48, 5.4 to 5.6. None goes beyond its line.
_ESCAPE: Final = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]PX^_][^\x07\x1b\n]*(?:\x07|\x1b\\)?|[ -/]*[0-~])?"
    r"|[\x00-\x07\x0b\x0c\x0e-\x1a\x1f\x7f]"
)
_BEGUN: Final = re.compile(rb"\x1b(?:\[[0-?]*[ -/]*|[\]PX^_][^\x07\x1b\n]*|[ -/]*)\Z")  # the same, without their ends
_MOVES: Final = re.compile("(\b+|[\r\x1c\x1d\x1e])")

LOST: Final = "its state is lost, the next command starts in a fresh one"
KEPT: Final = "the shell, its directory and its variables are kept"
# This many bytes are looked at for each character that there is room for.
_WINDOW: Final = 2
# What models are given elsewhere, too, before it crowds out the task: about 8 000 tokens.
MAX_CHARS: Final = 30_000
# The lines of more bytes than this are estimated from as many in the middle: to count them would take longer than all
# else (1 MiB: 0.5 ms).
_COUNTED: Final = 1 << 15
_NO_LINES: Final = dict[str, int]()
# A text with room for no more than four times this has none for what a command waits for.
_LEAST_FREE: Final = 50
# This many process ids are shown.
LISTED: Final = 20


def unfinished(data: bytes) -> bytes:
    """The first bytes of a UTF-8 character at the end of ``data`` whose last ones are missing."""
    for back in range(1, min(3, len(data)) + 1):
        byte = data[-back]
        if 0xC2 <= byte < 0xF5:
            whole = 2 + (byte >= 0xE0) + (byte >= 0xF0)
            return data[-back:] if back < whole else b""
        if not 0x80 <= byte < 0xC0:  # others begin none, and none will ever come of them
            break
    return b""


def unfinished_escape(data: bytes, most: int) -> bytes:
    """The escape sequence at the end of ``data`` that may go on, of at most ``most`` bytes."""
    begin = data.rfind(b"\x1b", max(0, len(data) - most))
    return data[begin:] if begin >= 0 and _BEGUN.match(data, begin) else b""


def decoded(data: bytes, omitted: int = 0, cut: int = 0, marked: bool = False) -> str:
    """Output as text. ``omitted`` bytes are missing at ``cut``; ``marked``: a mark says so there.

    Bytes that are no UTF-8 become U+FFFD. A character that the gap has split is left out.
    """
    if not omitted:
        return data.decode("utf-8", "replace")
    head, tail = _around(data, cut)
    mark = _mark(omitted + len(data) - len(head) - len(tail)) if marked else ""
    return head.decode("utf-8", "replace") + mark + tail.decode("utf-8", "replace")


def _around(data: bytes, cut: int) -> tuple[bytes, bytes]:
    """What stands before and after a gap, without half a character on either side."""
    head, tail = data[:cut], data[cut:]
    skip = 0
    while skip < min(3, len(tail)) and 0x80 <= tail[skip] < 0xC0:
        skip += 1
    return head[: len(head) - len(unfinished(head))], tail[skip:]


def clean(text: str) -> str:
    """Return the text without escape sequences, and with ``\\r`` and backspaces applied.

    If a line was overwritten after ``\\r``, only the last writing is kept. A terminal would also show the rest of a
    longer earlier one, and the two together may read as something that was never printed. The number of lines stays
    the same. A full-screen program, which moves to other lines, is not drawn.
    """
    text = text.replace("\r\n", "\n")
    text = _LEFT.sub(lambda found: "\b" * min(int(found[1] or 1), _COLUMNS), _FIRST_COLUMN.sub("\r", text))
    text = _ERASE_LINE.sub(lambda found: _ERASES[found[1]], re.sub("[\x1c\x1d\x1e]", "", text))
    text = _ESCAPE.sub("", text)
    if not _MOVES.search(text):
        return text
    return "\n".join(_drawn(line) if _MOVES.search(line) else line for line in text.split("\n"))


def _drawn(line: str) -> str:
    """One line in which the cursor moves, as it looks at last.

    Nothing is copied for each move: the time grows with the length of the line, also for a line made to be slow.
    """
    cells, first, at, is_again = list[str](), 0, 0, False
    # What stands before the first column is erased; no cursor is beyond the last.
    for piece in _MOVES.split(line):
        match piece:
            case "\r":
                at, is_again = 0, True
            case "\x1c":
                del cells[at:]
                first = min(first, at)
            case "\x1d":
                first = max(first, min(at + 1, len(cells)))
            case "\x1e":
                del cells[at:]
                first = at
            case _ if piece.startswith("\b"):
                at = max(0, at - len(piece))
            case _ if piece:
                if is_again:
                    cells.clear()
                    first, is_again = 0, False
                end = at + len(piece)
                if at < first:
                    cells[end:first] = " " * (first - end)
                    first = at
                cells[at:end] = piece
                at = end
    shown = " " * first + "".join(cells[first:])
    return shown.rstrip(" ") if "\x1d" in line or "\x1e" in line else shown


def edited(data: bytes, omitted: int, cut: int, edit: Callable[[str], str]) -> tuple[bytes, int, int]:
    """Output after an edit of its text: bytes, how many are missing, and where. What a gap splits is edited apart."""
    if not omitted:
        return edit(data.decode("utf-8", "replace")).encode("utf-8", "replace"), 0, 0
    parts = _around(data, cut)
    head, tail = (edit(part.decode("utf-8", "replace")).encode("utf-8", "replace") for part in parts)
    return head + tail, omitted + len(data) - sum(map(len, parts)), len(head)


def fitted(data: bytes, omitted: int, cut: int, room: int, cleaned: bool = True, call: str = "", lines: int = 0) -> str:
    """Output as text of at most ``room`` characters: all of it, or its first and last lines around a mark.

    ``omitted`` bytes with about ``lines`` lines are missing at ``cut`` already. ``cleaned``: as ``clean`` does it.
    ``call``: what shows the rest.
    """
    if not omitted and len(data) <= 2 * _WINDOW * room and len(text := text_of(data, cleaned)) <= room:
        return text
    before, after = _whole_lines(*_around(data, cut)) if omitted else (data, data)
    longest = _mark(omitted + len(data), f"about {grouped(len(data) + lines)} lines", call) + "\n"
    free = room - len(longest)
    if free <= 0 and call:
        return fitted(data, omitted, cut, room, cleaned, lines=lines)
    if free <= 0:
        mark = _mark(omitted + len(data))
        return mark if len(mark) <= room else "[...]"[:room]  # a number that is cut would be a wrong one
    head, size = _first(before, free // 2, cleaned)
    tail, rest = _last(after, free - len(head), cleaned)
    end = len(data) - rest
    count, is_exact = count_lines(data, size, end)
    if omitted:
        count, is_exact = (count + lines if lines else 0), False
    mark = _mark(omitted + end - size, _in_words(count, is_exact), call)
    return head + mark + ("\n" if _begins_line(data, rest) else "") + tail


def _whole_lines(before: bytes, after: bytes) -> tuple[bytes, bytes]:
    """What stands before and after a gap, without the lines that the gap has split, as far as there are others."""
    return before[: before.rfind(b"\n") + 1] or before, after[after.find(b"\n") + 1 :] or after


def shared(
    streams: Sequence[tuple[str, bytes, int, int]],
    room: int,
    cleaned: bool = True,
    id: str = "",
    lines: Mapping[str, int] = _NO_LINES,
) -> list[str]:
    """The text of each stream, of at most ``room`` characters together; see ``report``.

    A shorter stream gets all that it needs, and a longer one the rest.
    """
    sizes = sorted((len(data) + omitted, at) for at, (_, data, omitted, _) in enumerate(streams))
    texts = [""] * len(streams)
    for left, (_, at) in zip(range(len(streams), 0, -1), sizes, strict=True):
        name, data, omitted, cut = streams[at]
        call = call_for(id, name) if id else ""
        texts[at] = fitted(data, omitted, cut, max(0, room // left), cleaned, call, lines.get(name, 0))
        room -= len(texts[at])
    return texts


def text_of(data: bytes, cleaned: bool = True) -> str:
    """Output as text; ``cleaned`` as ``clean`` does it, which keeps the number of lines."""
    text = data.decode("utf-8", "replace")
    return clean(text) if cleaned and len(data.translate(None, _CONTROLS)) != len(data) else text


def _first(data: bytes, room: int, cleaned: bool) -> tuple[str, int]:
    """The first lines that fit into this many characters, and their size in bytes; or the first part of a long line."""
    window = data[: _WINDOW * room]
    text = text_of(window, cleaned)
    if len(window) == len(data) and len(text) <= room:
        return text, len(data)
    end = text.rfind("\n", 0, room) + 1
    if end:
        lines = text.count("\n", 0, end)
        return text[:end], sum(map(len, window.split(b"\n", lines)[:lines])) + lines
    piece = window[:room]
    piece = piece[: len(piece) - len(unfinished(piece))]
    return text_of(piece, cleaned), len(piece)


def _last(data: bytes, room: int, cleaned: bool) -> tuple[str, int]:
    """The last lines that fit into this many characters, and their size in bytes; or the last part of a long line."""
    window = data[-_WINDOW * room :]
    text = text_of(window, cleaned)
    if len(window) == len(data) and len(text) <= room:
        return text, len(data)
    begin = text.find("\n", max(0, len(text) - room - 1)) + 1
    if 0 < begin < len(text):
        lines = text.count("\n", begin)
        return text[begin:], sum(map(len, window.rsplit(b"\n", lines + 1)[1:])) + lines
    _, piece = _around(window[-room:], 0)
    return text_of(piece, cleaned), len(piece)


def _begins_line(data: bytes, size: int) -> bool:
    """Do the last this many bytes begin a line?"""
    return data[len(data) - size - 1 : len(data) - size] == b"\n"


def count_lines(data: bytes | bytearray, begin: int, end: int, sample: int = _COUNTED) -> tuple[int, bool]:
    """How many lines end between two places, and whether that is exact.

    Of more than ``sample`` bytes it is an estimate from as many in the middle.
    """
    size = end - begin
    if size <= sample:
        return data.count(b"\n", begin, end), True
    middle = begin + (size - sample) // 2
    return data.count(b"\n", middle, middle + sample) * size // sample, False


def _in_words(count: int, is_exact: bool) -> str:
    """A number of lines in words; "" for none."""
    if is_exact or not count:
        return f"{grouped(count)} line{'s' * (count != 1)}" if count else ""
    step = 10 ** max(0, len(str(count)) - 2)
    return f"about {grouped(round(count / step) * step)} lines"


def _mark(size: int, lines: str = "", call: str = "") -> str:
    shown = f"; {call} shows them" if call else ""
    return f"[... {grouped(size)} bytes{f' ({lines})' if lines else ''} omitted{shown} ...]"


def call_for(id: str, stream: str, part: str = "...") -> str:
    """The call that shows a part of a kept output."""
    return f'read_output("{id}", {"" if stream == "stdout" else f"""stream="{stream}", """}{part})'


def left_running(pids: Sequence[int]) -> str:
    """Which processes a command left running, in words. A list of very many could leave no room for the output."""
    return f"left running in the background: process {some(map(str, pids))}"


def some(things: Iterable[str], most: int = LISTED) -> str:
    """The first of the things, and how many more there are."""
    shown = [*things]
    more = len(shown) - most
    return ", ".join(shown[:most]) + (f" and {grouped(more)} more" if more > 0 else "")


def grouped(number: int) -> str:
    """A number with its digits in groups of three."""
    return f"{number:,}".replace(",", " ")


def escaped(text: str) -> str:
    """The text with escapes (``\\x1b``) for characters that do not print: controls, and marks that reverse text."""
    if text.isprintable():
        return text
    return "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)


def some_words(text: str, most: int, from_end: bool = False) -> str:
    """The first words of a line, or the last ones, in about that many characters; one longer word is cut."""
    if len(text) <= most:
        return text
    if from_end:
        return f"... {text[-most - 1 :].partition(' ')[2] or text[-most:]}"
    return f"{text[: most + 1].rpartition(' ')[0] or text[:most]} ..."


def signal_name(number: int) -> str:
    """ "SIGSEGV" for 11; "" where there is no such signal."""
    import signal  # makes enums of all of them

    try:
        return signal.Signals(number).name
    except ValueError:
        return ""


INTERRUPTED: Final = "interrupted on request"
# The reasons of results whose outcomes say the same.
REASONS: Final = {
    "timed_out": "the time limit passed",
    "idle": "no output came for the idle limit",
    "input": "the command waits for input from the terminal",
    "running": "the time limit passed",
}


def sentences(*parts: str) -> str:
    """Return as one text what has several parts, some of which may be empty."""
    return "; ".join(filter(None, parts))


def explained(reason: str, why: str) -> str:
    """One of ``REASONS``, with what the command waits for, if that is known."""
    return f"{reason}: {why.replace('; ', ', ')}" if why else reason


def reason_of(result: Ended) -> tuple[str, str]:
    """The reason without what the command waits for, and that; see ``explained``."""
    parts, why = result.reason.split("; "), ""
    for at, part in enumerate(parts):
        for said in REASONS.values():
            if part.startswith(f"{said}: "):
                parts[at], why = said, part[len(said) + 2 :]
    return "; ".join(parts), why


def news(result: Ended) -> str:
    """What the reason says beside the outcome: what happened before the command, and nobody was told yet."""
    if not result.reason or result.outcome not in REASONS or result.matched:
        return ""
    said = (REASONS[result.outcome], INTERRUPTED)  # a tool interrupts what has passed its limit
    return "; ".join(part for part in reason_of(result)[0].split("; ") if part not in said)


def waits(result: Ended, room: int = MAX_CHARS) -> str:
    """What a command waited for, in brackets; "" if that is unknown, or too much for a text of ``room`` characters."""
    _, why = reason_of(result)
    return f" ({why})" if why and len(why) <= room // 4 - _LEAST_FREE else ""


def ending(result: Ended, room: int = MAX_CHARS) -> str:
    """How a command ended, in words; "" where it simply succeeded. ``room``: see ``waits``."""
    before, said = news(result), _ending(result, waits(result, room))
    return "; ".join(filter(None, (before, said, "" if result.recovered in said else result.recovered)))


def _ending(result: Ended, why: str) -> str:
    if not result.ran:
        return f"not run: {result.reason}"
    seconds = _rounded(result.duration)
    kept = KEPT if result.state_kept else result.recovered or LOST
    match result.outcome:
        case "exited":
            said = ", ".join(filter(None, (status(result.exit_code) if result.exit_code else "", result.reason)))
            return said if result.state_kept else f"{said or 'exit status 0'}; {kept}"
        case "running":
            return f"{f'{result.reason}; ' if result.matched else ''}still running after {seconds} s{why}"
        case "input":
            return f"waits for input after {seconds} s{why}"
        case "timed_out":
            return f"ended by its time limit after {seconds} s{why}; {kept}"
        case "idle":
            return f"printed nothing more after {seconds} s{why}" + (
                "" if result.exit_code is None else f", and was ended; {kept}"
            )
        case "shell_exited":
            return f"{result.reason or 'the shell has ended'}; {kept}"
    return f"ended: {result.reason or result.outcome}; {kept}"


def status(code: int | None) -> str:
    """An exit status in words, with the signal that bash counts from 128 on."""
    name = signal_name(code - 128) if code is not None and code > 128 else ""
    return f"exit status {code}" + (f" (128 + {name})" if name else "")


def _rounded(seconds: float) -> str:
    """The seconds as people read them; never 0 for what took some time."""
    return f"{seconds:.0f}" if seconds >= 10 else f"{seconds:.1f}" if seconds >= 0.1 else f"{seconds:.1g}"


def report(
    streams: Sequence[tuple[str, bytes, int, int]],
    notes: Sequence[str],
    room: int,
    cleaned: bool = True,
    id: str = "",
    lines: Mapping[str, int] = _NO_LINES,
) -> str:
    """Output and how it ended, as one text of at most ``room`` characters.

    ``streams``: name, bytes, how many are missing, and where. Two that have something to show are labelled, and stderr
    always. ``notes`` stand behind them, each in brackets. ``id``: with it ``read_output`` shows what is cut. ``lines``:
    by name of a stream, about how many of its lines are missing.
    """
    given = [one for one in streams if one[1] or one[2]]
    ends = [f"[{note}]" for note in notes if note] or ([] if given else ["[no output]"])
    labels = [f"[{name}]" if len(given) > 1 or name != "stdout" else "" for name, *_ in given]
    free = room - sum(len(one) + 1 for one in (*ends, *labels)) - len(given)
    parts = list[str]()
    for label, text in zip(labels, shared(given, free, cleaned, id, lines), strict=True):
        parts += [label] * bool(label) + [text.removesuffix("\n")]
    return ("\n".join((*parts, *ends)) or "[an empty line]")[:room]


def ago(seconds: float) -> str:
    """How long ago something was, in words."""
    for size, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name} ago"
    whole = max(0, round(seconds))  # the clock may have been set back
    return f"{whole} second{'s' * (whole != 1)} ago"
