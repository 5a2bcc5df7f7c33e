"""Parse a bash text with tree-sitter-bash: its commands, their standard input, what it writes, and what it sets.

The grammar does not cover all of bash. Where its tree has an error, the script has a ``fault``; the commands around the
error still count. Some misreadings show no error. This module corrects those that ordinary commands run into:

* it cuts out here-documents before the grammar reads the text, and asks the tree whether they are some;
* it ends a simple command at the end of its line (``a | b | c``, and ``d 2>f`` in the next line);
* it reads text between backticks on its own (``echo `a` `b```);
* it counts the words after a redirection as words of the command (``git >out push``).

The functions at the end compute the value of quoted text.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from ..errors import MissingExtra

if TYPE_CHECKING:
    from tree_sitter import Language, Node, Parser


# Stands for text that is known only at run time. Bash and the grammar take it for an ordinary letter, so a text that
# contains it can still be parsed.
UNKNOWN: Final = "\ue000"

# Limit in bytes, without here-documents. For some texts that are not bash, the grammar takes quadratic time: seconds at
# this size.
_MAX_BYTES: Final = 1 << 16

# The operator of a here-document and its delimiter.
_HEREDOC: Final = re.compile(
    r"""(?<!<)<<(-?)[ \t]*(?:'([^'\n]+)'|"([^"\\`$\n]+)"|(\\?)([^\s;&|<>()'"\\`$#]+))(?=[\s;&|<>)])"""
)
_LINE: Final = re.compile(r"(?:[^\n\\]|\\.)*\n", re.DOTALL)
_TABS: Final = re.compile(r"^\t+", re.MULTILINE)
# Begins the file name that replaces a here-document in the text.
_DOCUMENT_NAME: Final = "\ue001"
# With this many operators that begin no here-document, no here-document is cut out: each costs one more parse.
_MAX_WRONG: Final = 8

_EXPANSIONS: Final = frozenset(
    {"simple_expansion", "expansion", "command_substitution", "process_substitution", "arithmetic_expansion"}
)
_REDIRECTS: Final = frozenset({"file_redirect", "herestring_redirect", "heredoc_redirect"})
_ASSIGNMENTS: Final = frozenset({"variable_assignment", "variable_assignments"})
_QUOTES: Final = _EXPANSIONS | {"string", "raw_string", "ansi_c_string"}
_NOT_WORDS: Final = _REDIRECTS | _ASSIGNMENTS | {"comment", "subshell"}
_LITERAL: Final = frozenset({"raw_string", "ansi_c_string", "comment"})
# A redirection after one of these belongs to the last command in it.
_SEQUENCES: Final = frozenset({"list", "pipeline", "negated_command"})
_SEPARATORS: Final = re.compile(r"[;&|()`\n]")
# The operators of redirections that may write. "<>" is one that the grammar does not know: it leaves a fault.
_WRITING: Final = frozenset({">", ">>", ">|", "&>", "&>>", ">&"})
_DESCRIPTOR: Final = re.compile(r"[0-9]+-?|-")


class TextTooLong(Exception):
    """The text is too long to be read."""


class Command(NamedTuple):
    """One command: its words, and the text on its standard input (None: not known)."""

    words: tuple[str, ...]
    stdin: str | None = None


@dataclass(slots=True)
class Script:
    """A parsed text.

    ``commands``; ``written``: the targets of redirections that write; ``assigned``: the variables it sets; ``fault``:
    where the grammar failed ("": nowhere).
    """

    commands: list[Command] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    assigned: list[str] = field(default_factory=list)
    fault: str = ""


class HereDocument(NamedTuple):
    """The body of a here-document with ``UNKNOWN`` for each expansion, and the texts of its command substitutions."""

    body: str
    substitutions: Sequence[str] = ()


