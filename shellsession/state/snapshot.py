"""``Snapshot``: the state of a bash at one moment, as a frozen value."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, Final

from ..errors import InvalidRequest
from ..models import Record
from .values import Function, Omission, Variable

# Variables with these names are secret.
_SECRET_NAMES: Final = ("*TOKEN*", "*SECRET*", "*PASSWORD*", "*PASSWD*", "*KEY*")

# What a snapshot may have where our text cannot quote it: names of variables and options, attributes, subscripts.
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*+")
_OPTION: Final = re.compile(r"[a-z][a-z0-9_-]*+")
_ATTRIBUTES: Final = re.compile(r"[A-Za-z]*+")
_SUBSCRIPT: Final = re.compile(r"[0-9]++")


def is_name(text: str) -> bool:
    """Return whether this can be the name of a variable."""
    return _NAME.fullmatch(text) is not None


def check_patterns(exclude: Sequence[str]) -> tuple[str, ...]:
    """Return the patterns of names. Raises InvalidRequest."""
    if isinstance(exclude, str) or not all(isinstance(one, str) for one in exclude):
        raise InvalidRequest("exclude must be a sequence of patterns of names, such as ['*TOKEN*']")
    return tuple(exclude)


def check_secrets(secrets: Sequence[str]) -> tuple[str, ...]:
    """Return the secret values. Raises InvalidRequest, which shows none of them."""
    if isinstance(secrets, str) or not all(isinstance(one, str) and one for one in secrets):
        raise InvalidRequest("secrets must be a sequence of texts, none of them empty")
    return tuple(secrets)


class _Empty(Mapping[str, Any]):
    """An empty mapping that can be the default of a field: it has a hash."""

    def __getitem__(self, key: str) -> Any:
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def __hash__(self) -> int:
        return 0


EMPTY: Final = _Empty()


class Snapshot(Record, unshown=("facts",)):
    """The state of a bash: ``Session.snapshot()`` takes one, and ``Session(snapshot=...)`` starts with it.

    * ``cwd``; ``directories``: the rest of the directory stack, the top first.
    * ``variables``, ``functions``, ``aliases``, ``traps`` and ``completions``, by name. ``completions`` has the words
      of each ``complete``.
    * ``options``: what ``set -o`` has on. ``shopts``: what ``shopt`` has on. ``disabled``: builtins that are disabled.
    * ``arguments``: the positional parameters. ``umask``. ``limits``: the soft limits, by the names of ``resource``.
    * ``left_out``: what ``exclude`` and ``secrets`` matched, or what a file must not have.
    * ``inherited``: variables that the environment at the start of the session had, with the same value. ``removed``:
      variables that it had, and that are gone. ``confined``: the names of the session's rules ("sandbox", "policy").
    * ``private``: what the session's rules hide or mask. A file leaves it out.
    * ``facts``: what the engine knew about the shell.
    """

    cwd: str = "/"
    directories: tuple[str, ...] = ()
    variables: Mapping[str, Variable] = EMPTY
    functions: Mapping[str, Function] = EMPTY
    aliases: Mapping[str, str] = EMPTY
    options: frozenset[str] = frozenset()
    shopts: frozenset[str] = frozenset()
    traps: Mapping[str, str] = EMPTY
    completions: tuple[tuple[str, ...], ...] = ()
    disabled: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    umask: int = 0o022
    limits: Mapping[str, int] = EMPTY
    inherited: frozenset[str] = frozenset()
    removed: frozenset[str] = frozenset()
    left_out: tuple[Omission, ...] = ()
    confined: frozenset[str] = frozenset()
    private: frozenset[Omission] = frozenset()
    facts: Mapping[str, Any] = EMPTY
    at: float = 0.0

    def __repr__(self) -> str:
        sizes = f"{len(self.variables)} variables, {len(self.functions)} functions, {len(self.aliases)} aliases"
        return f"<{type(self).__name__} of {self.cwd}: {sizes}>"

    def __hash__(self) -> int:
        return hash((self.cwd, self.at, *self.variables, *self.functions))

    def __reduce__(self) -> tuple[Any, ...]:
        return self.from_bytes, (self.to_bytes(),)

    def to_bytes(self) -> bytes:
        """Return the whole snapshot as bytes, secrets included."""
        from .snapshot_file import encoded  # rarely needed

        return encoded({name: getattr(self, name) for name in self._types})

    @classmethod
    def from_bytes(cls, data: bytes) -> Snapshot:
        """Return the snapshot that ``to_bytes`` has made these of. Raises SnapshotDamaged and SnapshotTooNew."""
        from .snapshot_file import decoded  # rarely needed

        return cls(**decoded(data))

    def check(self) -> None:
        """Raise InvalidRequest if no bash can have this state. A wrong name could run as a command."""
        wrong = [name for name in self.variables if not is_name(name)]
        wrong += [name for name in (*self.options, *self.shopts) if not _OPTION.fullmatch(name)]
        for one in self.variables.values():
            subscripts = one.value if isinstance(one.value, Mapping) and "a" in one.attributes else ()
            wrong += [text for text in subscripts if not _SUBSCRIPT.fullmatch(text)]
            wrong += [] if _ATTRIBUTES.fullmatch(one.attributes) else [one.attributes]
            if isinstance(one.value, Mapping) and {"a", "A"}.isdisjoint(one.attributes):
                wrong.append("an array without its attribute")
        if wrong:
            raise InvalidRequest(f"snapshot must have names that bash accepts, not {wrong[0]!r:.100}")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the snapshot to a file with mode 0600, as a whole or not at all. Raises OSError.

        The file has no variables that a later session gets from its environment, and no secrets: neither what the
        session's ``policy`` and ``redact`` hide or mask, nor variables whose names say that they are secret (TOKEN,
        SECRET, PASSWORD, KEY), nor values with a password in a URL, nor what contains one of these values. ``left_out``
        of the loaded snapshot names them.
        """
        from .snapshot_file import write  # rarely needed

        write(path, self.for_file().to_bytes())

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Snapshot:
        """Return the snapshot in a file. Raises SnapshotDamaged, SnapshotTooNew, InvalidRequest and OSError.

        A restored snapshot defines functions and variables, so the file must belong to this user or to root, and
        nobody else may be able to write to it.
        """
        from .snapshot_file import read  # rarely needed

        return cls.from_bytes(read(path))

    def for_file(self) -> Snapshot:
        """Return the snapshot without what ``save`` leaves out."""
        from ..policy.secrets import Secrets, secret_values  # rarely needed

        values = {thing.name: "\n".join(texts) for thing, texts in self.items() if thing.kind == "variable"}
        copied = Secrets(values)  # a secret may also be in another variable, or in a function: `H="Bearer $TOKEN"`
        variables = {name: one for name, one in self.variables.items() if name not in self.inherited}
        mine = self.__replace__(variables=MappingProxyType(variables))
        named = {one for one in mine.matching(_SECRET_NAMES) if one.kind == "variable"}
        found = mine.matching(is_secret=lambda text: any(secret_values({"": text})) or copied.mask(text) != text)
        gone = {Omission("variable", name) for name in self.inherited}
        return mine.without(named | found | (self.private - gone))

    def moved(self, cwd: str) -> Snapshot:
        """Return the snapshot with another directory, and with its name in PWD, unless a user has set that."""
        variables, pwd = self.variables, self.variables.get("PWD")
        if pwd is not None and pwd.value == self.cwd:
            variables = MappingProxyType({**variables, "PWD": pwd._replace(value=cwd)})
        return self.__replace__(cwd=cwd, variables=variables)

    def items(self) -> Iterator[tuple[Omission, tuple[str, ...]]]:
        """Yield each thing that has a text of the user's, by kind and name, with its texts."""
        for name, variable in self.variables.items():
            value = variable.value
            texts = () if value is None else (value,) if isinstance(value, str) else (*value, *value.values())
            yield Omission("variable", name), texts
        for name, function in self.functions.items():
            yield Omission("function", name), (function.text,)
        for name, text in self.aliases.items():
            yield Omission("alias", name), (text,)
        for name, text in self.traps.items():
            yield Omission("trap", name), (text,)
        for words in self.completions:
            yield Omission("completion", words[-1]), words
        if self.arguments:
            yield Omission("arguments", "$@"), self.arguments
        if self.directories:
            yield Omission("directories", "dirs"), self.directories

    def without(self, unwanted: Iterable[Omission]) -> Snapshot:
        """Return the snapshot without these. ``left_out`` names them."""
        gone = set(unwanted)
        if not gone:
            return self

        def kept(kind: str, things: Mapping[str, Any]) -> Mapping[str, Any]:
            return MappingProxyType({name: one for name, one in things.items() if (kind, name) not in gone})

        return self.__replace__(
            variables=kept("variable", self.variables),
            functions=kept("function", self.functions),
            aliases=kept("alias", self.aliases),
            traps=kept("trap", self.traps),
            completions=tuple(words for words in self.completions if ("completion", words[-1]) not in gone),
            arguments=() if ("arguments", "$@") in gone else self.arguments,
            directories=() if ("directories", "dirs") in gone else self.directories,
            left_out=tuple(sorted({*self.left_out, *gone})),
        )

    def matching(self, names: Iterable[str] = (), is_secret: Callable[[str], bool] | None = None) -> set[Omission]:
        """Return what has a name that one of these patterns matches, or a text that is or contains a secret."""
        patterns = tuple(names)
        if not patterns and is_secret is None:
            return set()
        return {
            thing
            for thing, texts in self.items()
            if any(fnmatchcase(thing.name, pattern) for pattern in patterns)
            or (is_secret is not None and any(map(is_secret, texts)))
        }
