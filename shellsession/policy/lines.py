"""The lines of a text of bash, for a grammar that takes some of them for one where bash reads two.

Law: no newline stands within a simple command. Where the grammar finds one there, the text is written so that it finds
two commands, which are the same to bash; where that is no help, it is said.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Final

from .words import is_in_backticks, text_of

if TYPE_CHECKING:
    from tree_sitter import Node

# What stands in these is what it is.
LITERAL: Final = frozenset({"raw_string", "ansi_c_string", "comment"})
_CONTINUED: Final = re.compile(rb"(?<!\\)(?:\\\\)*\\\n")
# All that stands in these is in one line, but for the lines of what is within others of their parts.
_SIMPLE: Final = frozenset({"command", "declaration_command", "unset_command", "redirected_statement"}) | {
    *("variable_assignment", "variable_assignments", "file_redirect", "herestring_redirect", "concatenation"),
    "simple_expansion",
}
# Words that the grammar joins to what follows them, whatever stands between.
_JOINING: Final = frozenset({"$", "==", "=~"})
# Where these begin a line, a command begins behind them.
_OPENING: Final = frozenset({b"then", b"else", b"elif", b"do", b"if", b"while", b"until", b"!"})
_PIPES: Final = frozenset({"|", "|&"})
_ROUNDS: Final = 4  # what is mended may show more of it


def tree(source: bytes, parse: Callable[[bytes], Node]) -> tuple[Node, str]:
    """The tree of the text, and near what it has two lines in one command ("": nowhere)."""
    root = _joined(source, parse)
    ends = list(_ends(root))
    for _ in range(_ROUNDS):
        text = root.text or b""
        ended = _with_ends(text, [(leaf, leaf.end_byte - root.start_byte) for leaf, opens in ends if not opens])
        if ended == text:
            break
        root = parse(ended)
        ends = list(_ends(root))
    return root, text_of(ends[0][0]) if ends else ""


def _with_ends(text: bytes, ends: list[tuple[Node, int]]) -> bytes:
    """The text with each line ended behind these leaves, where that has not been tried before."""
    pieces, at = [], 0
    for leaf, end in ends:
        word = leaf.text or b""
        if word != b";" and text[end : end + 2] != b" ;":
            pieces += [text[at : end - len(word)], b"'" + word + b"' ;" if leaf.type in _JOINING else word + b" ;"]
            at = end
    return b"".join([*pieces, text[at:]])


def _joined(source: bytes, parse: Callable[[bytes], Node]) -> Node:
    """The tree of the text with each line joined to the one that a backslash joins to it."""
    text = bytearray(source)
    root = parse(source)
    size = len(text)
    for found in reversed(list(_CONTINUED.finditer(source))):
        at = found.end() - 2
        inner = root.descendant_for_byte_range(at, at + 1)
        if inner is None or inner.type not in LITERAL:  # the grammar takes it for a blank, also within a word
            del text[at : at + 2]
    return root if len(text) == size else parse(bytes(text))


def _ends(root: Node) -> Iterator[tuple[Node, bool]]:
    """The last leaf of each line that the grammar does not end there; and whether that is a keyword, which has no end:
    it is one no more where the line before has one."""
    source, last, begins = root.text or b"", root, False
    todo = [(root, False, False)] if b"\n" in source else []
    while todo:
        node, is_near, in_line = todo.pop()
        if node.child_count and not is_in_backticks(node):
            todo += reversed(_parts(node, is_near, in_line))
            continue
        begin = node.start_byte - root.start_byte
        if node.type == "word" and source[begin : begin + 1] == b"\n":  # it has the end of the line before
            is_near, begin = True, begin + 1
        is_end = is_near and b"\n" in source[last.end_byte - root.start_byte : begin]
        opens = (is_end or begins) and (last.text == b"{" or (begins and last.text in _OPENING))
        if is_end:
            yield last, opens
        last, begins = node, is_end or opens


def _parts(node: Node, is_near: bool, in_line: bool) -> list[tuple[Node, bool, bool]]:
    """What stands in this node; whether it must follow what stands before it in the same line; and whether that holds
    for all that is computed in it (``[ a = b ]``). ``is_near``, ``in_line``: the same of the node."""
    children = [one for one in node.children if one.type != "comment"]
    if node.type == "string":  # whose lines are its own, also behind a dollar
        return [(one, False, False) for one in children if one.type != "simple_expansion"]
    in_line = node.type in _SIMPLE or (in_line and node.type.endswith("_expression"))
    in_line = in_line or (node.type == "test_command" and bool(children) and children[0].type == "[")
    nears = [is_near, *(in_line or one.type in _PIPES for one in children[1:])]
    return [(one, near, in_line) for one, near in zip(children, nears, strict=False)]