def parse(text: str, documents: dict[str, HereDocument], expired: Callable[[], bool] = bool) -> Script:
    """Parse the text and the substitutions in it.

    ``documents`` collects here-documents by name, across calls: a quoted text may refer to a here-document that was cut
    out of the text around it. Raises TextTooLong, also once ``expired`` returns True;
    MissingExtra if the parser is not installed.
    """
    parser, script = _parser(), Script()
    todo = [text]
    while todo:
        source, root, cut = _tree(parser, todo.pop(), documents, expired)
        reader = _Reader(source, script, documents)
        reader.read(root)
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
        raise MissingExtra(
            "a policy about commands needs a parser of bash: pip install 'shellsession[policy]'"
        ) from None
    return tree_sitter.Language(tree_sitter_bash.language())


def _parser() -> Parser:
    language = _language()
    from tree_sitter import Parser

    return Parser(language)  # a new one, as threads must not share one


def _tree(
    parser: Parser, text: str, documents: dict[str, HereDocument], expired: Callable[[], bool]
) -> tuple[bytes, Node, list[HereDocument]]:
    """The text without its here-documents, its tree, and these here-documents.

    An operator in a comment or in quotes begins none, and only the tree says where those are. So each cut is
    checked in the tree; after a wrong one, the text is cut again without it. In a text with many wrong ones, none is
    cut: the grammar then finds a fault at each true operator.
    """
    wrong: set[int] = set()
    while True:
        rest, cut, places = _cut_here_documents(text, wrong, len(documents), expired)
        source = rest.encode("utf-8", "surrogateescape")
        if len(source) > _MAX_BYTES:
            raise TextTooLong(f"over {_MAX_BYTES} bytes without here-documents")
        root = _parsed(parser, source, expired)
        for number, place in places:
            _check_time(expired)
            if not _is_redirection(root, rest, place):
                wrong.add(number)  # the later ones depend on it: what it cut out may hide a quote
                break
        else:
            documents.update({f"{_DOCUMENT_NAME}{len(documents) + at}": one for at, one in enumerate(cut)})
            return source, root, cut


def _parsed(parser: Parser, source: bytes, expired: Callable[[], bool]) -> Node:
    """The root of the tree. The parser asks for text, as it heeds a time limit only then."""
    try:
        return parser.parse(lambda at, _: source[at:], progress_callback=lambda *_: expired()).root_node
    except ValueError:
        _check_time(expired)
        raise


def _check_time(expired: Callable[[], bool]) -> None:
    if expired():
        raise TextTooLong("it takes the parser too much time")


def _is_redirection(root: Node, text: str, place: int) -> bool:
    """Whether the tree has a redirection at this place, and its line ends outside of quotes that begin after it."""
    start = len(text[:place].encode("utf-8", "surrogateescape"))
    name = root.descendant_for_byte_range(start, start + 1)
    if name is None or name.parent is None or name.parent.type != "file_redirect":
        return False
    line = _LINE.match(text, place)
    end = start + len(line[0].encode("utf-8", "surrogateescape")) - 1 if line else start
    node = root.descendant_for_byte_range(end, end + 1)
    while node is not None and node.start_byte > start:
        if node.start_byte < end and node.type in _QUOTES:
            return False
        node = node.parent
    return True


def _cut_here_documents(
    text: str, wrong: set[int], first: int, expired: Callable[[], bool]
) -> tuple[str, list[HereDocument], list[tuple[int, int]]]:
    """The text with ``<NAME`` in place of each here-document, these here-documents, and their numbers and places.

    An operator counts if its delimiter stands alone in a later line and its number is not in ``wrong``. Other operators
    are left to the grammar.
    """
    cut: list[HereDocument] = []
    places: list[tuple[int, int]] = []
    at, number = 0, -1
    while len(wrong) < _MAX_WRONG and (operator := _HEREDOC.search(text, at)) is not None:
        _check_time(expired)
        at, number = operator.end(), number + 1
        if number in wrong:
            at = operator.start() + 2
            continue
        tabs, single, double, backslash, bare = operator.groups()
        pattern = ("^\t*" if tabs else "^") + re.escape(single or double or bare) + r"(?:\n|\Z)"
        line = _LINE.match(text, at)
        end = line and re.compile(pattern, re.MULTILINE).search(text, line.end())
        if line is None or end is None:
            continue
        body = text[line.end() : end.start()]
        body = _TABS.sub("", body) if tabs else body
        name = f"{_DOCUMENT_NAME}{first + len(cut)}"
        cut.append(HereDocument(body) if backslash or bare is None else HereDocument(*mark_expansions(body)))
        at = operator.start()
        places.append((number, at + 1))
        text = f"{text[:at]}<{name} {text[operator.end() : line.end()]}{text[end.end() :]}"
    return text, cut, places


