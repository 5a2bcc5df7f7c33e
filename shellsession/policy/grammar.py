"""The commands that stand in a text of bash, as a real grammar of bash finds them (tree-sitter-bash).

Law: what a word means is told only where the text alone says it; a word that is known at run time only is None.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..errors import InvalidRequest
from .feeds import fed, strays, target
from .heredocs import Document
from .lexer import NOTHING, cut
from .lines import LITERAL, tree
from .words import (
    BLANK,
    ESCAPED,
    QUOTED,
    Place,
    Word,
    argument_of,
    expansions,
    groups,
    is_dollar,
    is_in_backticks,
    name_of,
    places_of,
    substitutions,
    text_of,
    word_of,
)

if TYPE_CHECKING:
    from tree_sitter import Language, Node

# Bytes beside here-documents: more is not read, as some texts take time that grows with the square of their length.
MAX_READ: Final = 1 << 16
_NOT_WORDS: Final = frozenset({"file_redirect", "herestring_redirect", "comment", "subshell"})
_KEYWORDS: Final = frozenset({"!", "[[", "]]", "{", "}", "if", "then", "elif", "else", "fi", "case", "esac"}) | {
    *("for", "select", "while", "until", "do", "done", "function")
}
# An element of an array, by an index that is computed, and computing may run something.
_ELEMENT: Final = re.compile(r"\w\[")

_ASSIGNED: Final = re.compile(r"([A-Za-z_]\w*)(?:\[[^]]*\])?\+?=", re.ASCII)


@dataclass(frozen=True, slots=True)
class Simple:
    """One command of a text: its words, the first of which names it; and the text it is fed, where that stands there.

    ``fed``: the body of its here-document or here-string, or what a pipe brings (None: nothing that the text tells);
    ``live``: not all of it is told, as it has expansions, or was passed on by others.
    """

    words: tuple[Word, ...]
    fed: str | None = None
    live: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """What stands in a text of bash: its commands, what it assigns, by name and value, and names of its functions;
    ``fault`` says what of it is none ("" when all of it is), ``unread`` why not all of it was looked at, ``unknown``
    what it runs untold."""

    commands: tuple[Simple, ...]
    fault: str = ""
    assignments: tuple[tuple[str, Word], ...] = ()
    unread: str = ""
    unknown: tuple[str, ...] = ()
    functions: frozenset[str] = frozenset()


def parse(source: bytes, blanked: bool = False) -> Text:
    """The commands of the text, from the outer to the inner ones. ``blanked``: a mark (``BLANK``) stands for each
    expansion in a word, which is a text then. Raises InvalidRequest where the parser is missing."""
    text = _parsed(source, blanked, spares=True)
    return _parsed(source, blanked, spares=False) if text.fault else text  # of what is faulty it finds more as it is


def _parsed(source: bytes, blanked: bool, spares: bool) -> Text:
    text = _Text(blanked, spares)
    todo = [source.decode("utf-8", "surrogateescape")]
    while todo:
        todo += text.read(todo.pop())
    commands, assignments, functions = tuple(text.commands), tuple(text.assignments), frozenset(text.functions)
    return Text(commands, text.fault, assignments, text.unread, tuple(text.unknown), functions)


class _Text:
    """What has been found in a text, and in those that stand in it."""

    def __init__(self, blanked: bool, spares: bool) -> None:
        self._blanked, self._spares = blanked, spares
        self.commands: list[Simple] = []
        self.assignments: list[tuple[str, Word]] = []
        self.fault = ""
        self.unread = ""
        self.unknown: list[str] = []
        self.functions: list[str] = []
        self._documents: dict[str, Document] = {}

    def read(self, source: str) -> list[str]:
        """The texts within this one that are to be read as well."""
        text = cut(source, self._unused(source), self._spares)
        self._documents |= text.documents
        rest = text.text.encode("utf-8", "surrogateescape")
        if len(rest) > MAX_READ:
            self.unread = f"it has over {MAX_READ} bytes beside here-documents"
            return []
        root, swallowed = _tree(rest)
        if self._blanked:
            root, swallowed = _tree(_without_expansions(root))
        if swallowed:
            self._faults(f"two lines as one, near {swallowed[:40]!r}")
        inner: list[str] = []
        found: list[str] = []
        for place in places_of(root):
            node = place.node
            if not node.is_named and not node.is_missing:
                continue  # a sign: what it is a part of tells what it means
            inner += _overlooked(place)
            if node.child_count:
                self._compound(place)
                found += [name for name in [target(node)] if name in text.documents]
            if not self.fault and (node.is_error or node.is_missing or _is_doubtful(place)):
                self._faults(f"line {node.start_point.row + 1}, near {text_of(node)[:40]!r}")
        for gap in _gaps(root):
            self._faults(f"near {gap[:40]!r}")
        if text.doubt or sorted(found) != sorted(text.documents):
            self._faults(text.doubt or "a here-document stands in a strange place")
        for document in text.documents.values():
            if (live := [] if document.literal else substitutions(document.body)) is None:
                self._faults("a substitution in a here-document does not end")
            if not document.literal and "@P}" in document.body and "${" in ESCAPED.sub("", document.body):
                self.unknown.append("what ${...@P} in a here-document runs")
            inner += live or []
        return inner

    def _compound(self, place: Place) -> None:
        """What a node with others in it is."""
        node = place.node
        self.commands += _commands(place, self._documents)
        self.assignments += [*_assignments(node), *(_late(place)[0] if _is_nameless(node) else ())]
        if node.type == "function_definition":
            self.functions.append(text_of(node.named_children[0]))
        if node.type == "expansion" and [child.type for child in node.children[-3:]] == ["@", "P", "}"]:
            self.unknown.append(f"what {text_of(node)[:40]} runs")  # it is read as a prompt

    def _faults(self, fault: str) -> None:
        self.fault = self.fault or fault

    def _unused(self, source: str) -> str:
        """The beginning of a name that is no other word's."""
        name = f"document{len(self._documents)}"
        while name in source:
            name += "_"
        return f"{name}_"


