"""``missing``: the error when an SDK is not installed. Its message has the command that installs it."""

from __future__ import annotations

from .errors import MissingExtra


def missing(extra: str, error: ImportError) -> MissingExtra:
    """Return a MissingExtra for ``error``, which the import of an SDK raised."""
    return MissingExtra(f"{error}: install shellsession again, with the extra: `pip install 'shellsession[{extra}]'`")