class _Visit(NamedTuple):
    """A node to visit, the standard input of its commands, and the redirections of its last command."""

    node: Node
    stdin: str | None = None
    redirects: Sequence[Node] = ()


class _Reader:
    """Adds the commands of one text to a script."""

    def __init__(self, source: bytes, script: Script, documents: dict[str, HereDocument]) -> None:
        self._source, self._script, self._documents = source, script, documents
        self.inner: list[str] = []  # texts that run and that the tree does not show

    def read(self, root: Node) -> None:
        has_error = root.has_error
        todo = [_Visit(root)]  # a list, as trees can be too deep for recursion
        while todo:
            visit = todo.pop()
            node = visit.node
            if has_error and (node.is_error or node.is_missing):
                self._fault(node)
            children = node.children
            if children:
                todo += reversed([*self._parts(visit, children)])
            else:
                self._leaf(node)

    def _fault(self, node: Node) -> None:
        near = f"{self._text(node)[:40]!r}"
        if len(near) == 3 and b"<>" in self._source[max(0, node.start_byte - 1) : node.end_byte + 1]:
            near = "'<>', a redirection that no rule covers"
        self._script.fault = self._script.fault or f"line {node.start_point.row + 1}, near {near}"

    def _text(self, node: Node) -> str:
        return self._source[node.start_byte : node.end_byte].decode("utf-8", "surrogateescape")

    def _leaf(self, node: Node) -> None:
        """Collect substitutions that the grammar takes for part of a plain word (``${x:-`date`}``)."""
        text = self._source[node.start_byte : node.end_byte]
        if (b"`" in text or b"(" in text) and node.is_named and node.type not in _LITERAL:
            self.inner += mark_expansions(self._text(node), is_word=node.type == "word")[1]

    def _parts(self, visit: _Visit, children: list[Node]) -> Iterable[_Visit]:
        """Add the commands of this node, and return the nodes to visit next."""
        node, stdin, redirects = visit
        kind = node.type
        if kind == "command":
            self._script.commands += self._commands(children, redirects, stdin)
            for child in children:
                if child.type == "regex" and _SEPARATORS.search(self._text(child)):
                    self._fault(child)  # inside $( ) the grammar reads the text after == as it does inside [[ ]]
                    self.inner.append(self._text(child))
            return map(_Visit, children)
        if kind == "redirected_statement":
            own = [child for child in children if child.type in _REDIRECTS]
            if children[0].type in _REDIRECTS:
                self._script.commands += self._commands((), own, stdin)
            return [
                _Visit(one) if one.type in _REDIRECTS else _Visit(one, stdin, [*own, *redirects]) for one in children
            ]
        if kind in _SEQUENCES:
            return self._sequence(visit, children)
        if kind in _ASSIGNMENTS:
            self._script.commands += self._commands((), redirects, stdin)
            if kind == "variable_assignment":
                self._script.assigned.append(self._text(children[0]).partition("[")[0])
        elif kind in ("declaration_command", "unset_command"):
            self._script.commands += [Command(words) for words in self._words(children)]
        elif kind == "test_command" and children[0].type == "[":
            self._script.commands.append(Command(tuple(self._text(node).split())))
            if ">" in self._text(node):  # `[ a > b ]` writes b; the grammar takes it for `[[ a > b ]]`
                self._script.written.append(UNKNOWN)
        elif kind == "file_redirect":
            self._script.written += self._written(node, children)
        elif kind == "command_substitution" and children[0].type == "`":
            texts = mark_expansions(self._text(node))[1]
            if not texts or children[-1].is_missing:  # unclosed backtick
                self._fault(node)
            self.inner += texts
            return ()
        elif kind == "heredoc_redirect":
            self._fault(node)
        stdin = self._stdin(redirects, stdin)
        return [_Visit(child, stdin) for child in children]

    def _sequence(self, visit: _Visit, children: list[Node]) -> Iterator[_Visit]:
        stdin = visit.stdin
        for child in children[:-1]:
            yield _Visit(child, stdin)
            if visit.node.type == "pipeline" and child.is_named:
                stdin = self._output(child, stdin)
        yield _Visit(children[-1], stdin, visit.redirects)

    def _commands(self, nodes: Iterable[Node], redirects: Iterable[Node], stdin: str | None) -> Iterator[Command]:
        """The command of these nodes, or one command for each of their lines."""
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
            if redirect.type == "file_redirect":  # the grammar takes the words after it for more targets
                parts += redirect.children_by_field_name("destination")[1:]
        stdin = self._stdin(own, stdin)
        return (Command(words, stdin) for words in self._words(parts))

    def _stdin(self, redirects: Iterable[Node], stdin: str | None) -> str | None:
        """The standard input after these redirections; ``stdin`` is what it was before them."""
        for redirect in redirects:
            if redirect.type == "herestring_redirect":
                stdin = next(iter(self._words(redirect.named_children)), ("",))[0]
            elif redirect.type == "file_redirect" and any(child.type in ("<", "<&") for child in redirect.children):
                descriptor = redirect.child_by_field_name("descriptor")
                target = redirect.child_by_field_name("destination")
                if target is not None and (descriptor is None or self._text(descriptor) == "0"):
                    stdin = self._content(self._text(target))
        return stdin

    def _written(self, redirect: Node, children: list[Node]) -> Iterator[str]:
        """The target of a redirection, if it is a file that may be written."""
        operator = next((child.type for child in children if child.type in _WRITING), "")
        target = redirect.child_by_field_name("destination")
        if not operator or target is None or target.type == "process_substitution":  # a pipe to a command
            return
        text = self._text(target)
        if not (operator == ">&" and _DESCRIPTOR.fullmatch(text)):
            # As for a name, a pattern is unknown; and so is a home directory.
            yield UNKNOWN if text.startswith("~") else self._value(target, is_name=True)

    def _content(self, path: str) -> str | None:
        document = self._documents.get(path)
        return document.body if document is not None else "" if path == "/dev/null" else None

    def _output(self, node: Node, stdin: str | None) -> str | None:
        """What a command prints, if its words alone determine it (``cat``, ``echo``, ``printf``)."""
        redirects: Sequence[Node] = ()
        if node.type == "redirected_statement":
            node, *redirects = node.children
        if node.type != "command":
            return None
        words, stdin = next(self._commands(node.children, redirects, stdin), Command(()))
        match words:
            case ("cat",) | ("cat", "-"):
                return stdin
            case ("echo", *arguments):
                while arguments and arguments[0] in ("-e", "-n", "-ne", "-en", "-E"):
                    del arguments[0]
                return " ".join(arguments).replace("\\n", "\n")
            case ("printf", *arguments):  # each argument may be a line
                return "\n".join(arguments).replace("\\n", "\n")
        return None

    def _words(self, parts: Iterable[Node]) -> Iterator[tuple[str, ...]]:
        """The words of these nodes, line by line."""
        words: list[str] = []
        end = 0
        for part in parts:
            start = part.start_byte
            gap = self._source[end:start].replace(b"\\\n", b"") if words else b" "
            if words and (b"\n" in gap or self._source.startswith(b"\n", start)):  # some word nodes include a newline
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
            return ansi_quoted_value(text[2:-1])
        children = node.children
        if not children:
            return "" if kind == "$" else unquoted_value(text.lstrip("\n"), is_name)  # "$": the dollar of $"..."
        if kind == "concatenation" and "{" in text:
            bare = "".join(self._text(child) for child in children if child.type == "word")
            if UNKNOWN in unquoted_value(bare):
                return UNKNOWN
        return "".join([self._value(child, is_name) for child in children])

    def _string(self, node: Node) -> str:
        pieces, at = list[bytes](), node.start_byte + 1
        for child in node.children:
            if child.type in _EXPANSIONS:
                pieces += [self._source[at : child.start_byte], UNKNOWN.encode()]
                at = child.end_byte
        pieces.append(self._source[at : node.end_byte - 1])
        return double_quoted_value(b"".join(pieces).decode("utf-8", "surrogateescape"))


