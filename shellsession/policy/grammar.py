"""The commands in a text of bash, as tree-sitter-bash finds them.

The grammar does not know all of bash. Where its tree has an error, the text has a ``fault``, and the commands around
the error still count. Some of its misreadings show no error; those that ordinary commands meet are put right here:

* here-documents are cut out before the grammar reads the text;
* a simple command ends where its line ends (``a | b | c``, and ``d 2>f`` in the next line);
* text between backticks is read on its own (``echo `a` `b```);
* words behind a redirection belong to the command (``git >out push``).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from ..errors import InvalidRequest

if TYPE_CHECKING:
    from tree_sitter import Language, Node, Parser


# Stands for text that is known only at run time. To bash and to the grammar it is an ordinary letter, so a text with
# such marks can be read as bash, too.
UNKNOWN: Final = "\ue000"

_ESCAPED: Final = re.compile(r"\\(?:\n|(.))", re.DOTALL)
_ESCAPED_IN_QUOTES: Final = re.compile(r'\\(?:\n|([$`"\\]))')
_ESCAPED_IN_BACKTICKS: Final = re.compile(r"\\([$`\\])")
_BRACES: Final = re.compile(r"\{[^{}]*(?:,|\.\.)[^{}]*\}")
_GLOB: Final = re.compile(r"[*?\[]")
_ANSI: Final = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|c(.)|(.))", re.DOTALL
)
_ANSI_LETTERS: Final = dict(zip("abeEfnrtv", "\a\b\x1b\x1b\f\n\r\t\v", strict=True))
# Expansions in text where quotes mean nothing, such as the body of a here-document.
_EXPANSION: Final = re.compile(
    r"\\(?:\n|([$`\\]))|`((?:[^`\\]|\\.)*)`|(\$\(\(|\$\{)|([$<>]\()|\$(?:\w+|[@*#?$!-])", re.DOTALL
)
_NESTED: Final = re.compile(r"""\\.|'[^']*'|"(?:[^"\\]|\\.)*"|(?<!\S)#[^\n]*|[()]""", re.DOTALL)


def unquoted(text: str, is_name: bool = False) -> str:
    """The value of a part of a word without quotes. ``is_name``: the word names a command, so a pattern is unknown."""
    if ("{" in text and _BRACES.search(text)) or (is_name and _GLOB.search(text)):
        return UNKNOWN
    return _ESCAPED.sub(_first_group, text) if "\\" in text else text


def double_quoted(text: str) -> str:
    """The value of text between double quotes that has no expansions."""
    return _ESCAPED_IN_QUOTES.sub(_first_group, text) if "\\" in text else text


def ansi_quoted(text: str) -> str:
    """The value of the text between ``$'`` and ``'``."""
    value = _ANSI.sub(_ansi_character, text)
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape").partition("\0")[0]


def in_backticks(text: str) -> str:
    """The command text between two backticks."""
    return _ESCAPED_IN_BACKTICKS.sub(_first_group, text) if "\\" in text else text


def expanded(text: str, is_word: bool = False) -> tuple[str, list[str]]:
    """The text with its expansions marked, and the texts of the command substitutions in it.

    Quotes mean nothing in the text. ``is_word``: it is part of a word, where ``<(`` begins a substitution, too.
    """
    pieces: list[str] = []
    inner: list[str] = []
    at = hidden = 0  # up to there the text is part of an expansion: only the substitutions in it matter
    while (found := _EXPANSION.search(text, at)) is not None:
        pieces.append(text[max(at, hidden) : found.start()])
        at = found.end()
        escaped, backticks, opening, substitution = found.groups()
        if found[0][0] == "\\":
            pieces.append(escaped or "" if at > hidden else "")
            continue
        if substitution and substitution[0] != "$" and not is_word:
            pieces.append(substitution if at > hidden else "")
            continue
        if at > hidden:
            pieces.append(UNKNOWN)
        if backticks is not None:
            inner.append(in_backticks(backticks))
        elif substitution:
            end = _closing(text, at - 1)
            inner.append(text[at : end - 1])
            at = end
        elif opening and at > hidden:
            hidden = _closing(text, at - 2) if opening == "$((" else text.find("}", at) + 1 or len(text)
    return "".join([*pieces, text[max(at, hidden) :]]), inner


