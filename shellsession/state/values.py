"""What a snapshot consists of, and what a restore reports. Pure.

Texts of bash are bytes. Here they are str. A byte that is not UTF-8 is a lone surrogate, as in ``os.fsdecode``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from ..models import Record

# Set by bash itself, or a view of what is restored in another way. No snapshot has them.
_OWN: Final = (
    "BASH BASHOPTS BASHPID BASH_ALIASES BASH_ARGC BASH_ARGV BASH_ARGV0 BASH_CMDS BASH_COMMAND BASH_EXECUTION_STRING"
    " BASH_LINENO BASH_MONOSECONDS BASH_SOURCE BASH_SUBSHELL BASH_TRAPSIG BASH_VERSINFO BASH_VERSION COMP_CWORD"
    " COMP_KEY COMP_LINE COMP_POINT COMP_TYPE COMP_WORDS DIRSTACK EPOCHREALTIME EPOCHSECONDS EUID FUNCNAME GROUPS"
    " HISTCMD HOSTNAME HOSTTYPE LINENO MACHTYPE OSTYPE PIPESTATUS PPID RANDOM SECONDS SHELLOPTS SHLVL SRANDOM UID"
    " _"
)
OWN: Final = frozenset(_OWN.split())
# `cd` sets these.
OF_CD: Final = frozenset({"PWD", "OLDPWD"})


class Variable(NamedTuple):
    """A variable: its value, and its attributes as the letters of bash's ``declare``, sorted.

    The value is a str, a mapping of the subscripts of an array to its elements, or None if the variable is not set.
    """

    value: str | Mapping[str, str] | None
    attributes: str = ""


class Function(NamedTuple):
    """A function: its definition as bash prints it, and its attributes as the letters of bash's ``declare``."""

    text: str
    attributes: str = ""


class Omission(NamedTuple):
    """Something that a snapshot leaves out: its kind ("variable", "function", "alias" ...) and its name."""

    kind: str
    name: str


class Difference(NamedTuple):
    """Something that could not be restored: its kind, its name, and the reason."""

    kind: str
    name: str
    reason: str


class Restored(Record):
    """What a restore has done. ``not_restored``: what differs from the snapshot, with the reason.

    ``undone``: of a rollback without a checkpoint, the first words of the command that it took back, if they are known.
    """

    not_restored: tuple[Difference, ...] = ()
    undone: str = ""

    @property
    def complete(self) -> bool:
        """Whether the shell has all that the snapshot has."""
        return not self.not_restored
