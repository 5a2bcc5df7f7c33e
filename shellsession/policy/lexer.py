"""The outlines of a text of bash: its here-documents are taken out, and the grammar is spared what it does not know.

Law: where each begins and ends is told as bash does, by quotes, comments and parentheses; where that is not certain, it
is said. What is taken out leaves ``<NAME`` in its place, so that the grammar, too, must find a redirection there; what
is written in another way runs the same commands.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

from .arithmetic import Arithmetic
from .heredocs import Document, Pending, body, pending
from .keywords import BODIES, COMMAND, KEYWORDS, LISTED, NO_BODY, NO_LOOP, TURNED, Edit, descriptor, respelled
from .nameless import SIGNS, Parts
from .tokens import CLOSING, OPENING, TOKEN


@dataclass(frozen=True, slots=True)
class Cut:
    """A text as the grammar is to read it, and its here-documents by the name that stands for each; ``doubt`` says why
    they may be others ("" when that is certain)."""

    text: str
    documents: dict[str, Document]
    doubt: str = ""


@dataclass(slots=True)
class _Frame:
    """What is open: ``$(`` (also ``<(``), ``(``, ``((``, ``${`` or ``"``; "" is the text itself."""

    kind: str
    quoted: bool = False  # within double quotes, as bash counts them
    cases: int = 0  # whose patterns end with a parenthesis of their own
    start: int = 0
    arithmetic: Arithmetic = field(default_factory=Arithmetic)  # if it is that
    has_head: bool = False  # of a loop, whose body is to come
    has_name: bool = False  # of a function, whose body is to come
    parts: Parts = field(default_factory=Parts)  # of the command that is being read
    pending: list[Pending] = field(default_factory=list)


# Single quotes that may be none, with what these would hide.
_MATTERS: Final = re.compile(r"""\$?'.*["$`}\\].*'""", re.DOTALL)
# Before the descriptor of a here-string, which the grammar knows only before other redirections.
HERE_STRING: Final = "98765432"
# Stands for a word of which nothing is left.
NOTHING: Final = "\ue001"
_EMPTY: Final = re.compile(r"(?:`[ \t\n]*`)+(?=[ \t\n;&|<>()]|\Z)")
_LONGEST: Final = 80  # characters of the name of a descriptor: more are not looked at, again and again
_DESCRIPTOR: Final = re.compile(r"\{[A-Za-z_]\w*\}", re.ASCII)
_DASH: Final = re.compile(r"[ \t](-)[ \t]*\Z")  # a word which the grammar does not take before such a descriptor
_ALONE: Final = re.compile(r"(?:\\\n)*(?:[ \t\n;&|<>()]|\Z)")
_PATTERN: Final = re.compile(r"[\w.*?|,-]+\)")
# Behind a semicolon it ends an item of `case`; the grammar does not know the last one's such end.
_FALLS: Final = re.compile(r"(;?)&")
# Closes a descriptor. What follows is a word of the command, and to the grammar a target.
_CLOSED: Final = re.compile(r"(?:\\\n)*&(?:\\\n)*(-)(?=(?:\\\n)*(?:[ \t\n;&|<>()]|\Z))")


def cut(text: str, name: str, spares: bool = True) -> Cut:
    """The text without its here-documents; the names of these begin with ``name``. ``spares``: the grammar is spared
    what it would only refuse, too."""
    return _Reader(text, name).cut(spares)


def end_of_substitution(text: str, start: int) -> int | None:
    """Where the ``$(``, or ``<(``, that begins here ends; None where that is not certain."""
    return _Reader(text).end_of(start)


class _Reader:
    def __init__(self, text: str, name: str = "") -> None:
        self._text = text
        self._name = name
        self._at = 0
        self._stack = [_Frame("")]
        self._owners = self._stack[:]  # what is read by itself: a here-document belongs to the innermost
        self._waiting = 0  # here-documents whose bodies are to come
        self._begins_word = True
        self._begins_command = True
        self._word = 0  # where it begins
        self._here_string = ""
        self._doubt = ""
        self._edits: list[Edit] = []
        self._spared: list[Edit] = []  # what the grammar would refuse else, and hide nothing
        self._documents: dict[str, Document] = {}

    def cut(self, spares: bool) -> Cut:
        if NOTHING in self._text:
            self._doubts("a character that stands for nothing")
        self._here_string = "" if HERE_STRING in self._text else HERE_STRING
        while self._at < len(self._text):
            self._step()
        if self._stack[0].parts.ends():
            self._edits.append((self._at, self._at, f" {NOTHING} "))
        if len(self._stack) > 1 or self._stack[0].pending:
            self._doubts("something is open at its end")
        for one in self._stack[0].pending:
            self._take(one, "")
        pieces, at = [], 0
        for start, end, put in sorted(self._edits + self._spared if spares else self._edits):
            pieces += [self._text[at:start], put]
            at = end
        return Cut("".join([*pieces, self._text[at:]]), self._documents, self._doubt)

    def end_of(self, start: int) -> int | None:
        self._at, self._stack = start, [_Frame('"', quoted=True) if self._text[start] == "$" else _Frame("")]
        while self._at < len(self._text) and not self._doubt:
            self._step()
            if len(self._stack) == 1:
                return None if self._doubt else self._at
        return None

    def _doubts(self, why: str) -> None:
        self._doubt = self._doubt or why

    def _step(self) -> None:
        frame = self._stack[-1]
        kind = frame.kind if frame.kind in TOKEN else "command"
        found = TOKEN[kind].match(self._text, self._at)
        assert found is not None  # there is always one character more
        token = found[0]
        self._at = found.end()
        if kind == "((":
            frame.arithmetic.takes(token, found.start())
        if token[0] == "`" and kind in ("command", '"') and not token[1:-1].strip(" \t\n") and len(token) > 1:
            self._empty(found.start(), kind)
        if token in OPENING and not (token[-1] == '"' and frame.kind == '"'):
            self._opens(token[-1] if token == '$"' else token, frame)
        elif kind == "command":
            self._command(token, frame)
        elif kind == "((":
            self._arithmetic(token, frame)
        elif token == CLOSING[kind]:
            self._stack.pop()
        elif token == "`" or (kind == "${" and (token == "'" or (frame.quoted and _MATTERS.fullmatch(token)))):
            self._doubts("a quote is open, or within others")

    def _empty(self, start: int, kind: str) -> None:
        """Backticks with nothing in them: of a word nothing is left, and what follows it may name the command."""
        if kind == "command" and self._begins_word and (alone := _EMPTY.match(self._text, start)) is not None:
            self._at = alone.end()
            self._edits.append((start, self._at, NOTHING))
        else:
            self._edits.append((start, self._at, "''" if kind == "command" else ""))

    def _opens(self, token: str, frame: _Frame) -> None:
        if token == "${" and self._text[self._at : self._at + 1] in (" ", "\t", "\n", "|"):
            self._doubts("commands within braces")
        if token == "${" and (turned := TURNED.match(self._text, self._at)) is not None:
            self._spared.append((*turned.span(1), "^" * len(turned[1])))
        if self._begins_word:
            frame.parts.takes(token, self._text, self._at - len(token))
        quoted = token == '"' or (token in ("${", "((") and frame.quoted)
        self._push("((" if token == "$((" else token, quoted)
        self._begins_word = self._begins_command = token == "$("

    def _push(self, kind: str, quoted: bool = False) -> None:
        frame = _Frame(kind, quoted, start=self._at)
        self._stack.append(frame)
        if kind == "$(":
            self._owners.append(frame)

    def _arithmetic(self, token: str, frame: _Frame) -> None:
        if token in ("'", "`"):
            self._doubts("a quote in arithmetic")
        if frame.arithmetic.closes(token, self._text[self._at : self._at + 1]):
            if frame.arithmetic.is_subshell:
                self._edits.append((frame.start - 1, frame.start - 1, " "))
                if re.search("<<|#", self._text[frame.start : self._at]) is not None:
                    self._doubts("arithmetic, or a subshell")
            elif not self._doubt:
                self._spared += frame.arithmetic.edits
            self._stack.pop()
            self._begins_word = self._begins_command = False

    def _command(self, token: str, frame: _Frame) -> None:
        if token[0] in " \t":
            self._begins_word = True
            return
        start, begins_word, begins_command = self._at - len(token), self._begins_word, self._begins_command
        self._begins_word = token[-1] in "\n;&|<>()" and token[0] != "\\"
        if token.isspace() and token != "\n":  # it is a blank to the grammar, and none to bash
            self._edits.append((start, self._at, f"'{token}'"))
        self._begins_command = token in ("\n", ";", "&", "|", "(", ")")
        self._word = start if begins_word else self._word
        if (begins_word or token in SIGNS) and frame.parts.takes(token, self._text, start):
            self._edits.append((start, start, f" {NOTHING} "))
        if token[0] in "<>":
            self._redirects(start, token)
        if token == "\n":
            self._line_ends()
        elif token == ";" and frame.cases:
            self._item_ends()
        elif token in ("<<", "<<-"):
            self._operator(start, token)
        elif token in ("<((", ">((") or (token == "((" and begins_command):
            self._push("((")
        elif token == "(" and not begins_command and self._is_pattern(start):
            self._begins_word = False
        elif token in ("(", "((", "<(", ">("):
            for _ in range(token.count("(")):
                self._push("$(" if token[0] in "<>" else "(")
            self._begins_command = True
        elif token == ")":
            self._closes(frame)
        elif token == "#" and begins_word:
            end = self._text.find("\n", self._at)
            self._at = len(self._text) if end < 0 else end
        elif token in ("'", "`"):
            self._doubts("a quote is open")
        elif token == "\\\n":
            self._begins_word, self._begins_command = begins_word, begins_command
        elif begins_word and begins_command and token not in ";&|<>":
            self._first_word(token, frame)

    def _item_ends(self) -> None:
        if (falls := _FALLS.match(self._text, self._at)) is not None:
            self._edits.append((self._at, falls.end(), ";"))
            self._at = falls.end()

    def _first_word(self, word: str, frame: _Frame) -> None:
        if word == "[" and _ALONE.match(self._text, self._at) is not None:
            self._edits.append((self._word, self._at, COMMAND))
        if self._text[self._at : self._at + 1] not in ("", *" \t\n;&|<>()"):
            return
        if word not in KEYWORDS:
            frame.has_name = False
            return
        arithmetic = word == "for" and self._text[self._at : self._at + 80].lstrip(" \t").startswith("((")
        if frame.has_head and word == "{":
            self._edits.append((self._word, self._word, NO_LOOP))
        if frame.has_name and word in BODIES:
            self._edits.append((self._word, self._word, NO_BODY))
        frame.has_head = (frame.has_head and word not in ("do", "{")) or (word in LISTED and not arithmetic)
        frame.has_name = word == "function"
        edits, at, begins = respelled(word, self._text, self._word, self._at)
        self._edits += edits
        self._begins_word = self._begins_word or at > self._at
        self._at, self._begins_command = at, begins or arithmetic
        frame.cases += (word == "case") - (word == "esac" and frame.cases > 0)
        if begins and word not in ("time", "coproc"):  # which are commands to the grammar
            frame.parts.begins()

    def _closes(self, frame: _Frame) -> None:
        if frame.cases or not frame.kind:
            return
        self._stack.pop()
        self._stack[-1].has_name = not self._text[frame.start : self._at - 1].strip()
        if frame.kind == "$(":
            self._owners.pop()
            if frame.pending:
                self._waiting -= len(frame.pending)
                self._doubts("a here-document without a body")
            self._begins_word = self._begins_command = False

    def _redirects(self, start: int, token: str) -> None:
        before = self._text[max(self._word, start - _LONGEST) : start]
        is_named = _DESCRIPTOR.fullmatch(before) is not None
        is_number = before.isascii() and before.isdecimal()
        number = "10" if is_named else before if is_number else ""  # or one that follows: no other's
        if token == "<<<" and self._here_string:
            self._edits.append((start - len(before) * bool(number), self._at, f" {self._here_string}{number}<"))
            if (dash := _DASH.search(self._text, max(0, start - _LONGEST), start)) is not None:
                self._edits.append((*dash.span(1), "'-'"))
        elif is_named or number.startswith("0"):
            put, signs = descriptor(number, self._text, start)
            self._edits.append((self._word, start + signs, put))
        if token == "<" and self._text[self._at : self._at + 1] == ">":
            self._edits.append((self._at, self._at + 1, ""))
            self._at += 1
        elif (closed := _CLOSED.match(self._text, self._at)) is not None:
            self._edits.append((*closed.span(1), "1"))

    def _is_pattern(self, start: int) -> bool:
        """Is this one of extglob's, with nothing in it that runs?"""
        found = _PATTERN.match(self._text, self._at)
        if found is None or self._text[start - 1 : start] not in ("?", "*", "+", "@", "!"):
            return False
        self._edits.append((start - 1, found.end(), "*"))
        self._at = found.end()
        return True

    # -- the documents

    def _operator(self, start: int, operator: str) -> None:
        if (one := pending(self._text, start, operator)) is None:
            self._doubts("the delimiter of a here-document")
        else:
            self._owners[-1].pending.append(one)
            self._waiting += 1
            self._at = one.end
        self._begins_word = False

    def _line_ends(self) -> None:
        owner = self._owners[-1]
        if self._waiting > len(owner.pending):
            self._doubts("a line within a here-document's own")
        begin = self._at
        for one in owner.pending:
            text, self._at, doubt = body(self._text, self._at, one, within=owner is not self._stack[0])
            self._doubts(doubt)
            self._take(one, text)
        if owner.pending:
            self._edits.append((begin, self._at, ""))
            self._waiting -= len(owner.pending)
            owner.pending = []

    def _take(self, one: Pending, text: str) -> None:
        name = f"{self._name}{len(self._documents)}"
        self._documents[name] = Document(text, one.literal)
        self._edits.append((one.start, one.end, f"<{name} "))
