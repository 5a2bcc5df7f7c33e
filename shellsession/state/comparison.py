"""Compares what bash has listed before and after a command. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ..models import Changes
from .snapshot import Snapshot
from .values import OF_CD

# A result names at most this many files, with this many characters: the header of a message holds it.
_FILES_MOST: Final = 500
_PATHS_MOST: Final = 1 << 15


class Listing(NamedTuple):
    """What bash has listed: the bytes, and what they mean.

    ``begun``: how many commands had begun by then; -1: this bash has ended.
    """

    data: bytes
    dump: Snapshot
    cwd: str
    umask: int
    begun: int


def changes(before: Listing, after: Listing) -> Changes:
    """Return what has changed from the one to the other."""
    found = _changes(before.dump, after.dump) if before.dump is not after.dump else Changes()
    return _with_places(found, before, after)


def changes_of_state(before: Snapshot, after: Snapshot) -> Changes:
    """Return what has changed from the one to the other."""
    return _with_places(_changes(before, after), before, after)


def with_files(found: Changes, files: Sequence[tuple[str, str]]) -> Changes:
    """Return the changes with these files: pairs of "added", "changed" or "removed" and a path. Limits their number."""
    size, shown = 0, list[tuple[str, str]]()
    for pair in files[:_FILES_MOST]:
        if (size := size + len(pair[1])) > _PATHS_MOST:
            break
        shown.append(pair)
    return found.__replace__(files=tuple(shown), files_omitted=len(files) - len(shown))


def _with_places(found: Changes, before: Listing | Snapshot, after: Listing | Snapshot) -> Changes:
    places = (("cwd", before.cwd, after.cwd), ("umask", f"{before.umask:04o}", f"{after.umask:04o}"))
    moved = tuple((kind, new) for kind, old, new in places if old != new)
    return found.__replace__(changed=(*found.changed, *moved)) if moved else found


def _changes(before: Snapshot, after: Snapshot) -> Changes:
    added, changed, removed = list[tuple[str, str]](), list[tuple[str, str]](), list[tuple[str, str]]()
    for kind, old, new in _tables(before, after):
        added += [(kind, name) for name in new.keys() - old.keys()]
        removed += [(kind, name) for name in old.keys() - new.keys()]
        changed += [(kind, name) for name in old.keys() & new.keys() if old[name] != new[name]]
    for was, now in ((before.options, after.options), (before.shopts, after.shopts)):
        changed += [("option", name) for name in was ^ now]
    return Changes(tuple(sorted(added)), tuple(sorted(changed)), tuple(sorted(removed)))


def _tables(before: Snapshot, after: Snapshot) -> Iterator[tuple[str, Mapping[str, object], Mapping[str, object]]]:
    without = [{name: one for name, one in dump.variables.items() if name not in OF_CD} for dump in (before, after)]
    yield "variable", without[0], without[1]
    yield "function", before.functions, after.functions
    yield "alias", before.aliases, after.aliases
    yield "trap", before.traps, after.traps
