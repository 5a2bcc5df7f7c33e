"""What is known of a bash between two commands. It decides how the next command is typed and read.

Law: pure, and immutable.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

from ...models import Request
from ..wire import Mark, is_blank, names_builtins, runs_unseen

# When to check that the name which runs a text is still the builtin.
NEVER: Final = 0
ONCE: Final = 1  # before the next text, as the last one has run code that it does not show
ALWAYS: Final = 2  # from now on, as a text has named the builtins
# A DEBUG trap, or a file that may have one.
_MAY_DEBUG: Final = (b"debug", b"source", b". ")
# Options that make bash print what it runs, or give our words to the user's traps: `set -x`, `-v`, `-T`.
TRACING: Final = frozenset(b"xvT")


class Known(NamedTuple):
    """The facts about one bash; those of a fresh one by default.

    * ``status``: ``$?``. ``flags``: ``$-``, as the last mark had it.
    * ``guard``: when to check that the name which runs a text is still the builtin. ``spelling``: that name, an index
      into ``wire.SPELLINGS``.
    * ``prompt_speaks``: something prints at the prompt: PROMPT_COMMAND, a DEBUG trap, ``set -x``.
    * ``traced``: ``set -x``, ``-v`` or a DEBUG trap would print our words in a group, so the next command gets none.
      Asked only where it could get one.
    * ``trapping``: a command has named traps, and later ones may run them. ``debugging``: it may have set a DEBUG trap.
      ``unseen``: a command has run what it does not show, so there may be functions that nobody has seen.
    * ``named``: descriptors that an ``exec`` has named; a function may use them later.
    * ``scope``: the line that restores what was before the command (see the module ``scope``); b"" between two.
    * ``at_exit``: the words that take our EXIT trap off (see the module ``recovery``); b"" if it is not set.
    * ``had_children``: bash had children when the last command ended; an idle bash gets no new ones. ``left``: what
      commands had left running by then (see ``Family.present``).
    """

    status: int = 0
    flags: bytes = b""
    guard: int = ONCE
    spelling: int = 0
    prompt_speaks: bool = False
    traced: bool = False
    trapping: bool = False
    debugging: bool = False
    unseen: bool = False
    named: frozenset[int] = frozenset()
    scope: bytes = b""
    at_exit: bytes = b""
    had_children: bool = False
    left: Mapping[int, int] = MappingProxyType({})

    @property
    def errexit(self) -> bool:
        """Whether ``set -e`` is on."""
        return b"e" in self.flags

    @property
    def echoes(self) -> bool:
        """Whether ``set -x``, ``-v`` or ``-T`` is on."""
        return not TRACING.isdisjoint(self.flags)

    @property
    def functions_trap(self) -> bool:
        """Whether ``set -T`` is on: a function of ours would run the user's RETURN trap."""
        return b"T" in self.flags

    @property
    def is_usual(self) -> bool:
        """Whether the next command may take the fast path, as far as this says."""
        return not (
            self.had_children
            or self.prompt_speaks
            or self.spelling
            or self.named
            or self.echoes
            or self.debugging
            or self.errexit
            or self.guard == ONCE
        )

    def may_run_trap(self, request: Request) -> bool:
        """Return whether a trap may print after everything else: an EXIT trap, or one for a pending signal."""
        return self.trapping or request.isolated

    def has_no_traps(self, text: bytes = b"") -> bool:
        """Return whether no trap is set, nor by that text: no command has named traps, or run what it does not show."""
        return not (self.trapping or self.unseen or runs_unseen(text))

    def before(self, request: Request) -> Known:
        """Return what is known once this command is to run: it may set traps. Those of a subshell end with it."""
        if request.isolated or not (self.trapping or b"trap" in request.command):
            return self
        debugging = self.debugging or any(word in request.command.lower() for word in _MAY_DEBUG)
        return self._replace(trapping=True, debugging=debugging)

    def after(self, text: bytes, mark: Mark) -> Known:
        """Return what is known after that text, from bash's mark."""
        unseen = runs_unseen(text)
        guard = ONCE if unseen else NEVER
        if self.guard == ALWAYS or names_builtins(text):
            guard = ALWAYS
        # A text with nothing to run leaves `$?` unchanged, as Enter does at a prompt. If bash failed all the same, a
        # comment was no comment (`shopt -u interactive_comments`).
        status = mark.status if mark.status or not is_blank(text) else self.status
        return self._replace(status=status, flags=mark.flags, guard=guard, unseen=self.unseen or unseen)
