"""``Workflow``: many steps in one shell, run in a session of any kind."""

from __future__ import annotations

import os
from collections.abc import Coroutine, Mapping, Sequence
from os import PathLike
from pathlib import Path
from typing import Any, Final, Self, TypedDict, Unpack, overload

from ..daemon.client.remote import Remote
from ..errors import InvalidRequest
from ..models import path_text
from ..signatures import LoopSession, ThreadSession
from . import markdown
from .drivers import adrive, drive
from .loading import Fault, invalid, loads
from .model import Definition
from .report import Report
from .runner import Asked, Durability, OnEvent, Runner

_MARKDOWN: Final = (".md", ".markdown")


class How(TypedDict, total=False):
    """The options of ``Workflow.run``, by name."""

    inputs: Mapping[str, str] | None
    secrets: Mapping[str, str] | None
    on_event: OnEvent | None
    only: Sequence[str]
    begin: str | None
    until: str | None
    durable: bool
    resume: bool
    rerun: str | None
    skip: str | None
    force: bool


class Workflow(Definition):
    """Steps that run one after the other in one shell, each judged by its status and by what it must print.

    ``Workflow(steps=[Step(run="make"), ...])`` makes one in Python; ``Workflow.load(path)`` reads one from a file. The
    fields are those of ``Definition``.
    """

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Self:
        """Read a workflow from a file in YAML or, if its name ends with ``.md``, in Markdown.

        Raises InvalidWorkflow, whose message has a line for each mistake: the file, the line, the field, and what is
        allowed. Raises OSError, and MissingExtra without the extra ``workflow``.
        """
        if not (name := path_text(path)):
            raise InvalidRequest(f"path must be the path of a file, not {path!r:.100}")
        data = Path(name).read_bytes()
        try:
            text = data.decode("utf-8-sig")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            raise invalid(name, [Fault(line, f"the file must be UTF-8: {error}")]) from None
        return cls.loads(text, name)

    @classmethod
    def loads(cls, text: str, path: str = "<text>") -> Self:
        """As ``load``, from a text. ``path``: what messages call it; the kind of text is that of its name."""
        return markdown.loads(text, path, cls) if path.endswith(_MARKDOWN) else loads(text, path, cls)

    @overload
    def run(self, session: ThreadSession[Any], **how: Unpack[How]) -> Report: ...
    @overload
    def run(self, session: LoopSession[Any], **how: Unpack[How]) -> Coroutine[Any, Any, Report]: ...
    def run(
        self,
        session: Any,
        *,
        inputs: Mapping[str, str] | None = None,
        secrets: Mapping[str, str] | None = None,
        on_event: OnEvent | None = None,
        only: Sequence[str] = (),
        begin: str | None = None,
        until: str | None = None,
        durable: bool = False,
        resume: bool = False,
        rerun: str | None = None,
        skip: str | None = None,
        force: bool = False,
    ) -> Any:
        """Run the steps in a session, and return the report. With an asyncio session, await it.

        * ``inputs``: values by name. ``secrets``: likewise; the default is the environment of this process.
        * ``on_event``: called with each event of ``workflow.report`` as it happens; with an asyncio session it may be a
          coroutine function. An error that it raises ends the workflow.
        * ``only``: these steps alone. ``begin``, ``until``: the first and the last one. A step is named by its id, its
          name or its number; those of ``finally`` run also with the latter two.

        A step that fails is no error: ``report.ok`` is False, and ``report.failed`` has the steps. Ctrl-C, or
        cancelling the task, ends the running step; the steps of ``finally`` run, and then the exception is raised.

        With a session of a daemon:

        * ``durable``: keep a journal of the run, and the state of the shell after each step, in the daemon. Its
          policy must have the workflow's secrets: ``connect(..., policy=Policy(secrets=[...]))``.
        * ``resume``: continue a durable run that has failed or whose process has died, in the session of the same
          agent. It begins at the step that has failed, with the shell of that moment. A step that still runs is joined,
          and one that has ended meanwhile is not run again.
        * ``rerun``, ``skip``: the step at which the run has stopped, to run it again or to skip it. Without them,
          OutcomeUnknown is raised if nobody knows how it has ended.
        * ``force``: resume although steps that are done, or inputs, have changed since.

        Raises InvalidWorkflow before anything runs.
        """
        given = {name: os.environ[name] for name in self.secrets if name in os.environ} if secrets is None else secrets
        asked = Asked(dict(inputs or {}), dict(given), tuple(only), begin, until)
        if not isinstance(session, ThreadSession | LoopSession):
            raise InvalidRequest(f"session must be a session, not {type(session).__name__}")
        inner: Any = session
        durability = None
        if durable or resume:
            if not isinstance(session, Remote):
                raise InvalidRequest("durable and resume must be used with a session of a daemon: connect()")
            durability = Durability(resume, rerun, skip, force)
        runner = Runner(self, asked, on_event, inner.secrets, durability, getattr(session, "agent", ""))
        if isinstance(session, LoopSession):
            return adrive(runner.machine(), session)
        return drive(runner.machine(), session)
