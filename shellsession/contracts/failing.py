"""What a contract's error tells of a command: what it had printed until then.

Law: all that an error carries stands in its message too, as the message is all that a model gets to see.
"""

from __future__ import annotations

from typing import Final

from ..errors import ContractError
from ..models import Result, streams_of, text_of

LOST: Final = "its state is lost, the next command starts in a fresh one"
KEPT: Final = "the shell, its directory and its variables are kept"


class CallError(ContractError):
    """The error of a call: ``stdout`` and ``stderr`` are what its command had printed, "" where none ran."""

    code = "contract_call"

    def __init__(self, message: str, stdout: str = "", stderr: str = "") -> None:
        super().__init__(message + "".join(_part(*part) for part in (("stdout", stdout), ("stderr", stderr))))
        self.message, self.stdout, self.stderr = message, stdout, stderr

    def __reduce__(self) -> tuple[type[CallError], tuple[object, ...]]:
        return type(self), (self.message, self.stdout, self.stderr)  # to cross processes with its output


def _part(name: str, text: str) -> str:
    return f"\n[{name}]\n{text.removesuffix(chr(10))}" if text else ""


def on_its_own(text: str, line: str) -> str:
    """The text, and the line after it on a line of its own; "" is none."""
    return f"{text}\n{line}" if text and line and not text.endswith("\n") else text + line


def shown(result: Result) -> tuple[str, str]:
    """Its stdout and stderr as text; where bytes were dropped, a line says how many."""
    stdout, stderr = (_whole(data, omitted, cut) for _, data, omitted, cut in streams_of(result))
    return stdout, stderr


def _whole(data: bytes, omitted: int, cut: int) -> str:
    if not omitted:
        return text_of(data, 0, 0)
    head, tail = text_of(data[:cut], omitted, cut), text_of(data[cut:], omitted, 0)
    return f"{head}\n[{omitted} bytes omitted]\n{tail}"


def ending(result: Result) -> str:
    """In words, how a command ended that did not simply exit; "" for one that did."""
    if result.outcome == "exited" and result.state_kept:
        return ""
    said = result.reason if result.outcome == "shell_exited" else _stopped(result)
    return said if result.state_kept else f"{said}; {LOST}"


def stopped(result: Result) -> str:
    """Why a command was ended that did not come to its own end, as one that reads the terminal; "" for one that did, or
    ran into its time limit, which is told elsewhere."""
    return "" if result.outcome in ("exited", "shell_exited", "timed_out") else _stopped(result)


def _stopped(result: Result) -> str:
    return f"the command was ended ({result.reason or result.outcome})"


def notice(result: Result, stateful: bool) -> str:
    """A line beside the output. It says why the command was stopped, or that it left running what may print more; and
    for who keeps state in the session's bash (``stateful``), that this one is gone. "" where there is nothing to say.
    """
    said = ending(result) if stateful and not result.state_kept else stopped(result)
    if result.outcome == "exited":
        said = said or result.reason
    return f"[{said}]\n" if said else ""
