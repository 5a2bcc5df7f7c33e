"""A question to a person, as a value: may this command run? Pure.

A question is open until it is answered, or until its time is up. The first answer counts::

    open --accept--> accepted      open --decline--> declined      open --cancel--> cancelled
      \\---time is up--> expired
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from posixpath import join as join_path
from shlex import join
from typing import Any, Final, Literal, NamedTuple

from ..errors import InvalidRequest

Words = tuple[str, ...]
Decision = Literal["accept", "accept_session", "accept_rule", "decline", "cancel"]
State = Literal["open", "accepted", "declined", "cancelled", "expired"]
DECISIONS: Final[dict[str, State]] = {
    "accept": "accepted",
    "accept_session": "accepted",
    "accept_rule": "accepted",
    "decline": "declined",
    "cancel": "cancelled",
}
# An answer that nobody has used is dropped after this many seconds.
_UNUSED: Final = 600.0


def place_of(given: str | None, cwd: str) -> str:
    """Where a request with that ``cwd=`` would run, in a session whose directory is ``cwd``."""
    return join_path(cwd, given) if given else cwd


class Rule(NamedTuple):
    """What a person has accepted for good: a command by all its words, or by its first ones."""

    words: Words
    is_prefix: bool = False

    def covers(self, words: Words) -> bool:
        return words[: len(self.words)] == self.words if self.is_prefix else words == self.words

    def __str__(self) -> str:
        return join(self.words) + " ..." * self.is_prefix


@dataclass(frozen=True, slots=True)
class Answerer:
    """The process that has answered, as the kernel names it."""

    pid: int
    uid: int
    comm: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """May ``agent`` run ``command`` in ``cwd``?

    ``command``: the whole text, with ``***`` for secrets. ``given``: in a line each, what else the command gets:
    variables, and the beginning of its input. ``digest``: of all that was asked, secrets included. ``request``: the id
    of the request that asks. ``rules``: the words that ``accept_rule`` remembers; none: it cannot. ``prefix``: of some
    of them, the words that it remembers in place of these. ``asked``, ``until``: seconds since the epoch; None: no
    limit.
    """

    id: str
    agent: str
    command: str
    cwd: str
    digest: str = field(repr=False)
    request: str
    asked: float
    until: float | None = None
    given: tuple[str, ...] = ()
    rules: tuple[Words, ...] = ()
    prefix: Words = ()
    state: State = "open"
    decision: str = ""
    reason: str = ""
    by: Answerer | None = None

    def at(self, now: float) -> Question:
        """The question as it is at that moment."""
        return self.expired() if self.state == "open" and self.is_over(now) else self

    def expired(self) -> Question:
        """The question when nobody has answered it in time."""
        return replace(self, state="expired", reason=f"nobody has answered {self._in_time}")

    @property
    def _in_time(self) -> str:
        return "in time" if self.until is None else f"within {self.until - self.asked:.3g} s"

    @property
    def accepted_late(self) -> str:
        """Why its command did not begin, although a person has accepted it."""
        return f"a person accepted it, but it could not begin {self._in_time}, as the session was busy"

    def is_over(self, now: float) -> bool:
        """Is its time up, or that of an answer that nobody has used?"""
        return self.until is not None and now >= self.until

    def answered(self, decision: str, by: Answerer, now: float, reason: str = "", prefix: Words = ()) -> Question:
        """The question with its answer. Raises InvalidRequest if it has one, or for a rule that was not shown."""
        current = self.at(now)
        if current.state != "open":
            who = f" by {current.by.comm} (pid {current.by.pid})" if current.by else ""
            raise InvalidRequest(f"question {self.id} is {current.state} already{who}: the first answer counts")
        if decision == "accept_rule" and not self.rules:
            raise InvalidRequest(
                f"no rule is proposed for question {self.id}, as its command starts others, or is not plain words:"
                " accept it alone, or for the session"
            )
        if prefix and not (decision == "accept_rule" and any(Rule(prefix, True).covers(rule) for rule in self.rules)):
            raise InvalidRequest(
                f"{join(prefix)!r:.200} is not the beginning of a rule that question {self.id} proposes:"
                f" {self.proposal or 'none'}"
            )
        used_by = now + _UNUSED if self.until is None else min(self.until, now + _UNUSED)
        return replace(
            self, state=DECISIONS[decision], decision=decision, reason=reason, by=by, prefix=prefix, until=used_by
        )

    @property
    def refusal(self) -> str:
        """Why the command must not run; "" if it may."""
        if self.state == "accepted":
            return ""
        who = "" if self.by is None else f"a person {self.state} it"
        return ": ".join(filter(None, (who, self.reason))) or "it was not confirmed"

    def to_dict(self) -> dict[str, Any]:
        """The question as values for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, given: dict[str, Any]) -> Question:
        """The question that ``to_dict`` has written. Raises TypeError, KeyError and ValueError."""
        by = None if given["by"] is None else Answerer(**given["by"])
        rules = tuple(tuple(map(str, words)) for words in given["rules"])
        lists = {name: tuple(map(str, given[name])) for name in ("given", "prefix")}
        return cls(**{**given, **lists, "rules": rules, "by": by})

    @property
    def accepts(self) -> tuple[Rule, ...]:
        """The rules that ``accept_rule`` remembers."""
        prefix = Rule(self.prefix, True)
        is_short = [bool(self.prefix) and prefix.covers(words) for words in self.rules]
        return tuple(
            dict.fromkeys(prefix if short else Rule(words) for words, short in zip(self.rules, is_short, strict=True))
        )

    @property
    def proposal(self) -> str:
        """What ``accept_rule`` remembers, in one line; "" if it cannot."""
        return "; ".join(map(str, self.accepts))

    @property
    def record(self) -> dict[str, Any]:
        """What the audit log says about the answer."""
        found: dict[str, Any] = {"question": self.id, "decision": self.decision or self.state}
        if self.decision == "accept_rule":
            found["rule"] = self.proposal
        if self.by is not None:
            found["by"] = asdict(self.by)
        return found


@dataclass(frozen=True, slots=True)
class Remembered:
    """An answer that lasts: commands by their words (``rule``), or for a session one text (``digest``)."""

    id: str
    agent: str
    text: str
    at: float
    rule: Rule | None = None
    digest: str = field(default="", repr=False)

    def to_dict(self) -> dict[str, Any]:
        """The answer as values for JSON."""
        return {**asdict(self), "lasts": "session" if self.digest else "rule"}