_ESCAPED: Final = re.compile(r"\\(?:\n|(.))", re.DOTALL)
_ESCAPED_IN_QUOTES: Final = re.compile(r'\\(?:\n|([$`"\\]))')
_ESCAPED_IN_BACKTICKS: Final = re.compile(r"\\([$`\\])")
_BRACES: Final = re.compile(r"\{[^{}]*(?:,|\.\.)[^{}]*\}")
_GLOB: Final = re.compile(r"[*?\[]")
_ANSI: Final = re.compile(
    r"\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|c(.)|(.))", re.DOTALL
)
_ANSI_LETTERS: Final = dict(zip("abeEfnrtv", "\a\b\x1b\x1b\f\n\r\t\v", strict=True))
# Expansions in text without quoting, such as the body of a here-document.
_EXPANSION: Final = re.compile(
    r"\\(?:\n|([$`\\]))|`((?:[^`\\]|\\.)*)`|(\$\(\(|\$\{)|([$<>]\()|\$(?:\w+|[@*#?$!-])", re.DOTALL
)
_NESTED: Final = re.compile(r"""\\.|'[^']*'|"(?:[^"\\]|\\.)*"|(?<!\S)#[^\n]*|[()]""", re.DOTALL)


def unquoted_value(text: str, is_name: bool = False) -> str:
    """The value of an unquoted part of a word. ``is_name``: the word names a command, so a pattern is unknown."""
    if ("{" in text and _BRACES.search(text)) or (is_name and _GLOB.search(text)):
        return UNKNOWN
    return _ESCAPED.sub(_first_group, text) if "\\" in text else text