def _closing(text: str, start: int) -> int:
    """The end of what the parenthesis there opens, or of the text."""
    depth = 0
    for found in _NESTED.finditer(text, start):
        depth += (found[0] == "(") - (found[0] == ")")
        if not depth:
            return found.end()
    return len(text) + 1


def _first_group(found: re.Match[str]) -> str:
    return found[1] or ""


def _ansi_character(found: re.Match[str]) -> str:
    for group, base in ((1, 16), (2, 8)):
        if found[group]:
            return bytes([int(found[group], base) & 0xFF]).decode("utf-8", "surrogateescape")
    if found[3] or found[4]:
        code = int(found[3] or found[4], 16)
        return chr(code) if code < 0xD800 or 0xDFFF < code < 0x110000 else "\ufffd"
    if found[5]:
        return chr(ord(found[5]) & 0x1F)
    return _ANSI_LETTERS.get(found[6], found[6] if found[6] in "\\'\"?" else found[0])


# Bytes without here-documents. The grammar takes quadratic time for some texts that are no bash: seconds for this size.
_MOST: Final = 1 << 16

# The operator of a here-document and its delimiter.
_HEREDOC: Final = re.compile(
    r"""(?<!<)<<(-?)[ \t]*(?:'([^'\n]+)'|"([^"\\`$\n]+)"|(\\?)([^\s;&|<>()'"\\`$#]+))(?=[\s;&|<>)])"""
)
_LINE: Final = re.compile(r"(?:[^\n\\]|\\.)*\n", re.DOTALL)
_TABS: Final = re.compile(r"^\t+", re.MULTILINE)
# Begins the name of the file that stands for a here-document.
_DOCUMENT: Final = "\ue001"

_EXPANSIONS: Final = frozenset(
    {"simple_expansion", "expansion", "command_substitution", "process_substitution", "arithmetic_expansion"}
)
_REDIRECTS: Final = frozenset({"file_redirect", "herestring_redirect", "heredoc_redirect"})
_ASSIGNMENTS: Final = frozenset({"variable_assignment", "variable_assignments"})
_NOT_WORDS: Final = _REDIRECTS | _ASSIGNMENTS | {"comment", "subshell"}
_LITERAL: Final = frozenset({"raw_string", "ansi_c_string", "comment"})
# A redirection behind one of these is part of the last command in it.
_SEQUENCES: Final = frozenset({"list", "pipeline", "negated_command"})
_SEPARATORS: Final = re.compile(r"[;&|()`\n]")


class TooMuch(Exception):
    """The text is too long to be read."""


class Command(NamedTuple):
    """One command: its words, and the text that it reads from its standard input (None: not known)."""

    words: tuple[str, ...]
    stdin: str | None = None


@dataclass(slots=True)
class Script:
    """What a text of bash runs, the variables that it sets, and where the grammar failed ("": nowhere)."""

    commands: list[Command] = field(default_factory=list)
    assigned: list[str] = field(default_factory=list)
    fault: str = ""


class Document(NamedTuple):
    """The body of a here-document with its expansions marked, and the texts of the command substitutions in it."""

    body: str
    substitutions: Sequence[str] = ()


def parse(text: str, documents: dict[str, Document]) -> Script:
    """The commands of the text, and of the substitutions in it.

    ``documents`` collects here-documents by name. A text in quotes may need one that was cut out of the text around it.
    Raises TooMuch; InvalidRequest if the parser is not installed.
    """
    parser, script = _parser(), Script()
    todo = [text]
    while todo:
        rest, cut = _without_documents(todo.pop(), documents)
        source = rest.encode("utf-8", "surrogateescape")
        if len(source) > _MOST:
            raise TooMuch(f"over {_MOST} bytes without here-documents")
        reader = _Reader(source, script, documents)
        reader.read(parser.parse(source).root_node)
        todo += reader.inner
        for document in cut:
            todo += document.substitutions
    return script


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


def _parser() -> Parser:
    language = _language()
    from tree_sitter import Parser

    return Parser(language)  # a new one, as threads must not share one


