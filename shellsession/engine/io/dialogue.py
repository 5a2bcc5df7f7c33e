"""pexpect's ``expect`` over a command that has the terminal.

Law: the searching is pexpect's own; this only brings it what the command prints. What it reads stays in the results.
"""

from __future__ import annotations

import codecs
import io
import re
from typing import Any

import pexpect
from pexpect.expect import Expecter, searcher_re, searcher_string
from pexpect.spawnbase import SpawnBase

from ...errors import InvalidRequest

_KEPT = 1 << 18  # characters


class Dialogue:
    """One command's terminal as pexpect sees it: ``before``, ``after`` and ``match`` are its own."""

    def __init__(self) -> None:
        self.screen: SpawnBase[str] = SpawnBase(timeout=None, encoding="utf-8", codec_errors="replace")
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def expecter(self, patterns: Any, exact: bool) -> Expecter[str]:
        """Compile what to look for; raises InvalidRequest for what pexpect does not take."""
        try:
            if exact:
                many = (
                    [patterns]
                    if isinstance(patterns, str | bytes) or patterns in (pexpect.EOF, pexpect.TIMEOUT)
                    else patterns
                )
                return Expecter(self.screen, searcher_string([_text(one) for one in many]))
            return Expecter(self.screen, searcher_re(self.screen.compile_pattern_list(patterns)))
        except (TypeError, re.error) as error:
            raise InvalidRequest(f"expect: {error}") from None

    def search(self, expecter: Expecter[str], data: bytes) -> int | None:
        """Look for the patterns in what came now; which one was found."""
        index: int | None = None
        if text := self._decoder.decode(data):
            index = expecter.new_data(text)
            self.bound()
        return index

    def bound(self) -> None:
        """What matched nothing for so long is forgotten: pexpect would keep all of it."""
        screen: Any = self.screen  # pexpect keeps what it searched in one more buffer, without a public name
        if screen._before.tell() > _KEPT:
            rest = screen.buffer[-_KEPT // 2 :]
            screen.buffer = rest
            screen._before = io.StringIO()
            screen._before.write(rest)


def _text(pattern: Any) -> Any:
    """One pattern as pexpect searches it. Raises TypeError, which pexpect does for some only as it searches."""
    if isinstance(pattern, bytes):
        return pattern.decode("utf-8", "replace")
    if not (isinstance(pattern, str) or pattern in (pexpect.EOF, pexpect.TIMEOUT)):
        raise TypeError(f"a pattern is str, bytes, pexpect.EOF or pexpect.TIMEOUT, not {pattern!r:.100}")
    return pattern
