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
_OPERATORS: Final = (b"==", b"=~")
# Where these begin a line, a command begins behind them.
_OPENING: Final = frozenset({b"then", b"else", b"elif", b"do", b"if", b"while", b"until", b"!"})
_PIPES: Final = frozenset({"|", "|&"})
_ROUNDS: Final = 4  # what is mended may show more of it


def tree(source: bytes, parse: Callable[[bytes], Node]) -> tuple[Node, str]:
    """The tree of the text, and near what it has two lines in one command ("": nowhere)."""
    root = _joined(source, parse)
    found = list(_wrong(root))
    for _ in range(_ROUNDS):
        if all(put is None for _, put in found):
            break
        root = parse(_written(root, found))
        found = list(_wrong(root))
    return root, text_of(found[0][0]) if found else ""


def _written(root: Node, found: list[tuple[Node, bytes | None]]) -> bytes:
    """The text with what is put in the place of these leaves."""
    text, pieces, at = root.text or b"", [], root.start_byte
    for leaf, put in sorted(found, key=lambda one: one[0].start_byte):
        if put is not None:
            pieces += [text[at - root.start_byte : leaf.start_byte - root.start_byte], put]
            at = leaf.end_byte
    return b"".join([*pieces, text[at - root.start_byte :]])


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


def _wrong(root: Node) -> Iterator[tuple[Node, bytes | None]]:
    """The leaves that the grammar joins to what is none of theirs, and what is to stand in their place. None: nothing,
    as it has been tried, or as a keyword has no end of a line: it is one no more where the line before has one."""
    source, last, begins = root.text or b"", root, False
    todo = [(root, False, False)] if any(mark in source for mark in (b"\n", *_OPERATORS)) else []
    while todo:
        node, is_near, in_line = todo.pop()
        if node.child_count and not is_in_backticks(node):
            if node.type == "command":
                yield from ((one, b"'" + one.type.encode() + b"'") for one in node.children if _is_operator(one))
            todo += reversed(_parts(node, is_near, in_line))
            continue
        begin, end = node.start_byte - root.start_byte, last.end_byte - root.start_byte
        if node.type == "word" and source[begin : begin + 1] == b"\n":  # it has the end of the line before
            is_near, begin = True, begin + 1
        is_end = is_near and b"\n" in source[end:begin]
        opens = (is_end or begins) and (last.text == b"{" or (begins and last.text in _OPENING))
        if is_end:
            is_tried = source[end : end + 2] == b" ;" or last.type == ";"
            yield last, None if opens or is_tried or _is_operator(last) else _ended(last)
        last, begins = node, is_end or opens


def _is_operator(leaf: Node) -> bool:
    """Is this a word of a command for which the grammar reads on as in ``[[ ]]``, whatever follows?"""
    return leaf.type.encode() in _OPERATORS


def _ended(leaf: Node) -> bytes:
    return b"'$' ;" if leaf.type == "$" else (leaf.text or b"") + b" ;"


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
