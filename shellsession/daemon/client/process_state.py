"""What a session inherits from the process that opens it: working directory, environment and umask.

Text is encoded for the wire in the same way in every locale. Each start of the command line loads this module.
"""

from __future__ import annotations

import os

from ...engine.kernel.proc import umask

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any


def process_state() -> dict[str, Any]:
    """The state of this process as fields of a request that opens a session.

    ``cwd`` is "" if this process's directory was removed: a session that exists already does not need it.
    """
    try:
        cwd = wire_text(os.getcwdb())
    except OSError:
        cwd = ""
    env = {wire_text(name): wire_text(value) for name, value in os.environb.items()}
    return {"cwd": cwd, "env": env, "inherited": True, "umask": umask()}


def wire_text(data: bytes) -> str:
    """Bytes of a path or of the environment as text for the wire, whatever the locale is."""
    return data.decode("utf-8", "surrogateescape")
