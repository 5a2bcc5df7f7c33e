"""The questions that wait for a person, and the answers that last.

A question is in the store until its asker has used the answer, so it outlives both the asker and the daemon. Whoever
asks the same again, for the same agent, finds it. A yes is used once, before its command begins: if the daemon dies
then, the next request asks again.
"""

from __future__ import annotations

import asyncio
import json
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ...errors import InvalidRequest
from ...feed import Feed
from ...policy.approval import Answerer, Question, Remembered, Rule, Words

if TYPE_CHECKING:
    from ...store import Store

# How many changes are kept for those who follow.
_CHANGES: Final = 1000
# How many questions of one agent may wait. An agent that goes on asking must not fill the store.
_MOST: Final = 100
_TO_ANSWER: Final = "`shellsession approvals` lists those that wait"


class _Asker(NamedTuple):
    """Who waits for an answer: the session of ``agent``, which is the question's or an attempt of that."""

    agent: str
    answered: asyncio.Future[Question]


class Approvals:
    """The questions and the lasting answers of one daemon, on the running loop."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._questions: dict[str, Question] = {}  # open, or with an answer that was not used yet
        self._askers: dict[str, _Asker] = {}  # of questions whose asker waits
        self._remembered: dict[str, Remembered] = {}
        self._changes = Feed[Question](_CHANGES)
        self._changed = asyncio.Event()  # at the next change; each change has its own
        for text in store.approvals(is_rule=False):
            with suppress(ValueError, TypeError, KeyError):  # of another version
                question = Question.from_dict(json.loads(text))
                self._questions[question.id] = question
        for text in store.approvals(is_rule=True):
            with suppress(ValueError, TypeError, KeyError):
                given = json.loads(text)
                words, is_prefix = given["rule"]
                rule = Remembered(**{**given, "rule": Rule(tuple(map(str, words)), bool(is_prefix))})
                self._remembered[rule.id] = rule

    # -- asking

    def accepted_before(self, agent: str, digest: str) -> Remembered | None:
        """The answer for the agent's session that covers this request, if there is one."""
        found = (one for one in self._remembered.values() if one.agent == agent and one.digest == digest != "")
        return next(found, None)

    def rules_of(self, agent: str) -> list[Rule]:
        """The remembered rules of the agent."""
        return [one.rule for one in self._remembered.values() if one.agent == agent and one.rule is not None]

    async def ask(self, new: Question, asker: str, announce: Callable[[Question], object]) -> Question:
        """Wait for the answer to a question, and return the question with it. ``announce`` is called before.

        ``asker``: the agent whose session waits, which is that of the question, or of an attempt.

        An equal question that has lost its asker is asked again under its own id, and may have its answer already.
        """
        question = self.open(new)
        announce(question)
        if question.state == "open":
            answered: asyncio.Future[Question] = asyncio.get_running_loop().create_future()
            self._askers[question.id] = _Asker(asker, answered)
            try:
                left = None if question.until is None else max(0.0, question.until - time.time())
                await asyncio.wait([answered], timeout=left)
            finally:
                del self._askers[question.id]
            question = answered.result() if answered.done() else question.expired()
        if question.state != "accepted":
            self._settle(question)
        return question

    def open(self, new: Question) -> Question:
        """Open a question whose asker will come later. An equal one that waits for its asker is that one."""
        self._drop_old()
        for one in self._questions.values():
            if (one.agent, one.digest) == (new.agent, new.digest) and one.id not in self._askers:
                until = new.until if one.state == "open" else one.until
                return self._put(replace(one, request=new.request, until=until))
        if (waiting := len(self.waiting(new.agent))) >= _MOST:
            raise InvalidRequest(f"{waiting} questions of agent {new.agent!r} wait for a person: answer or cancel some")
        while (id := secrets.token_hex(3)) in self._questions:
            pass
        return self._put(replace(new, id=id))

    def withdraw(self, request: str) -> None:
        """Note that the asker does not want its question answered any more."""
        for one in tuple(self._questions.values()):
            if one.request == request:
                self._settle(replace(one, state="cancelled", reason="its caller has cancelled it"))

    def take(self, question: Question) -> str:
        """Use the yes to a question: its command is about to begin. Returns why it must not; "" if it may."""
        if (found := self._questions.get(question.id)) is not None:
            self._settle(found)
        if question.is_over(time.time()):
            return f"{question.accepted_late}: call again when the session is free, or with a longer patience="
        used = "the yes to this question was used by another call of the same command: call again to ask anew"
        return used if found is None else ""

    def asked_by(self, request: str) -> Question | None:
        """The question of a request whose command has not begun, if there is one."""
        return next((one for one in self._questions.values() if one.request == request), None)

    def has_asked(self, agent: str) -> bool:
        """Whether a question of the agent is open, or has an answer that was not used yet; or an attempt asks."""
        self._drop_old()
        return any(self._is_of(agent, one) for one in self._questions.values())

    def _is_of(self, agent: str, question: Question) -> bool:
        asker = self._askers.get(question.id)
        return agent == question.agent or (asker is not None and agent == asker.agent)

    def agent_of(self, id: str) -> str:
        """The agent that asks a question; "" if there is none with that id."""
        return found.agent if (found := self._questions.get(id)) is not None else ""

    # -- answering

    def answer(
        self, id: str, decision: str, by: Answerer, reason: str, text: Callable[[str], str], prefix: str = ""
    ) -> Question:
        """Answer a question. Raises InvalidRequest if there is none that waits. ``text``: masks secrets.

        ``prefix``: the first words of a rule, as bash reads them.
        """
        self._drop_old()
        if (found := self._questions.get(id)) is None:
            before = next((one for one in reversed(self._changes.after(0)[1]) if one.id == id), None)
            found = before if before is not None and before.state != "open" else None
        if found is None:
            raise InvalidRequest(f"no question {id!r:.40} waits here: {_TO_ANSWER}")
        question = found.answered(decision, by, time.time(), text(reason), _words(prefix))
        if decision == "accept_session":
            self._remember(Remembered("", question.agent, question.command, time.time(), digest=question.digest))
        for rule in question.accepts if decision == "accept_rule" else ():
            if rule not in self.rules_of(question.agent):
                self._remember(Remembered("", question.agent, str(rule), time.time(), rule))
        self._put(question)
        self._wake(question)
        return question

    def _wake(self, question: Question) -> None:
        """Give an answered question to its asker, if that waits here."""
        if (asker := self._askers.get(question.id)) is not None and not asker.answered.done():
            asker.answered.set_result(question)

    def _remember(self, new: Remembered) -> None:
        while (id := secrets.token_hex(3)) in self._remembered:
            pass
        self._remembered[id] = made = replace(new, id=id)
        if made.rule:
            self._store.put_approval(id, made.agent, True, json.dumps(asdict(made)))

    def remembered(self) -> list[Remembered]:
        """The answers that last, the oldest first."""
        return sorted(self._remembered.values(), key=lambda one: one.at)

    def revoke(self, id: str) -> None:
        """Forget an answer that lasts. Raises InvalidRequest if there is none with that id."""
        if self._remembered.pop(id, None) is None:
            raise InvalidRequest(f"no rule {id!r:.40} is remembered: `shellsession approvals rules` lists them")
        self._store.drop_approval(id)

    # -- the ends of sessions and agents

    def end_session(self, agent: str) -> None:
        """Cancel the questions of the agent, and forget the answers for its session."""
        for one in tuple(self._questions.values()):
            if self._is_of(agent, one):
                self._settle(replace(one, state="cancelled", reason="the session was closed"))
        for answer in tuple(self._remembered.values()):
            if answer.agent == agent and answer.digest:
                del self._remembered[answer.id]

    def forget(self, agent: str) -> bool:
        """Forget all of an agent. True if there was anything."""
        known = len(self._questions) + len(self._remembered)
        self.end_session(agent)
        self._remembered = {id: one for id, one in self._remembered.items() if one.agent != agent}
        self._store.forget_approvals(agent)
        return len(self._questions) + len(self._remembered) < known

    @property
    def agents(self) -> set[str]:
        """The agents that have questions or rules."""
        return {one.agent for one in self._questions.values()} | {one.agent for one in self._remembered.values()}

    # -- showing

    def waiting(self, agent: str | None = None) -> list[Question]:
        """The open questions, of one agent or of all, the oldest first."""
        self._drop_old()
        found = (one for one in self._questions.values() if one.state == "open" and agent in (None, one.agent))
        return sorted(found, key=lambda one: one.asked)

    async def changes(self, since: int) -> tuple[int, list[Question]]:
        """The questions that have changed after that number, once there are any; and the number of the last change."""
        while self._changes.last == since:
            await self._changed.wait()
        return self._changes.last, list({one.id: one for one in self._changes.after(since)[1]}.values())

    @property
    def number(self) -> int:
        """The number of the last change."""
        return self._changes.last

    # -- keeping

    def _put(self, question: Question) -> Question:
        self._questions[question.id] = question
        self._store.put_approval(question.id, question.agent, False, json.dumps(question.to_dict()))
        self._tell(question)
        return question

    def _settle(self, question: Question) -> None:
        """Keep a question no longer."""
        if (before := self._questions.pop(question.id, None)) is not None:
            self._store.drop_approval(question.id)
            if question != before:
                self._tell(question)
        self._wake(question)

    def _drop_old(self) -> None:
        now = time.time()
        for one in tuple(self._questions.values()):
            if one.is_over(now) and one.id not in self._askers:
                self._settle(one.at(now))

    def _tell(self, question: Question) -> None:
        self._changes.append(question)
        self._changed.set()
        self._changed = asyncio.Event()


def _words(text: str) -> Words:
    """The words of a command. Raises InvalidRequest if the text is not one plain command."""
    from ...policy.proposals import plain  # see ``_judged``

    if len(found := (plain(text) if text else None) or [()]) > 1 or (text and not found[0]):
        raise InvalidRequest(
            f"{text!r:.200} is not the beginning of one plain command: name the first words of the rule"
        )
    return found[0]


def described(question: Question) -> dict[str, Any]:
    """A question for clients."""
    found = question.to_dict()
    for name in ("digest", "request"):
        del found[name]
    return {**found, "proposal": question.proposal}
