"""How the soak checks one answer, and the unique words that it has commands print."""

import secrets

from shellsession import Result

# Seconds: longer than anything takes here. An answer that takes longer is wrong, too.
PATIENCE = 60.0
# Reasons that are given only for a broken shell. Nothing here breaks one.
_BROKEN = ("no longer runs what is typed", "has taken what was typed", "cannot run another command")


class Wrong(Exception):
    """An answer is wrong."""


def must(holds: bool, *found: object) -> None:
    if not holds:
        raise Wrong("; ".join(str(one)[:600] for one in found))


def must_be_sound(result: Result) -> None:
    must(not any(words in result.reason for words in _BROKEN), result)


def must_be(result: Result, outcome: str, status: int | None, kept: bool = True) -> None:
    """Check the outcome. ``status`` None: any, as the command was ended."""
    must_be_sound(result)
    fits = result.outcome == outcome and result.state_kept is kept
    must(fits and (status is None or result.exit_code == status), f"not {outcome} {status} {kept}", result)


def token() -> str:
    """A word that no other command prints."""
    return f"T{secrets.token_hex(6)}"
