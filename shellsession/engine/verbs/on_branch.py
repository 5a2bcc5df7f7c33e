"""The operations of a session on its branch: ``BranchEngine`` freezes and brings back files and shell together.

What bash holds of the files (its directory) is in one layer. A change of the layers has bash enter the new last one.

Law: what a command writes is in the last layer of its branch, whatever exception was raised before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...branch.checkpoint import FORKED
from ...errors import (
    BranchUnavailable,
    Conflict,
    InvalidRequest,
    JobsRunning,
    ShellSessionError,
    ShellUnavailable,
    SnapshotUnavailable,
)
from ...models import Request, Result
from ...options import Options
from ...state.comparison import changes_of_state, with_files
from ...state.snapshot import Snapshot
from ...state.values import Difference, Restored
from ...text import some, some_words
from ..io.threads import Steps, T, apart, shielded
from ..kernel.signals import signals_deferred
from . import shell_end, state
from .call import Call
from .engine import Engine
from .results import with_reason

if TYPE_CHECKING:
    from ...branch.branch import Branch
    from ...branch.checkpoint import Checkpoint

_SHOWN: Final = 200  # characters of a command that was taken back


class Frozen(NamedTuple):
    """A session at one moment: its branch, with all its files frozen, and its state.

    ``before``: the state of its parent when it was forked off; None if it was not, or not by this process.
    """

    branch: Branch
    snapshot: Snapshot
    before: Snapshot | None


def _at_once(call: Callable[[], T]) -> Steps[T]:
    """Call a function that does not wait."""
    yield from ()
    return call()


class _Kept(NamedTuple):
    """What this process keeps of a checkpoint: the state of bash, with the parts that are not written to disk.

    ``undone``: the command that a rollback to it takes back; "" if that is none or several.
    """

    state: Snapshot
    undone: str = ""


class _Moment(NamedTuple):
    """A moment to which a rollback can go back: the state of bash, how many commands had begun, and time.time.

    ``command``: the one that came next.
    """

    state: Snapshot
    begun: int
    at: float
    command: bytes = b""


class BranchEngine(Engine):
    """An engine with the verbs of a branch. Without ``branch=`` they raise BranchUnavailable, but for ``fork``."""

    # Set here, as `Core.__init__` calls `forget_bash`, which reads them.
    _left: Snapshot | None = None  # the state of bash while it may be in a layer that its branch has left
    _moment: _Moment | None = None  # with automatic checkpoints: the one before the last changes

    def __init__(self, options: Options) -> None:
        super().__init__(options)
        self._states: dict[str, _Kept] = {}  # by the name of the checkpoint
        self._forked_from: Snapshot | None = None  # the state of the session of which this one is a fork

    def forget_bash(self) -> None:
        super().forget_bash()
        self._left = None
        if self._moment is not None and self.branch is not None and not self.branch.is_written:
            self._moment = None

    # -- commands

    def start(self) -> Steps[None]:
        """Start bash if there is none, and note the moment for a rollback. Raises as ``open``."""
        yield from self.open()
        if self.options.auto_checkpoints and self._is_idle():
            yield from self._note_moment()

    def run(self, request: Request) -> Steps[Result]:
        return Engine.run(self, request) if self.branch is None else self._run_on_branch(request)

    def _run_on_branch(self, request: Request) -> Steps[Result]:
        """Run a command. If it has written anything, make an automatic checkpoint of the moment before it."""
        run = self._run_with_files if request.changes else partial(Engine.run, self)
        if not self.options.auto_checkpoints:
            return (yield from run(request))
        yield from self._note_moment(request.command)
        result = yield from run(request)
        if not result.runs_on and self.shell is not None and self._is_idle():
            try:
                yield from self._checkpoint_before()
            except ShellSessionError as error:
                return with_reason(result, f"no checkpoint: {error}")
        return result

    def follow(self, request: Request) -> Steps[Call]:
        if self.options.auto_checkpoints:
            yield from self._note_moment(request.command)
        return (yield from super().follow(request))

    def _prepare_files(self) -> Steps[None]:
        if self._left is not None:  # an exception came before bash had left the layer
            yield from self._leave_layer()

    def _run_with_files(self, request: Request) -> Steps[Result]:
        """Run a command, and name the files that it has changed in ``changes``."""
        yield from self._ready()
        untold = yield from self._freeze_for_files()
        result = yield from Engine.run(self, request)
        if result.changes is not None:
            if untold:
                return with_reason(result, untold)
            assert self.branch is not None
            written = yield from apart(self.branch.written_last)  # also if the session is being closed meanwhile
            found = with_files(result.changes, [(one.kind, one.path) for one in written])
            result = result.__replace__(changes=found)
        return result

    def _freeze_for_files(self) -> Steps[str]:
        """Freeze the files, so that those that a command changes can be listed. Returns why they cannot."""
        try:
            if self.the_branch().is_written:
                self._refuse_writers(self.the_branch())
                yield from self.frozen()
        except ShellSessionError as error:
            return f"the files that it wrote are not told: {error}"
        return ""

    def _note_moment(self, command: bytes = b"") -> Steps[None]:
        """Before a command, note the moment for a rollback, if possible."""
        yield from self._ready()
        with suppress(ShellSessionError):  # the result says it
            yield from self._checkpoint_before()
            if self._moment is not None:
                self._moment = self._moment._replace(command=command)

    def _checkpoint_before(self) -> Steps[None]:
        """Make an automatic checkpoint of the moment before the last changes, if there are any, and note this moment.

        Raises JobsRunning and SnapshotUnavailable.
        """
        branch, most = self.the_branch(), self.options.auto_checkpoints
        if not (is_written := branch.is_written) and self._moment is not None and self._moment.begun == self.begun:
            return
        if is_written:
            self._refuse_writers(branch)
        snapshot = yield from self.snapshot((), None)
        if is_written:
            then, begun, at, command = self._moment or _Moment(snapshot, 0, time.time())
            keep = partial(branch.keep_before, then.for_file().to_bytes(), at, most)
            name, _ = yield from self._with_layer(branch, snapshot, _at_once(keep))
            undone = some_words(command.decode("utf-8", "replace"), _SHOWN) if begun + 1 == self.begun else ""
            self._states[name] = _Kept(then, undone)
            self._forget_dropped(branch)
        self._moment = _Moment(snapshot, self.begun, time.time())

    def _forget_dropped(self, branch: Branch) -> None:
        """Forget the states of checkpoints that no longer exist."""
        names = {one.name for one in branch.checkpoints()}
        self._states = {name: kept for name, kept in self._states.items() if name in names}

    # -- both halves

    def checkpoint(self, name: str, end_jobs: bool) -> Steps[Checkpoint]:
        """Freeze the files of the branch and the state of bash; see ``Session.checkpoint``."""
        branch = yield from self._on_branch(end_jobs)
        if self.options.auto_checkpoints:
            yield from self._checkpoint_before()
        name = branch.free_name(name)
        snapshot = yield from self.snapshot((), None)
        freeze = partial(branch.freeze, name, snapshot.for_file().to_bytes())
        (made, _), _ = yield from self._with_layer(branch, snapshot, _at_once(freeze))
        self._states[name] = _Kept(snapshot)
        return made

    def rollback(self, name: str, files_only: bool, end_jobs: bool) -> Steps[Restored]:
        """Bring the files of the branch back, and bash; see ``Session.rollback``."""
        branch = yield from self._on_branch(end_jobs)
        if is_undo := not name:
            name = yield from self._last_automatic(branch)
        known = self._states.get(name)
        stored, at, go_back = branch.state(name), branch.time_of(name), partial(branch.roll_back, name, is_undo)
        if not files_only:
            then = Snapshot.from_bytes(stored) if known is None else known.state
            now = None
            with suppress(SnapshotUnavailable):
                now = yield from self.snapshot((), None)
            restored = yield from self.restart(then, go_back, now)
            if known is None:  # an earlier session has made the checkpoint
                missing = state.not_in_file(then, self.environment())
                restored = self.restored = Restored((*restored.not_restored, *missing))
        else:
            snapshot = yield from self.snapshot((), None)
            _, restored = yield from self._with_layer(branch, snapshot, _at_once(go_back))
        if is_undo and known is not None:
            restored = restored.__replace__(undone=known.undone)
        self.host.on_rollback(at)
        return restored

    def _last_automatic(self, branch: Branch) -> Steps[str]:
        """Return the checkpoint from before the last changes. Raises InvalidRequest."""
        if not self.options.auto_checkpoints:
            raise InvalidRequest(
                f"name a checkpoint ({branch.known()}): only a session with auto_checkpoints=N can take back a command"
            )
        yield from self._checkpoint_before()
        return branch.last_automatic()

    def frozen(self) -> Steps[Frozen]:
        """Freeze the files and take a snapshot of bash. Raises JobsRunning."""
        branch = yield from self._on_branch()
        if self.options.auto_checkpoints:
            yield from self._checkpoint_before()
        snapshot = yield from self.snapshot((), None)
        yield from self._with_layer(branch, snapshot, _at_once(branch.freeze_last))
        return Frozen(branch, snapshot, self._forked_from)

    def fork(self, begin: Callable[[Snapshot, Branch | None], T], count: int = 1) -> Steps[list[T]]:
        """Return what ``begin`` makes of the state and of a fork of the branch, this many times.

        The forks have the files as they are now. Raises JobsRunning.
        """
        if self.branch is None:
            snapshot = yield from self.snapshot((), None)
            return [begin(snapshot, None) for _ in range(count)]
        branch, snapshot, _ = yield from self.frozen()
        state, made = snapshot.for_file().to_bytes(), list[T]()
        for _ in range(count):
            with signals_deferred():
                fork = branch.fork(state)
                try:
                    made.append(begin(snapshot, fork))
                except BaseException:
                    fork.close()
                    raise
        return made

    def take_over(self, fork: Frozen) -> Steps[Restored]:
        """Continue with the files and the state of a fork. Raises Conflict if the session has changed since."""
        branch = yield from self._on_branch()
        branch.refuse_applying()
        branch.refuse_changed(fork.branch)
        now = yield from self.snapshot((), None)
        found = changes_of_state(fork.before or Snapshot(), now)
        if names := [" ".join(pair) for pair in (*found.added, *found.changed, *found.removed)]:
            raise Conflict(
                f"the shell of the session has changed since this fork of it was made ({some(names)}): nothing was"
                " changed; do it again in the session itself",
                (),
            )
        state, most = now.for_file().to_bytes(), self.options.auto_checkpoints

        def take_over() -> None:
            if name := branch.take_over(fork.branch, state, most):
                self._states[name] = _Kept(now)
                self._forget_dropped(branch)

        return (yield from self.restart(fork.snapshot, take_over, now))

    def start_with(self, environment: Mapping[str, str], branch: Branch | None) -> None:
        super().start_with(environment, branch)
        if branch is not None and (snapshot := self.options.snapshot) is not None:
            self._forked_from, self._states[FORKED] = snapshot, _Kept(snapshot)

    def act_on_branch(self, action: str, given: dict[str, Any]) -> Steps[Any]:
        """Do what a method of ``BranchFiles`` does."""
        if action in ("diff", "patch"):
            find = getattr(self.the_branch(), action)
            return (yield from apart(lambda: find(given["since"])))
        branch = yield from self._on_branch()
        snapshot = yield from self.snapshot((), None)

        def change() -> Any:
            return branch.apply(given["paths"], given["overwrite"])[0] if action == "apply" else branch.discard()

        done, _ = yield from self._with_layer(branch, snapshot, apart(change, to_its_end=True))
        self._forget_dropped(branch)
        return done

    def checkpoints(self) -> Steps[list[Checkpoint]]:
        """Return the checkpoints, the oldest first."""
        yield from ()
        return self.the_branch().checkpoints()

    def drop_checkpoint(self, name: str) -> Steps[None]:
        """Forget a checkpoint. Raises InvalidRequest."""
        yield from ()
        self.the_branch().drop(name)
        self._states.pop(name, None)

    def the_branch(self) -> Branch:
        """Return the branch, open. Raises BranchUnavailable."""
        branch = self.refuse_without_branch()
        branch.open()
        return branch

    def refuse_without_branch(self) -> Branch:
        """Return the branch, which need not be open yet. Raises BranchUnavailable. From any thread."""
        self.refuse_closed()
        if self.branch is None:
            raise BranchUnavailable("this session writes to the files themselves: open it with branch=")
        return self.branch

    def branch_path(self) -> str:
        """From any thread: where other programs see the files of the branch now; "" if there is none."""
        shell, branch = self.shell, self.branch
        if shell is None or branch is None or shell.launch.is_sandboxed or self.closed:
            return ""
        return f"/proc/{shell.pid}/root{branch.base}"

    def _refuse_writers(self, branch: Branch, advice: str = "") -> None:
        """Raise JobsRunning if a job may write to the files, or bash itself to a file that it has open.

        ``advice``: what to do about a job.
        """
        shell = self.live()
        if living := shell.family.living():
            names = ", ".join(f"job {job.id}" for job in self.jobs if job.running) or f"process {living[0]}"
            raise JobsRunning(f"{names} runs" + (f", and may write to the files: {advice}" if advice else ""))
        if held := shell.open_below(branch.base):
            closing = ": close it (exec N>&-); nothing was changed" if advice else ""
            raise JobsRunning(f"the session's bash itself has {held} open{closing}")

    def _on_branch(self, end_jobs: bool | None = None) -> Steps[Branch]:
        """Return the branch once only bash can write to it. Raises JobsRunning.

        ``end_jobs``: kill the running jobs. None: the verb has no such option.
        """
        branch = self.the_branch()
        yield from self._ready()
        if end_jobs:
            yield from shell_end.kill_below(self.live())
        ending = "or kill it" if end_jobs is None else "kill it, or pass end_jobs=True"
        self._refuse_writers(branch, f"wait for its end, {ending}; nothing was changed")
        return branch

    def _with_layer(self, branch: Branch, snapshot: Snapshot, change: Steps[T]) -> Steps[tuple[T, Restored]]:
        """Change the layers of the branch, and have bash enter the last one if it is new.

        If this is interrupted, the next command enters it first: what bash wrote to the old layer would be lost.
        """
        self._left, self._ordinary = snapshot, None
        done = yield from change
        return done, (yield from self._leave_layer())

    def _leave_layer(self) -> Steps[Restored]:
        """Have bash leave the old layer: enter its directory again, or that of the branch if its own is gone."""
        shell, branch, snapshot = self.live(), self.branch, self._left
        assert branch is not None
        assert snapshot is not None
        cwd, base = snapshot.cwd, branch.base
        for place in (cwd, base):
            if shell.is_in_old_layer(base):
                yield from shielded(state.change_directory(shell, place, snapshot.variables.get("OLDPWD")))
            if not shell.is_in_old_layer(base):
                self._left = None
                gone = Difference("directory", cwd, f"it was made later: bash is in {base}")
                return Restored((gone,) if place != cwd else ())
        raise ShellUnavailable(f"bash cannot leave a layer that is frozen now: `cd {base}` fails; restart() it")
