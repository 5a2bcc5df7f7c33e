"""The commands that stand in a text of bash, as a real grammar of bash finds them (tree-sitter-bash).

Law: what a word means is told only where the text alone says it; a word that is known at run time only is None.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ..errors import InvalidRequest
from .words import ESCAPED, QUOTED, Word, groups, is_escaped, name_of, nodes_of, substitutions, text_of, word_of

if TYPE_CHECKING:
    from tree_sitter import Language, Node

# Bytes: more is not read, as some texts take time that grows with the square of their length.
MAX_READ: Final = 1 << 16
_NOT_WORDS: Final = frozenset({"file_redirect", "heredoc_redirect", "herestring_redirect", "comment", "subshell"})
# What stands in these is what it is; so do delimiters.
_LITERAL: Final = frozenset(
    {"raw_string", "ansi_c_string", "comment", "heredoc_body", "heredoc_content", "heredoc_start", "heredoc_end"}
)
_KEYWORDS: Final = frozenset({"!", "[[", "]]", "{", "}", "if", "then", "elif", "else", "fi", "case", "esac"}) | {
    *("for", "select", "while", "until", "do", "done", "function")
}
_CONTINUED: Final = re.compile(rb"(?<!\\)(?:\\\\)*\\\n")


@dataclass(frozen=True, slots=True)
class Simple:
    """One command of a text: its words, the first of which names it; and the text it is fed, where that stands there.

    ``fed``: the body of its here-document or here-string (None: it has none); ``live``: that one has expansions.
    """

    words: tuple[Word, ...]
    fed: str | None = None
    live: bool = False


@dataclass(frozen=True, slots=True)
class Text:
    """What stands in a text of bash: its commands, and what it assigns, by name and value; ``fault`` says what of it is
    none ("" when all of it is)."""

    commands: tuple[Simple, ...]
    fault: str = ""
    assignments: tuple[tuple[str, Word], ...] = ()


def parse(source: bytes) -> Text:
    """The commands of the text, from the outer to the inner ones. Raises InvalidRequest where the parser is missing."""
    if len(source) > MAX_READ:
        return Text((), f"it has over {MAX_READ} bytes")
    found: list[Simple] = []
    assignments: list[tuple[str, Word]] = []
    faults: list[str] = []
    todo = [source]
    while todo:
        root = _tree(todo.pop())
        for node in nodes_of(root):
            found += _commands(node)
            assignments += _assignment(node)
            todo += [text.encode("utf-8", "surrogateescape") for text in _overlooked(node)]
            if not faults and (node.is_error or node.is_missing or _is_doubtful(node)):
                faults.append(f"line {node.start_point.row + 1}, near {text_of(node)[:40]!r}")
        faults += [f"near {gap[:40]!r}" for gap in _gaps(root)]
    return Text(tuple(found), faults[0] if faults else "", tuple(assignments))


def _tree(source: bytes) -> Node:
    language = _language()
    from tree_sitter import Parser

    parser = Parser(language)  # one for each text: they are not for many threads
    text = bytearray(source)
    root = parser.parse(source).root_node
    # The grammar takes a here-document that begins with a backslash for more words of the command. A blank before it
    # helps, which the grammar then drops.
    if misread := [node.start_byte + 1 for node in nodes_of(root) if _is_misread(node)]:
        for at in reversed(misread):
            text[at:at] = b" "
        root = parser.parse(bytes(text)).root_node
    size = len(text)
    for found in reversed(list(_CONTINUED.finditer(bytes(text)))):
        at = found.end() - 2
        inner = root.descendant_for_byte_range(at, at + 1)
        if inner is None or inner.type not in _LITERAL:  # the grammar takes it for a blank, also within a word
            del text[at : at + 2]
    return root if len(text) == size else parser.parse(bytes(text)).root_node


def _is_misread(node: Node) -> bool:
    return node.type == "word" and (node.text or b"").startswith(b"\n")


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
        if node.child_count and node.type != "heredoc_body":
            todo += reversed(node.children)
            continue
        gap = source[at - root.start_byte : node.start_byte - root.start_byte].replace(b"\\\n", b"").strip()
        if gap and not (gap == b"-" and node.type == "<<"):  # that one is known, see _dash
            yield gap.decode("utf-8", "surrogateescape")
        at = max(at, node.end_byte)


def _overlooked(node: Node) -> list[str]:
    """Texts that run, and that the grammar takes for plain words, or does not always see."""
    text = text_of(node)
    if is_escaped(node):
        return substitutions(text.lstrip()) or []
    if node.type == "heredoc_body":
        return [] if _is_literal(node) else substitutions(text) or []
    is_plain = node.child_count == 0 and node.is_named and node.type not in _LITERAL
    return substitutions(text) or [] if is_plain and "`" in text else []


def _is_doubtful(node: Node) -> bool:
    """Does the grammar take for a plain word what may be a substitution, a keyword, or more than one line?"""
    if node.type == "heredoc_body":
        return not _is_literal(node) and substitutions(text_of(node)) is None
    if is_escaped(node):
        return substitutions(text_of(node).lstrip()) is None
    if node.type == "command_name":
        return text_of(node) in _KEYWORDS
    if node.child_count and node.type not in QUOTED:
        return False
    text = ESCAPED.sub("", text_of(node))
    if node.type in ("raw_string", "ansi_c_string"):  # which are none within double quotes: "${x:-'$(rm y)'}"
        return ("$(" in text or "`" in text) and _is_within_quotes(node)
    if node.type == "word" and "\n" in text:
        return True
    is_plain = node.is_named and node.child_count == 0 and node.type not in _LITERAL
    return is_plain and ("$(" in text or substitutions(text) is None)


def _is_within_quotes(node: Node) -> bool:
    around = node.parent
    while around is not None and around.type not in ("command_substitution", "process_substitution"):
        if around.type in ("string", "heredoc_body"):
            return True
        around = around.parent
    return False


def _commands(node: Node) -> list[Simple]:
    """The command that this node is."""
    if node.type == "command":
        # An operator is a word here, as in `expr 1 == 2`; the dollar of $"..." is none.
        parts = [one for one in node.children if one.type not in _NOT_WORDS and one.type != "$"]
        while parts and parts[0].type in ("variable_assignment", "variable_assignments"):
            parts.pop(0)
        return _made([*groups(parts), *_strays(node)], node)
    if node.type in ("declaration_command", "unset_command"):
        return [Simple((text_of(node.children[0]), *(word_of(group) for group in groups(node.named_children))))]
    if node.type == "test_command" and text_of(node)[:2].rstrip() == "[":
        return [Simple(("[",))]
    if node.type == "redirected_statement" and node.named_children[0].type in _NOT_WORDS:
        return _made(_strays(node), node)
    return []


def _assignment(node: Node) -> list[tuple[str, Word]]:
    if node.type != "variable_assignment" or node.children[0].type != "variable_name":
        return []
    return [(text_of(node.children[0]), word_of(list(node.children[2:])))]


def _made(groups: list[list[Node]], node: Node) -> list[Simple]:
    if not groups:
        return []
    return [Simple((name_of(groups[0]), *(word_of(group) for group in groups[1:]), *_dash(node)), *_fed(node))]


def _statement(node: Node) -> Node | None:
    """The statement that says where the input and output of this command go; of a list, that of its last command."""
    if node.type == "redirected_statement":
        return node
    last, around = node, node.parent
    while around is not None and around.type in ("list", "pipeline", "negated_command"):
        if last.end_byte != around.end_byte:
            return None
        last, around = around, around.parent
    return around if around is not None and around.type == "redirected_statement" else None


def _strays(node: Node) -> list[list[Node]]:
    """Words of a command that stand after a redirection, which the grammar takes for more of its targets."""
    statement = _statement(node)
    todo = [] if statement is None else list(statement.named_children)
    strays: list[list[Node]] = []
    while todo:
        redirect = todo.pop(0)
        if redirect.type == "file_redirect":
            strays += groups([one for one in redirect.named_children if one.type != "file_descriptor"])[1:]
        elif redirect.type == "heredoc_redirect":
            strays += groups(redirect.children_by_field_name("argument"))
            todo = [one for one in redirect.named_children if one.type == "file_redirect"] + todo
    return strays


def _dash(node: Node) -> list[Word]:
    """The "-" of `python3 - <<EOF`, which the grammar takes for a part of the operator."""
    statement = _statement(node)
    for redirect in [] if statement is None else statement.named_children:
        if redirect.type == "heredoc_redirect" and redirect.prev_sibling is not None and statement is not None:
            span = slice(redirect.prev_sibling.end_byte - statement.start_byte, redirect.children[0].end_byte)
            if (statement.text or b"")[span].split(b"<<")[0].strip() == b"-":
                return ["-"]
    return []


def _fed(node: Node) -> tuple[str | None, bool]:
    """The text that a command gets on its standard input, and whether that is only known when it runs."""
    statement = _statement(node)
    around = [] if statement is None or statement is node else statement.named_children
    fed, live = None, False
    for redirect in [*node.named_children, *around]:
        if redirect.type == "herestring_redirect":
            value = word_of([child for child in redirect.named_children if child.type != "file_descriptor"])
            fed, live = (text_of(redirect)[3:], True) if value is None else (value, False)
        elif redirect.type == "heredoc_redirect":
            body = [child for child in redirect.children if child.type == "heredoc_body"]
            fed = "".join(map(text_of, body))
            live = not all(map(_is_literal, body)) and any(mark in fed for mark in "$`\\")
    return fed, live


def _is_literal(body: Node) -> bool:
    """Is this the body of a here-document whose delimiter is quoted?"""
    starts = [one for one in body.parent.children if one.type == "heredoc_start"] if body.parent else []
    return any(mark in text_of(start) for start in starts for mark in "'\"\\")
