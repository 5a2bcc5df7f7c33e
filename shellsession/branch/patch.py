"""The changes of a branch as a patch that ``git apply`` takes."""

from __future__ import annotations

import hashlib
import os
import zlib
from base64 import b85encode
from collections.abc import Iterable, Iterator, Sequence
from difflib import SequenceMatcher
from os.path import split
from typing import Final, NamedTuple

from ..errors import InvalidRequest
from .changes import Change, compare
from .trees import Entry, Identity, Trees, closing_fd, open_file

_NONE: Final = "0" * 40
# A patch has its files in memory. The most bytes of all files together, before and after.
_BYTES_MAX: Final = 64 << 20
# Git takes a file for binary if it finds a NUL in this many bytes.
_LOOKED_AT: Final = 8000
# The time to compare two files grows with the product of their numbers of lines. Above this, the patch replaces all
# lines between the first and the last difference.
_LINES_MAX: Final = 4_000_000
_CONTEXT: Final = 3
_ESCAPES: Final = {code: f"\\{letter}" for code, letter in zip(b'\a\b\t\n\v\f\r"\\', 'abtnvfr"\\', strict=True)}
# The most bytes in a line of a binary patch, and the letters at its beginning that give the number.
_BINARY: Final = 52
_COUNTS: Final = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


def patch(base: str, layers: Sequence[str], *, since: int = 0, identity: Identity | None = None) -> bytes:
    """Return the changes as a patch for ``git apply``; see ``changes`` for the arguments.

    It has what git knows: files and symbolic links, their content, and whether a file is executable. A rename is a
    removal and an addition. The patch leaves out empty directories, other modes, owners, times, xattrs, special files,
    files that cannot be read, and each ``.git``. Raises InvalidRequest if the files are too large for a patch.
    """
    with Trees(base, layers, identity) as trees:
        removed, added = list[bytes](), list[bytes]()
        # git refuses a patch with such a path
        found = [one for one in compare(trees, since) if ".git" not in one.path.lower().split("/")]
        _refuse_large(found)
        for change in found:
            path = os.fsencode(change.path)
            try:
                old, new = _blob(trees, change.path, change.before), _blob(trees, change.path, change.after)
            except PermissionError:  # a patch needs the content of both
                continue
            if old and new and old.mode[:3] == new.mode[:3]:
                added += _file(path, old, new)
            else:  # git needs the removal before another type can come to this path
                removed += _file(path, old, None)
                added += _file(path, None, new)
        return b"".join(removed + added)


def _refuse_large(found: Iterable[Change]) -> None:
    sizes = {one.path: sum(side.size for side in (one.before, one.after) if side) for one in found}
    if (total := sum(sizes.values())) > _BYTES_MAX:
        largest = ", ".join(f"{path!r:.200}" for path in sorted(sizes, key=sizes.__getitem__, reverse=True)[:3])
        raise InvalidRequest(
            f"the files of the patch have {total} bytes, and a patch takes at most {_BYTES_MAX}; the largest are"
            f" {largest}: look at diff() without patch"
        )


class _Blob(NamedTuple):
    """A file, or the target of a link, as git stores it."""

    mode: str
    data: bytes

    @property
    def sha(self) -> str:
        return hashlib.sha1(b"blob %d\0" % len(self.data) + self.data, usedforsecurity=False).hexdigest()

    @property
    def is_binary(self) -> bool:
        return b"\0" in self.data[:_LOOKED_AT]


class _Run(NamedTuple):
    """Lines that are equal in both files, or differ."""

    tag: str
    begin: int
    end: int
    new_begin: int
    new_end: int


def _blob(trees: Trees, path: str, entry: Entry | None) -> _Blob | None:
    if entry is None or entry.type not in ("file", "link"):
        return None
    directory, name = split(path)
    with closing_fd(trees.open(entry.layer, directory)) as fd:
        if entry.type == "link":
            return _Blob("120000", os.fsencode(os.readlink(name, dir_fd=fd)))
        with open(open_file(fd, name), "rb") as file:
            return _Blob("100755" if entry.mode & 0o100 else "100644", file.read())


