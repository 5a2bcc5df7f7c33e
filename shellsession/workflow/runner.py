"""The machine of a workflow: what to run in the session, step by step, and what that makes of each step.

It does no I/O: it yields what a driver carries out (see ``drivers``), and reads no clock but the monotonic one.
"""

from __future__ import annotations

import re
import shlex
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from operator import attrgetter, methodcaller
from typing import Any, Final, Literal, NamedTuple

from ..daemon.client import checkpoint
from ..errors import InvalidRequest, InvalidWorkflow, KeyConflict, OutcomeUnknown, ShellSessionError
from ..models import Result
from ..policy.secrets import Secrets
from ..search import TOO_SLOW, SearchTooSlow, search
from ..text import clean
from .drivers import Do, Machine, Pause
from .expression import Name, Value, condition, filled, holds
from .journal import Journal, Moved
from .model import Definition, Expect, Ready, Step
from .report import (
    Event,
    Outcome,
    Report,
    StepEnded,
    StepOutput,
    StepReport,
    StepRetried,
    StepStarted,
    WorkflowEnded,
    WorkflowStarted,
    shortened,
)
from .transcript import difference

OnEvent = Callable[[Event], Any]
_PIPEFAIL: Final = "set -o pipefail; "
_NO_PIPEFAIL: Final = "set +o pipefail"
# How the helpers of a step are run: what the session's defaults say does not concern them.
_HELPER: Final[Mapping[str, Any]] = {"tty": False, "stdin": None, "on_timeout": "interrupt", "timeout": 60.0}
# A line that is longer than this is reported in pieces.
_LINE: Final = 1 << 13
# A secret of at most this many characters is found in such a line.
_REACH: Final = 1 << 12
_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 0.5
# Seconds that a background step has to end after SIGTERM.
_GRACE: Final = 5.0
_NOT_SELECTED: Final = "not selected"
_BY_CALLER: Final = "skipped by the caller"
_EARLIER: Final = "an earlier step failed"
_ENDED: Final = "the run was ended"
_SWITCHED_OFF: Final = "it is not to be run"
_SHELL_LOST: Final = "the shell that the steps share is lost"
_EXIT: Final = re.compile(r"\bexit\b")
_EXIT_HINT: Final = "`exit` ends the shell that the steps share: use `return`, or isolated: true"


class Asked(NamedTuple):
    """What the caller of a workflow wants.

    ``inputs``, ``secrets``: the values. ``only``: these steps alone. ``begin``, ``until``: the first and the last one.
    Steps are named by their id, their name or their number.
    """

    inputs: Mapping[str, str] = {}
    secrets: Mapping[str, str] = {}
    only: Sequence[str] = ()
    begin: str | None = None
    until: str | None = None


class Durability(NamedTuple):
    """How a run outlives its process.

    ``resume``: continue a run that has stopped. ``rerun``, ``skip``: the step whose outcome is unknown. ``force``: also
    if steps that are done have changed since.
    """

    resume: bool = False
    rerun: str | None = None
    skip: str | None = None
    force: bool = False


class Verdict(NamedTuple):
    """What an attempt of a step has come to."""

    outcome: Outcome
    reason: str = ""
    exit_code: int | None = None
    output: str = ""
    outputs: Mapping[str, str] = {}


_CANCELLED: Final = Verdict("cancelled", "ended by the caller")


class _Background(NamedTuple):
    number: int
    job: Any


def number_of(definition: Definition, wanted: str) -> int:
    """Return the number of the step with that id, name or number. Raises InvalidWorkflow."""
    for number, step in enumerate(definition.all_steps, 1):
        if wanted in (step.id, step.name, str(number)):
            return number
    known = ", ".join(step.id or step.name or str(number) for number, step in enumerate(definition.all_steps, 1))
    raise InvalidWorkflow(f"there is no step {wanted!r:.60}: there are {known}")