def _without_documents(text: str, documents: dict[str, Document]) -> tuple[str, list[Document]]:
    """The text with ``<NAME`` in place of each here-document, and these here-documents.

    Quotes are not looked at: an operator counts if its delimiter stands alone in a later line. All others are left to
    the grammar.
    """
    cut: list[Document] = []
    at = 0
    while (operator := _HEREDOC.search(text, at)) is not None:
        at = operator.end()
        tabs, single, double, backslash, bare = operator.groups()
        pattern = ("^\t*" if tabs else "^") + re.escape(single or double or bare) + r"(?:\n|\Z)"
        line = _LINE.match(text, at)
        end = line and re.compile(pattern, re.MULTILINE).search(text, line.end())
        if line is None or end is None:
            continue
        body = text[line.end() : end.start()]
        body = _TABS.sub("", body) if tabs else body
        cut.append(Document(body) if backslash or bare is None else Document(*expanded(body)))
        name = f"{_DOCUMENT}{len(documents)}"
        documents[name] = cut[-1]
        at = operator.start()
        text = f"{text[:at]}<{name} {text[operator.end() : line.end()]}{text[end.end() :]}"
    return text, cut


class _Place(NamedTuple):
    """A node, what the commands in it read, and redirections of the last command in it."""

    node: Node
    stdin: str | None = None
    redirects: Sequence[Node] = ()