def _tree(source: bytes) -> tuple[Node, str]:
    language = _language()
    from tree_sitter import Parser

    parser = Parser(language)  # one for each text: they are not for many threads
    return tree(source, lambda text: parser.parse(text).root_node)


def _without_expansions(root: Node) -> bytes:
    text = bytearray(root.text or b"")
    for node in sorted(expansions(root), key=lambda one: one.start_byte, reverse=True):
        text[node.start_byte - root.start_byte : node.end_byte - root.start_byte] = BLANK.encode()
    return bytes(text)


@functools.cache
def _language() -> Language:
    try:
        import tree_sitter
        import tree_sitter_bash
    except ImportError:
        raise InvalidRequest(
            "a policy about commands needs a parser of bash: pip install 'shellsession[policy]'"
        ) from None
    return tree_sitter.Language(tree_sitter_bash.language())


def _gaps(root: Node) -> Iterator[str]:
    """Text that is in no node: the grammar knows some things that it does not tell."""
    source, at = root.text or b"", root.start_byte
    todo = [root]
    while todo:
        node = todo.pop()
        if node.child_count:
            todo += reversed(node.children)
            continue
        gap = source[at - root.start_byte : node.start_byte - root.start_byte].replace(b"\\\n", b"").strip(b" \t\n")
        if gap:
            yield gap.decode("utf-8", "surrogateescape")
        at = max(at, node.end_byte)


def _overlooked(place: Place) -> list[str]:
    """Texts that run, and that the grammar takes for plain words, or does not always see."""
    node = place.node
    if is_in_backticks(node):
        return substitutions(text_of(node).lstrip()) or []
    value = (word_of([node]) if node.type in QUOTED else None) or ""
    is_live = "$(" in value or "`" in value
    if is_live and (_is_index(place) or (_ELEMENT.search(value) and "test_command" in place.within)):
        return substitutions(value) or []
    processes = _has_processes(place)
    is_plain = node.child_count == 0 and node.is_named and node.type not in LITERAL
    is_live = is_plain and (processes or "`" in text_of(node))
    return substitutions(text_of(node), processes) or [] if is_live else []


