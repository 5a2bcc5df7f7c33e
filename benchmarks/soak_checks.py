"""How the soak judges one answer, and the words by which it knows its own."""

import secrets

from shellsession import Result

# Longer than anything takes here, in seconds; what reaches it is a wrong answer, too.
PATIENCE = 60.0
# Said only of a shell that something has broken, which nothing does here.
_BROKEN = ("no longer runs what is typed", "has taken what was typed", "cannot run another command")


class Wrong(Exception):
    """An answer is not what it must be."""


def must(holds: bool, *found: object) -> None:
    if not holds:
        raise Wrong("; ".join(str(one)[:600] for one in found))


def must_be_sound(result: Result) -> None:
    must(not any(words in result.reason for words in _BROKEN), result)


def must_be(result: Result, outcome: str, status: int | None, kept: bool = True) -> None:
    """``status`` None: whatever a command that was ended leaves."""
    must_be_sound(result)
    fits = result.outcome == outcome and result.state_kept is kept
    must(fits and (status is None or result.exit_code == status), f"not {outcome} {status} {kept}", result)


def token() -> str:
    """A word that no other command prints."""
    return f"T{secrets.token_hex(6)}"