def selected(definition: Definition, asked: Asked) -> set[int]:
    """Return the numbers of the steps that are to run. Raises InvalidWorkflow."""
    count = len(definition.steps)
    last = count + len(definition.finally_)
    if asked.only:
        if asked.begin is not None or asked.until is not None:
            raise InvalidWorkflow("`only` must not be given with `from` or `until`")
        return {number_of(definition, one) for one in asked.only}
    begin = 1 if asked.begin is None else number_of(definition, asked.begin)
    until = count if asked.until is None else number_of(definition, asked.until)
    if begin > until:
        raise InvalidWorkflow(f"there is nothing to run: step {begin} comes after step {until}")
    return {*range(begin, until + 1), *range(count + 1, last + 1)}


def given_inputs(definition: Definition, asked: Asked) -> dict[str, str]:
    """Return the value of each input. Raises InvalidWorkflow."""
    for name in asked.inputs:
        if name not in definition.inputs:
            raise InvalidWorkflow(f"there is no input {name!r:.60}: there are {', '.join(definition.inputs) or 'none'}")
    values: dict[str, str] = {}
    for name, one in definition.inputs.items():
        if (value := asked.inputs.get(name)) is not None:
            values[name] = value
        elif one.default is None and one.required:
            raise InvalidWorkflow(f"the input {name!r:.60} must be given: {one.description or 'it has no default'}")
        else:
            values[name] = filled(one.default or "", lambda look: values.get(look[-1], ""))
    return values


