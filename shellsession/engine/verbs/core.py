"""What is known of one session: its bash, the command that it runs, and what earlier commands left running.

Law: nothing here waits but ``stop_unattended``, and what any thread may call says so.
"""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Final

from ...errors import FORKED, IS_CLOSED, NotRunning, SessionClosed, ShellUnavailable
from ...models import Request, Result, State
from ...options import Options
from ..bash.shell import Shell
from ..bash.spawn import environment
from ..io.background import DRAINER
from ..io.control import fresh_nonce
from ..kernel import proc
from ..wire import names_builtins, runs_unseen
from .collect import UnattendedReader
from .command import Call, Job, Reader
from .delivery import DELIVERED, Delivery

# A DEBUG trap, or a file that may have one.
_MAY_DEBUG: Final = (b"debug", b"source", b". ")
# When the name that runs a text is to be proved: a text may have replaced it that only the next one shows, or any
# later one may.
NEVER: Final = 0
ONCE: Final = 1
ALWAYS: Final = 2
# How long the end of a session waits for a callback, in seconds.
_CALLBACK_PATIENCE: Final = 1.0


class Core:
    """One session, as all modules of its verbs share it."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self.first_env: Mapping[str, str] | None = None  # what bash was first started with: a later one is, too
        self.shell: Shell | None = None
        self.is_parents = False  # this is a forked child of the host: all is its parent's
        self.parents_shell: Shell | None = None
        self.last: Call | None = None  # the command begun last
        self.lost: Delivery | None = None  # of the command that cost the last shell, while the next has not begun
        self.unread = b""  # typed for the command that ended last, and not read before its end
        self.jobs: list[Job] = []
        self.closed = False
        self.expired = False  # it was closed, or is about to be, as nothing had run in it for so long
        self.kill_reason = ""  # another thread ends the shell under a running command, and why
        self.terminal_job: Job | None = None  # left by a command that had the terminal, and still at it
        self.size = options.size
        self.reader: Reader = DRAINER
        self.forget_fd: Callable[[int], None] = lambda fd: None  # before a descriptor gets another reader
        self.on_close: Callable[[], None] = lambda: None
        self.callback_tasks: set[object] = set()  # tasks in an awaited callback of a running command
        self.unattended: UnattendedReader | None = None  # reads a command that was handed back, between two verbs
        self.attended: Call | None = None  # the command that the present verb stays with
        self.interrupt_requested = False  # another thread wants the command ended that is attended next
        self.idle_since = time.monotonic()  # when the last command came to its end
        self.forget_bash()
        _CORES.add(self)

    def forget_bash(self) -> None:
        """What commands have done to one bash is not done to the next, which is about to start."""
        self.status = 0  # `$?`
        self.setter = b"s" + fresh_nonce()[:8]  # sets it again, and is a function for that long
        self.had_children = False  # bash had children when the last command ended; an idle bash gets no new ones
        self.left: Mapping[int, int] = {}  # what it had left running then, and commands before it (see Family.present)
        self.guard = ONCE  # is it proved, before a text is run, that it will be run?
        self.spelling = 0  # by which name it is told to run a text: see framing.SPELLINGS
        self.prompt_speaks = False  # something speaks at the prompt: PROMPT_COMMAND, a DEBUG trap, `set -x`
        self.errexit = False  # `set -e` is on
        self.echoes = False  # `set -x`, `-v` or `-T` is on
        self.traced = False  # it would tell of our words in a group, as no prompt does: known for who may trap
        self.trapping = False  # a command of this shell has named traps: later ones may run them
        self.debugging = False  # and what may set a DEBUG trap
        self.functions_trap = False  # `set -T` is on: a function of ours would run the user's RETURN trap
        self.named: set[int] = set()  # descriptors that a command's `exec` has named, perhaps a function's

    # -- from any thread, and from callbacks

    def kill_running(self, why: str) -> None:
        """From any thread: kill the shell under a running command, which then returns with ``why`` as its reason.

        Not left to who attends that: it may be in a callback of the host's, for however long.
        """
        self.kill_reason = why
        if (shell := self.shell) is not None:
            shell.end()

    def request_interrupt(self, meant: Call | None) -> None:
        """From any thread: have that command ended; None: the one that is attended just now, or is about to be."""
        if meant is None:
            self.interrupt_requested = True  # before the look: who begins to attend one looks here afterwards
            meant = self.attended
        if meant is not None:
            meant.interrupt_requested = True
            if (shell := self.shell) is not None:
                shell.wake()

    def pause(self, call: Call) -> None:
        """Read no more of its output for now, so that the command stands still when it has filled its pipe."""
        call.paused = True

    def go_on(self, call: Call, fault: BaseException | None = None) -> None:
        """Read on; ``fault``: what the callback raised, for the next verb to raise."""
        call.paused, call.fault, call.last_output = False, call.fault or fault, time.monotonic()
        if self.unattended is not None:
            self.unattended.read_on()
        if self.shell is not None:
            self.shell.wake()

    def forget_interrupt(self) -> None:
        """Who wanted something ended has got it."""
        self.interrupt_requested = False
        if self.shell is not None:
            self.shell.clear_wake()

    # -- between two verbs

    def forget_output(self, result: Result) -> None:
        """The caller has that result: keep no large one, or large text, until the next command."""
        call, lost = self.last, self.lost
        if lost is not None and lost.state == DELIVERED:
            self.lost = None
        if call is not None and call.delivery.result is result:
            light = call.lightened()
            if self.last is call:  # another thread may have begun one; none does between these two lines
                self.last = light

    def stop_unattended(self, until: float | None = None) -> bool:
        """A verb begins: what is left running is its own to read. False: a callback still has it at that moment.

        The end of the session waits for that a moment only: it may be the end of the program.
        """
        if (reader := self.unattended) is not None:
            if not reader.stop(time.monotonic() + _CALLBACK_PATIENCE if self.closed else until):
                if not self.closed:
                    return False
                reader.abandon()
            if self.unattended is reader:  # else another verb has begun and ended meanwhile
                self.unattended = None
        return True

    def leave_unattended(self) -> None:
        """A verb has ended: somebody reads what is left running. (Not for one that is iterated over.)

        Or it never began, and its caller only notifies the others that wait: then the reader is still at it.
        """
        call, shell = self.handed_back, self.shell
        if self.unattended is not None and not self.unattended.stopped:
            return
        if call is not None and shell is not None and call.pieces is None:
            for _, stream in call.streams:
                self.forget_fd(stream.fd)
            self.unattended = reader = UnattendedReader(call, shell.terminal, self.reader)
            reader.read_on()  # known first: struck here (Ctrl-C), one that nobody knows would read what comes next

    # -- small things

    def note_traps(self, request: Request) -> None:
        """A command that names traps may set some; a subshell's end with it."""
        if request.isolated or not (self.trapping or b"trap" in request.command):
            return
        self.trapping = True
        if not self.debugging:
            text = request.command.lower()
            self.debugging = any(word in text for word in _MAY_DEBUG)

    def guard_after(self, text: bytes) -> int:
        """When the name that runs a text is to be proved, behind that text."""
        if self.guard == ALWAYS or names_builtins(text):
            return ALWAYS
        return ONCE if runs_unseen(text) else NEVER

    def may_trap(self, request: Request) -> bool:
        """May a trap speak after all else that this command does: an EXIT trap, or one for a signal that has waited?"""
        return self.trapping or request.isolated

    @property
    def state(self) -> State:
        if self.closed:
            return "closed"
        if self.current is not None:
            return "running"
        return "new" if self.shell is None else "idle"

    @property
    def current(self) -> Call | None:
        """The command that somebody is in, or that was handed back running."""
        return self.attended or self.handed_back

    @property
    def handed_back(self) -> Call | None:
        """The command that was handed back, and runs."""
        call = self.last
        return call if call is not None and call.delivery.runs_on else None

    @property
    def due(self) -> Result | None:
        """The ending of a command that was handed back, if it is there for whoever asks next."""
        call = self.last
        return call.delivery.result if call is not None and call.delivery.is_due else None

    def withdraw_last(self) -> None:
        """The last command is being ended, or given up: nobody can go on with it."""
        if self.last is not None:
            self.last.delivery.withdraw()

    def abandon_last(self) -> None:
        """Whoever had the last command gets no result of it; the next one reports a shell that it cost."""
        if self.last is not None:
            self.last.delivery.abandon()

    def note_loss(self, delivery: Delivery) -> None:
        """The next command reports the shell that this one cost, unless its ending is delivered before."""
        if delivery.loss is not None:
            self.lost = delivery

    def cwd(self) -> str:
        """Bash's working directory, as it says itself, or as the kernel does while it is at a command."""
        shell = self.shell
        if shell is None:
            return self.options.cwd or proc.link("/proc/self/cwd")  # that may be gone
        return shell.cwd if self.state == "idle" else proc.link(f"/proc/{shell.pid}/cwd")

    def environment(self) -> Mapping[str, str]:
        """What bash is started with."""
        return environment(self.options) if self.first_env is None else self.first_env

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
        """The command that was handed back and runs (or has ended since, and its ending is not delivered)."""
        self.refuse_closed()
        call = self.last
        if call is None or not (call.delivery.runs_on or (ended_too and call.delivery.is_due)):
            raise NotRunning(f"there is no running command to {verb}: it has ended, or none was handed back running")
        return call

    # -- whose the shell is

    def own(self, shell: Shell) -> Shell:
        """Bash was started. Raises SessionClosed where a signal handler has forked the host meanwhile, in the child."""
        self.shell = shell
        if self.is_parents:
            self.disown()
        self.refuse_forked()
        return shell

    def disown(self) -> None:
        """In a forked child: it has no shell, and every verb refuses. The parent's is kept, with its descriptors."""
        self.is_parents, self.unattended = True, None
        if (shell := self.shell) is not None:
            shell.is_parents = True
            self.parents_shell, self.shell = shell, None

    def refuse_forked(self) -> None:
        if self.is_parents:
            raise SessionClosed(FORKED)


_CORES: Final[weakref.WeakSet[Core]] = weakref.WeakSet()


def _disown_all() -> None:
    for core in _CORES:
        core.disown()


os.register_at_fork(after_in_child=_disown_all)
