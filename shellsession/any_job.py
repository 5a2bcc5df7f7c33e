"""What all jobs have in common, of this process or of the daemon: how their output is told.

Law: what is kept of it, and whether it runs, is the job's to say; nothing is looked up here.
"""

from __future__ import annotations

from typing import Final

from .models import text_of

# Of its streams, what is shown as which.
_SHOWN: Final = {"stdout": ("stdout", "terminal"), "stderr": ("stderr",)}


class AnyJob:
    """What one call left behind."""

    @property
    def running(self) -> bool:
        """Does a process of it live, or anybody hold its streams?"""
        raise NotImplementedError

    @property
    def status(self) -> str:
        """ "running" or "ended" (bash alone knows with which status: ``wait PID`` asks it)."""
        return "running" if self.running else "ended"

    def output(self, name: str) -> tuple[bytes, int]:
        """The bytes kept of "stdout", "stderr" or "terminal" since the call came back, and how many were omitted.

        Raises SessionClosed in a forked child.
        """
        return self._kept(name)[:2]

    def _kept(self, name: str) -> tuple[bytes, int, int]:
        """As ``output``, and where in the bytes those are missing."""
        raise NotImplementedError

    def _shown(self, name: str) -> tuple[str, int]:
        """As ``stdout`` or ``stderr``, and how many bytes of it were omitted."""
        kept = [self._kept(stream) for stream in _SHOWN[name]]
        return "".join(text_of(*one) for one in kept), sum(omitted for _, omitted, _ in kept)

    @property
    def stdout(self) -> str:
        """What it wrote to its call's stdout and, while it was the latest to run, what was written to /dev/tty."""
        return self._shown("stdout")[0]

    @property
    def stderr(self) -> str:
        return self._shown("stderr")[0]
