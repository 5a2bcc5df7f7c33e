"""The state of one session: its bash, the command that it runs, and what earlier commands left running.

Law: only ``stop_unattended`` waits here. Methods that are safe from any thread say so.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...errors import FORKED, IS_CLOSED, NotRunning, SessionClosed, ShellUnavailable
from ...models import Result, State
from ...observe import Observer, Observing, Tap
from ...options import Options
from ..bash.outputs import Outputs
from ..bash.shell import Shell
from ..bash.spawn import environment
from ..io.drainer import DRAINER
from ..io.nonce import fresh_nonce
from ..kernel import proc
from ..kernel.family import Family
from .call import Call
from .collect import UnattendedReader
from .delivery import DELIVERED, Delivery
from .known import Known
from .session_job import Peek, Reader, SessionJob, ThreadJob, remembered

if TYPE_CHECKING:
    from ...branch.branch import Branch
    from ...policy.secrets import Secrets
    from ...state.comparison import Listing

# How many seconds the end of a session waits for a callback.
_CALLBACK_PATIENCE: Final = 1.0


class Host(NamedTuple):
    """What the session gives its engine: by default that of threads.

    ``reader``: reads what comes while no verb runs. ``forget_fd``: called before a descriptor gets another reader.
    ``exit_code_of``: asks bash, if the session is idle; see ``Engine.exit_code``. ``agent``: whose session it is.
    ``tells_unread``: a result says if nobody has read the one before; a daemon tells that its clients.
    ``on_rollback``: is called after a rollback, with the moment to which that went back, as by time.time.
    """

    reader: Reader = DRAINER
    job_kind: type[SessionJob] = ThreadJob
    exit_code_of: Callable[[SessionJob], object] = lambda job: None
    forget_fd: Callable[[int], None] = lambda fd: None
    on_close: Callable[[], None] = lambda: None
    tells_unread: bool = True
    on_rollback: Callable[[float], None] = lambda at: None
    agent: str = ""


class Core:
    """The state of one session, which all modules of its verbs share."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.first_env: Mapping[str, str] | None = None  # the environment of the first bash, and of every later one
        self.shell: Shell | None = None
        self.is_parents = False  # this process is a forked child of the host: everything belongs to its parent
        self.parents_shell: Shell | None = None
        self.last: Call | None = None  # the command begun last
        self.outputs = Outputs()
        self.begun = 0  # commands so far
        self.lost: Delivery | None = None  # of the command that cost the last shell, until the next command begins
        self.unread_input = b""  # input that was typed for the last command, and that it did not read
        self.jobs: list[SessionJob] = []
        self.jobs_made = 0
        self.taps: list[Tap] = []  # those that see its commands
        self.closed = False
        self.expired = False  # it was closed, or is about to be, because nothing has run in it for too long
        self.kill_reason = ""  # why another thread ends the shell under a running command; "" if none does
        self.terminal_job: SessionJob | None = None  # the job that gets the terminal's output now
        self.size = options.size
        self.branch: Branch | None = None
        if options.branch is not None:
            from ...branch.branch import Branch, first_directory

            self.branch = Branch(options.branch, options.branch_dir)
            if options.cwd is None:
                self.options = replace(options, cwd=first_directory(self.branch.base))
        self.host = Host()
        self.callback_tasks: set[object] = set()  # tasks in an awaited callback of a running command
        self.unattended_reader: UnattendedReader | None = None  # between two verbs, of a command that was handed back
        self.attended: Call | None = None  # the command that the current verb waits on
        self.interrupt_requested = False  # another thread wants the next attended command ended
        self.idle_since = time.monotonic()  # when the last command ended
        self.listing: Listing | None = None  # the last one of bash's state
        self.forget_bash()
        _CORES.add(self)

    def forget_bash(self) -> None:
        """Reset what we know about bash, because a new one is about to start."""
        self.know(Known())
        if self.listing is not None:  # the new bash may get the same state: then its listing needs not be parsed
            self.listing = self.listing._replace(begun=-1)
        self.setter = b"s" + fresh_nonce()[:8]  # the name of the function that sets `$?` (see Frame)

    def learn(self, **facts: Any) -> None:
        """Note these facts of ``Known``."""
        self.know(self.known._replace(**facts))

    def know(self, known: Known) -> Known:
        """Note what is known of bash now, and return it."""
        self.known = known
        return known

    def keep_listing(self, listing: Listing) -> Listing:
        """Keep what bash has listed, until it lists its state again. Returns it."""
        self.listing = listing
        return listing

    def adapt(self, **parts: Any) -> None:
        """Set these parts of ``Host``."""
        self.host = self.host._replace(**parts)

    def start_with(self, environment: Mapping[str, str], branch: Branch | None) -> None:
        """Start bash with this environment, which another session's bash had, and on a fork of its branch."""
        self.first_env, self.branch = environment, branch

    # -- jobs

    def inherit(self, jobs: list[SessionJob], made: int) -> None:
        """Take over the jobs that an earlier session has left, and go on numbering after ``made``."""
        self.jobs, self.jobs_made = jobs, made
        for job in jobs:
            job.taps = self.taps

    def new_job(self, text: str, pids: Sequence[int], tag: int, family: Family, before: Sequence[Peek]) -> SessionJob:
        """Make a job of what a command has left running, and forget old ones."""
        self.jobs_made += 1
        job = self.host.job_kind(text, pids, tag, family, self.jobs_made, self.host.exit_code_of, before)
        job.taps = self.taps
        self.jobs = remembered([*self.jobs, job])
        for tap in self.taps:
            tap.job(job.id)
        return job

    def lend_terminal(self, job: SessionJob | None) -> None:
        """``job`` gets the terminal's output from now on; None: no job does."""
        self.terminal_job = job

    # -- from any thread, and from callbacks

    def kill_running(self, why: str) -> None:
        """From any thread: kill the shell under a running command, which then returns with ``why`` as its reason.

        The thread that waits on the command cannot do this: it may be in a callback of the host for a long time.
        """
        self.kill_reason = why
        if (shell := self.shell) is not None:
            shell.end()

    def request_interrupt(self, meant: Call | None) -> None:
        """From any thread: request the end of a command. None: the one that is attended now, or is about to be."""
        if meant is None:
            # Set this before ``attended`` is read: a thread that begins to attend a command checks it afterwards.
            self.interrupt_requested = True
            meant = self.attended
        if meant is not None:
            meant.interrupt_requested = True
            if (shell := self.shell) is not None:
                shell.wake()

    def go_on(self, call: Call, fault: BaseException | None = None) -> None:
        """Read the output again after ``Call.pause``. ``fault``: what the callback raised; the next verb raises it."""
        call.go_on(fault)
        if self.unattended_reader is not None:
            self.unattended_reader.read_on()
        if self.shell is not None:
            self.shell.wake()

    def refuse_calls(self, expired: bool = False) -> None:
        """From any thread: the session is closed for the calls that come from now on."""
        self.closed, self.expired = True, self.expired or expired
        for tap in self.taps:
            tap.close()

    def forget_kill(self) -> None:
        """Forget the reason of ``kill_running``."""
        self.kill_reason = ""

    def forget_interrupt(self) -> None:
        """Clear the request for an interrupt, once it was served."""
        self.interrupt_requested = False
        if self.shell is not None:
            self.shell.clear_wake()

    # -- between two verbs

    def forget_output(self, result: Result) -> None:
        """Drop a large result, or the large text of its command. The caller has the result now."""
        call, lost = self.last, self.lost
        if lost is not None and lost.state == DELIVERED:
            self.lost = None
        if call is not None and call.id == result.id and call.delivery.state == DELIVERED:
            light = call.lightened()
            if self.last is call:  # another thread may have begun a command; none does between these two lines
                self.last = light

    def stop_unattended(self, until: float | None = None) -> bool:
        """Stop the reader, because a verb begins and reads the output itself.

        Returns False if a callback still runs at the moment ``until``. The end of the session waits for a callback only
        briefly: it may be the end of the program.
        """
        if (reader := self.unattended_reader) is not None:
            if not reader.stop(time.monotonic() + _CALLBACK_PATIENCE if self.closed else until):
                if not self.closed:
                    return False
                reader.abandon()
            if self.unattended_reader is reader:  # otherwise another verb has begun and ended meanwhile
                self.unattended_reader = None
        return True

    def leave_unattended(self) -> None:
        """Start a reader for a command that still runs when a verb has ended.

        If the verb never began, the old reader still runs. A command whose output a consumer iterates over has none.
        """
        call, shell = self.handed_back, self.shell
        if self.unattended_reader is not None and not self.unattended_reader.stopped:
            return
        if call is not None and shell is not None and call.pieces is None:
            for _, stream in call.streams:
                self.host.forget_fd(stream.fd)
            self.unattended_reader = reader = UnattendedReader(call, shell.terminal, self.host.reader)
            # Stored first: if Ctrl-C came in between, an unknown reader would read the output of the next command.
            reader.read_on()

    # -- small things

    def begin(self, call: Call, ours: bool = False) -> Call:
        """Make a command the last one, just before bash gets it. Returns the command.

        ``ours``: a startup or shutdown command, which has no name, and which the taps do not see.
        """
        self.last, self.unread_input = call, b""
        is_given = bool(call.typed.streams)  # else it is not run
        if not ours:
            self.begun = number = self.begun + 1
            call.name(f"c{number}", self.outputs, self.taps if is_given else ())
        if is_given:
            self.attended = call
        return call

    def attend(self, call: Call) -> None:
        """A verb waits on this command now."""
        self.attended = call

    def leave(self) -> Call | None:
        """The verb ends. Returns the command that it waited on, if any."""
        attended, self.attended = self.attended, None
        if attended is not None:
            self.idle_since = time.monotonic()
            attended.interrupt_requested = False  # the command has ended, or the waiter requests it again
        return attended

    def touch(self) -> None:
        """Begin anew to count for how long nothing runs."""
        self.idle_since = time.monotonic()

    def note_unread_input(self, data: bytes) -> None:
        """Note input that was typed for the last command, and that it did not read."""
        self.unread_input += data

    def put(self, call: Call, data: bytes) -> bytes:
        """Type into the terminal of a command. Returns what the terminal has no room for."""
        size = self.live().keyboard.type(data)
        if size:
            for tap in call.taps:
                tap.input(call.id, data[:size])
        return data[size:]

    def resize(self, columns: int, rows: int) -> None:
        """Set the terminal's size, now and for every later bash."""
        self.size = columns, rows
        if self.shell is not None:
            self.shell.resize(self.size)
        for tap in self.taps:
            tap.resize(columns, rows)

    def observe(self, observer: Observer) -> None:
        """Call ``observer`` for each command that ends from now on."""
        self.taps.append(Observing(observer, self.host.agent, partial(self.known_secrets, logged=True)))

    @property
    def log_prefix(self) -> str:
        """How messages of the log about this session begin."""
        return f"agent {self.host.agent!r}: " if self.host.agent else ""

    @property
    def state(self) -> State:
        if self.closed:
            return "closed"
        if self.current is not None:
            return "running"
        return "new" if self.shell is None else "idle"

    @property
    def current(self) -> Call | None:
        """The command that a verb waits on, or that was handed back and still runs."""
        return self.attended or self.handed_back

    @property
    def handed_back(self) -> Call | None:
        """The command that was handed back and still runs."""
        call = self.last
        return call if call is not None and call.delivery.runs_on else None

    @property
    def due(self) -> Result | None:
        """The result of a command that was handed back and has ended, until a caller asks for it."""
        call = self.last
        return call.delivery.result if call is not None and call.delivery.is_due else None

    def withdraw_last(self) -> None:
        """Withdraw the last command: it is being ended or given up, and no caller can continue it."""
        if self.last is not None:
            self.last.delivery.withdraw()

    def abandon_last(self) -> None:
        """Give up the result of the last command. If it cost the shell, the next command reports that."""
        if self.last is not None:
            self.last.delivery.abandon()

    def note_end(self, shell: Shell, call: Call) -> None:
        """A shell has ended under a command, or before it. Its files are still there."""

    def pop_loss(self) -> Result | None:
        """Return the ending that cost the last shell, if nobody has it yet, and forget it."""
        lost, self.lost = self.lost, None
        return None if lost is None else lost.loss

    def note_loss(self, delivery: Delivery) -> None:
        """Make the next command report that this one cost the shell, unless its result is delivered before."""
        if delivery.loss is not None:
            self.lost = delivery

    def cwd(self) -> str:
        """Return bash's working directory: as bash reported it, or from the kernel while a command runs."""
        shell = self.shell
        if shell is None:
            return self.options.cwd or proc.link("/proc/self/cwd")  # this directory may be gone
        return shell.cwd if self.state == "idle" else proc.link(f"/proc/{shell.pid}/cwd")

    def umask(self) -> int:
        """Return the umask of bash now, or the one with which it would start."""
        if self.shell is not None and (found := proc.field(self.shell.pid, b"Umask")):
            return int(found, 8)
        return proc.umask() if self.options.umask is None else self.options.umask

    def environment(self) -> Mapping[str, str]:
        """Return the environment in which bash starts."""
        return environment(self.options) if self.first_env is None else self.first_env

    def secrets(self) -> Secrets | None:
        """Return the secrets that tools mask by the session's options; None if they mask nothing."""
        return self.known_secrets() if self.options.policy is not None or self.options.redact else None

    def known_secrets(self, logged: bool = False) -> Secrets:
        """See ``policy.rules.secrets_of``."""
        options = self.options
        from ...policy.rules import secrets_of  # 13 ms, and rarely needed

        environs = environment(replace(options, policy=None)), self.environment()
        return secrets_of(options.policy, options.redact, *environs, logged=logged)

    def refuse_closed(self) -> None:
        self.refuse_forked()
        if self.closed:
            raise SessionClosed(IS_CLOSED)

    def live(self) -> Shell:
        if self.shell is None:
            self.refuse_forked()
            raise ShellUnavailable("the shell is gone")
        return self.shell

    def running(self, verb: str, ended_too: bool = False) -> Call:
        """Return the command that was handed back and still runs. Raises NotRunning.

        ``ended_too``: it may also have ended, if its result was not delivered yet.
        """
        self.refuse_closed()
        call = self.last
        if call is None or not (call.delivery.runs_on or (ended_too and call.delivery.is_due)):
            raise NotRunning(f"there is no running command to {verb}: it has ended, or none was handed back running")
        return call

    # -- ownership of the shell

    def own(self, shell: Shell, env: Mapping[str, str]) -> Shell:
        """Take over a shell that was started. Raises SessionClosed in a child that a signal handler has just forked.

        A later bash starts in the same directory, with the same environment.
        """
        self.shell = shell
        self.options, self.first_env = replace(self.options, cwd=shell.first_cwd), env
        if self.is_parents:
            self.disown()
        self.refuse_forked()
        return shell

    def give_up_shell(self) -> None:
        """The shell is gone, and all that it held was given back."""
        self.shell = None

    def disown(self) -> None:
        """In a forked child: give up the shell, so that every verb refuses. The parent's descriptors stay open."""
        self.is_parents, self.unattended_reader = True, None
        if (shell := self.shell) is not None:
            shell.disown()
            self.parents_shell, self.shell = shell, None

    def refuse_forked(self) -> None:
        if self.is_parents:
            raise SessionClosed(FORKED)


_CORES: Final[weakref.WeakSet[Core]] = weakref.WeakSet()


def _disown_all() -> None:
    for core in _CORES:
        core.disown()


os.register_at_fork(after_in_child=_disown_all)
