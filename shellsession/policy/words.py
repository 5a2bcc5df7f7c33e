"""What the words of a text of bash mean, as far as the text alone says it.

Law: quotes and backslashes are read as bash reads them; a word that is known at run time only is None.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING, Final

from .lexer import end_of_substitution

if TYPE_CHECKING:
    from tree_sitter import Node

Word = str | None
# Stands for what comes out only when it runs, in a text that is read for all else in it.
BLANK: Final = "\ue000"

# Stands for the value of an assignment among the words of a command that comes out only when it runs, and is one word
# whatever it is (`env X="$Y" a`).
HELD: Final = "\ue002"

# What a word of these is comes out only when it runs.
_LIVE: Final = frozenset(
    {"simple_expansion", "expansion", "command_substitution", "process_substitution", "arithmetic_expansion"}
)
# In these they stand for a part of a word, or for one.
_HOLDS: Final = frozenset({"string", "concatenation", "command", "variable_assignment"})
# In these the same words may mean something else; and in those other texts begin.
_MATTERS: Final = frozenset({"test_command", "subscript", "array", "string", "expansion"})
_TEXTS: Final = frozenset({"command_substitution", "process_substitution"})
QUOTED: Final = frozenset({"string", "raw_string", "ansi_c_string", "translated_string"})
_BARE: Final = frozenset({"word", "number"})
_ASSIGNED: Final = re.compile(r'"?([A-Za-z_]\w*)=', re.ASCII)
_HELD_WORD: Final = re.compile(rf"(?:[A-Za-z_]\w*=)?{HELD}", re.ASCII)  # no other word is lost that has the sign
_ESCAPED_IN_QUOTES: Final = re.compile(r'\\(?:\n|([$`"\\]))')
_ESCAPED_ANSI: Final = re.compile(
    r"\\(?:x(?:\{([0-9a-fA-F]*)\}?|([0-9a-fA-F]{1,2}))|([0-7]{1,3})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|c(.)|(.))",
    re.DOTALL,
)
_LETTERS: Final = dict(zip("abeEfnrtv\\'\"?", "\a\b\x1b\x1b\f\n\r\t\v\\'\"?", strict=True))
_WILD: Final = re.compile(r"[*?\[]")
_SUBSTITUTION: Final = re.compile(r"\\.|`|\$\(", re.DOTALL)
_ANY_SUBSTITUTION: Final = re.compile(r"\\.|`|[$<>]\(", re.DOTALL)
_BACKTICKS: Final = re.compile(r"`((?:[^`\\]|\\.)*)`", re.DOTALL)
_ESCAPED_IN_BACKTICKS: Final = re.compile(r"\\([$`\\])")
ESCAPED: Final = re.compile(r"\\(?:\n|(.))", re.DOTALL)


def text_of(node: Node) -> str:
    return (node.text or b"").decode("utf-8", "surrogateescape")


@dataclass(eq=False, slots=True)
class Place:
    """A node where it stands: in which other one, after which, and within what of ``_MATTERS`` of the same text. To ask
    the tree itself costs a way from its root each time."""

    node: Node
    around: Place | None = None
    before: Node | None = None
    within: frozenset[str] = frozenset()
    said: list[str | None] = field(default_factory=list)  # of a pipe: what its first command says, once looked for


def places_of(root: Node) -> Iterator[Place]:
    """Every node, the outer before the inner ones, but for what is in backticks. Not recursive: texts can be deep."""
    todo = [Place(root)]
    while todo:
        place = todo.pop()
        yield place
        if place.node.child_count and not is_in_backticks(place.node):
            kind, children = place.node.type, place.node.children
            within = place.within | {kind} if kind in _MATTERS else frozenset() if kind in _TEXTS else place.within
            befores = [None, *children[:-1]]
            todo += reversed([Place(*one, within) for one in zip(children, repeat(place), befores, strict=False)])


def is_dollar(node: Node) -> bool:
    """The one of ``$"..."``, which is none; the grammar may have more of the word in it (``-$"f"``)."""
    return node.type == "$" and node.end_byte - node.start_byte == 1


def is_in_backticks(node: Node) -> bool:
    """Is this a substitution in backticks? What is in them is a text of its own: neither ``lexer`` nor the grammar sees
    it as bash does."""
    return node.type == "command_substitution" and node.children[0].type == "`"


def expansions(root: Node) -> Iterator[Node]:
    """Those that are a word, or stand in one; what stands in them is not looked for."""
    todo = [(root, False)]
    while todo:
        node, is_part = todo.pop()
        if is_part and node.type in _LIVE and node.type != "process_substitution":
            yield node
        else:
            todo += [(child, node.type in _HOLDS) for child in node.children]


def groups(nodes: Sequence[Node]) -> list[list[Node]]:
    """What stands together without a blank is one word."""
    groups: list[list[Node]] = []
    for node in nodes:
        if groups and groups[-1][-1].end_byte == node.start_byte:
            groups[-1].append(node)
        else:
            groups.append([node])
    return groups


def _has_braces(text: str) -> bool:
    """``{a,b}`` or ``{1..3}`` somewhere? Not by a pattern, which takes the square of what has a thousand of them."""
    _, brace, rest = text.partition("{")
    inner, end, _ = rest.rpartition("}")
    return bool(brace and end) and ("," in inner or ".." in inner)


def name_of(group: list[Node]) -> Word:
    """The word that names a command; a pattern there is whatever it matches."""
    bare = "".join(text_of(leaf) for node in group for leaf in _bare(node))
    return None if _WILD.search(bare) or _has_braces(bare) else word_of(group)


def _bare(node: Node) -> Iterator[Node]:
    """The parts of a word that no quotes protect."""
    if node.type in QUOTED or node.type in _LIVE:
        return
    if node.child_count == 0:
        yield node
    for child in node.children:
        yield from _bare(child)


def word_of(group: list[Node]) -> Word:
    values = [_value(node) for node in group]
    return None if None in values else "".join(value for value in values if value is not None)


def argument_of(group: list[Node]) -> Word:
    """A word behind the name of a command."""
    word = word_of(group)
    return _held(group) if word is None else word


def _held(group: list[Node]) -> Word:
    """An assignment whose value comes out when it runs, in quotes: it is one word, unless it has a ``"$@"``."""
    parts = [part for node in group for part in (node.children if node.type == "concatenation" else [node])]
    found = _ASSIGNED.match("".join(map(text_of, group)))
    bare = "".join(text_of(part) for part in parts if part.type in _BARE)
    is_one = all(part.type in _BARE or (part.type in QUOTED and "@" not in text_of(part)) for part in parts)
    return f"{found[1]}={HELD}" if found is not None and is_one and not _has_braces(bare) else None


def known(word: Word) -> Word:
    """What is known of the word, or of such a value, where it is no assignment."""
    return None if word is not None and _HELD_WORD.fullmatch(word) else word


def _value(node: Node) -> Word:
    kind, text = node.type, text_of(node)
    if kind in _LIVE or kind in ("brace_expression", "$"):
        return None
    if kind == "raw_string":
        return text[1:-1]
    if kind == "ansi_c_string":
        said = _ESCAPED_ANSI.sub(_ansi, text[2:-1]).partition("\0")[0]  # bash ends the word there
        return said.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")  # of bytes, characters
    if kind == "string":
        if any(child.type in _LIVE for child in node.named_children) or "`" in ESCAPED.sub("", text):
            return None
        return _ESCAPED_IN_QUOTES.sub(r"\1", text[1:-1])
    if kind in ("command_name", "concatenation", "translated_string", "variable_assignment"):
        if _has_braces("".join(text_of(leaf) for leaf in _bare(node))):
            return None
        # the dollar of $"..." is none
        parts = [one for one in node.children if not is_dollar(one)]
        return word_of(parts) if parts else ESCAPED.sub(_unescaped, text)
    if node.child_count and any(place.node.type in _LIVE for place in places_of(node)):
        return None
    if kind == "array":
        return text
    return None if _has_braces(text) else ESCAPED.sub(_unescaped, text)


def _unescaped(found: re.Match[str]) -> str:
    return found[1] or ""


def _ansi(found: re.Match[str]) -> str:
    for group, base in ((1, 16), (2, 16), (3, 8)):  # a byte: of a greater number the low eight bits
        if found[group] is not None:
            return bytes([int(found[group] or "0", base) & 0xFF]).decode("utf-8", "surrogateescape")
    for group in (4, 5):
        if found[group]:
            code = int(found[group], 16)
            return chr(code) if code < 0xD800 or 0xDFFF < code < 0x110000 else "\ufffd"
    if found[6]:
        return chr(ord(found[6]) & 0x1F)
    return _LETTERS.get(found[7], found[0])


def put(word: Word, mark: str) -> Word:
    """The word with what is known at run time only in the place of each mark."""
    return None if word is None else word.replace(mark, BLANK)


def substitutions(body: str, processes: bool = False) -> list[str] | None:
    """The texts that run in a here-document whose delimiter has no quotes; None when one of them does not end.
    ``processes``: ``<(`` and ``>(`` begin such texts, too."""
    pattern = _ANY_SUBSTITUTION if processes else _SUBSTITUTION
    found: list[str] = []
    at = 0
    while (mark := pattern.search(body, at)) is not None:
        at = mark.end()
        if mark[0] == "`":
            if (whole := _BACKTICKS.match(body, mark.start())) is None:
                return None
            found.append(_ESCAPED_IN_BACKTICKS.sub(r"\1", whole[1]))
            at = whole.end()
        elif mark[0][0] != "\\":
            if (end := end_of_substitution(body, mark.start())) is None:
                return None
            inner = body[at : end - 1]
            is_double = mark[0] == "$(" and inner.startswith("(") and inner.endswith(")")
            if not is_double or any(sign in inner for sign in ";&|\n"):
                found.append(inner)
                at = end
            # else it is arithmetic, in which there may be others
    return found
