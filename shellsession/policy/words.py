"""What the words of a text of bash mean, as far as the text alone says it.

Law: quotes and backslashes are read as bash reads them; a word that is known at run time only is None, or, behind the
name of a command, what is known of its beginning and a sign that there is more.
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

# Ends a word of which only the beginning is known (`--rsh="$x"`), twice where it may be more words than one. No text
# has it: it is half a character of UTF-16, and none of the halves that stand for bytes.
HELD: Final = "\ud802"

# What a word of these is comes out only when it runs.
_LIVE: Final = frozenset(
    {"simple_expansion", "expansion", "command_substitution", "process_substitution", "arithmetic_expansion"}
)
# In these they stand for a part of a word, or for one.
_HOLDS: Final = frozenset({"string", "concatenation", "command", "variable_assignment"})
# In these the same words may mean something else; and in those other texts begin.
_MATTERS: Final = frozenset({"test_command", "subscript", "array", "string", "expansion"})
_TEXTS: Final = frozenset({"command_substitution", "process_substitution"})
_JOINED: Final = frozenset({"concatenation", "translated_string"})
QUOTED: Final = frozenset({"string", "raw_string", "ansi_c_string", "translated_string"})
_BARE: Final = frozenset({"word", "number"})
_ESCAPED_IN_QUOTES: Final = re.compile(r'\\(?:\n|([$`"\\]))')
_ESCAPED_ANSI: Final = re.compile(
    r"\\(?:x(?:\{([0-9a-fA-F]*)\}?|([0-9a-fA-F]{1,2}))|([0-7]{1,3})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|c(.)|(.))",
    re.DOTALL,
)
_LETTERS: Final = dict(zip("abeEfnrtv\\'\"?", "\a\b\x1b\x1b\f\n\r\t\v\\'\"?", strict=True))
_NO_BACKTICK: Final = re.compile(r"(?:[^\\`]|\\.)*", re.DOTALL)
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
    return _begun(group) if word is None else word


def _begun(group: list[Node]) -> Word:
    """What is known of the beginning of a word that is not known; it is one word where all that is not stands in quotes
    without a ``"$@"``."""
    parts = list(_parts(group))
    has_braces = _has_braces("".join(text_of(part) for part in parts if part.type in _BARE))
    is_one = all(part.type in _BARE or (part.type in QUOTED and "@" not in text_of(part)) for part in parts)
    begun = ""
    for part in parts:
        value = None if has_braces and part.type in _BARE and "{" in text_of(part) else _value(part)
        begun += _begun_part(part) if value is None else value
        if value is None:
            break
    return begun + HELD * (1 if is_one and not has_braces else 2) if begun else None


def _begun_part(part: Node) -> str:
    if part.type in _BARE:
        return ESCAPED.sub(_unescaped, text_of(part).partition("{")[0])
    if part.type != "string":
        return ""
    live = [child.start_byte - part.start_byte for child in part.named_children if child.type in _LIVE]
    text = (part.text or b"")[1 : min(live, default=None)].decode("utf-8", "surrogateescape")
    said = _NO_BACKTICK.match(text)
    return _ESCAPED_IN_QUOTES.sub(r"\1", said[0] if said else "")


def _parts(group: list[Node]) -> Iterator[Node]:
    """The parts of a word, each in quotes of its own or in none."""
    for node in group:
        if node.type in _JOINED and node.child_count:
            yield from _parts([one for one in node.children if not is_dollar(one)])
        else:
            yield node


def known(word: Word) -> Word:
    """The word, where all of it is known."""
    return None if word is not None and HELD in word else word


def single(word: Word) -> Word:
    """The word, or what is known of its beginning, where it is one word."""
    return None if word is not None and HELD + HELD in word else word


def _value(node: Node) -> Word:
    kind, text = node.type, text_of(node)
    if kind in _LIVE or kind in ("brace_expression", "$"):
        return None
    if kind == "raw_string":
        return text[1:-1]
    if kind == "ansi_c_string":
        return ansi(text[2:-1]).partition("\0")[0]  # bash ends the word there
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


def ansi(text: str) -> str:
    """What escapes as those of ``$'...'`` make of it."""
    said = _ESCAPED_ANSI.sub(_ansi, text)
    return said.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape")  # of bytes, characters


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