def _file(path: bytes, old: _Blob | None, new: _Blob | None) -> Iterator[bytes]:
    if old == new:
        return
    yield f"diff --git {_quoted(b'a/' + path)} {_quoted(b'b/' + path)}\n".encode()
    if old is None:
        assert new is not None
        yield f"new file mode {new.mode}\n".encode()
    elif new is None:
        yield f"deleted file mode {old.mode}\n".encode()
    elif old.mode != new.mode:
        yield f"old mode {old.mode}\nnew mode {new.mode}\n".encode()
    before, after = old.data if old else b"", new.data if new else b""
    if old and new and before == after:
        return
    # Git needs full hashes for a binary patch, and the mode only if it is the same for both.
    mode = f" {old.mode}" if old and new and old.mode == new.mode else ""
    yield f"index {old.sha if old else _NONE}..{new.sha if new else _NONE}{mode}\n".encode()
    if (old and old.is_binary) or (new and new.is_binary):
        yield b"GIT binary patch\n"
        yield from _literal(after)
        yield from _literal(before)
    elif before != after:
        yield f"--- {_header(b'a/' + path) if old else '/dev/null'}\n".encode()
        yield f"+++ {_header(b'b/' + path) if new else '/dev/null'}\n".encode()
        yield from _hunks(_lines(before), _lines(after))


def _quoted(path: bytes) -> str:
    """Return a path as git writes it: quoted and escaped if it has special characters."""
    if all(0x20 <= code < 0x7F and code not in b'"\\' for code in path):
        return path.decode()
    escaped = (_ESCAPES.get(code) or (chr(code) if 0x20 <= code < 0x7F else f"\\{code:03o}") for code in path)
    return f'"{"".join(escaped)}"'


def _header(path: bytes) -> str:
    """Return a path for a line with --- or +++, where a tab must follow a name with a space."""
    return _quoted(path) + ("\t" if b" " in path else "")


def _literal(data: bytes) -> Iterator[bytes]:
    yield b"literal %d\n" % len(data)
    packed = zlib.compress(data)
    for begin in range(0, len(packed), _BINARY):
        piece = packed[begin : begin + _BINARY]
        padded = b85encode(piece + bytes(-len(piece) % 4))
        yield _COUNTS[len(piece) - 1].encode() + padded + b"\n"
    yield b"\n"


def _lines(data: bytes) -> list[bytes]:
    """Split at newlines only: git knows no other line ends."""
    lines = data.split(b"\n")
    return [line + b"\n" for line in lines[:-1]] + ([lines[-1]] if lines[-1] else [])


def _hunks(old: list[bytes], new: list[bytes]) -> Iterator[bytes]:
    for group in _groups(old, new):
        first, last = group[0], group[-1]
        yield b"@@ -%s +%s @@\n" % (_range(first.begin, last.end), _range(first.new_begin, last.new_end))
        for run in group:
            if run.tag == "equal":
                yield from _marked(b" ", old[run.begin : run.end])
            else:
                yield from _marked(b"-", old[run.begin : run.end])
                yield from _marked(b"+", new[run.new_begin : run.new_end])


def _range(begin: int, end: int) -> bytes:
    return b"%d,%d" % (begin + 1 if end > begin else begin, end - begin)


def _marked(mark: bytes, lines: Iterable[bytes]) -> Iterator[bytes]:
    for line in lines:
        yield mark + line + (b"" if line.endswith(b"\n") else b"\n\\ No newline at end of file\n")


def _groups(old: list[bytes], new: list[bytes]) -> Iterator[list[_Run]]:
    """Return the differences in groups, each with context lines, as ``SequenceMatcher`` does."""
    shorter = min(len(old), len(new))
    head = next((at for at in range(shorter) if old[at] != new[at]), shorter)
    tail = next((at for at in range(shorter - head) if old[-1 - at] != new[-1 - at]), shorter - head)
    ends = len(old) - tail, len(new) - tail
    begin, kept = max(0, head - _CONTEXT), min(tail, _CONTEXT)
    if (ends[0] - head) * (ends[1] - head) > _LINES_MAX:
        before = _Run("equal", begin, head, begin, head)
        after = _Run("equal", ends[0], ends[0] + kept, ends[1], ends[1] + kept)
        yield [before, _Run("replace", head, ends[0], head, ends[1]), after]
        return
    matcher = SequenceMatcher(None, old[begin : ends[0] + kept], new[begin : ends[1] + kept])
    for group in matcher.get_grouped_opcodes(_CONTEXT):
        yield [_Run(tag, *(at + begin for at in places)) for tag, *places in group]
