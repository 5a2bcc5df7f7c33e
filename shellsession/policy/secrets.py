"""Secrets of an environment: which variables hold them, and text in which none of them is to be read.

Law: secrets are known by value, and every spelling that is known is masked.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Final

from ..models import Result

# "1", "root" and "true" are everywhere: to mask what is shorter would blank out half of every text.
SHORTEST: Final = 6
MASK: Final = "***"
# So much of a secret may tell the rest to who guesses.
_TELLING: Final = 3
# Of so many spellings it is quicker to look, at each character, how one of them begins, than to look for each.
_MANY: Final = 500

# A word that goes on is another word: PGPASSWORD and TOKEN_2 tell a secret, TOKENIZERS and GIT_AUTHOR_NAME do not.
# Those of the last row count at the end of a name, as DEPLOY_KEY and MYSQL_PWD do; MONKEY and OLDPWD do not.
_SECRET_NAME: Final = re.compile(
    r"(?:TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|SSHPASS|CREDENTIAL|COOKIE|AUTH|AUTHORIZATION"
    r"|(?:API|ACCESS|PRIVATE|SECRET|SESSION)_?KEY)S?(?![A-Z])"
    r"|_(?:KEYS?|PASS|PAT|PWD)$",
    re.IGNORECASE,
)
# No secret, though its name has such a word, as NAME=VALUE: the last word says what it is, and the value is one, with
# no signs that stand around a password in a URL, and no letters in its path that are long enough for one.
_SETTING: Final = re.compile(
    r"[^=]*_(?:(?:FILE|PATH|DIR|SOCK)=(?=.*/)|URL=(?=\w+://)(?!.*[\w-]{20})"
    r"|(?:HOST|ADDR|PORT|DOMAIN|MODE|TYPE|NAME|TTL)=)[\w.,/:~-]+|[^=]*TOKENS=\d+",
    re.IGNORECASE | re.ASCII,
)
# The user's part ends at the last "@" before the path: a password may hold one, and so may the name of a mailbox.
_URL_PASSWORD: Final = re.compile(r'://[^\s/?#:"]*:([^\s/?#"]+)@')
_PERCENT: Final = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
# What bash writes a backslash before: in "...", and without quotes (there also before a tilde that may mean a home). A
# backslash is the first: the others bring more of them.
_IN_DOUBLE_QUOTES: Final = '\\"$`'
_SPECIAL: Final = r"""\ !"$&'()*,;<>?[]^`{|}"""
# As bash writes $'...': an octal number for what has no letter, and for a byte that is no part of a character. Newlines
# are seen to apart.
_ESCAPES: Final = {
    code: f"\\{code % 256:03o}" for code in (*range(1, 10), *range(11, 32), 127, *range(0xDC80, 0xDD00))
} | {ord(raw): "\\" + letter for raw, letter in zip("\a\b\t\v\f\r\x1b\\'", "abtvfrE\\'", strict=True)}
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]+")


class Secrets:
    """The secrets of one environment: what a variable holds whose name says so, and every password in a URL.

    ``more``: others, by value. What is shorter than six characters is no secret, unless it is one of ``named``, which
    somebody has named as one; what a command brings itself is one that nobody has named. The spellings that are known
    are those in which bash lists a variable (``set``, ``declare -p``, ``printf %q``, ``${X@Q}``), in which shlex.quote
    and people quote one, and JSON's as Python writes it; others pass (base64, ``%40``, a language's own escapes).
    """

    __slots__ = ("_beginnings", "_longest", "_spellings")

    def __init__(self, environment: Mapping[str, str], more: Iterable[str] = (), named: Sequence[str] = ()) -> None:
        # A line of a private key is as secret as all of it; what surrounds it is another matter.
        pieces = {
            piece
            for value in (*secret_values(environment), *more, *named)
            for piece in (value, *map(str.strip, value.split("\n")))
            if len(piece) >= SHORTEST and not piece.isspace()
        }
        self._spellings = sorted(_spelled(pieces.union(filter(None, named))), key=len)
        self._longest = len(self._spellings[-1]) if self._spellings else 0
        self._beginnings: dict[str, list[str]] = {}

    def mask(self, text: str, limit: int | None = None) -> str:
        """The text with ``***`` for each secret; only the first ``limit`` characters of that, for no more work."""
        # a secret may be shorter than what stands for it
        room = most = len(text) * len(MASK) if limit is None else limit
        if not self._longest:
            return text[:most]
        parts: list[str] = []
        shown = begin = 0
        while room > 0 and begin < (reach := min(len(text), shown + room)):
            end = min(len(text), max(reach, begin + self._longest))  # not less: how they go on is read each time
            for start, stop in self._found(text, begin, end):
                # Secrets may overlap: what follows the first one would be the rest of the second.
                if start >= shown:
                    parts += text[shown:start], MASK
                    room -= start - shown + len(MASK)
                shown = max(shown, stop)
            begin = max(end, shown - self._longest + 1)  # what begins before that ends before it, too
        parts.append(text[shown : shown + max(room, 0)])
        return "".join(parts)[:most]

    def _found(self, text: str, begin: int, end: int) -> list[tuple[int, int]]:
        """What of the text is secret, of all that begins between these, in order."""
        return sorted(span for one in self._likely(text, begin, end) for span in _occurrences(text, one, begin, end))

    def _likely(self, text: str, begin: int, end: int) -> Iterable[str]:
        """The spellings that may be there, by how they begin."""
        if len(self._spellings) < _MANY:
            return self._spellings[: bisect_right(self._spellings, len(text) - begin, key=len)]
        size = min(SHORTEST, len(self._spellings[0]))
        if not self._beginnings:
            for spelling in self._spellings:
                self._beginnings.setdefault(spelling[:size], []).append(spelling)
        there = self._beginnings.keys() & (text[at : at + size] for at in range(begin, end))
        return chain.from_iterable(self._beginnings[beginning] for beginning in there)

    def mask_result(self, result: Result) -> Result:
        """The result with ``***`` for each secret in its output; also for the part of one that was cut in two."""
        if not self._longest:
            return result
        stdout, stdout_cut = self._mask_stream(result.stdout_bytes, result.stdout_omitted, result.stdout_cut)
        stderr, stderr_cut = self._mask_stream(result.stderr_bytes, result.stderr_omitted, result.stderr_cut)
        return replace(result, stdout_bytes=stdout, stderr_bytes=stderr, stdout_cut=stdout_cut, stderr_cut=stderr_cut)

    def _mask_stream(self, data: bytes, omitted: int, cut: int) -> tuple[bytes, int]:
        if not omitted:
            return self._mask_bytes(data), cut
        head = self._mask_bytes(self._without_part(data[:cut], at_end=True))
        return head + self._mask_bytes(self._without_part(data[cut:], at_end=False)), len(head)

    def _mask_bytes(self, data: bytes) -> bytes:
        return self.mask(data.decode("utf-8", "surrogateescape")).encode("utf-8", "surrogateescape")

    def _without_part(self, data: bytes, at_end: bool) -> bytes:
        """Without the longest part of a secret that the cut has left at this end."""
        step = 1 if at_end else -1  # at the other end all is the same, read backwards
        spellings = (spelling.encode("utf-8", "surrogateescape")[::step] for spelling in self._spellings)
        read = data[::step]
        longest = max((_begun_at_end(read, spelling) for spelling in spellings), default=0)
        mask = MASK.encode()
        if not longest:
            return data
        return data[: len(data) - longest] + mask if at_end else mask + data[longest:]


