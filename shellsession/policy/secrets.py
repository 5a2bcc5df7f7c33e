"""Mask the secrets of an environment in text and in results.

A secret is found by the name of its variable or as the password in a URL. It is then masked by value wherever it
occurs, in each of the spellings that ``Secrets`` lists.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from ..models import Result, Stream, masked_streams
from ..redact import MASK, Redact, masker

# "1", "root" and "true" are everywhere: masking shorter values would blank out half of every text.
SHORTEST: Final = 6
# From this many characters of a secret somebody may guess the rest.
_REVEALING: Final = 3
# A secret that begins in what is shown is found if it ends within this many characters behind that.
_REACH: Final = 4096
# From this many spellings on, it is faster to look up the prefix at each character than to search for each spelling.
_PREFIX_SEARCH_FROM: Final = 500

# A word must not continue: PGPASSWORD and TOKEN_2 name a secret, TOKENIZERS and GIT_AUTHOR_NAME do not. Those of the
# last row count only at the end of a name: DEPLOY_KEY and MYSQL_PWD name a secret, MONKEY and OLDPWD do not.
_SECRET_NAME: Final = re.compile(
    r"(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|SSHPASS|CREDENTIAL|COOKIE|AUTH|AUTHORIZATION"
    r"|(?:API|ACCESS|PRIVATE|SECRET|SESSION)_?KEY)S?(?![A-Z])"
    r"|_(?:KEYS?|PASS|PAT|PWD)$",
    re.IGNORECASE,
)
# NAME=VALUE that is not a secret although its name has such a word. The last word of the name says what the value is (a
# file, a URL, a port), and the value looks like one. It has no characters that surround a password in a URL, and its
# path has no run of letters that is long enough for a secret.
_SETTING: Final = re.compile(
    r"[^=]*_(?:(?:FILE|PATH|DIR|SOCK)=(?=.*/)|URL=(?=\w+://)(?!.*[\w-]{20})"
    r"|(?:HOST|ADDR|PORT|DOMAIN|MODE|TYPE|NAME|TTL)=)[\w.,/:~-]+|[^=]*TOKENS=\d+",
    re.IGNORECASE | re.ASCII,
)
# The user part ends at the last "@" before the path, as a password may contain "@", and so may a mailbox name.
_URL_PASSWORD: Final = re.compile(r'://[^\s/?#:"]*:([^\s/?#"]+)@')
_PERCENT: Final = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
# The characters that bash writes a backslash before: in "...", and without quotes (there also before a tilde that may
# mean a home directory). The backslash comes first, as escaping the others adds backslashes.
_IN_DOUBLE_QUOTES: Final = '\\"$`'
_SPECIAL: Final = r"""\ !"$&'()*,;<>?[]^`{|}"""
# How bash writes $'...': an octal number for a character without a letter, and for a byte that is part of no character.
# Newlines are handled separately.
_ESCAPES: Final = {
    code: f"\\{code % 256:03o}" for code in (*range(1, 10), *range(11, 32), 127, *range(0xDC80, 0xDD00))
} | {ord(raw): "\\" + letter for raw, letter in zip("\a\b\t\v\f\r\x1b\\'", "abtvfrE\\'", strict=True)}
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]+")