def double_quoted_value(text: str) -> str:
    """The value of text between double quotes that has no expansions."""
    return _ESCAPED_IN_QUOTES.sub(_first_group, text) if "\\" in text else text


def ansi_quoted_value(text: str) -> str:
    """The value of the text between ``$'`` and ``'``."""
    value = _ANSI.sub(_ansi_character, text)
    return value.encode("utf-8", "surrogateescape").decode("utf-8", "surrogateescape").partition("\0")[0]


def backtick_text(text: str) -> str:
    """The command text between two backticks."""
    return _ESCAPED_IN_BACKTICKS.sub(_first_group, text) if "\\" in text else text


def mark_expansions(text: str, is_word: bool = False) -> tuple[str, list[str]]:
    """The text with ``UNKNOWN`` for each expansion, and the texts of its command substitutions.

    Quotes in the text are ordinary characters. ``is_word``: the text is part of a word, where ``<(`` begins a
    substitution, too.
    """
    pieces: list[str] = []
    inner: list[str] = []
    at = hidden = 0  # text before ``hidden`` is inside an expansion: only its substitutions matter
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
            inner.append(backtick_text(backticks))
        elif substitution:
            end = _closing(text, at - 1)
            inner.append(text[at : end - 1])
            at = end
        elif opening and at > hidden:
            hidden = _closing(text, at - 2) if opening == "$((" else text.find("}", at) + 1 or len(text)
    return "".join([*pieces, text[max(at, hidden) :]]), inner


def _closing(text: str, start: int) -> int:
    """The index after the closing parenthesis for the one at ``start``; beyond the text if there is none."""
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
