"""phoenix's bash that all calls share: the bash text that prepares it, and that runs a call in one that is prepared.

Law: what a call adds is neither heard nor seen. It is read in the session's own options: ``set -x`` traces the command
and not what runs it, as bash tells of a command before it redirects it. (``set -v`` shows all text as it is read: what
is ours of that is taken out of the result.)
"""

from __future__ import annotations

import zlib
from typing import Final

from .contract import quoted

# The element that is set tells for what bash was prepared last. No array comes from an environment, where an older bash
# or somebody else may have put the name; what is there is element 0.
_MARK: Final = "\n\\builtin unset -v _phoenix; _phoenix=([%d]=)"
# The question is an expansion, and not a command of its own: `$?` is still the last call's. An error would be the
# answer, too, but one that ends the shell under `set -e`.
_ASK: Final = b"\\builtin printf '_phoenix: %%s\\n' %b"
# Both streams are one, so stderr is there to be had again from stdout; the trace goes to what cannot be written, stdin.
# Without a trace both redirections are of a stream to itself, which does nothing: `set -e` would undo them before an
# EXIT trap runs.
_TRACED: Final = b"36#0${-//[!x]}"
_RUN: Final = b'{ %b ${_phoenix[%d]+%b}${_phoenix[%d]-%b} 2>&"$(( %b ? 1 : 2 ))"; } 2>&"$(( %b ? 0 : 2 ))"'


class Lasting:
    """A bash that is prepared by this text; the nonce is what one that is not answers with."""

    def __init__(self, text: str, nonce: bytes) -> None:
        self._nonce, self._number = nonce, 1 + zlib.crc32(text.encode())
        self.preparation = (text + _MARK % self._number).encode()

    def run(self, text: bytes, setting: str = "") -> bytes:
        """Bash text that runs this one where bash is prepared; ``setting``: assignments for it alone."""
        # What stands before `builtin eval` is gone behind the first builtin in it; before `eval` it is not.
        way = b"%b \\eval" % setting.encode() if setting else b"\\builtin eval"
        ask = quoted(_ASK % self._nonce)
        return _RUN % (way, self._number, quoted(text), self._number, ask, _TRACED, _TRACED)


def asks_for_preparation(said: bytes, nonce: bytes) -> bool:
    """Is that a bash which is yet to be prepared, or anew?"""
    return said.endswith(b"_phoenix: %b\n" % nonce)