class Secrets:
    """The secrets of one environment: the values of variables with telling names, and the passwords in URLs.

    ``more``: further values. A value shorter than six characters is not a secret, unless it is in ``named``, the values
    that the host declared secret. ``redact``: patterns of further secrets. Masked spellings: those in which bash lists
    a variable (``set``, ``declare -p``, ``printf %q``, ``${X@Q}``), in which shlex.quote and people quote one, and JSON
    as Python writes it. Others pass unmasked (base64, ``%40``, the escapes of another language).
    """

    __slots__ = ("_by_prefix", "_longest", "_redact", "_spellings")

    def __init__(
        self,
        environment: Mapping[str, str],
        more: Iterable[str] = (),
        named: Sequence[str] = (),
        redact: Redact = False,
    ) -> None:
        self._redact = masker(redact)
        # A line of a private key is as secret as the whole key; the whitespace around it is not.
        pieces = {
            piece
            for value in (*secret_values(environment), *more, *named)
            for piece in (value, *map(str.strip, value.split("\n")))
            if len(piece) >= SHORTEST and not piece.isspace()
        }
        self._spellings = sorted(_all_spellings(pieces.union(filter(None, named))), key=len)
        self._longest = len(self._spellings[-1]) if self._spellings else 0
        self._by_prefix: dict[str, list[str]] = {}

    def mask(self, text: str, limit: int | None = None) -> str:
        """The text with ``***`` for each secret. ``limit``: return only the first characters, and read no more."""
        # A secret may be shorter than its mask, so the result can be longer than the text.
        if self._redact is not None:
            if limit is not None and len(text) > limit + _REACH:
                text = self._redact(text[: limit + _REACH])
                limit = max(0, min(limit, len(text) - _REACH))  # what comes behind may be a part of a secret
            else:
                text = self._redact(text)
        room = most = len(text) * len(MASK) if limit is None else limit
        if not self._longest:
            return text[:most]
        parts: list[str] = []
        shown = begin = 0
        while room > 0 and begin < (reach := min(len(text), shown + room)):
            end = min(len(text), max(reach, begin + self._longest))  # not less: each step reads so far beyond it
            for start, stop in self._secret_spans(text, begin, end):
                # Secrets may overlap: the text after the first one can be the rest of the second.
                if start >= shown:
                    parts += text[shown:start], MASK
                    room -= start - shown + len(MASK)
                shown = max(shown, stop)
            begin = max(end, shown - self._longest + 1)  # a secret that begins earlier ends within the masked part
        parts.append(text[shown : shown + max(room, 0)])
        return "".join(parts)[:most]

    def _secret_spans(self, text: str, begin: int, end: int) -> list[tuple[int, int]]:
        """The spans of secrets that begin between ``begin`` and ``end``, in order."""
        return sorted(
            span for one in self._candidates(text, begin, end) for span in _occurrences(text, one, begin, end)
        )

    def _candidates(self, text: str, begin: int, end: int) -> Iterable[str]:
        """The spellings that can occur there, judged by their length and, if there are many, by their prefix."""
        if len(self._spellings) < _PREFIX_SEARCH_FROM:
            return self._spellings[: bisect_right(self._spellings, len(text) - begin, key=len)]
        size = min(SHORTEST, len(self._spellings[0]))
        if not self._by_prefix:
            for spelling in self._spellings:
                self._by_prefix.setdefault(spelling[:size], []).append(spelling)
        there = self._by_prefix.keys() & (text[at : at + size] for at in range(begin, end))
        return chain.from_iterable(self._by_prefix[prefix] for prefix in there)

    def mask_result(self, result: Result) -> Result:
        """The result with ``***`` for each secret in its output and in ``recovered``, also for a part at a cut."""
        if not self._longest and self._redact is None:
            return result
        stdout, stdout_cut = self._mask_stream(result.stdout_bytes, result.stdout_omitted, result.stdout_cut)
        stderr, stderr_cut = self._mask_stream(result.stderr_bytes, result.stderr_omitted, result.stderr_cut)
        return replace(
            result,
            stdout_bytes=stdout,
            stderr_bytes=stderr,
            stdout_cut=stdout_cut,
            stderr_cut=stderr_cut,
            recovered=self.mask(result.recovered),
        )

    def streams(self, result: Result) -> tuple[tuple[Stream, bytes, int, int], ...]:
        """As ``masked_streams``, also for part of a secret at a cut."""
        return masked_streams(self.mask_result(result), self.mask)

    def _mask_stream(self, data: bytes, omitted: int, cut: int) -> tuple[bytes, int]:
        if not omitted:
            return self._mask_bytes(data), cut
        head = self._mask_bytes(self._mask_partial(data[:cut], at_end=True))
        return head + self._mask_bytes(self._mask_partial(data[cut:], at_end=False)), len(head)

    def _mask_bytes(self, data: bytes) -> bytes:
        return self.mask(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def starred(self, data: bytes, omitted: int, cut: int) -> bytes:
        """The data with a star for each byte of a secret that the gap has split: its positions stay."""
        if not omitted:
            return data
        before, after = self._partial(data[:cut], at_end=True), self._partial(data[cut:], at_end=False)
        return b"%b%b%b" % (data[: cut - before], b"*" * (before + after), data[cut + after :])

    def _partial(self, data: bytes, at_end: bool) -> int:
        """How many bytes of a secret the cut left at this end."""
        step = 1 if at_end else -1  # for the other end, read everything backwards
        spellings = (spelling.encode("utf-8", "surrogateescape")[::step] for spelling in self._spellings)
        read = data[::step]
        return max((_partial_at_end(read, spelling) for spelling in spellings), default=0)

    def _mask_partial(self, data: bytes, at_end: bool) -> bytes:
        """Mask the longest part of a secret that the cut left at this end."""
        longest, mask = self._partial(data, at_end), MASK.encode()
        if not longest:
            return data
        return data[: len(data) - longest] + mask if at_end else mask + data[longest:]


def _occurrences(text: str, secret: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Yield the spans where ``secret`` occurs, beginning between ``begin`` and ``end``; overlapping ones may be merged.

    This takes linear time for every secret. Two occurrences that overlap by half or more show that the secret is
    periodic; the loop then skips the whole repetition at once. All others are at least half a secret apart.
    """
    size = len(secret)
    last = end + size - 1
    start = text.find(secret, begin, last)
    while start >= 0:
        stop, again = start + size, text.find(secret, start + 1, last)
        if 0 < (period := again - start) <= size // 2:
            stop = _end_of_repetition(text, stop, secret[-period:])
            again = text.find(secret, stop - size + 1, last)
        yield start, stop
        start = again


def _end_of_repetition(text: str, at: int, unit: str) -> int:
    """The index where the repetition of ``unit`` that starts at ``at`` ends."""
    units = [unit]
    while text.startswith(units[-1], at):
        at += len(units[-1])
        units.append(units[-1] * 2)
    for one in reversed(units):  # the rest is shorter than the last one
        at += len(one) if text.startswith(one, at) else 0
    return at


def _partial_at_end(data: bytes, secret: bytes) -> int:
    """The length of the incomplete secret at the end of the data; 0 if it is too short to reveal anything."""
    tail = data[max(0, len(data) - len(secret) + 1) :]
    at = tail.find(secret[:_REVEALING])
    while at >= 0 and not secret.startswith(tail[at:]):
        at = tail.find(secret[:_REVEALING], at + 1)
    return len(tail) - at if at >= 0 else 0


def secret_values(environment: Mapping[str, str]) -> Iterator[str]:
    """The secret values of an environment: those of variables with telling names, and the passwords in URLs."""
    for name, value in environment.items():
        if _SECRET_NAME.search(name) and not _SETTING.fullmatch(f"{name}={value}"):
            yield value
        for password in _URL_PASSWORD.findall(value):
            yield password
            yield _PERCENT.sub(_decode_percent, password)


def _decode_percent(escapes: re.Match[str]) -> str:
    return bytes.fromhex(escapes[0].replace("%", "")).decode("utf-8", "surrogateescape")


def _octal_escape(characters: re.Match[str]) -> str:
    return "".join(f"\\{byte:03o}" for byte in characters[0].encode("utf-8", "replace"))


def _escape_with_backslashes(text: str, special: Iterable[str]) -> str:
    for character in special:  # faster than a loop over the characters of the text
        text = text.replace(character, "\\" + character)
    return text


def _all_spellings(pieces: set[str]) -> set[str]:
    """The pieces in every spelling. Pieces of one line are converted together: one by one, thousands would be slow."""
    lines = "\n".join(piece for piece in pieces if "\n" not in piece)
    spelled = {line for text, _ in _spellings(lines) for line in text.split("\n") if line}
    for piece in pieces:
        if "\n" in piece:
            spelled.update(text.replace("\n", newline) for text, newline in _spellings(piece))
    return spelled


def _spellings(text: str) -> Iterator[tuple[str, str]]:
    """Yield each spelling of the text, with its newlines kept, and what that spelling writes for a newline.

    The spellings: plain; in single quotes, as shlex.quote and as people write them; in double quotes; without quotes;
    between ``$'`` and ``'``, also as in an ASCII locale; and JSON.
    """
    yield text, "\n"
    yield text.replace("'", "'\"'\"'"), "\n"
    yield text.replace("'", "'\\''"), "\n"
    yield _escape_with_backslashes(text, _IN_DOUBLE_QUOTES), "\n"
    yield _escape_with_backslashes(text, _SPECIAL).replace(":~", ":\\~").replace("=~", "=\\~"), "\n"
    escaped = text.translate(_ESCAPES)
    yield escaped, "\\n"
    yield _NOT_ASCII.sub(_octal_escape, escaped), "\\n"
    for ensure_ascii in (True, False):
        listed = json.dumps(text.split("\n"), ensure_ascii=ensure_ascii, separators=("\n", ":"))
        yield listed[2:-2].replace('"\n"', "\n"), "\\n"
