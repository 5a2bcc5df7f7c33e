"""Where the input of a command comes from: its here-document, its here-string, or what a pipe brings.

Law: what the text alone tells of it is told; that there may be more is said.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from .heredocs import Document
from .lexer import HERE_STRING
from .words import Place, groups, text_of, word_of

if TYPE_CHECKING:
    from tree_sitter import Node

# Of these what they are fed comes out again, more or less.
_PASSING: Final = frozenset({"cat", "tee", "sed", "tr", "grep", "envsubst"})
_SAYING: Final = re.compile(r"-[neE]+")


def fed(place: Place, documents: Mapping[str, Document]) -> tuple[str | None, bool]:
    """The text that a command gets on its standard input, and whether all of it is known only when it runs."""
    around = statement(place)
    own = _own(place.node, [] if around is None or around is place.node else around.named_children, documents)
    if own[0] is not None:
        return own
    piped = _piped(place, documents)
    return piped, piped is not None


def _own(node: Node, around: list[Node], documents: Mapping[str, Document]) -> tuple[str | None, bool]:
    text, live = None, False
    for redirect in [*node.named_children, *around]:
        descriptor = _input(redirect)
        if descriptor.removeprefix(HERE_STRING).strip("0"):
            continue  # another one
        if descriptor.startswith(HERE_STRING) or redirect.type == "herestring_redirect":
            value = word_of(groups([child for child in redirect.named_children if child.type != "file_descriptor"])[0])
            text, live = ("" if value is None else value), value is None
        elif (document := documents.get(target(redirect))) is not None:
            text = document.body
            live = not document.literal and any(mark in text for mark in "$`\\")
        else:  # instead of what was before
            text, live = "" if target(redirect) == "/dev/null" else None, False
    return text, live


def _piped(last: Place, documents: Mapping[str, Document]) -> str | None:
    """What comes through the pipe, as far as its first command tells; None where it tells nothing."""
    while last.around is not None and last.around.node.type in ("redirected_statement", "negated_command"):
        last = last.around
    pipe = last.around
    if pipe is None or pipe.node.type != "pipeline" or (first := pipe.node.children[0]) == last.node:
        return None
    if not pipe.said:
        pipe.said.append(_said(first, documents))
    return pipe.said[0]


def _said(first: Node, documents: Mapping[str, Document]) -> str | None:
    command = first.named_children[0] if first.type == "redirected_statement" else first
    if command.type != "command" or (name := command.child_by_field_name("name")) is None:
        return None
    said = (word_of([name]) or "").rpartition("/")[2]
    if said in _PASSING:
        return _own(command, first.named_children if first is not command else [], documents)[0]
    if said not in ("echo", "printf"):
        return None
    words = [word_of(group) for group in groups(command.children_by_field_name("argument"))]
    while words and said == "echo" and _SAYING.fullmatch(words[0] or ""):
        words.pop(0)
    known = [word for word in words if word is not None]
    # the words of printf are its format and what goes into that: each may be a line
    return (" " if said == "echo" else "\n").join(known).replace("\\n", "\n") if len(known) == len(words) else None


def statement(place: Place) -> Node | None:
    """The statement that says where the input and output of this command go; of a list, that of its last command."""
    if place.node.type == "redirected_statement":
        return place.node
    last, around = place, place.around
    while around is not None and around.node.type in ("list", "pipeline", "negated_command"):
        if last.node.end_byte != around.node.end_byte:
            return None
        last, around = around, around.around
    return around.node if around is not None and around.node.type == "redirected_statement" else None


def strays(place: Place) -> list[list[Node]]:
    """Words of a command that stand after a redirection, which the grammar takes for more of its targets."""
    around = statement(place)
    found: list[list[Node]] = []
    for redirect in [] if around is None else around.named_children:
        if redirect.type == "file_redirect":
            found += groups([one for one in redirect.named_children if one.type != "file_descriptor"])[1:]
    return found


def target(redirect: Node) -> str:
    """The file that is redirected to; "" when it is no such thing."""
    destination = redirect.child_by_field_name("destination") if redirect.type == "file_redirect" else None
    return "" if destination is None else text_of(destination)


def _input(redirect: Node) -> str:
    """The descriptor that is redirected to be read from, as it is written; "-" when it is no such thing."""
    if redirect.type == "herestring_redirect":
        return ""
    if redirect.type != "file_redirect" or all(one.type not in ("<", "<&") for one in redirect.children):
        return "-"
    descriptor = redirect.child_by_field_name("descriptor")
    return "" if descriptor is None else text_of(descriptor)
