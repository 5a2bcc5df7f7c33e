"""``Notices``: what happens to jobs and to commands that were handed back, for readers of any speed. Pure.

It is told what happens, and when (``now``, by ``time.monotonic``), and what readers watch for. Its notices are numbered
and bounded (``Feed``). A ``Watch`` that matches too often is rate limited: of what it suppresses, the last match comes
once there is room again, with the count of the others.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from itertools import islice
from typing import Final, Literal, NamedTuple

from .feed import Feed
from .models import Record, check_seconds
from .patterns import Pattern, compiled
from .search import TOO_SLOW, SearchTooSlow, limited
from .text import clean, escaped, some_words

Kind = Literal["ended", "printed", "input", "silent", "lost", "limit"]

# What is kept: bytes of text, and this many more for each notice.
_KEPT: Final = 1 << 18
_OVERHEAD: Final = 256
# A line is searched up to this many characters, and shown up to fewer. Several are scanned at once.
_LINE: Final = 1 << 12
_PIECE: Final = 1 << 13  # short enough for ``limited``
# In patterns with one of these, what is around a line can decide whether it matches.
_CONTEXT: Final = re.compile(r"\(\?|\\[ABZ]|[*+?}]\+")
_SHOWN: Final = 500
# A watch may match this often at once, and then this often in a second.
_BURST: Final = 20
_RATE: Final = 5.0
# This many watches are kept, the latest, and each for this many seconds after a reader has last asked.
WATCHES: Final = 32
_ASKED_WITHIN: Final = 3600.0


class Notice(Record):
    """Something that has happened in a session while nobody waited for it.

    * ``number``: counts from 1 in a session.
    * ``kind``: a job, or a command that was handed back, has "ended", has "printed" a line that matches, waits for
      "input", or was "silent". Or the shell is "lost", or a command was ended at a "limit".
    * ``time``: when, in seconds since the epoch.
    * ``id``: of the job ("j1") or of the command ("c17"); "" for a shell that ended while it was idle.
    * ``text``: the line, the question, or how it ended; without secrets, and of a long one only a part.
    * ``exit_code``: with "ended" and "limit", the exit status, if it is known.
    * ``watch``: with "printed" the pattern, with "silent" the seconds.
    * ``dropped``: how many notices before this one the reader does not get, as there were too many.
    """

    number: int
    kind: Kind
    time: float
    id: str
    text: str = ""
    exit_code: int | None = None
    watch: str = ""
    dropped: int = 0


class Watch(NamedTuple):
    """What a reader watches for: lines that match a pattern, and this many seconds without output."""

    pattern: re.Pattern[str] | None = None
    silence: float | None = None

    @classmethod
    def of(cls, pattern: Pattern | None, silence: float | None) -> Watch:
        """Raises InvalidRequest."""
        check_seconds("silence", silence)
        return cls(None if pattern is None else compiled("pattern", pattern), silence)

    def wants(self, notice: Notice) -> bool:
        """Whether the notice is of this watch, or of none."""
        match notice.kind:
            case "printed":
                return self.pattern is not None and notice.watch == self.pattern.pattern
            case "silent":
                return self.silence is not None and notice.watch == _seconds(self.silence)
        return True


def _seconds(seconds: float) -> str:
    return f"{seconds:g}"


def _matching(pattern: re.Pattern[str], text: str) -> list[str]:
    """The lines that match; of one that was overwritten after ``\\r``, the first writing that does.

    A plain pattern is first searched for in many lines at once, which is ten times as fast.
    """
    scan = None if _CONTEXT.search(pattern.pattern) else re.compile(pattern.pattern, pattern.flags | re.MULTILINE)
    found, start = list[str](), 0
    while start < len(text):
        end = (text.rfind("\n", start, start + _PIECE) + 1) or (text.find("\n", start) + 1) or len(text)
        piece, start = text[start:end], end
        if scan is None or len(piece) > _PIECE or scan.search(piece.replace("\r", "\n")):
            for line in piece.split("\n"):
                writings = (one[:_LINE] for one in line.split("\r"))
                found += [*islice((one for one in writings if one and pattern.search(one)), 1)]
    return found


class _Gate:
    """Lets notices of one watch through, as many as the rate permits."""

    def __init__(self, now: float) -> None:
        self.asked = now  # when a reader asked for its watch last
        self._room, self._at = float(_BURST), now
        self.suppressed = 0
        self.last = ("", "")  # the id and the text of the last one that was suppressed
        self.is_given_up = False  # the search for its pattern takes too long

    def admits(self, now: float) -> bool:
        self._room, self._at = min(_BURST, self._room + max(0.0, now - self._at) * _RATE), max(now, self._at)
        if self._room < 1:
            return False
        self._room -= 1
        return True

    @property
    def opens_at(self) -> float:
        """The next moment at which it admits one."""
        return self._at + max(0.0, 1 - self._room) / _RATE


class _Begun(NamedTuple):
    """The line that a stream has begun, and the patterns for which it was noted already."""

    data: bytes = b""
    noted: frozenset[re.Pattern[str]] = frozenset()


class _Source:
    """A job that runs, or a command that was handed back."""

    def __init__(self, now: float) -> None:
        self.last = now  # its last output
        self.told = 0.0  # the longest silence since then that was noted
        self.asks = False  # it waits for input, which was noted
        self.begun = dict[str, _Begun]()  # by stream


class Notices:
    """The notices of one session.

    ``epoch``: the seconds since the epoch at the moment 0.0 of ``now``. ``mask``: takes secrets out of a text.
    """

    def __init__(self, epoch: float, mask: Callable[[str], str] = str) -> None:
        self._epoch, self._mask = epoch, mask
        self.feed = Feed[Notice](_KEPT)
        self._sources = dict[str, _Source]()
        self._gates = dict[re.Pattern[str] | float, _Gate]()  # by what is watched for, the latest last

    # -- what happens

    def follow(self, id: str, now: float, printed: bytes = b"") -> None:
        """A job runs, or a command was handed back. ``printed``: what it has printed before."""
        if id not in self._sources:
            self._sources[id] = _Source(now)
            self.output(id, "", printed, now)

    def output(self, id: str, stream: str, data: bytes, now: float) -> None:
        """It has printed something. Does nothing for any other command."""
        if (source := self._sources.get(id)) is None or not data:
            return
        self._note_silence(id, source, now)
        source.last, source.told, source.asks = now, 0.0, False
        if patterns := [one for one in self._gates if isinstance(one, re.Pattern)]:
            before = source.begun.get(stream, _Begun())
            data = before.data + data
            noted = [one for one in patterns if self._search(id, one, data, one in before.noted, now)]
            begin = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
            # Its beginning stays: without that, half a secret would not be found. A character has up to 4 bytes.
            source.begun[stream] = _Begun(data[begin:][: 4 * _LINE], frozenset(noted))

    def _search(self, id: str, pattern: re.Pattern[str], data: bytes, is_noted: bool, now: float) -> bool:
        """Note the lines that match, the first one unless that ``is_noted``. Returns whether the last one is noted."""
        if self._gates[pattern].is_given_up:
            return False
        text = data.decode("utf-8", "replace").replace("\r\n", "\n")
        if is_noted:
            _, newline, text = text.partition("\n")
            if not newline:
                return True
        head, _, last = text.rpartition("\n")
        try:
            with limited():
                found, in_last = _matching(pattern, head), _matching(pattern, last)
        except SearchTooSlow:
            self._gates[pattern].is_given_up = True
            self._add("limit", id, f"the search for {pattern.pattern!r:.100} {TOO_SLOW}", now, watch=pattern.pattern)
            return False
        for line in found + in_last:
            self._pass(pattern, id, line, now)
        return bool(in_last)

    def typed(self, id: str, now: float) -> None:
        """It has got input."""
        if (source := self._sources.get(id)) is not None:
            source.last, source.asks = now, False

    def asks(self, id: str, text: str, now: float) -> None:
        """It waits for input; ``text``: its question."""
        self.follow(id, now)
        if not (source := self._sources[id]).asks:
            source.asks = True
            self._add("input", id, text, now)

    def end(self, kind: Kind, id: str, text: str, now: float, exit_code: int | None = None) -> None:
        """It has ended. "ended" is no notice for a command whose caller has waited for it."""
        source = self._sources.pop(id, None)
        if source is not None or kind != "ended":
            self._add(kind, id, text, now, exit_code)

    def drop(self, id: str) -> None:
        """Follow it no longer."""
        self._sources.pop(id, None)

    def tick(self, now: float) -> None:
        """The time has passed: note silences, and what was suppressed."""
        for id, source in self._sources.items():
            self._note_silence(id, source, now)
        for one, gate in list(self._gates.items()):
            if now - gate.asked > _ASKED_WITHIN:
                del self._gates[one]
            elif gate.suppressed and gate.opens_at <= now:
                gate.suppressed -= 1
                self._pass(one, *gate.last, now)

    @property
    def next_moment(self) -> float:
        """When ``tick`` has something to do; ``math.inf`` if that is not known."""
        silences = [one for one in self._gates if isinstance(one, float)]
        moments = [source.last + one for source in self._sources.values() for one in silences if one > source.told]
        moments += [gate.opens_at for gate in self._gates.values() if gate.suppressed]
        return min(moments, default=math.inf)

    # -- readers

    def watch(self, watch: Watch, now: float) -> bool:
        """Watch for this, for a reader that asks now. Returns whether the pattern is new here."""
        is_new = watch.pattern is not None and watch.pattern not in self._gates
        for one in (watch.pattern, watch.silence):
            if one is not None:
                key = one if isinstance(one, re.Pattern) else float(one)
                self._gates[key] = gate = self._gates.pop(key, None) or _Gate(now)
                gate.asked = now
        while len(self._gates) > WATCHES:
            del self._gates[next(iter(self._gates))]
        return is_new

    def search(self, id: str, pattern: re.Pattern[str], printed: bytes, now: float) -> None:
        """Search for a new pattern in what the source has printed before."""
        if id in self._sources and printed:
            self._search(id, pattern, printed, False, now)

    def read(self, after: int, watch: Watch) -> tuple[int, list[Notice]]:
        """How many notices after that number were dropped, and those that this watch wants.

        A number that is not used yet is one of an earlier session: then all that are kept come.
        """
        dropped, notices = self.feed.after(after if after <= self.feed.last else 0)
        return dropped, [notice for notice in notices if watch.wants(notice)]

    @property
    def sources(self) -> tuple[str, ...]:
        """The ids of the jobs that run, and of the command that was handed back."""
        return tuple(self._sources)

    # -- how

    def _note_silence(self, id: str, source: _Source, now: float) -> None:
        for one in sorted(one for one in self._gates if isinstance(one, float)):
            if source.told < one <= now - source.last:
                source.told = one
                self._pass(one, id, f"it has printed nothing for {_seconds(one)} s", now)

    def _pass(self, one: re.Pattern[str] | float, id: str, text: str, now: float) -> None:
        """Add a notice of a watch, if the rate permits."""
        gate = self._gates[one]
        if not gate.admits(now):
            gate.suppressed, gate.last = gate.suppressed + 1, (id, text)
            return
        dropped, gate.suppressed = gate.suppressed, 0
        kind: Kind = "silent" if isinstance(one, float) else "printed"
        watch = _seconds(one) if isinstance(one, float) else one.pattern
        self._add(kind, id, text, now, watch=watch, dropped=dropped)

    def _add(
        self,
        kind: Kind,
        id: str,
        text: str,
        now: float,
        exit_code: int | None = None,
        watch: str = "",
        dropped: int = 0,
    ) -> None:
        shown = escaped(self._mask(clean(text)).replace("\t", " "))  # before a part of a secret is cut off
        text = some_words(shown, _SHOWN, from_end=kind == "input")
        notice = Notice(self.feed.last + 1, kind, self._epoch + now, id, text, exit_code, watch, dropped)
        self.feed.append(notice, len(text) + len(watch) + _OVERHEAD)
