"""The inner interface: what the daemon, tools and contracts use of sessions and agents beyond what is documented.

Its names are no promise to callers, and no release note speaks of them. Whatever else is needed is added here first;
tests compare.

Not here is what the daemon alone needs of an ``AsyncSession``: ``_request``, ``_run`` and ``_on_change``.
"""

from __future__ import annotations

from collections.abc import Callable
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from .engine.verbs.engine import Engine
    from .observe import Observer
    from .options import Options, Rules, SessionOptions
    from .policy.secrets import Secrets


class Inner(Protocol):
    """Of a session of any kind. What waits is awaited in a session for asyncio, so its type is left open."""

    @property
    def handed_back(self) -> Any:
        """The command that was handed back running; falsy if there is none."""

    @property
    def has_terminal_stdin(self) -> bool:
        """Whether commands read the terminal by default."""

    @property
    def secrets(self) -> Secrets | None:
        """The secrets that tools mask in what they return; None if they mask nothing."""

    @property
    def read_page(self) -> Callable[..., Any]:
        """Return what a ``Read`` makes of the output that a ``Query`` names."""

    @property
    def interrupt_command(self) -> Callable[[Any], Any]:
        """Interrupt that command, and no other. Raises NotRunning."""

    def observe(self, observer: Observer) -> None:
        """Call ``observer`` for each command that ends from now on, in the thread or task that gets the result."""


class InnerHere(Inner, Protocol):
    """Of a session in this process."""

    engine: Engine
    line: Any  # its callers; a tool that is cancelled drops its own place
    attached: bool  # a person is attached to it
    is_needed: Callable[[], bool]  # whether it must not be closed for being idle
    relied_on: bool  # a tool depends on its state: if it was closed for being idle, the next call reports that
    lasts: bool  # its tool promises that it lasts as long as its agent: only an ``idle_ttl`` closes it
    idle_ttl: float | EllipsisType | None  # its own, if a client has named one

    @classmethod
    def of(cls, options: Options) -> Any:
        """A session with these options, as ``Options.of`` has checked them."""

    @property
    def do(self) -> Callable[..., Any]:
        """Do the steps of a verb of ``engine`` once no other caller is in a verb."""

    @property
    def do_in_bash(self) -> Callable[..., Any]:
        """Do a verb of ``engine``, a function that returns its steps, in a bash that is started if there is none."""

    @property
    def close_if_idle(self) -> Callable[[float | None], Any]:
        """Close the session if nothing has run in it for that many seconds."""

    def is_in_use(self) -> bool:
        """Return whether a thread or task runs a verb, or waits to run one."""


class InnerRemote(Inner, Protocol):
    """Of a session in a daemon."""

    transport: Any
    opening: dict[str, Any]  # the fields of the request that opens it
    continues: bool  # when this client opened it, it began with the state of the agent's last one

    @property
    def is_opened(self) -> bool:
        """Has a daemon the session, as far as this client knows?"""

    def message(self, verb: str, *parts: bytes, **fields: object) -> Any:
        """A request about its agent."""

    @property
    def ask(self) -> Callable[[Any], Any]:
        """Send a request, and return the reply."""

    @classmethod
    def like(cls, other: Any, agent: str | None = None) -> Any:
        """The session that ``other`` is about, or that of another ``agent``, opened in the same way."""

    @classmethod
    def for_arguments(cls, *values: Any, **named: Any) -> Any:
        """The session for the arguments of ``connect``, not opened yet."""


class InnerAgents(Protocol):
    """Of ``Agents`` and ``AsyncAgents``."""

    registry: Any  # a ``Registry``
    options: SessionOptions  # those of every session

    def take(self, agent: object, named: Rules, make: Callable[[Rules], Any]) -> Any:
        """The agent's session. If it has none, ``make`` makes it, with the agent's rules."""

    def observe(self, observer: Observer) -> None:
        """Call ``observer`` for each command of all sessions that ends from now on."""

    def check_anew(self) -> None:
        """Note that the ``idle_ttl`` of a session has changed."""
