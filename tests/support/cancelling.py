"""Tool calls that never end by themselves, and the processes that they leave."""

from __future__ import annotations

import threading
from pathlib import Path

OK = {"content": [{"type": "text", "text": "Exit code: 0\nagain\n"}], "details": {"exit_code": 0, "success": True}}


def endless(started: Path, more: str = "") -> dict[str, str]:
    return {"command": f"{more} echo $BASHPID >{started}; sleep 1000; sleep 1001"}


def begun(started: Path) -> int:
    """Wait for the command to start. Returns its process id."""
    return int(started.read_text())


def helpers() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("shellsession-cancel")]
