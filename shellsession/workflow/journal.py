"""The journal of a run: which steps are done, so that another process can continue. Pure.

    (none) --begin--> begun --fail--> failed --begin again--> begun
                        \\--finish--> done

It is kept in the daemon beside the state of the shell after the last step that is done. A command has a key of its step
and its attempt. So while a step is begun, the process that continues joins it, or takes its result.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from typing import Any, Final, Literal, NamedTuple

from pydantic import BaseModel, ConfigDict, ValidationError

from ..errors import InvalidWorkflow
from .model import Definition, Step
from .report import StepReport

_VERSION: Final = 1
# Characters of a step's output that the journal keeps.
_OUTPUT: Final = 1000


class Entry(BaseModel):
    """What is known of one step. ``attempts``: those that have ended.

    ``digest``: see ``digests``. ``text``: that of what it does alone. ``label``: how the caller names it.
    """

    model_config = ConfigDict(frozen=True)

    digest: str = ""
    text: str = ""
    label: str = ""
    state: Literal["begun", "failed", "done"] = "begun"
    attempts: int = 0
    report: StepReport | None = None


class _Kept(BaseModel):
    version: Literal[1]
    run: str
    path: str
    inputs: Mapping[str, str]
    entries: Mapping[int, Entry]
    skipped: str = ""
    files: str = ""


class Moved(NamedTuple):
    """A step that was begun, and that the file has no more at its place. ``number``: where it is; 0 if nowhere."""

    label: str
    number: int


class Journal:
    """The entries of one run, by the numbers of its steps."""

    def __init__(self, definition: Definition, inputs: Mapping[str, str]) -> None:
        self._digests, self._path, self.inputs = digests(definition), definition.path, dict(inputs)
        self._texts = [_digest(_text_of(step, {"name", "id"})) for step in definition.all_steps]
        self._labels = [step.id or str(number) for number, step in enumerate(definition.all_steps, 1)]
        self._skipped = ""  # the text of a step that is to be skipped
        self.files = ""  # the checkpoint of the files after the last step that is done
        self.entries, self.run = dict[int, Entry](), secrets.token_hex(6)

    def __getitem__(self, number: int) -> Entry:
        return self.entries.get(number, Entry())

    def key(self, number: int) -> str:
        """The key of the next attempt of a step."""
        return f"{self.run}-{number}-{self[number].attempts + 1}"

    def note(self, number: int, state: Literal["begun", "failed", "done"], **changes: Any) -> None:
        """Note what has become of a step."""
        changes |= {"state": state, "digest": self._digests[number - 1]}
        changes |= {"text": self._texts[number - 1], "label": self._labels[number - 1]}
        self.entries[number] = self[number].model_copy(update=changes)

    def begin(self, number: int) -> None:
        """Note that a step is the next one, if there is one."""
        if number <= len(self._digests) and self[number].state == "begun":
            self.note(number, "begun")

    def moved(self, first: int) -> Moved | None:
        """Return the step that was begun if the file has another one at its place."""
        entry = self[first]
        if first > len(self._texts) or entry.state != "begun" or entry.text in ("", self._texts[first - 1]):
            return None
        places = range(first, len(self._texts) + 1)
        same = [number for number in places if self._texts[number - 1] == entry.text]
        named = [number for number in places if self._labels[number - 1] == entry.label]
        return Moved(entry.label, next(iter((*same, *named)), 0))

    def forget(self, number: int) -> None:
        """Forget a step: another one has its place, and needs keys of its own."""
        self.entries.pop(number, None)
        self.run = secrets.token_hex(6)

    def skip_later(self, number: int) -> None:
        """Have this step skipped when it is reached, also by another process."""
        self._skipped = self._texts[number - 1]

    def skips(self, number: int) -> bool:
        """Whether this is the step that is to be skipped. It is so once."""
        if is_it := self._texts[number - 1] == self._skipped:
            self._skipped = ""
        return is_it

    def to_bytes(self) -> bytes:
        """Return the journal as the daemon keeps it."""
        entries = {number: one.model_dump(mode="json") for number, one in self.entries.items()}
        for one in entries.values():
            if one["report"] is not None:
                one["report"]["output"] = one["report"]["output"][-_OUTPUT:]
        fields = {"version": _VERSION, "run": self.run, "path": self._path, "inputs": self.inputs, "entries": entries}
        fields |= {"skipped": self._skipped, "files": self.files}
        return json.dumps(fields).encode()

    def read(self, data: bytes, definition: Definition, force: bool) -> int:
        """Take over what an earlier process has noted. Returns the number of the first step that is not done.

        Raises InvalidWorkflow, also for a step that is done and has another text now, and for an input that has another
        value, unless ``force``.
        """
        try:
            kept = _Kept.model_validate_json(data)
        except ValidationError:
            raise InvalidWorkflow("this run cannot be resumed: another version of shellsession has begun it") from None
        before = {name: kept.inputs.get(name, one.default) for name, one in definition.inputs.items()}
        for name, value in self.inputs.items():
            if value != before.get(name, value) and not force:
                raise InvalidWorkflow(
                    f"the input {name!r:.60} has another value than when the run began: force it (--force), or run the"
                    " file anew"
                )
        self.inputs, self._skipped = {**kept.inputs, **self.inputs}, kept.skipped
        self.files = kept.files
        first = 1
        while (entry := kept.entries.get(first, Entry())).state == "done" and first <= len(self._digests):
            if entry.digest != self._digests[first - 1] and not force:
                step = definition.all_steps[first - 1]
                raise InvalidWorkflow(
                    f"{definition.path}:{step.line}: step {first} ({step.title}), or what comes before it, has changed"
                    " since it ran: force it (--force), or run the file anew"
                )
            first += 1
        # What comes after it ran because it had failed. It runs again, with other keys. They are those of another run,
        # as the process may have been killed in such a step before it noted anything of that.
        if entry.state != "failed":
            self.run = kept.run
        self.entries = {
            number: one if number <= first else Entry(attempts=one.attempts) for number, one in kept.entries.items()
        }
        return first


def digests(definition: Definition) -> tuple[str, ...]:
    """Return a digest for each step, of what it does and of all that comes before it."""
    shared = definition.model_dump(mode="json", include={"env", "defaults", "secrets"})
    shared["inputs"] = {name: one.default for name, one in definition.inputs.items()}
    found, before = [], json.dumps(shared, sort_keys=True)
    for step in definition.all_steps:
        before = _digest(f"{before}\n{_text_of(step, {'name'})}")
        found.append(before)
    return tuple(found)


def _text_of(step: Step, without: set[str]) -> str:
    return json.dumps(step.model_dump(mode="json", exclude=without), sort_keys=True)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