class _Reader:
    """Adds what one text runs to a script."""

    def __init__(self, source: bytes, script: Script, documents: dict[str, Document]) -> None:
        self._source, self._script, self._documents = source, script, documents
        self.inner: list[str] = []  # texts that run, too, and that the tree does not show

    def read(self, root: Node) -> None:
        has_error = root.has_error
        todo = [_Place(root)]  # a list, as trees can be too deep for recursion
        while todo:
            place = todo.pop()
            node = place.node
            if has_error and (node.is_error or node.is_missing):
                self._fault(node)
            children = node.children
            if children:
                todo += reversed([*self._parts(place, children)])
            else:
                self._leaf(node)

    def _fault(self, node: Node) -> None:
        self._script.fault = self._script.fault or f"line {node.start_point.row + 1}, near {self._text(node)[:40]!r}"

    def _text(self, node: Node) -> str:
        return self._source[node.start_byte : node.end_byte].decode("utf-8", "surrogateescape")

    def _leaf(self, node: Node) -> None:
        """Find substitutions that the grammar takes for part of a plain word (``${x:-`date`}``)."""
        text = self._source[node.start_byte : node.end_byte]
        if (b"`" in text or b"(" in text) and node.is_named and node.type not in _LITERAL:
            self.inner += expanded(self._text(node), is_word=node.type == "word")[1]

    def _parts(self, place: _Place, children: list[Node]) -> Iterable[_Place]:
        """Note what this node runs, and return the nodes in it."""
        node, stdin, redirects = place
        kind = node.type
        if kind == "command":
            self._script.commands += self._commands(children, redirects, stdin)
            for child in children:
                if child.type == "regex" and _SEPARATORS.search(self._text(child)):
                    self._fault(child)  # in $( ) it reads on behind == as in [[ ]]
                    self.inner.append(self._text(child))
            return map(_Place, children)
        if kind == "redirected_statement":
            own = [child for child in children if child.type in _REDIRECTS]
            if children[0].type in _REDIRECTS:
                self._script.commands += self._commands((), own, stdin)
            return [
                _Place(one) if one.type in _REDIRECTS else _Place(one, stdin, [*own, *redirects]) for one in children
            ]
        if kind in _SEQUENCES:
            return self._sequence(place, children)
        if kind in _ASSIGNMENTS:
            self._script.commands += self._commands((), redirects, stdin)
            if kind == "variable_assignment":
                self._script.assigned.append(self._text(children[0]).partition("[")[0])
        elif kind in ("declaration_command", "unset_command"):
            self._script.commands += [Command(words) for words in self._words(children)]
        elif kind == "test_command" and children[0].type == "[":
            self._script.commands.append(Command(tuple(self._text(node).split())))
        elif kind == "command_substitution" and children[0].type == "`":
            texts = expanded(self._text(node))[1]
            if not texts:  # the backtick is not closed
                self._fault(node)
            self.inner += texts
            return ()
        elif kind == "heredoc_redirect":
            self._fault(node)
        stdin = self._stdin(redirects, stdin)
        return [_Place(child, stdin) for child in children]

    def _sequence(self, place: _Place, children: list[Node]) -> Iterator[_Place]:
        stdin = place.stdin
        for child in children[:-1]:
            yield _Place(child, stdin)
            if place.node.type == "pipeline" and child.is_named:
                stdin = self._output(child, stdin)
        yield _Place(children[-1], stdin, place.redirects)

    def _commands(self, nodes: Iterable[Node], redirects: Iterable[Node], stdin: str | None) -> Iterator[Command]:
        """The command of these nodes, or one for each line."""
        parts: list[Node] = []
        own: list[Node] = []
        for node in nodes:
            kind = node.type
            if kind in _REDIRECTS:
                own.append(node)
            elif kind not in _NOT_WORDS:
                parts.append(node)
        own += redirects
        for redirect in own:
            if redirect.type == "file_redirect":  # to the grammar the words behind it are more targets
                parts += redirect.children_by_field_name("destination")[1:]
        stdin = self._stdin(own, stdin)
        return (Command(words, stdin) for words in self._words(parts))

    def _stdin(self, redirects: Iterable[Node], stdin: str | None) -> str | None:
        """What a command with these redirections reads, if it reads ``stdin`` without them."""
        for redirect in redirects:
            if redirect.type == "herestring_redirect":
                stdin = next(iter(self._words(redirect.named_children)), ("",))[0]
            elif redirect.type == "file_redirect" and any(child.type in ("<", "<&") for child in redirect.children):
                descriptor = redirect.child_by_field_name("descriptor")
                target = redirect.child_by_field_name("destination")
                if target is not None and (descriptor is None or self._text(descriptor) == "0"):
                    stdin = self._content(self._text(target))
        return stdin

    def _content(self, path: str) -> str | None:
        document = self._documents.get(path)
        return document.body if document is not None else "" if path == "/dev/null" else None

    def _output(self, node: Node, stdin: str | None) -> str | None:
        """What a command writes, as far as its words say."""
        redirects: Sequence[Node] = ()
        if node.type == "redirected_statement":
            node, *redirects = node.children
        if node.type != "command":
            return None
        words, stdin = next(self._commands(node.children, redirects, stdin), Command(()))
        match words:
            case ("cat",) | ("cat", "-"):
                return stdin
            case ("echo", *said):
                while said and said[0] in ("-e", "-n", "-ne", "-en", "-E"):
                    del said[0]
                return " ".join(said).replace("\\n", "\n")
            case ("printf", *said):  # each of them may be a line
                return "\n".join(said).replace("\\n", "\n")
        return None

    def _words(self, parts: Iterable[Node]) -> Iterator[tuple[str, ...]]:
        """The words of these nodes, line by line."""
        words: list[str] = []
        end = 0
        for part in parts:
            start = part.start_byte
            gap = self._source[end:start].replace(b"\\\n", b"") if words else b" "
            if words and (b"\n" in gap or self._source.startswith(b"\n", start)):  # some words begin with a newline
                yield tuple(words)
                words = []
            if gap or not words:
                words.append(self._value(part, is_name=not words))
            else:
                words[-1] += self._value(part, is_name=len(words) == 1)
            end = part.end_byte
        if words:
            yield tuple(words)

    def _value(self, node: Node, is_name: bool) -> str:
        """The value of a word, or of a part of one."""
        kind = node.type
        if kind in _EXPANSIONS:
            return UNKNOWN
        if kind == "string":
            return self._string(node)
        text = self._text(node)
        if kind == "raw_string":
            return text[1:-1]
        if kind == "ansi_c_string":
            return ansi_quoted(text[2:-1])
        children = node.children
        if not children:
            return "" if kind == "$" else unquoted(text.lstrip("\n"), is_name)  # the dollar of $"..."
        if kind == "concatenation" and "{" in text:
            bare = "".join(self._text(child) for child in children if child.type == "word")
            if UNKNOWN in unquoted(bare):
                return UNKNOWN
        return "".join([self._value(child, is_name) for child in children])

    def _string(self, node: Node) -> str:
        pieces, at = list[bytes](), node.start_byte + 1
        for child in node.children:
            if child.type in _EXPANSIONS:
                pieces += [self._source[at : child.start_byte], UNKNOWN.encode()]
                at = child.end_byte
        pieces.append(self._source[at : node.end_byte - 1])
        return double_quoted(b"".join(pieces).decode("utf-8", "surrogateescape"))