def _has_processes(place: Place) -> bool:
    """Does ``<(`` begin a substitution in this plain word of ``${...}``? The grammar does not see all of them."""
    return "expansion" in place.within and "string" not in place.within


def _is_index(place: Place) -> bool:
    """Does this stand where the index of an element is computed, whatever its quotes?"""
    is_first = place.before is not None and place.before.child_count == 0 and text_of(place.before) == "["
    return "subscript" in place.within or (is_first and "array" in place.within)


def _is_doubtful(place: Place) -> bool:
    """Does the grammar take for a plain word what may be a substitution, a keyword, or more than one line?"""
    node = place.node
    if node.type == "heredoc_redirect":  # one that was not seen before
        return True
    if node.type == "test_command" and text_of(node)[:2].rstrip() == "[":  # a command as others: keywords.COMMAND
        return True
    if is_in_backticks(node):
        return substitutions(text_of(node).lstrip()) is None
    if node.type == "command_name":
        return text_of(node) in _KEYWORDS
    if node.child_count:
        return False
    text = text_of(node)
    text = ESCAPED.sub("", text) if "\\" in text else text
    if node.type in ("raw_string", "ansi_c_string"):  # which are none within double quotes: "${x:-'$(rm y)'}"
        return ("$(" in text or "`" in text) and "string" in place.within
    if node.type == "word" and "\n" in text:
        return True
    is_plain = node.is_named and node.type not in LITERAL
    return is_plain and ("$(" in text or substitutions(text, _has_processes(place)) is None)


def _commands(place: Place, documents: Mapping[str, Document]) -> list[Simple]:
    """The command that this node is."""
    node = place.node
    if node.type == "command":
        # An operator is a word here, as in `expr 1 == 2`; the dollar of $"..." is none.
        parts = [one for one in node.children if one.type not in _NOT_WORDS and not is_dollar(one)]
        while parts and parts[0].type in ("variable_assignment", "variable_assignments"):
            parts.pop(0)
        return _made(groups(parts), place, documents)
    if node.type in ("declaration_command", "unset_command"):
        return [Simple((text_of(node.children[0]), *map(argument_of, groups(node.named_children))))]
    return _made([], place, documents) if _is_nameless(node) else []


def _is_nameless(node: Node) -> bool:
    """Are the words of the command, if it has any, taken for more targets of its redirections?"""
    if node.type == "redirected_statement":
        return node.named_children[0].type in _NOT_WORDS
    return node.type in ("variable_assignment", "variable_assignments")


def _late(place: Place) -> tuple[list[tuple[str, Word]], list[list[Node]]]:
    """What stands after a redirection: assignments, by name and value, and the words of the command."""
    words, assigned = strays(place), list[tuple[str, Word]]()
    while words and (found := _ASSIGNED.match(text_of(words[0][0]))) is not None:
        value = word_of(words.pop(0))
        assigned.append((found[1], value and value.partition("=")[2]))
    return assigned, words


def _assignments(node: Node) -> list[tuple[str, Word]]:
    """Each value that this node assigns, by the name of the variable: those of an array, and of a loop, are many."""
    if node.type == "for_statement":
        name, among = text_of(node.named_children[0]), groups(node.children_by_field_name("value"))
        return [(name, word_of(group)) for group in among] or [(name, None)]
    if node.type == "expansion" and any(child.type in (":=", "=") for child in node.children[2:3]):
        return [(text_of(node.children[1]).partition("[")[0], word_of(node.children[3:-1]))]
    if node.type != "variable_assignment":
        return []
    name, values = text_of(node.children[0]).partition("[")[0], list(node.children[2:])
    if values and values[0].type == "array":
        return [(name, word_of(group)) for group in groups(values[0].named_children)]
    return [(name, word_of(values))]


def _made(groups: list[list[Node]], place: Place, documents: Mapping[str, Document]) -> list[Simple]:
    groups = [*groups, *(strays(place) if groups else _late(place)[1])]
    groups = [group for group in groups if text_of(group[0]) != NOTHING]
    if not groups:
        return []
    return [Simple((name_of(groups[0]), *map(argument_of, groups[1:])), *fed(place, documents))]
