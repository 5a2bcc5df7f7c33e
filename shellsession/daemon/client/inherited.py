"""What a session inherits from the process that opens it: directory, environment and umask.

Law: as the wire has text, in any locale. Each start of the command line loads this.
"""

from __future__ import annotations

import os

from ...engine.kernel.proc import umask

TYPE_CHECKING = False

if TYPE_CHECKING:
    from typing import Any


def inherited() -> dict[str, Any]:
    """The fields of a request that opens a session; ``cwd`` is "" where this process's directory was removed."""
    try:
        cwd = wire_text(os.getcwdb())
    except OSError:  # a session that exists already needs none
        cwd = ""
    env = {wire_text(name): wire_text(value) for name, value in os.environb.items()}
    return {"cwd": cwd, "env": env, "inherited": True, "umask": umask(), "startup": []}


def wire_text(data: bytes) -> str:
    """Text of this process's environment or file system, as it is sent in any locale."""
    return data.decode("utf-8", "surrogateescape")
