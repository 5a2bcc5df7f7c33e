"""A session that gets its state back after its shell has died: ``Recovering``, the engine of ``recover=True``.

Each snapshot is taken while bash is idle: after a command, and before the next one. Nothing is added to a command.
After the death of a bash the next one starts with the last snapshot, in the call that reports the death.

A bash that ends by itself lists its state in an EXIT trap of ours, and the next one starts with that. The trap is set
with a snapshot, before that of the user. It is taken off before a text that may look at it, until the next snapshot.

Law: no command is run again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import suppress
from types import MappingProxyType
from typing import Final

from ...errors import NEXT_IS_FRESH, ShellSessionError, ShellUnavailable, SnapshotDamaged, SnapshotUnavailable
from ...models import Request, Result
from ...options import Options
from ...signatures import Seconds
from ...state.snapshot import Snapshot
from ...state.values import Difference, Restored
from ...text import ago, some
from ..bash.shell import Shell
from ..io.threads import Steps
from ..wire import may_see_traps
from .call import Call
from .engine import RestartPending
from .on_branch import BranchEngine
from .state import at_end, remove_exit_trap, set_exit_trap

# The next snapshot is taken this many seconds after the last one, or after this pause between two commands.
_EVERY: Final = 1.0
_PAUSE: Final = 0.02
# ... and at least this many times later than the last one took.
_BACK_OFF: Final = 20
# A text that may end its shell: the state before it is kept in any case.
_MAY_END: Final = re.compile(rb"\b(?:exit|exec|kill|set|ulimit)\b")
# The options and variables that end a shell by themselves. They are not brought back.
_DEADLY: Final = frozenset({"errexit"})
_DEADLY_VARIABLES: Final = frozenset({"TMOUT"})
# How many things that did not come back are named.
_NAMED: Final = 5


class Recovering(BranchEngine):
    """An engine whose next bash gets the state of the last one.

    ``kept``: the last snapshot, or None. The first bash starts with it, too.
    """

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self.kept: Snapshot | None = None
        self._kept_after = 0  # how many commands had begun by then
        self._kept_at = 0.0
        self._took = 0.0  # how many seconds the last snapshot took
        self._ended: Snapshot | None = None  # the state of a bash at its end, until the next one has it
        self._fault = ""  # why the last snapshot could not be taken
        self._news = ""  # what was brought back, until a result has told it

    # -- bring the state back

    def open(self, snapshot: Snapshot | None = None) -> Steps[None]:
        """Start bash if there is none, with the state of the last one."""
        self.refuse_closed()
        if self.shell is not None:
            return
        if snapshot is None and self._next is not None:
            self.kept, self._kept_after, self._ended = self._next, self.begun, None
        ended, kept = (self._ended, self.kept) if snapshot is None else (None, None)
        fault = ""
        for state in filter(None, (ended or kept, kept)):  # twice: what has ended a fresh bash may be over
            try:
                yield from super().open(_harmless(state))
            except (SnapshotUnavailable, SnapshotDamaged) as error:  # what has ended the last one may be in its state
                fault = f"a fresh bash continues, and the state of the last one is lost: {error}"
            else:
                self.kept = state
                if state is ended:
                    self._kept_after, self._fault = self.begun, ""
                self._news = self._told(state, missing := self.restored.not_restored)
                self.restored = Restored((*missing, *_left_off(state)))
                break
        else:
            yield from super().open(snapshot)
            self.kept, self._news = snapshot or self.options.snapshot, fault
        self._ended, self._kept_after = None, self.begun
        if self.kept is not None or not self.options.startup:  # else the next snapshot shows what they have set
            yield from self._set_exit_trap()

    def _told(self, kept: Snapshot, missing: tuple[Difference, ...]) -> str:
        """Return the words for the state that was brought back, and for what is missing."""
        commands = self.begun - self._kept_after
        if not self.begun:
            since = f"as it was {ago(time.time() - kept.at)}"
        elif commands < 1:
            since = "from after the last command"
        else:
            since = "from before the last " + (f"{commands} commands" if commands > 1 else "command")
        if self._fault:
            since += f" ({self._fault})"
        place = f" in {self.cwd()}" if self.begun else ""  # of a new session, the daemon says where it starts
        told = f"a fresh bash continues{place} with the state {since}"
        if _DEADLY & kept.options:
            told += "; `set -e` is off"
        if missing:
            told += "; not restored: " + some((f"{one.kind} {one.name} ({one.reason})" for one in missing), _NAMED)
        if kept.left_out:
            told += "; not kept, as it may be secret: " + some(
                (f"{one.kind} {one.name}" for one in kept.left_out), _NAMED
            )
        return told

    def _continued(self, result: Result) -> Steps[Result]:
        """Return the result, with what is to be told. If the shell has died, first start the next one."""
        if not result.state_kept and self.shell is None and (self._ended or self.kept) and not self.closed:
            last, unread_input = self.last, self.unread_input
            try:
                yield from self.open()
            except (ShellSessionError, RestartPending):  # the next command meets it again
                return result
            finally:  # a caller that is cancelled meanwhile asks for the command's result, not for a startup command's
                self.last, self.unread_input = last, unread_input
        elif not result.still_running:
            yield from self.keep(None)
        if not result.state_kept and self.kept is None and self._fault:
            result = result.__replace__(reason=f"{result.reason}; its state was not kept: {self._fault}")
        if self._news:
            reason = result.reason.replace(NEXT_IS_FRESH, "")
            result, self._news = result.__replace__(reason=reason, recovered=self._news), ""
        return result

    def run(self, request: Request) -> Steps[Result]:
        yield from self._before(request)
        result = yield from super().run(request)
        if not result.ran:  # it has changed nothing: the last snapshot is of the state after it, too
            self._kept_after += 1
        if result.state_kept and not self._news and not self._is_due(None):
            return result
        return (yield from self._continued(result))

    def follow(self, request: Request) -> Steps[Call]:
        yield from self._before(request)
        return (yield from super().follow(request))

    def _before(self, request: Request) -> Steps[None]:
        """Keep the state before a command if that is due, and hide our EXIT trap from it."""
        yield from self.keep(0.0 if _MAY_END.search(request.command) else _PAUSE)
        yield from self._hide_exit_trap(request)

    def wait(self, until: float | None, idle: Seconds = ..., pattern: re.Pattern[str] | None = None) -> Steps[Result]:
        return (yield from self._continued((yield from super().wait(until, idle, pattern))))

    def interrupt(self, meant: Call | None = None) -> Steps[Result]:
        return (yield from self._continued((yield from super().interrupt(meant))))

    def restart(
        self,
        snapshot: Snapshot | None = None,
        between: Callable[[], object] | None = None,
        now: Snapshot | None = None,
    ) -> Steps[Restored]:
        kept, self.kept, self._ended = self.kept, None, None
        try:
            return (yield from super().restart(snapshot, between, now))
        except BaseException:
            self.kept = self.kept or kept
            raise

    def restart_with_last_state(self, fault: ShellSessionError) -> Callable[[], Steps[Restored]]:
        return super().restart_with_last_state(fault) if self.kept is None else super().restart

    # -- keep the state

    @property
    def is_kept(self) -> bool:
        """Whether ``kept`` is the state after the last command."""
        return self.kept is not None and self._kept_after == self.begun

    def _is_due(self, pause: float | None) -> bool:
        """Return whether to take a snapshot now.

        ``pause``: after this many seconds without a command, or when the last one is old; None: only then.
        """
        now, least = time.monotonic(), _BACK_OFF * self._took
        if now - self._kept_at < max(_EVERY, least) and (
            pause is None or now - self.idle_since < max(pause, least * (pause > 0))
        ):
            return False
        # Not ``state``: the verb that calls this still attends the command that has just ended.
        if self.closed or self.handed_back is not None or self.begun == self._kept_after:
            return False
        return self.shell is not None and not self.shell.busy

    def keep(self, pause: float | None = 0.0) -> Steps[None]:
        """Take a snapshot, if one is due after a pause of this length. If that fails, the last one remains."""
        if not self._is_due(pause):
            return
        begun, commands = time.monotonic(), self.begun
        try:
            snapshot = yield from self.snapshot((), None)
        except SnapshotUnavailable as error:
            self._fault = str(error)
        except ShellUnavailable:  # the next command reports it
            pass
        else:
            self.kept, self._kept_after, self._fault = snapshot, commands, ""
            yield from self._set_exit_trap()
        self._kept_at = time.monotonic()
        self._took = self._kept_at - begun

    # -- the end of a bash

    def _set_exit_trap(self) -> Steps[None]:
        if not self.known.at_exit:
            with suppress(ShellUnavailable, SnapshotUnavailable):  # the next command reports it
                yield from set_exit_trap(self, self.kept or Snapshot())

    def _hide_exit_trap(self, request: Request) -> Steps[None]:
        """Take our EXIT trap off if the text may look at it, or if `set -v` would print it."""
        text = request.command
        if may_see_traps(text) or b"v" in self.known.flags:
            if self.shell is None:
                yield from self._ready()
            if self.known.at_exit and self._is_idle():
                with suppress(ShellUnavailable, SnapshotUnavailable):
                    yield from remove_exit_trap(self)

    def note_end(self, shell: Shell, call: Call) -> None:
        if self.known.at_exit and not (call.request.cwd or call.request.env):  # those are not part of the state
            self._ended = at_end(self, shell, call, self.kept or Snapshot())


def _left_off(snapshot: Snapshot) -> list[Difference]:
    """Return what ``_harmless`` takes from the snapshot."""
    options, variables = _DEADLY & snapshot.options, _DEADLY_VARIABLES & snapshot.variables.keys()
    found = [("option", name) for name in options] + [("variable", name) for name in variables]
    return [Difference(*one, "it would end the next shell") for one in found]


def _harmless(snapshot: Snapshot) -> Snapshot:
    """Return the snapshot without what ends a shell."""
    variables = {name: one for name, one in snapshot.variables.items() if name not in _DEADLY_VARIABLES}
    return snapshot.__replace__(options=snapshot.options - _DEADLY, variables=MappingProxyType(variables))
