"""What a watcher of the daemon gets: events of its sessions and of their commands. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from .models import Outcome, Stream


@dataclass(frozen=True, slots=True)
class AgentOpened:
    """An agent has a session. The first events are of those that have one already."""

    agent: str


@dataclass(frozen=True, slots=True)
class CommandBegan:
    """A command was given to bash. ``command``: its text, of which a long one is cut."""

    agent: str
    command: str


@dataclass(frozen=True, slots=True)
class CommandOutput:
    """A command has printed ``data``. ``omitted`` bytes before that came too fast, and are left out."""

    agent: str
    stream: Stream
    data: bytes
    omitted: int = 0

    @property
    def text(self) -> str:
        """The data as text. Bytes that are not UTF-8 become U+FFFD."""
        return self.data.decode("utf-8", "replace")


@dataclass(frozen=True, slots=True)
class CommandEnded:
    """A command has ended. The fields are those of its ``Result``."""

    agent: str
    outcome: Outcome
    exit_code: int | None
    reason: str
    duration: float


@dataclass(frozen=True, slots=True)
class AgentClosed:
    """The session of an agent was closed."""

    agent: str


@dataclass(frozen=True, slots=True)
class EventsMissed:
    """The watcher was too slow: this many events, and bytes of output, are lost to it.

    None: the daemon does not know, as the watcher was away for more than 20 seconds. The events after that begin anew,
    with an ``AgentOpened`` of each session.
    """

    events: int | None
    bytes: int | None


Event = AgentOpened | CommandBegan | CommandOutput | CommandEnded | AgentClosed | EventsMissed
