"""What the running command waits for, as ``Session.why`` and the reason of a result say it; ``kernel.why`` looks."""

from __future__ import annotations

import time
from functools import partial
from typing import Final

from ...models import Why, question_in
from ...text import REASONS, explained
from ..bash.shell import Shell
from ..io.threads import Steps, Wait
from ..kernel.why import Scene, look, sample
from .call import Call
from .core import Core

# Seconds between two looks, which tell what uses the processor.
_BETWEEN: Final = 0.1
_NOTHING: Final = Why("nothing", "no command runs")
_ENDED: Final = Why("nothing", "the command has ended, and its result waits to be read")


def why(core: Core) -> Steps[Why]:
    """Say what the running command waits for. From any thread: it only looks."""
    shell, call = core.shell, core.current
    if shell is None or call is None:
        return _NOTHING
    before = sample(_processes(shell, call))
    yield Wait((), time.monotonic() + _BETWEEN)
    if core.shell is not shell or core.current is not call:
        return _NOTHING
    pids = _processes(shell, call)
    if len(pids) == 1 and shell.idle():
        return _ENDED
    return _masked(core, look(pids, Scene(call.asks, partial(question_of, core, call)), before))


def reason_for(core: Core, call: Call, reason: str) -> str:
    """Return the reason why a command is handed back or ended, with what it waits for, if that is known."""
    shell = core.shell
    if shell is None or reason not in REASONS.values():
        return reason
    call.asks = reason == REASONS["input"]
    found = look(_processes(shell, call), Scene(call.asks, partial(question_of, core, call)))
    return reason if found.kind == "unknown" else explained(reason, _masked(core, found).text)


def _processes(shell: Shell, call: Call) -> list[int]:
    """Return bash and the processes of the command. If it has none, bash may wait for those of earlier commands."""
    return [shell.pid, *(shell.family.newer(call.older) or shell.family.descendants())]


def question_of(core: Core, call: Call) -> str:
    """Return what the command has printed last, since its last result or before that; without secrets."""
    call.question = question_in(call.stdout.peek()[0], call.stderr.peek()[0]) or call.question
    secrets = core.secrets()
    return call.question if secrets is None else secrets.mask(call.question)  # what shows it cuts it


def _masked(core: Core, found: Why) -> Why:
    if (secrets := core.secrets()) is None:
        return found
    return found.__replace__(text=secrets.mask(found.text), comm=secrets.mask(found.comm))