class Runner:
    """One run of a workflow. ``machine`` returns its report."""

    def __init__(
        self,
        definition: Definition,
        asked: Asked,
        on_event: OnEvent | None = None,
        known: Secrets | None = None,
        durability: Durability | None = None,
        agent: str = "",
    ) -> None:
        """``known``: secrets of the session. ``durability``: for a session in a daemon. Raises InvalidWorkflow."""
        self._definition, self._on_event, self._asked, self._agent = definition, on_event, asked, agent
        self._selected = selected(definition, asked)
        self._durability = durability
        if durability is not None and len(self._selected) != len(definition.all_steps):
            raise InvalidWorkflow("a run that can be resumed must have all steps: leave out only, begin and until")
        resumes = durability is not None and durability.resume
        self._journal = Journal(definition, asked.inputs) if durability is not None else None
        self._joins = 0  # the step that an earlier process has begun, and whose shell has ended since
        self._inputs = {} if resumes else given_inputs(definition, asked)
        for name in definition.secrets:
            if not asked.secrets.get(name):
                raise InvalidWorkflow(f"the secret {name} must be given: set the variable {name}, or pass secrets=")
        self._secrets = {name: asked.secrets[name] for name in definition.secrets}
        if durability is not None:
            for name, value in self._secrets.items():  # the daemon must mask it in what it keeps
                if known is None or value in known.mask(value):
                    raise InvalidRequest(
                        f"the session must know the secret {name} to keep a run: connect with"
                        " policy=Policy(secrets=[...]) that has its value, or run without durable"
                    )
        self._own = Secrets({}, named=tuple(self._secrets.values()))
        self._known = known
        self._env: dict[str, str] = {}
        if not resumes:
            self._fill_env()
        self._reports: list[StepReport] = []
        self._outputs: dict[str, Mapping[str, str]] = {}  # as they are, by the id of the step
        self._background: list[_Background] = []
        self._succeeded, self._is_lost = True, False
        self._not_restored: tuple[str, ...] = ()
        self._applied = 0
        self._frozen = ""  # the checkpoint of the files that the journal names in the store
        self._begun = time.monotonic()

    def _fill_env(self) -> None:
        for name, value in self._definition.env.items():
            self._env[name] = filled(value, self._look)

    def machine(self) -> Machine[Report]:
        """Run all steps, end those in the background, and return the report."""
        if self._definition.branch is not None:
            yield Do(methodcaller("checkpoints"))  # raises BranchUnavailable before anything runs
        is_same_shell = yield from self._begin()
        name = self._definition.name or self._definition.path
        titles = tuple(self._mask(step.title) for step in self._definition.all_steps)
        fault: BaseException | None = None
        for first, part in ((1, self._definition.steps), (1 + len(self._definition.steps), self._definition.finally_)):
            try:
                if first == 1:
                    started = WorkflowStarted(
                        name=name, titles=titles, agent=self._agent, not_restored=self._not_restored
                    )
                    yield from self._tell(started)
                    for done in self._reports:
                        yield from self._tell(StepEnded(report=done))
                    yield from self._start_again(is_same_shell)
                for number, step in enumerate(part, first):
                    if number > len(self._reports):  # else it was done before this run was resumed
                        yield from self._one(number, step)
            except GeneratorExit:
                raise
            except OutcomeUnknown:  # the journal says what to do, and nothing more may run before that
                raise
            except InvalidWorkflow:  # nothing new has begun: the next resume finds the journal and the shell as now
                yield from self._end_background()
                raise
            except BaseException as error:  # Ctrl-C, a cancelled task, or a mistake of ours: first clean up
                fault = fault or error
                self._succeeded = False
                if self._journal is not None and len(self._reports) < len(self._definition.all_steps):
                    # It has not begun. The steps of finally may change the shell before it does.
                    self._journal.note(len(self._reports) + 1, "failed")
                with suppress(ShellSessionError):
                    yield from self._keep(with_state=False)
                for number in range(len(self._reports) + 1, len(self._definition.steps) + 1):
                    self._skip(number, _EARLIER if isinstance(fault, Exception) else _ENDED)
        yield from self._end_background()
        if self._succeeded and self._definition.branch is not None:
            try:
                self._applied = len((yield Do(lambda session: session.branch.apply())))
            except ShellSessionError as error:
                fault = error
        report = self._report(name, fault)
        yield from self._tell(WorkflowEnded(report=report))
        if fault is not None:
            raise fault
        return report

    def _report(self, name: str, fault: BaseException | None) -> Report:
        outcome: Outcome = "success"
        if fault is not None:
            outcome = "failure" if isinstance(fault, Exception) else "cancelled"
        elif any(one.conclusion == "failure" for one in self._reports):
            outcome = "failure"
        path, duration = self._definition.path, time.monotonic() - self._begun
        steps = tuple(self._reports)
        reason = self._mask(str(fault)) if isinstance(fault, Exception) else ""
        given: dict[str, Any] = {"name": name, "path": path, "outcome": outcome, "duration": duration}
        return Report(**given, steps=steps, applied=self._applied, reason=reason)

    # -- one step

    def _one(self, number: int, step: Step) -> Machine[None]:
        is_last = number > len(self._definition.steps)
        if number not in self._selected:
            self._skip(number, _NOT_SELECTED)
            return
        env = {**self._env, **self._secrets}
        for name, value in step.env.items():
            env[name] = filled(value, lambda name: self._look(name, env))
        if self._is_lost and not is_last:
            self._skip(number, _SHELL_LOST)
            return
        if not self._runs(step, is_last, env):
            is_off = step.if_ is not None and self._succeeded
            reason = "its condition is false" if step.if_ != "false" else _SWITCHED_OFF
            self._skip(number, reason if is_off else _EARLIER)
            if self._succeeded:  # else the run has stopped at an earlier step
                yield from self._keep(with_state=False)
            yield from self._tell(StepEnded(report=self._reports[-1]))
            return
        if self._journal is not None and self._journal.skips(number):
            self._skip(number, _BY_CALLER)
            yield from self._keep(with_state=False)
            yield from self._tell(StepEnded(report=self._reports[-1]))
            return
        begun = time.monotonic()
        tries, most = 0, 1 + (0 if step.retry is None else step.retry.count)
        attempt, verdict = 0, _CANCELLED
        try:
            while verdict.outcome != "success" and tries < most and (is_last or not self._is_lost):
                if tries and step.retry is not None:
                    wait, reason = step.retry.wait or 0.0, self._mask(verdict.reason)
                    yield from self._keep(with_state=False)
                    yield from self._tell(StepRetried(step=number, reason=reason, wait=wait))
                    yield Pause(wait)
                tries, verdict = tries + 1, _CANCELLED
                attempt = tries if self._journal is None else self._journal[number].attempts + 1
                yield from self._tell(StepStarted(step=number, title=self._mask(step.title), attempt=attempt))
                try:
                    verdict = yield from self._attempt(number, step, env)
                finally:
                    if self._journal is not None:
                        self._journal.note(number, "begun", attempts=attempt)
        except OutcomeUnknown:
            raise
        except BaseException:
            self._conclude(number, step, verdict, attempt, time.monotonic() - begun)
            raise
        if self._succeeded and (verdict.outcome == "success" or step.continue_on_error):
            try:
                yield from self._freeze(number + 1)
            except ShellSessionError as error:  # a job that the step has left may still write
                verdict = verdict._replace(outcome="failure", reason=f"its files could not be kept: {error}")
        self._conclude(number, step, verdict, attempt, time.monotonic() - begun)
        yield from self._keep(with_state=self._succeeded)
        yield from self._tell(StepEnded(report=self._reports[-1]))

    def _runs(self, step: Step, is_last: bool, env: Mapping[str, str]) -> bool:
        if step.if_ is None:
            return self._succeeded or is_last
        one = condition(step.if_)
        return holds(one, lambda name: self._look(name, env), self._succeeded or (is_last and not one.judges))

    def _skip(self, number: int, reason: str) -> None:
        self._conclude(number, self._definition.all_steps[number - 1], Verdict("skipped", reason), 0, 0.0)

    def _conclude(self, number: int, step: Step, verdict: Verdict, attempts: int, duration: float) -> None:
        forgiven = verdict.outcome == "failure" and step.continue_on_error and not self._is_lost
        conclusion: Outcome = "success" if forgiven else verdict.outcome
        if conclusion in ("failure", "cancelled"):
            self._succeeded = False
        if step.id is not None:
            self._outputs[step.id] = verdict.outputs
        self._reports.append(
            StepReport(
                step=number,
                id=step.id,
                title=self._mask(step.title),
                line=step.line,
                outcome=verdict.outcome,
                conclusion=conclusion,
                exit_code=verdict.exit_code,
                reason=self._mask(verdict.reason),
                attempts=attempts,
                duration=duration,
                output=shortened(self._mask(verdict.output)),
                outputs={name: self._mask(value) for name, value in verdict.outputs.items()},
            )
        )
        if self._journal is not None and verdict.reason not in (_EARLIER, _ENDED):
            state: Literal["done", "failed"] = "done" if conclusion in ("success", "skipped") else "failed"
            self._journal.note(number, state, report=self._reports[-1])

    def _attempt(self, number: int, step: Step, env: Mapping[str, str]) -> Machine[Verdict]:
        defaults = self._definition.defaults.run
        cwd = step.working_directory or defaults.working_directory
        limit = step.limit or defaults.timeout
        pipefail = (step.shell or defaults.shell) == "bash"
        options: dict[str, Any] = {"tty": False, "merge_stderr": True, "stdin": None, "on_timeout": "interrupt"}
        options |= {"cwd": cwd, "env": env or None}
        if step.background:
            return (yield from self._start(number, step, pipefail, options))
        options |= {"errexit": step.errexit, "isolated": step.isolated}
        if limit is not None:
            options["timeout"] = limit
        result, said = yield from self._run(number, (_PIPEFAIL if pipefail else "") + step.run, options)
        if result is None:
            return Verdict("failure", said)
        if pipefail and not step.isolated and result.state_kept:
            yield Do(methodcaller("run", _NO_PIPEFAIL, **_HELPER))
        verdict = self._judged(step, result, limit)
        if verdict.outcome == "success" and step.outputs:
            return (yield from self._with_outputs(step, verdict))
        return verdict

    def _run(self, number: int, text: str, options: dict[str, Any]) -> Machine[tuple[Result | None, str]]:
        """Run a text, and report its output. Returns its result, or None and why there is none."""
        lines = _Lines(number, self._mask, self._on_event)
        if self._on_event is not None:
            options = {**options, "on_output": lines.feed}
        if self._journal is not None:
            options = {**options, "idempotency_key": self._journal.key(number)}
        try:
            result: Result = yield Do(methodcaller("run", text, **options))
        except OutcomeUnknown as error:
            raise self._unknown(number, str(error)) from None
        except KeyConflict:
            raise self._unknown(number, "it has begun with another text, directory or env") from None
        except ShellSessionError as error:
            return None, str(error)
        finally:
            if rest := lines.rest():
                yield from self._tell(StepOutput(step=number, text=rest))
        if not lines.is_fed and result.stdout:  # it was joined, or has ended before: this is all that it has printed
            yield from self._tell(StepOutput(step=number, text=self._mask(result.stdout)))
        if result.replayed and number == self._joins:
            raise self._unknown(number, "it has ended, and the shell with what it has changed is lost")
        if result.replayed and not result.state_kept:  # the next call says that the shell had ended, and does not run
            yield Do(methodcaller("run", ":", **_HELPER))
        return result, ""

    # -- a run that outlives its process

    def _begin(self) -> Machine[bool]:
        """Begin the journal, or take over that of the process that has stopped, with the shell of that moment.

        Returns whether that process had the same shell.
        """
        if self._journal is None or self._durability is None:
            return False
        if not self._durability.resume:
            yield from self._freeze(1)
            yield from self._keep(with_state=True)
            return False
        data, snapshot = checkpoint.read((yield Do(checkpoint.get)))
        if not data:
            raise InvalidWorkflow(f"agent {self._agent!r} has no run that could be resumed")
        first = self._journal.read(data, self._definition, self._durability.force)
        self._frozen = self._journal.files
        if self._frozen and self._frozen not in (yield from self._checkpoints()):
            raise InvalidWorkflow("the branch of this run was applied or discarded meanwhile: run the file anew")
        self._inputs = given_inputs(self._definition, self._asked._replace(inputs=self._journal.inputs))
        self._fill_env()
        for number in range(1, first):
            if (report := self._journal[number].report) is not None:
                self._reports.append(report.model_copy(update={"step": number, "resumed": True}))
                self._outputs[report.id or ""] = report.outputs
        if first > len(self._definition.all_steps):
            return False
        moved = self._journal.moved(first)
        rerun, skip = self._named(first, moved)
        if moved is not None and not rerun and not skip:
            raise OutcomeUnknown(
                f"step {moved.label} was running or about to run when its process was killed, and the file has changed"
                f" there: look what it has done, and resume with --rerun {moved.label} or --skip {moved.label}"
            )
        is_there, continues = yield Do(lambda session: (not session.opened_here, session.continues))
        joins = self._journal[first].state == "begun" and not rerun and not skip
        is_same_shell = joins and (is_there or continues)
        if not is_same_shell:
            self._joins = first if joins else 0
            if self._journal.files:
                yield Do(methodcaller("rollback", self._journal.files, files_only=True, end_jobs=True))
            if snapshot is not None:
                restored = yield Do(methodcaller("restore", snapshot))
                lacks = [f"{one.kind} {one.name}: it contains a secret" for one in snapshot.left_out]
                lacks += [f"{one.kind} {one.name}: {one.reason}" for one in restored.not_restored]
                self._not_restored = tuple(lacks)
        if moved is not None:
            self._journal.forget(first)
        attempts = self._journal[first].attempts
        is_open = rerun and moved is None and self._journal[first].state == "begun"  # that attempt has perhaps begun
        self._journal.note(first, "begun", attempts=attempts + is_open)
        number = first if moved is None else moved.number
        if skip and number == first:
            self._skip(first, _BY_CALLER)
        elif skip and number:
            self._journal.skip_later(number)
        yield from self._keep(with_state=False)
        return is_same_shell and is_there

    def _named(self, first: int, moved: Moved | None) -> tuple[bool, bool]:
        """Whether the caller wants to run the step again at which the run has stopped, or to skip it.

        Raises InvalidWorkflow.
        """
        assert self._durability is not None
        if self._durability.rerun is not None and self._durability.skip is not None:
            raise InvalidWorkflow("rerun and skip must not both be given")
        for name in (self._durability.rerun, self._durability.skip):
            if name is None or (moved is not None and name == moved.label):
                continue
            if number_of(self._definition, name) != (first if moved is None else moved.number):
                title = self._definition.all_steps[first - 1].title
                raise InvalidWorkflow(
                    f"only the step at which the run has stopped can be run again or skipped: {first} ({title})"
                )
        return self._durability.rerun is not None, self._durability.skip is not None

    def _start_again(self, is_same_shell: bool) -> Machine[None]:
        """Have each background step that is done run again, unless it still does."""
        if self._journal is None or not self._reports:
            return
        jobs = (yield Do(methodcaller("jobs"))) if is_same_shell else []
        for number in range(1, len(self._reports) + 1):
            step = self._definition.all_steps[number - 1]
            if not step.background or self._reports[number - 1].outcome != "success":
                continue
            text = _in_background(step, (step.shell or self._definition.defaults.run.shell) == "bash")
            job = next((one for one in jobs if one.running and text.startswith(one.command)), None)
            if job is not None:
                jobs.remove(job)
                self._background.append(_Background(number, job))
                continue
            before, self._reports = self._reports, self._reports[: number - 1]
            # It is done, and stays so: it has no key, and what becomes of it now is not noted.
            journal, self._journal = self._journal, None
            try:
                yield from self._one(number, step)
            finally:
                self._journal = journal
                self._reports += before[len(self._reports) :]
            ended = self._reports[number - 1]
            if ended.conclusion != "success":
                raise InvalidWorkflow(f"step {number} ({ended.title}) could not be started again: {ended.reason}")

    def _checkpoints(self) -> Machine[list[str]]:
        return [one.name for one in (yield Do(methodcaller("checkpoints")))]

    def _freeze(self, number: int) -> Machine[None]:
        """Freeze the files with which a step begins."""
        if self._journal is not None and self._definition.branch is not None:
            name = f"workflow {self._journal.run}, step {number}"
            if name in (yield from self._checkpoints()):  # a process made it that was killed before it noted that
                yield Do(methodcaller("drop_checkpoint", name))
            yield Do(methodcaller("checkpoint", name))
            self._journal.files = name

    def _keep(self, with_state: bool) -> Machine[None]:
        """Write the journal, and the state of the shell, to the daemon's store."""
        if self._journal is not None:
            self._journal.begin(len(self._reports) + 1)
            data, secrets = self._journal.to_bytes(), tuple(self._secrets.values())
            yield Do(lambda session: checkpoint.put(session, data, with_state, secrets))
            if self._frozen not in ("", self._journal.files):
                yield Do(methodcaller("drop_checkpoint", self._frozen))
            self._frozen = self._journal.files

    def _unknown(self, number: int, why: str) -> OutcomeUnknown:
        step = self._definition.all_steps[number - 1]
        name = step.id or str(number)
        return OutcomeUnknown(
            f"step {number} ({self._mask(step.title)}): {self._mask(why)}: look what it has done, and resume with"
            f" --rerun {name} or --skip {name}"
        )

    def _judged(self, step: Step, result: Result, limit: float | None) -> Verdict:
        """What the result of a step means."""
        output, reason = self._mask(result.stdout + result.stderr), ""  # masked before a reason has a part of it
        outcome: Outcome = "success"
        fault = fault_of(step.expect, result, clean(output))
        if not result.state_kept:
            self._is_lost = not result.recovered
            if result.outcome == "shell_exited" and result.exit_code == 0 and result.recovered:
                outcome, reason = ("failure", fault) if fault else ("success", result.recovered)
            else:
                hint = f": {_EXIT_HINT}" if _EXIT.search(step.run) else ""
                outcome, reason = "failure", f"{result.reason}{hint}; {result.recovered or _SHELL_LOST}"
        elif result.outcome == "timed_out":
            took = f" of {limit:g} s" if limit is not None else ""
            outcome, reason = "failure", f"the time limit{took} was over"
        elif result.outcome != "exited" or not result.ran:
            outcome, reason = "failure", result.reason or result.outcome
        elif fault:
            outcome, reason = "failure", fault
        return Verdict(outcome, reason, result.exit_code, output)

    def _with_outputs(self, step: Step, verdict: Verdict) -> Machine[Verdict]:
        """Read the variables that are the step's outputs, to the byte."""
        words = " ".join(f'"${{{name}+=}}${{{name}-}}"' for name in step.outputs)
        try:
            result: Result = yield Do(methodcaller("run", f"builtin printf '%s\\0' {words}", **_HELPER))
        except ShellSessionError as error:
            return verdict._replace(outcome="failure", reason=f"outputs: {error}")
        if result.stdout_omitted:
            many = f"outputs: they are {result.stdout_omitted} bytes longer than a call may print (limits.max_output)"
            return verdict._replace(outcome="failure", reason=many)
        values = result.stdout_bytes.decode("utf-8", "surrogateescape").split("\0")
        if not result.ok or len(values) != len(step.outputs) + 1 or any(one and one[0] != "=" for one in values):
            return verdict._replace(outcome="failure", reason=f"outputs: they could not be read: {result!s:.200}")
        for name, value in zip(step.outputs, values, strict=False):
            if not value:
                return verdict._replace(outcome="failure", reason=f"outputs: the step has not set the variable {name}")
        found = {name: value[1:] for name, value in zip(step.outputs, values, strict=False)}
        return verdict._replace(outputs=found)

    # -- steps in the background

    def _start(self, number: int, step: Step, pipefail: bool, options: dict[str, Any]) -> Machine[Verdict]:
        text = _in_background(step, pipefail)
        result, said = yield from self._run(number, text, options)
        if result is None or not result.ok:
            return Verdict("failure", said if result is None else result.reason or f"exit status {result.exit_code}")
        jobs = yield Do(methodcaller("jobs"))
        job = next((one for one in jobs if set(one.pids) & set(result.background)), None)
        if job is None:
            ended: Result = yield Do(methodcaller("run", "wait $!", **_HELPER))
            outcome: Outcome = "failure" if ended.exit_code or step.ready else "success"
            return Verdict(outcome, f"it ended at once, with status {ended.exit_code}", ended.exit_code, result.stdout)
        self._background.append(_Background(number, job))
        reason = "" if step.ready is None else (yield from self._until_ready(step, step.ready, job))
        output = yield _of(job, methodcaller("searched_text"))
        return Verdict("failure" if reason else "success", reason, None, output)

    def _until_ready(self, step: Step, ready: Ready, job: Any) -> Machine[str]:
        """Wait until a background step is ready. Returns why it is not; or ""."""
        until, pause = time.monotonic() + ready.timeout, _FIRST_PAUSE
        while True:
            running = yield _of(job, attrgetter("running"))
            if ready.output is not None:
                text = yield _of(job, methodcaller("searched_text"))
                try:
                    is_ready = found(ready.output, clean(text))
                except SearchTooSlow:
                    return f"ready: to search its output {TOO_SLOW}"
            else:
                check = f"[[ -e {shlex.quote(ready.file)} ]]" if ready.file is not None else _connects(ready.port)
                cwd = step.working_directory or self._definition.defaults.run.working_directory
                result: Result = yield Do(methodcaller("run", check, cwd=cwd, isolated=True, **_HELPER))
                is_ready = result.ok
            if is_ready and running:
                return ""
            if not running:
                status = yield _of(job, attrgetter("exit_code"))
                return f"it ended{'' if status is None else f' with status {status}'} before it was ready"
            if time.monotonic() >= until:
                return f"it was not ready after {ready.timeout:g} s"
            yield Pause(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _end_background(self) -> Machine[None]:
        """End the background steps, the last one first, and report what they have printed."""
        for number, job in reversed(self._background):
            try:
                ended_itself = not (yield _of(job, attrgetter("running")))
                status = (yield _of(job, attrgetter("exit_code"))) if ended_itself else None
                if not ended_itself:
                    yield from _terminate(job)
                output = yield _of(job, methodcaller("searched_text"))
            except ShellSessionError:  # the session is gone, and its processes with it
                continue
            before = self._reports[number - 1]
            changes: dict[str, Any] = {"output": shortened(self._mask(output))}
            if ended_itself and not before.reason:
                changes["reason"] = f"it ended by itself{'' if status is None else f', with status {status}'}"
            self._reports[number - 1] = before.model_copy(update=changes)

    # -- values, events, masks

    def _look(self, name: Name, env: Mapping[str, str] | None = None) -> Value:
        match name:
            case ("env", one):
                return (self._env if env is None else env).get(one)
            case ("inputs", one):
                return self._inputs.get(one)
            case ("steps", id, "outputs", one):
                return self._outputs.get(id, {}).get(one)
            case ("steps", id, one):
                return next((str(getattr(report, one)) for report in self._reports if report.id == id), None)
        return None

    def _tell(self, event: Event) -> Machine[None]:
        if (on_event := self._on_event) is not None:
            try:
                yield Do(lambda _: on_event(event))
            except Exception:  # it raises, and so ends the workflow: it does not hear of the cleanup
                self._on_event = None
                raise

    def _mask(self, text: str) -> str:
        if self._secrets:
            text = self._own.mask(text)
        return text if self._known is None else self._known.mask(text)


class _Lines:
    """Turns the output of a step into events: whole lines, so that no secret is split."""

    def __init__(self, number: int, mask: Callable[[str], str], on_event: OnEvent | None) -> None:
        self._number, self._mask, self._on_event = number, mask, on_event
        self._pending, self.is_fed = b"", False

    def feed(self, _: object, data: bytes) -> Any:
        """Report the lines that are complete."""
        self._pending, self.is_fed = self._pending + data, True
        if self._on_event is None:
            return None
        if end := self._pending.rfind(b"\n") + 1:
            whole, self._pending = self._pending[:end], self._pending[end:]
            text = self._mask(whole.decode("utf-8", "replace"))
        elif len(self._pending) > _LINE:  # a secret may have begun: its end follows
            masked = self._mask(self._pending.decode("utf-8", "surrogateescape"))
            text = masked[:-_REACH].encode("utf-8", "surrogateescape").decode("utf-8", "replace")
            self._pending = masked[-_REACH:].encode("utf-8", "surrogateescape")
        else:
            return None
        return self._on_event(StepOutput(step=self._number, text=text))

    def rest(self) -> str:
        """What is left at the end."""
        return self._mask(self._pending.decode("utf-8", "replace"))


def _of(job: Any, ask: Callable[[Any], Any]) -> Do:
    """Ask a job, not the session."""
    return Do(lambda _: ask(job))


def _in_background(step: Step, pipefail: bool) -> str:
    flags = ("e" if step.errexit else "") + ("o pipefail" if pipefail else "")
    return f"( {f'set -{flags}; ' if flags else ''}eval -- {shlex.quote(step.run)} ) &"


def _terminate(job: Any) -> Machine[None]:
    """End a job: SIGTERM, and after a while SIGKILL."""
    until, pause, told = time.monotonic() + _GRACE, _FIRST_PAUSE, set[int]()
    while (yield _of(job, attrgetter("running"))) and time.monotonic() < until:
        # A child is one of the job's processes once its parent has ended.
        if pids := set((yield _of(job, methodcaller("alive")))) - told:
            yield Do(methodcaller("run", ["kill", "-TERM", *map(str, pids)], **_HELPER))
            told |= pids
        yield Pause(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)
    yield _of(job, methodcaller("kill"))


def _connects(port: int | None) -> str:
    return f"(: <>/dev/tcp/127.0.0.1/{port}) 2>/dev/null"


def found(pattern: str, text: str) -> bool:
    """Return whether a text has a match. Lines end with the text's own newlines."""
    return search(re.compile(pattern, re.MULTILINE), text) is not None


def fault_of(expect: Expect, result: Result, output: str) -> str:
    """Return what a step has not done that was expected of it; or ""."""
    if expect.exit_code not in (None, result.exit_code):
        wanted = f", not {expect.exit_code}" if expect.exit_code else ""
        return f"exit status {result.exit_code}{wanted}"
    try:
        for text in expect.output_contains:
            if text not in output:
                return f"the output does not contain {text!r:.200}"
        if expect.output_matches is not None and not found(expect.output_matches, output):
            return f"the output does not match {expect.output_matches!r:.200}"
        return "" if expect.output is None else difference(expect.output, output)
    except SearchTooSlow:
        return f"to search the output for what is expected {TOO_SLOW}"
