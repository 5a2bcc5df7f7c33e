"""What all jobs have in common, of this process or of the daemon: how their output is told.

Law: what is kept of it, and whether it runs, is the job's to say; nothing is looked up here.
"""

from __future__ import annotations

from .models import text_of


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

    @property
    def stdout(self) -> str:
        """What it wrote to its call's stdout and, while it was the latest to run, what was written to /dev/tty."""
        return text_of(*self._kept("stdout")) + text_of(*self._kept("terminal"))

    @property
    def stderr(self) -> str:
        return text_of(*self._kept("stderr"))
