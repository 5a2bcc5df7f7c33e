"""Frozen records, made of what a class annotates; dataclasses to whoever asks.

Law: knows nothing of what a record holds. What a command line needs is made here and not by ``dataclasses``, as that
loads inspect, ast and dis, and compiles each class: a fifth of what a whole ``shellsession run`` took, 15 ms of 80.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Self, dataclass_transform


def _signature(made: Any) -> object:
    from inspect import signature

    return signature(made)


def _frozen(said: str) -> Exception:
    from dataclasses import FrozenInstanceError

    return FrozenInstanceError(said)


@functools.cache
def _dataclass(record: Any, bare: bool = False) -> Any:
    """What ``dataclasses`` makes of the same fields; ``bare``: without methods, which take ten times as long (1 ms)."""
    from dataclasses import MISSING, field, make_dataclass

    fields = [
        (name, kind, field(default=record._defaults.get(name, MISSING), repr=name not in record._unshown))
        for name, kind in record._types.items()
    ]
    if bare:
        named = {"__doc__": record.__name__}  # else one is made of its signature
        return make_dataclass(record.__name__, fields, init=False, repr=False, eq=False, namespace=named)
    return make_dataclass(record.__name__, fields, frozen=True)


class _AsDataclass:
    """What ``dataclasses`` (replace, asdict, fields), pydantic and inspect look for, made when it is asked for."""

    def __init__(self, read: Callable[[Any], object]) -> None:
        self._read = read

    def __get__(self, _: object, record: Any) -> Any:
        return self._read(record)


@dataclass_transform(frozen_default=True)
class Record:
    """Its fields are the names that its class annotates, in their order; what is assigned there is their default.

    Two are equal where they are of one class, and all their fields are.
    """

    # Without annotations, which typing.get_type_hints would tell of as of fields.
    __dataclass_fields__ = _AsDataclass(lambda record: _dataclass(record, bare=True).__dataclass_fields__)
    __dataclass_params__ = _AsDataclass(lambda record: _dataclass(record).__dataclass_params__)
    __signature__ = _AsDataclass(lambda record: _signature(_dataclass(record)))
    _types = dict[str, Any]()  # noqa: RUF012  # each class has its own
    _defaults = dict[str, Any]()  # noqa: RUF012
    _unshown = tuple[str, ...]()

    def __init_subclass__(cls, unshown: tuple[str, ...] = ()) -> None:
        """``unshown``: fields that ``repr`` leaves out."""
        own = cls.__annotations__
        cls._types = {**cls._types, **own}
        cls._defaults = {**cls._defaults, **{name: cls.__dict__[name] for name in own if name in cls.__dict__}}
        cls._unshown = (*cls._unshown, *unshown)
        setattr(cls, "__match_args__", tuple(cls._types))  # noqa: B010  # mypy knows of it, and wants to set it itself

    def __init__(self, *values: Any, **named: Any) -> None:
        if len(values) == len(self._types) and not named:  # as each command makes them: 2 us less
            self.__dict__.update(zip(self._types, values, strict=True))
        else:
            self.__dict__.update(self._completed(values, named))
        self.__post_init__()

    def _completed(self, values: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
        """The fields that were given, and the defaults of the others. Raises TypeError."""
        placed = dict(zip(self._types, values, strict=False))
        fields = {**self._defaults, **placed, **named}
        if fields.keys() != self._types.keys() or len(placed) < len(values) or not placed.keys().isdisjoint(named):
            kind: Any = type(self)
            _dataclass(kind)(*values, **named)  # says what is wrong
        return fields

    def __post_init__(self) -> None:
        """Refuse what cannot be meant."""

    def __replace__(self, **changes: Any) -> Self:
        fields = {**self.__dict__, **changes}
        if len(fields) > len(self._types):
            return type(self)(**fields)  # says what is wrong
        made = object.__new__(type(self))
        made.__dict__.update(fields)
        made.__post_init__()
        return made

    def __setattr__(self, name: str, value: object) -> None:
        raise _frozen(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> None:
        raise _frozen(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(getattr(self, name) for name in self._types))

    def __repr__(self) -> str:
        shown = [f"{name}={getattr(self, name)!r}" for name in self._types if name not in self._unshown]
        return f"{type(self).__qualname__}({', '.join(shown)})"
