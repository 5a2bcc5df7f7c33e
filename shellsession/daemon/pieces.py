"""Results of one command that came in pieces, and what others are told of them.

Law: pure; no byte of output is counted twice.
"""

from __future__ import annotations

from dataclasses import replace

from ..models import Result


def end_of(result: Result) -> dict[str, object]:
    """What who looks on is told of it."""
    return {"exit_code": result.exit_code, "outcome": result.outcome, "reason": result.reason}


def together(before: Result, now: Result) -> Result:
    """The later piece, with what both have omitted."""
    return replace(
        now,
        stdout_omitted=now.stdout_omitted + before.stdout_omitted,
        stderr_omitted=now.stderr_omitted + before.stderr_omitted,
    )


def joined(before: Result, now: Result) -> Result:
    """The later piece, with the output of both."""
    return replace(
        together(before, now),
        stdout_bytes=before.stdout_bytes + now.stdout_bytes,
        stderr_bytes=before.stderr_bytes + now.stderr_bytes,
        stdout_cut=before.stdout_cut if before.stdout_omitted else len(before.stdout_bytes) + now.stdout_cut,
        stderr_cut=before.stderr_cut if before.stderr_omitted else len(before.stderr_bytes) + now.stderr_cut,
    )