def _occurrences(text: str, secret: str, begin: int, end: int) -> Iterator[tuple[int, int]]:
    """Where it stands in the text, of all that begins between these; occurrences that overlap may be told as one.

    Linear, whatever the secret is: two that overlap by half or more tell its period, by which more of them may follow,
    and these are passed over at once. All others are half a secret apart.
    """
    size = len(secret)
    last = end + size - 1
    start = text.find(secret, begin, last)
    while start >= 0:
        stop, again = start + size, text.find(secret, start + 1, last)
        if 0 < (period := again - start) <= size // 2:
            stop = _repeated(text, stop, secret[-period:])
            again = text.find(secret, stop - size + 1, last)
        yield start, stop
        start = again


def _repeated(text: str, at: int, unit: str) -> int:
    """How far the text says, from here on, this again and again."""
    units = [unit]
    while text.startswith(units[-1], at):
        at += len(units[-1])
        units.append(units[-1] * 2)
    for one in reversed(units):  # what is left is less than the last one
        at += len(one) if text.startswith(one, at) else 0
    return at


def _begun_at_end(data: bytes, secret: bytes) -> int:
    """How much of the secret, which is not all there, stands at the end of the data; 0 where that tells nothing."""
    tail = data[max(0, len(data) - len(secret) + 1) :]
    at = tail.find(secret[:_TELLING])
    while at >= 0 and not secret.startswith(tail[at:]):
        at = tail.find(secret[:_TELLING], at + 1)
    return len(tail) - at if at >= 0 else 0


def secret_values(environment: Mapping[str, str]) -> Iterator[str]:
    """What of it is secret, by the names of its variables and as passwords in URLs."""
    for name, value in environment.items():
        if _SECRET_NAME.search(name) and not _SETTING.fullmatch(f"{name}={value}"):
            yield value
        for password in _URL_PASSWORD.findall(value):
            yield password
            yield _PERCENT.sub(_decoded, password)


def _decoded(escapes: re.Match[str]) -> str:
    return bytes.fromhex(escapes[0].replace("%", "")).decode("utf-8", "surrogateescape")


def _in_octal(characters: re.Match[str]) -> str:
    return "".join(f"\\{byte:03o}" for byte in characters[0].encode("utf-8", "replace"))


def _backslashed(text: str, special: Iterable[str]) -> str:
    for character in special:  # a search for each is quicker than a look at each character of the text
        text = text.replace(character, "\\" + character)
    return text


def _spelled(pieces: set[str]) -> set[str]:
    """The pieces in every spelling. Those of one line are spelled together: of thousands, each alone takes long."""
    lines = "\n".join(piece for piece in pieces if "\n" not in piece)
    spelled = {line for text, _ in _spellings(lines) for line in text.split("\n") if line}
    for piece in pieces:
        if "\n" in piece:
            spelled.update(text.replace("\n", newline) for text, newline in _spellings(piece))
    return spelled


def _spellings(text: str) -> Iterator[tuple[str, str]]:
    """As it is, as shlex.quote and people put it between single quotes, between double quotes, without quotes, between
    ``$'`` and ``'`` (also where the locale knows ASCII alone), and as JSON. Each with its newlines as they are, and
    with what would stand for these."""
    yield text, "\n"
    yield text.replace("'", "'\"'\"'"), "\n"
    yield text.replace("'", "'\\''"), "\n"
    yield _backslashed(text, _IN_DOUBLE_QUOTES), "\n"
    yield _backslashed(text, _SPECIAL).replace(":~", ":\\~").replace("=~", "=\\~"), "\n"
    escaped = text.translate(_ESCAPES)
    yield escaped, "\\n"
    yield _NOT_ASCII.sub(_in_octal, escaped), "\\n"
    for ensure_ascii in (True, False):
        listed = json.dumps(text.split("\n"), ensure_ascii=ensure_ascii, separators=("\n", ":"))
        yield listed[2:-2].replace('"\n"', "\n"), "\\n"
