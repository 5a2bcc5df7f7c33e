"""The base class of ``Session`` and ``AsyncSession``: their options, their engine and the checks of arguments.

Law: bad arguments are refused here, before anything runs.
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Self

from .branch.checkpoint import Checkpoint, name_of_checkpoint
from .engine.io.loop import LoopWaiter
from .engine.io.output import resolve_spill
from .engine.io.threads import Steps, Wait, drive
from .engine.io.waiter import Waiter
from .engine.kernel.signals import signals_deferred
from .engine.verbs.call import Call
from .engine.verbs.on_branch import BranchEngine
from .engine.verbs.recovery import Recovering
from .engine.verbs.session_job import SessionJob
from .engine.verbs.state import check_snapshot, seek
from .errors import FORKED, InvalidRequest, SessionClosed
from .models import TTY, Limits, OnTimeout, Request, State, Terminal, check_flag, command_bytes
from .observe import Observer, log_end
from .options import Options, absolute, check_size, refuse_queue, scope_of
from .paging import Query, Read
from .redact import Redact
from .sandbox import Sandbox
from .signatures import AnySession, Command, RunOptions, Seconds, Text, deadline, explained, fed
from .state.snapshot import Snapshot, check_patterns

if TYPE_CHECKING:
    from .branch.branch import Branch
    from .policy.rules import Policy
    from .policy.secrets import Secrets
    from .state.values import Restored

# How many seconds ``poll`` waits for another thread or task that is in a verb.
LOOK_PATIENCE = 0.02
# How many seconds a thread waits for another one that asks for an exit status.
_ASK_PATIENCE = 2.0
CALLBACK_RUNS = "its `on_output` callback has not returned yet: what the command prints comes with a later result"


class Base(AnySession[Request]):
    """The common part of ``Session`` and ``AsyncSession``."""

    attached = False  # a person is attached to it
    is_needed: Callable[[], bool] = bool  # whether it must stay open although it is idle
    relied_on = False  # a tool depends on its state: if it was closed for being idle, the next call reports that
    lasts = False  # its tool promises that it lasts as long as its agent: only an ``idle_ttl`` closes it
    idle_ttl: float | EllipsisType | None = ...  # its own, if a client has named one

    @explained
    def __init__(
        self,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        extra_env: Mapping[str, str] | None = None,
        *,
        agent_env: bool = True,
        timeout: float | None = 120.0,
        on_timeout: OnTimeout = "interrupt",
        tty: bool = True,
        limits: Limits | None = None,
        idle_timeout: float | None = None,
        stdin: Terminal | None = None,
        merge_stderr: bool = False,
        startup: Iterable[Text] = (),
        check_startup: bool = True,
        shutdown: Iterable[Text] = (),
        size: tuple[int, int] = (200, 50),
        bash: str | os.PathLike[str] = "bash",
        sandbox: Sandbox | None = None,
        policy: Policy | None = None,
        redact: Redact = False,
        snapshot: Snapshot | None = None,
        recover: bool = False,
        branch: str | os.PathLike[str] | None = None,
        branch_dir: str | os.PathLike[str] | None = None,
        auto_checkpoints: int = 0,
    ) -> None:
        """Prepare a session. Bash starts at the first command, or at ``open()``.

        * ``cwd``: the directory in which bash starts. None is the host's directory at that moment, or the branch if
          that is not in it.
        * ``env``: the environment, as in subprocess: None inherits the host's, a mapping replaces it. ``extra_env``
          adds variables in both cases.
        * ``agent_env``: add variables such as PAGER=cat to an inherited environment.
        * ``timeout`` (seconds, or None), ``on_timeout``, ``tty``, ``limits``, ``idle_timeout``, ``merge_stderr``, and
          ``stdin`` (None or TTY): the defaults of ``run``.
        * ``startup``: commands that run after every start. If one fails, the start raises StartupFailed. With
          ``check_startup=False`` a status other than 0 is no failure.
        * ``shutdown``: commands that ``close()`` and ``restart()`` run, in 10 s together, if bash is alive. A command
          that was handed back is ended first. A failure is a warning of the logger "shellsession".
        * ``size``: the terminal's (columns, rows).
        * ``bash``: the name or path of bash 4.4 or newer.
        * ``sandbox``: confines bash and everything that it starts. If the sandbox cannot be made, the start raises
          SandboxUnavailable.
        * ``policy``: which commands ``run`` and ``stream`` may start, and for how long. They raise PolicyRefused for
          others, before anything runs. Bash does not get the variables that it hides.
        * ``redact``: tools and the daemon's audit log show ``***`` for secrets: keys, tokens and passwords of
          well-known shapes, and what the patterns of a list find. Results keep the exact bytes.
        * ``snapshot``: the state that each bash of this session gets at its start, after the startup commands.
        * ``recover``: if bash dies, the next one gets the state that was kept last: see ``Result.recovered``.
        * ``branch``: a directory. What commands write below it goes to a branch of it; the directory itself stays as it
          is. If the branch cannot be made, the start raises BranchUnavailable.
        * ``branch_dir``: where the layers of the branch are, on a local disk. By default they are in a new directory
          below the state directory. If anything was written, they stay: a session that names them goes on with them.
        * ``auto_checkpoints``: keep a checkpoint from before each of the last commands that wrote on the branch, this
          many, so that ``rollback()`` takes the last one back. While a job runs there is none, as the result says.

        Raises InvalidRequest.
        """
        options = Options.of(locals())
        refuse_queue(options.policy)
        self._begin(options)

    @classmethod
    def of(cls, options: Options) -> Self:
        """A session with these options, as ``Options.of`` has checked them. Raises InvalidRequest."""
        session = cls.__new__(cls)
        session._begin(options)
        return session

    def _begin(self, options: Options) -> None:
        place, program = options.cwd, options.bash
        if place is not None and not os.path.isdir(place):
            raise InvalidRequest(f"cwd {place!r} is not a directory: make it, or name another")
        options = options.__replace__(
            cwd=place and absolute(place),
            bash=absolute(program) if "/" in program else program,
            branch=options.branch and absolute(options.branch),
            branch_dir=options.branch_dir and absolute(options.branch_dir),
            limits=resolve_spill(options.limits, options.sandbox),
        )
        self._defaults = options.defaults()
        self._gentle = "kill" if options.on_timeout == "kill" else "interrupt"
        if options.snapshot is not None:
            check_snapshot(options.snapshot, options)
        self.engine = Recovering(options) if options.recover else BranchEngine(options)
        self._owner = os.getpid()
        self._waiters: list[Waiter | LoopWaiter] = []
        weakref.finalize(self, _end, self.engine, self._owner)
        # Weakly, as for the finalizer: the engine must not keep the session alive.
        ask = weakref.WeakMethod(self._learn_exit_code)
        self.engine.adapt(exit_code_of=lambda job: None if (method := ask()) is None else method(job))
        self._asking = threading.Lock()  # held while bash is asked for an exit status
        self._prepare()

    def _prepare(self) -> None:
        """Make what this kind of session needs to wait."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} pid={self.pid} {'closed' if self.closed else 'open'}>"

    @property
    def pid(self) -> int | None:
        """The process id of bash; None while there is no bash."""
        shell = self.engine.shell
        return shell.pid if shell else None

    @property
    def closed(self) -> bool:
        """Whether the session is closed."""
        return self.engine.closed

    @property
    def state(self) -> State:
        """ "new" (there is no bash), "idle", "running" (a command runs, or was handed back), or "closed"."""
        self._ensure_reader()
        return self.engine.state

    @property
    def cwd(self) -> str:
        """Bash's working directory now. While there is no bash, the directory in which it would start."""
        return self.engine.cwd()

    @property
    def command(self) -> str:
        """The text of the running command; "" if none runs."""
        call = self.engine.current
        return call.request.command.decode("utf-8", "replace") if call is not None else ""

    @property
    def size(self) -> tuple[int, int]:
        """The terminal's (columns, rows)."""
        return self.engine.size

    @property
    def policy(self) -> Policy | None:
        """The option ``policy``."""
        return self.engine.options.policy

    @property
    def redact(self) -> Redact:
        """The option ``redact``, for ``Result.for_model``."""
        return self.engine.options.redact

    @property
    def restored(self) -> Restored:
        """What the last restore has done, by ``restore`` or the option ``snapshot``."""
        return self.engine.restored

    @cached_property
    def secrets(self) -> Secrets | None:
        """The secrets that tools mask in what they return; None if they mask nothing."""
        return self.engine.secrets()

    @property
    def idle(self) -> float:
        """For how many seconds nothing has run; 0.0 while a command runs."""
        since = self.engine.free_since()
        return 0.0 if since is None else time.monotonic() - since

    def _ensure_reader(self) -> None:
        """Ensure that the output of a running command is still read, if that depends on the event loop."""

    def is_in_use(self) -> bool:
        """Return whether a thread or task runs a verb, or waits to run one."""
        raise NotImplementedError

    @property
    def handed_back(self) -> Call | None:
        """The command that was handed back."""
        return self.engine.handed_back

    @property
    def has_terminal_stdin(self) -> bool:
        """Whether commands read the terminal by default."""
        return self._defaults.stdin is TTY

    def _screen(self, name: str) -> Any:
        call = self.engine.last
        return getattr(call.dialogue.screen, name) if call and call.dialogue else None

    def _mine(self) -> BranchEngine:
        if self._owner != os.getpid():
            raise SessionClosed(FORKED)
        return self.engine

    def _request(self, command: Command, given: RunOptions) -> Request:
        if given.get("idempotency_key") is not None:
            raise InvalidRequest(
                "idempotency_key= needs a session of a daemon, whose receipts outlive this process: use connect()"
            )
        changes: dict[str, Any] = {**given, "command": command_bytes(command)}
        if (stdin := given.get("stdin")) is TTY:
            check_flag("tty", tty := changes.setdefault("tty", True))
            if not tty:
                raise InvalidRequest("stdin=TTY gives the command the terminal: leave out tty=False")
        elif stdin is not None:
            changes["stdin"] = fed(stdin)
        elif given.get("tty") is False:  # goes before the session's stdin=TTY
            changes["stdin"] = None
        if "limits" in given:
            changes["limits"] = _limits_of(given["limits"], self.engine.options.sandbox)
        return self._defaults.__replace__(**changes | scope_of(given))

    def _plain_request(self, command: Command) -> Request:
        return self._defaults.with_command(command_bytes(command))

    def _leave(self) -> None:
        """Clean up after a verb, and notify the waiters of its command."""
        engine = self.engine
        try:
            if (last := engine.last) is not None and last.delivery.handed_back:
                engine.leave_unattended()
        finally:
            attended = engine.leave()
            if self._waiters or engine.interrupt_requested:
                engine.forget_interrupt()
            while self._waiters:  # if the command runs on, the result is None, and each waiter runs its own verb
                self._waiters.pop().notify(None if attended is None else attended.delivery.result)
            if attended is not None and (ended := attended.delivery.result) is not None:
                log_end(engine.host.agent, ended)

    def observe(self, observer: Observer) -> None:
        """Call ``observer`` for each command that ends from now on, in the thread or task that gets the result."""
        self.engine.observe(observer)

    def _until(self, timeout: Seconds) -> float | None:
        return deadline(timeout, self._defaults.timeout)

    def _reading(self, query: Query, read: Read) -> Steps[Any]:
        """Return what ``read`` makes of an output. It waits for no command."""
        engine, reading, id = self._mine(), read(query), query.id
        wanted = next(reading)
        try:
            while True:
                self._ensure_reader()
                piece = engine.piece(id, query.stream, *wanted)
                id, wanted = piece.id, reading.send(piece)
                yield Wait((), time.monotonic())  # an event loop serves other sessions meanwhile
        except StopIteration as end:
            return end.value

    def _snapshot_steps(self, exclude: Sequence[str], secrets: Sequence[str]) -> Callable[[], Steps[Snapshot]]:
        """Return the function that begins to take a snapshot. Raises InvalidRequest."""
        return partial(self._mine().snapshot, check_patterns(exclude), seek(secrets))

    def _forked(self, snapshot: Snapshot, branch: Branch | None) -> Self:
        """Return a session that begins with the snapshot, on that branch, and else as this one did."""
        child = self.of(self.engine.options.__replace__(snapshot=snapshot))
        child.engine.start_with(self.engine.environment(), branch)
        return child

    def _checkpoint_steps(self, name: str, end_jobs: bool) -> Callable[[], Steps[Checkpoint]]:
        """Return the function that begins to make a checkpoint. Raises InvalidRequest."""
        check_flag("end_jobs", end_jobs)
        return partial(self._mine().checkpoint, name_of_checkpoint(name), end_jobs)

    def _rollback_steps(
        self, checkpoint: Checkpoint | str, files_only: bool, end_jobs: bool
    ) -> Callable[[], Steps[Restored]]:
        """Return the function that begins to roll back. Raises InvalidRequest."""
        check_flag("files_only", files_only)
        check_flag("end_jobs", end_jobs)
        return partial(self._mine().rollback, name_of_checkpoint(checkpoint), files_only, end_jobs)

    def jobs(self, released: bool = False) -> Sequence[SessionJob]:
        """Return what earlier calls left running."""
        return self._jobs(released)

    def _jobs(self, released: bool) -> list[Any]:
        check_flag("released", released)
        self._ensure_reader()
        if self.closed and not released:
            return []
        return [job for job in self._mine().jobs if job.released is released]

    def _learn_exit_code(self, job: SessionJob) -> None:
        """Ask bash for the exit status of a job that has ended. A second thread waits for the answer of the first."""
        if self._asking.acquire(timeout=_ASK_PATIENCE):
            try:
                if job.known_exit_code is None and job.bash_pid:
                    job.known_exit_code = self._exit_code_of(job)
            finally:
                self._asking.release()

    def _exit_code_of(self, job: SessionJob) -> int | None:
        """Ask bash for the exit status of a job that has ended. None if the session is in use now."""
        raise NotImplementedError

    def resize(self, columns: int, rows: int) -> None:
        """Set the terminal's size. A command that has the terminal gets SIGWINCH from the kernel."""
        engine = self._mine()
        check_size((columns, rows))
        engine.refuse_closed()
        engine.resize(columns, rows)


def _limits_of(limits: object, sandbox: Sandbox | None) -> Limits:
    """Return the limits with the spill path resolved. Raises InvalidRequest."""
    if not isinstance(limits, Limits):
        raise InvalidRequest(f"limits must be a Limits, not {limits!r}")
    return resolve_spill(limits, sandbox)


def _end(engine: BranchEngine, owner: int) -> None:
    """Close the session at garbage collection or interpreter exit. In a forked child the shell is the parent's."""
    if os.getpid() != owner:
        return
    try:
        with signals_deferred():  # a finalizer runs only once
            drive(engine.close(in_order=False))
    finally:
        if engine.shell is not None:  # in a host with threads, an exception may interrupt it all the same
            drive(engine.close(in_order=False))


def check_count(count: object) -> None:
    """Raise InvalidRequest unless this is a number of forks."""
    if type(count) is not int or count < 1:
        raise InvalidRequest(f"count must be a positive integer, not {count!r:.100}")
