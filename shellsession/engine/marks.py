"""What is read back from bash: its mark, and what is said on its own stderr besides.

Law: pure, and one-shot. What carries the nonce of one command is its mark, once; anything else that arrives is noise.

What makes bash say it, and why it looks as it does, stands in ``framing``.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from .framing import NOWHERE, SECRET, TOLD_BEHIND

# Bytes of noise kept while looking for a mark. A mark is a path name: its parts are under PATH_MAX (4096).
NOISE_MAX: Final = 1 << 16

_BEFORE: Final = b"bash: " + NOWHERE[:-1]
_AT: Final = len(_BEFORE)
_SIGNALLED: Final = 128
_LOST: Final = re.compile(rb": \d\d: ")


class Mark(NamedTuple):
    """Bash is back at its prompt: what it says of the command and of itself.

    ``line``: how many lines bash has read so far, 0 when it does not know. ``skipped``: the guard kept the text from
    running. ``broken``: our own line has not done what it says that it did. ``doubtful``: it may have made no sense to
    bash, which has told its own stderr so then; an error in the text can leave the same status. ``thrown``: a signal
    threw bash out of it, by the status.
    """

    status: int
    flags: bytes
    cwd: bytes
    line: int = 0
    history: bool = False
    skipped: bool = False
    broken: bool = False
    doubtful: bool = False
    thrown: bool = False


class Framer:
    """Finds one mark in what bash says on its private socket, however it is cut."""

    noise = b""
    trimmed = 0  # bytes of noise that were forgotten
    mark: Mark | None = None
    has_noise = False
    _skipped = False
    _others = 0  # so many bytes of the noise, from its beginning, may hold what others than bash have said

    def __init__(self, nonce: bytes, prompt: bytes = b"") -> None:
        """``prompt``: what bash is known to say on its own stderr before it reads a line; that is no noise."""
        self.nonce = nonce
        self._fence = b"/" + nonce
        self._prompt = prompt

    def feed(self, data: bytes, by_bash: bool = True) -> Mark | None:
        """Take the next bytes; the mark once it is whole. What follows a mark is noise, and what is not ``by_bash``."""
        self.noise += data
        if not by_bash and self.mark is None:
            self._others = len(self.noise)
        if self.mark is None and not self._find() and len(self.noise) > NOISE_MAX:
            self._skipped = self._tells_of_skipping()
            cut = len(self.noise) - NOISE_MAX // 2
            self.trimmed += cut
            self.noise = self.noise[cut:]
            self._others = max(0, self._others - cut)
        return self.mark

    def _find(self) -> bool:
        # `set -v` echoes our line before bash answers it: its unexpanded words are no mark, so look on.
        noise, fence = self.noise, self._fence
        start = noise.find(fence, self._others)
        while start >= 0:
            body = start + len(fence)
            end = noise.find(fence, body)
            if end < 0:
                return False
            self.mark = mark = _read(noise[body:end])
            if mark is not None:
                # Before an ordinary mark stands nothing but prompts and bash's name.
                self.has_noise = start != _AT and self._without_prompts(noise[:start]) != _BEFORE
                if self.has_noise and not mark.thrown and self._tells_of_skipping():
                    self.mark = self._borne_out(mark, noise[body:end])
                return True
            start = end
        return False

    @property
    def noise_without_prompts(self) -> bytes:
        return self._without_prompts(self.noise)

    def _without_prompts(self, said: bytes) -> bytes:
        while self._prompt and said.startswith(self._prompt):
            said = said[len(self._prompt) :]
        return said

    def _tells_of_skipping(self) -> bool:
        return self._skipped or NOWHERE + self.nonce[SECRET:] + b"0/" in self.noise

    def _borne_out(self, mark: Mark, body: bytes) -> Mark:
        """The text is typed again only where bash's statuses say, too, that it never ran: `!` turns one of them round.

        Where they do not, somebody has forged the other word.
        """
        skipped = body.startswith((b" 0 0 ", b" " + TOLD_BEHIND + b"1 1 "))
        return mark._replace(skipped=skipped, broken=not skipped)

    @property
    def noise_before_mark(self) -> bytes:
        """What was said on bash's stderr besides the mark."""
        at = self.noise.find(self._fence, self._others) if self.mark is not None else len(self.noise)
        said = self._without_prompts(self.noise[:at]).removesuffix(_BEFORE)
        return b"" if said == b"\n" else said  # after SIGINT bash begins a new line

    @property
    def lost_descriptor(self) -> bool:
        """Did bash fail to put back its own descriptors (`exec 10>&-` closes one)? It has no input any more then."""
        return self.has_noise and _LOST.search(self.noise) is not None

    def complains_of(self, path: bytes) -> bool:
        """Did bash fail to open ``path``? Then our line did not run, in whatever language it says so."""
        return b": " + path + b": " in self.noise


def one_of(said: bytes) -> bytes:
    """What was said two or three times in a row; b"" if nothing was.

    Bash reads three lines for each command, the first of which it has asked for before.
    """
    for times in (3, 2):
        once = said[: len(said) // times]
        if once and said == once * times:
            return once
    return b""


def plain_mark(said: bytes, nonce: bytes) -> Mark | None:
    """The mark, if that is all that was said."""
    fence = b"/" + nonce
    start = _AT + len(fence)
    end = said.find(fence, start)
    return _read(said[start:end]) if end > 0 and said.startswith(_BEFORE + fence) else None


def _read(body: bytes) -> Mark | None:
    words = body.split(b" ", 6)
    if len(words) != 7 or words[0]:
        return None
    _, piped, last, line, flags, options, cwd = words
    if was_told_behind := piped.startswith(TOLD_BEHIND):
        piped = piped[len(TOLD_BEHIND) :]
    if not last.isdigit() or not (piped.isdigit() or not piped):
        return None
    if was_told_behind and b"r" in flags and piped:  # a restricted shell has refused the word behind, and so left 1
        last, was_told_behind = b"%d" % (piped == b"0"), False
    history = b"history" in options  # no other option has the word in its name; it may stand first
    read = int(line) if line.isdigit() else 0  # `unset LINENO` takes its meaning away
    # `!` leaves 0 or 1. From 128 on, SIGINT threw bash out of our line (`$?` is 130, or what was there before and was
    # as high: sig.c). Else an error did that (`exit 1 2`), and `$?` is the text's; or 2 is bash's verdict on our line
    # itself, as when a keyword of it is an alias.
    if int(last) >= _SIGNALLED:
        return Mark(int(last), flags, cwd, read, history, thrown=True)
    if last not in (b"0", b"1") or (was_told_behind and piped and last == b"1"):
        return Mark(int(last), flags, cwd, read, history, doubtful=last == b"2")
    # PIPESTATUS can be made unreadable (`declare -A PIPESTATUS`): then undo `!` by hand. Where that had nothing to turn
    # round, an error threw bash out of the text.
    failed = last == b"0"
    status = int(piped or failed)
    return Mark(status if failed or not status else int(last), flags, cwd, read, history)
