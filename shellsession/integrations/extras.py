"""What is said where an SDK is not installed.

Law: one line, with the command that installs it.
"""

from __future__ import annotations

from ..errors import ShellSessionError


class MissingExtra(ShellSessionError, ImportError):
    """An optional dependency is not installed; the message names the extra that brings it."""

    code = "missing_extra"


def missing(extra: str, error: ImportError) -> MissingExtra:
    """The error to raise from ``error``, which an SDK's import gave."""
    return MissingExtra(f"{error}: install what this needs with `pip install 'shellsession[{extra}]'`")
