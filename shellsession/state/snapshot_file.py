"""Snapshots in files: one line that names the format, the snapshot as JSON, and a checksum.

::

    shellsession snapshot 1
    {"cwd": "/home/me", "variables": {"X": ["1", "x"], ...}, ...}
    sha256 5f70bf18a086...

The JSON is ASCII: a byte that is not UTF-8 is a lone surrogate (``"\\udcff"``), as in the snapshot itself.

Law: a file is complete or not there. A snapshot is complete and unchanged, or it is refused.
"""

from __future__ import annotations

import json
import os
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from hashlib import sha256
from types import MappingProxyType
from typing import Any, Final

from ..errors import InvalidRequest, SnapshotDamaged, SnapshotTooNew
from .values import Function, Omission, Variable

# The version of the format. A field that an older version must not ignore needs a new one.
_VERSION: Final = 1
_MAGIC: Final = b"shellsession snapshot "
_SUM: Final = b"\nsha256 "
# No shell has a state of this size; a file that is larger is not read.
_SIZE_MAX: Final = 256 << 20


def encoded(fields: Mapping[str, Any]) -> bytes:
    """Return the fields of a snapshot in the format of the file."""
    text = _MAGIC + b"%d\n" % _VERSION + "".join(_pieces(fields)).encode()
    return text + _SUM + sha256(text).hexdigest().encode() + b"\n"


def _pieces(fields: Mapping[str, Any]) -> Iterator[str]:
    """Yield the fields as JSON, each thing by itself: one call would keep all other threads waiting."""
    encode = json.JSONEncoder(default=_plain, separators=(",", ":")).encode
    for at, (name, value) in enumerate(fields.items()):
        yield f"{',' if at else '{'}{encode(name)}:"
        if isinstance(value, Mapping):
            yield "{" + ",".join(f"{encode(key)}:{encode(one)}" for key, one in value.items()) + "}"
        else:
            yield encode(value)
    yield "}"


def decoded(data: bytes) -> dict[str, Any]:
    """Return the fields of the snapshot. Raises SnapshotDamaged and SnapshotTooNew."""
    first, _, rest = data.partition(b"\n")
    version = first.removeprefix(_MAGIC)
    if not first.startswith(_MAGIC) or not version.isdigit():
        raise SnapshotDamaged("this is no snapshot of shellsession: it begins with other words")
    body, _, given = rest.rpartition(_SUM)
    if given != sha256(first + b"\n" + body).hexdigest().encode() + b"\n":
        raise SnapshotDamaged("the snapshot is damaged or incomplete: its checksum does not match")
    if int(version) > _VERSION:
        raise SnapshotTooNew(
            f"the snapshot has version {int(version)} of the format, and this shellsession reads {_VERSION}: install"
            " the version that has written it, or a newer one"
        )
    try:
        return _fields(json.loads(body))
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise SnapshotDamaged(f"the snapshot has a form that this version never writes: {error}") from error


def write(path: str | os.PathLike[str], data: bytes) -> None:
    """Write a file with mode 0600, as a whole or not at all. Raises OSError."""
    place = os.path.abspath(os.fspath(path))
    directory = os.path.dirname(place)
    descriptor, beside = tempfile.mkstemp(prefix=f".{os.path.basename(place)[:100]}-", dir=directory)
    try:
        with open(descriptor, "wb") as file:  # mode 0600
            file.write(data)
            file.flush()
            os.fsync(descriptor)
        os.replace(beside, place)
    except BaseException:
        with suppress(OSError):
            os.unlink(beside)
        raise
    _sync(directory)


def _sync(directory: str) -> None:
    """Write the new name to the disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def read(path: str | os.PathLike[str]) -> bytes:
    """Return the data of a file that nobody else can have written.

    Raises InvalidRequest, SnapshotDamaged and OSError.
    """
    place = os.fspath(path)
    # A pipe without a writer must not block. The checks are of the file that is open, whatever the path is later.
    with open(os.open(place, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode):
            raise InvalidRequest(f"the snapshot {place!r} must be a file")
        if found.st_uid not in (os.geteuid(), 0) or found.st_mode & 0o022:
            raise InvalidRequest(
                f"the snapshot {place!r} belongs to user {found.st_uid} and has mode {found.st_mode & 0o777:04o}: it"
                " must belong to you, and nobody else may be able to write to it (chmod go-w)"
            )
        if found.st_size > _SIZE_MAX:
            raise SnapshotDamaged(f"the snapshot {place!r} is larger than {_SIZE_MAX >> 20} MiB")
        return file.read(_SIZE_MAX)


def _plain(value: Any) -> Any:
    """Return the value as JSON has it."""
    return dict(value) if isinstance(value, Mapping) else sorted(value)


def _text(data: Any) -> str:
    if not isinstance(data, str):
        raise TypeError(f"{data!r:.50} must be a text")
    return data


def _texts(data: Any) -> tuple[str, ...]:
    return tuple(map(_text, data))


def _mapping(data: Any, value: Any = _text) -> Mapping[str, Any]:
    return MappingProxyType({key: value(one) for key, one in data.items()})


def _variable(data: Any) -> Variable:
    value, attributes = data
    array = isinstance(value, dict)
    return Variable(None if value is None else _mapping(value) if array else _text(value), _text(attributes))


def _number(data: Any) -> int:
    if not isinstance(data, int):
        raise TypeError(f"{data!r:.50} must be a number")
    return data


def _fact(data: Any) -> Any:
    return tuple(map(_number, data)) if isinstance(data, list) else _number(data)


def _omissions(data: Any) -> Iterator[Omission]:
    return (Omission(*_texts(pair)) for pair in data)


def _fields(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the snapshot with this data. Raises ValueError and the like for another form."""
    readers: dict[str, Callable[[Any], Any]] = {
        "cwd": _text,
        "umask": _number,
        "at": float,
        "variables": lambda one: _mapping(one, _variable),
        "functions": lambda one: _mapping(one, lambda pair: Function(*_texts(pair))),
        "limits": lambda one: _mapping(one, _number),
        "facts": lambda one: _mapping(one, _fact),
        "completions": lambda one: tuple(map(_texts, one)),
        "left_out": lambda one: tuple(_omissions(one)),
        "private": lambda one: frozenset(_omissions(one)),
        **dict.fromkeys(("aliases", "traps"), _mapping),
        **dict.fromkeys(("directories", "disabled", "arguments"), _texts),
        **dict.fromkeys(("options", "shopts", "inherited", "removed", "confined"), lambda one: frozenset(_texts(one))),
    }
    return {name: reader(data[name]) for name, reader in readers.items()}
