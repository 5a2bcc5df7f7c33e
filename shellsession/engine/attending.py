"""How a verb stays with a command, until something is to be said of it.

Law: a command is finished (bash gave its mark), handed back (it runs on), ended by us, or gone with its shell; and
whatever strikes meanwhile, none is left running that nobody was told of.
"""

from __future__ import annotations

import time
from typing import Final

from ..models import OnTimeout, Outcome, Result
from . import endings, held_output, pump, teardown, typist
from .call import Call
from .core import Core
from .pump import DEAD, IDLE, INPUT, INTERRUPT, MARK, NEWS, OVERFLOW, TIMED_OUT
from .results import HandedBack
from .shell import Shell
from .waiting import Steps, T

_ENDINGS: Final[dict[str, tuple[Outcome, str]]] = {
    TIMED_OUT: ("timed_out", "the time limit passed"),
    IDLE: ("idle", "no output came for the idle limit"),
    INPUT: ("input", "the command waits for input from the terminal"),
    INTERRUPT: ("interrupted", "interrupted on request"),
    OVERFLOW: ("overflow", endings.OVERFLOWED),
    NEWS: ("running", ""),
}


def guarded(core: Core, steps: Steps[T]) -> Steps[T]:
    """Whatever strikes while we wait (Ctrl-C, a cancelled task, a faulty callback): no command is left running."""
    shell = core.shell
    try:
        return (yield from steps)
    except GeneratorExit:
        give_up(core, shell)
        raise
    except BaseException:
        yield from end_what_runs(core)
        raise


def give_up(core: Core, shell: Shell | None) -> None:
    """The steps were closed while they waited in that shell: nothing can be waited for any more."""
    if core.shell is shell:  # they may be collected long after: the session may have another one by now
        teardown.abandon(core)


def end_what_runs(core: Core) -> Steps[None]:
    """An exception was raised in the steps: end the command that they were at."""
    core.call = None
    shell, call = core.shell, core.last
    if shell is not None and shell.busy:
        assert call is not None
        call.ending = call.ending or "interrupted"
        call.mute()
        end = yield from teardown.or_abandon(core, endings.interrupt(core, call))
        core.untold = None if end is None or end.state_kept else end


def attend(
    core: Core, call: Call, until: float | None, on_timeout: OnTimeout | None = None
) -> Steps[Result | HandedBack]:
    """Stay with a command until something has to be said about it, or the moment passes (None: it never does).

    ``on_timeout``: what is done then; the default is what was asked for with the command.
    """
    shell = core.live()
    core.attended = call
    if call.request.idle_timeout is not None:
        call.attended_from = time.monotonic()
    call.raise_fault()
    while True:
        if core.kill_reason:
            shell.end()
        elif core.interrupt_requested or call.interrupt_requested:
            call.interrupt_requested = True
            shell.wake()
        what = yield from pump.pump(shell, call, until)
        if what == MARK:
            if not typist.is_plain(call) and (yield from typist.must_retype(core, call)):
                continue
            core.had_children = shell.family.has_children()
            if core.had_children:
                what = yield from held_output.wait_for_end(shell, call, until)
        if what == MARK:
            return (yield from endings.finish(core, shell, call))
        if what == DEAD:
            return (yield from teardown.shell_died(core, call))
        break
    ending, reason = _ENDINGS[what]
    policy = on_timeout or call.request.on_timeout
    patient = what in (TIMED_OUT, IDLE) and policy == "yield"
    if patient or what == NEWS or (what == INPUT and call.terminal):
        core.call = call
        typist.leave_stdin(shell, call)
        call.last_output = time.monotonic()  # for who looks whether it waits for input
        return HandedBack("running" if what == TIMED_OUT else ending, reason)
    call.ending, call.reason = ("interrupted" if what == INPUT else ending), reason
    core.call = None
    if policy == "kill" and what in (TIMED_OUT, IDLE):
        return (yield from teardown.kill_shell(core, call))
    return (yield from endings.interrupt(core, call))
