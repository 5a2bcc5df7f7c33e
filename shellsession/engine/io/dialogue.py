"""pexpect's ``expect`` for a command that has the terminal.

Pexpect itself does the searching; this module only feeds it what the command prints. The results keep that output,
too.
"""

from __future__ import annotations

import codecs
import io
import re
from typing import TYPE_CHECKING, Any

import pexpect
from pexpect.expect import Expecter, searcher_re, searcher_string
from pexpect.spawnbase import SpawnBase

from ...errors import InvalidRequest, ShellSessionError

if TYPE_CHECKING:
    _Pexpects = Expecter[str]  # generic only in its stubs
else:
    _Pexpects = Expecter

_UNMATCHED_MAX = 1 << 18  # characters
# How many characters of the patterns, and of the last output, an error shows.
_SHOWN = 200


class ExpectTimeout(ShellSessionError, pexpect.TIMEOUT):
    """The output did not match within the time limit."""

    code = "expect_timeout"


class ExpectEnded(ShellSessionError, pexpect.EOF):
    """The command ended before its output matched."""

    code = "expect_eof"


class _Expecter(_Pexpects):
    """Pexpect's, but its errors are also ours, and show the patterns and the last output."""

    def __init__(self, screen: SpawnBase[str], searcher: Any, patterns: Any) -> None:
        super().__init__(screen, searcher)
        self._patterns = patterns

    def timeout(self, err: object = None) -> int:
        try:
            return super().timeout(err)
        except pexpect.TIMEOUT:
            raise ExpectTimeout(self._outline("did not come within the time limit")) from None

    def eof(self, err: object = None) -> int:
        try:
            return super().eof(err)
        except pexpect.EOF:
            raise ExpectEnded(self._outline("did not come before the command ended")) from None

    def _outline(self, what: str) -> str:
        many = self._patterns if isinstance(self._patterns, list | tuple) else [self._patterns]
        patterns = " or ".join(repr(getattr(one, "pattern", one)) for one in many)
        output = self.spawn.before or ""
        return f"expect: {patterns:.{_SHOWN}} {what}; the output ends with {output[-_SHOWN:]!r}"


class Dialogue:
    """The output of one command on its terminal, for pexpect.

    ``screen`` is pexpect's own object, with its ``before``, ``after`` and ``match``.
    """

    def __init__(self) -> None:
        self.screen: SpawnBase[str] = SpawnBase(timeout=None, encoding="utf-8", codec_errors="replace")
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def expecter(self, patterns: Any, exact: bool) -> Expecter[str]:
        """Compile the patterns. Raises InvalidRequest for a pattern that pexpect does not accept."""
        try:
            if exact:
                many = (
                    [patterns]
                    if isinstance(patterns, str | bytes) or patterns in (pexpect.EOF, pexpect.TIMEOUT)
                    else patterns
                )
                return _Expecter(self.screen, searcher_string([_text(one) for one in many]), many)
            return _Expecter(self.screen, searcher_re(self.screen.compile_pattern_list(patterns)), patterns)
        except (TypeError, re.error) as error:
            raise InvalidRequest(f"expect: {error}") from None

    def search(self, expecter: Expecter[str], data: bytes) -> int | None:
        """Search the new output, and return the index of the pattern that was found."""
        index: int | None = None
        if text := self._decoder.decode(data):
            index = expecter.new_data(text)
            self._trim()
        return index

    def _trim(self) -> None:
        """Drop old output that matched nothing: pexpect would keep all of it."""
        screen: Any = self.screen  # pexpect keeps searched output in a second buffer, which has no public name
        if screen._before.tell() > _UNMATCHED_MAX:
            rest = screen.buffer[-_UNMATCHED_MAX // 2 :]
            screen.buffer = rest
            screen._before = io.StringIO()
            screen._before.write(rest)


def _text(pattern: Any) -> Any:
    """One pattern as text. Raises TypeError; pexpect itself would raise it for some only during the search."""
    if isinstance(pattern, bytes):
        return pattern.decode("utf-8", "replace")
    if not (isinstance(pattern, str) or pattern in (pexpect.EOF, pexpect.TIMEOUT)):
        raise TypeError(f"a pattern is str, bytes, pexpect.EOF or pexpect.TIMEOUT, not {pattern!r:.100}")
    return pattern
