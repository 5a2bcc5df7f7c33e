"""The language of ``${{ }}`` in ``if``, ``env`` and ``inputs``: a small part of that of GitHub Actions. Pure.

It has texts, numbers, true, false, null, names (``env.X``, ``inputs.X``, ``steps.ID.outcome``, ``steps.ID.outputs.X``),
``==``, ``!=``, ``&&``, ``||``, ``!``, parentheses, and the functions success(), failure() and always().
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

Value = str | float | bool | None
Name = tuple[str, ...]
# What gives a name its value, and whether every step before this one has succeeded.
Look = Callable[[Name], Value]

_LONGEST: Final = 2000  # characters
_DEEPEST: Final = 40  # parentheses in parentheses
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>-?\d+(?:\.\d+)?)(?![\w.])|(?P<name>[A-Za-z_][\w-]*(?:\.[A-Za-z_][\w-]*)*)"
    r"|(?P<sign>==|!=|&&|\|\||[!()]))"
)
_WORDS: Final = {"true": True, "false": False, "null": None}
FUNCTIONS: Final = ("success", "failure", "always")
_ALLOWED: Final = (
    "an expression has 'texts', numbers, true, false, null, names (env.X, inputs.X, steps.ID.outcome,"
    " steps.ID.outputs.X), ==, !=, &&, ||, !, ( ) and success(), failure(), always()"
)
_OPENS: Final = "${{"
_CLOSES: Final = "}}"


class ExpressionError(ValueError):
    """The text is no expression; the message says why, and what is allowed."""


Part = Callable[[Look, bool], Value]


class Expression:
    """One expression. ``names``: those that it reads. ``judges``: it has one of the three functions."""

    def __init__(self, text: str) -> None:
        """Raises ExpressionError."""
        self.text, self.names, self.judges = text.strip(), list[Name](), False
        if len(text) > _LONGEST:
            raise ExpressionError(f"an expression must have at most {_LONGEST} characters, not {len(text)}")
        self._tokens = list(_tokens(text))
        self._at = 0
        self._value = self._any(0)
        if (kind := self._next()[0]) != "end":
            raise ExpressionError(f"{self.text!r:.100}: there is something after its end ({kind}): {_ALLOWED}")

    def value(self, look: Look, succeeded: bool) -> Value:
        """Return the value. ``succeeded``: whether every step so far has."""
        return self._value(look, succeeded)

    def _next(self) -> tuple[str, str]:
        token = self._tokens[self._at]
        self._at += 1
        return token

    def _skip(self, sign: str) -> bool:
        found = self._tokens[self._at] == ("sign", sign)
        self._at += found
        return found

    def _any(self, depth: int) -> Part:
        parts = [self._all(depth)]
        while self._skip("||"):
            parts.append(self._all(depth))
        return parts[0] if len(parts) == 1 else lambda look, ok: _first(parts, look, ok, True)

    def _all(self, depth: int) -> Part:
        parts = [self._equal(depth)]
        while self._skip("&&"):
            parts.append(self._equal(depth))
        return parts[0] if len(parts) == 1 else lambda look, ok: _first(parts, look, ok, False)

    def _equal(self, depth: int) -> Part:
        left = self._operand(depth)
        for sign, wanted in (("==", True), ("!=", False)):
            if self._skip(sign):
                right = self._operand(depth)
                return lambda look, ok: are_equal(left(look, ok), right(look, ok)) is wanted
        return left

    def _operand(self, depth: int) -> Part:
        negations = 0
        while self._skip("!"):
            negations += 1
        part = self._primary(depth)
        if not negations:
            return part
        return lambda look, ok: bool(part(look, ok)) is (negations % 2 == 0)

    def _primary(self, depth: int) -> Part:
        kind, text = self._next()
        if kind == "text":
            value: Value = text[1:-1].replace("''", "'")
        elif kind == "number":
            value = float(text)
        elif kind == "name" and text in _WORDS:
            value = _WORDS[text]
        elif kind == "name" and self._skip("("):
            return self._call(text)
        elif kind == "name":
            self.names.append(name := tuple(text.split(".")))
            return lambda look, _: look(name)
        elif (kind, text) == ("sign", "(") and depth < _DEEPEST:
            part = self._any(depth + 1)
            if not self._skip(")"):
                raise ExpressionError(f"{self.text!r:.100}: a ) is missing")
            return part
        else:
            found = "its end" if kind == "end" else repr(text)
            raise ExpressionError(f"{self.text!r:.100}: a value must come before {found}: {_ALLOWED}")
        return lambda *_: value

    def _call(self, name: str) -> Part:
        if name not in FUNCTIONS or not self._skip(")"):
            raise ExpressionError(f"{self.text!r:.100}: {name}(...) is no function: {_ALLOWED}")
        self.judges = True
        return {"success": lambda _, ok: ok, "failure": lambda _, ok: not ok, "always": lambda *_: True}[name]


def _tokens(text: str) -> Iterator[tuple[str, str]]:
    at, end = 0, len(text.rstrip())
    while at < end:
        if (found := _TOKEN.match(text, at)) is None:
            raise ExpressionError(f"{text.strip()!r:.100}: {text[at:].strip()!r:.40} is no part of it: {_ALLOWED}")
        assert found.lastgroup is not None
        yield found.lastgroup, found[found.lastgroup]
        at = found.end()
    yield "end", ""


def _first(parts: list[Part], look: Look, ok: bool, truth: bool) -> Value:
    """The value of the first part with that truth, or of the last one."""
    value: Value = None
    for part in parts:
        if bool(value := part(look, ok)) is truth:
            break
    return value


def are_equal(left: Value, right: Value) -> bool:
    """Compare as GitHub Actions does: texts without regard to case, and a text with a number as numbers."""
    if isinstance(left, str) and isinstance(right, str):
        return left.lower() == right.lower()
    if type(left) is type(right):
        return left == right
    try:
        return float(left or 0) == float(right or 0)
    except ValueError:
        return False


def text_of(value: Value) -> str:
    """Return a value as it is inserted into a text."""
    if value is None or isinstance(value, bool):
        return {None: "", True: "true", False: "false"}[value]
    return f"{value:.15g}" if isinstance(value, float) else value


def condition(text: str) -> Expression:
    """Return the expression of an ``if``, which may be written without ``${{ }}``. Raises ExpressionError."""
    text = text.strip()
    is_marked = text.startswith(_OPENS) and text.endswith(_CLOSES)
    return Expression(text[len(_OPENS) : -len(_CLOSES)] if is_marked else text)


def holds(condition: Expression, look: Look, succeeded: bool) -> bool:
    """Return whether a step with that condition runs: without a function in it, only after success."""
    return (condition.judges or succeeded) and bool(condition.value(look, succeeded))


def parts_of(text: str) -> list[str | Expression]:
    """Return the pieces of a text with ``${{ }}`` in it. Raises ExpressionError."""
    pieces: list[str | Expression] = []
    at = 0
    while (begin := text.find(_OPENS, at)) >= 0:
        if (end := text.find(_CLOSES, begin)) < 0:
            raise ExpressionError(f"{text!r:.100}: a }}}} is missing")
        pieces += text[at:begin], Expression(text[begin + len(_OPENS) : end])
        at = end + len(_CLOSES)
    pieces.append(text[at:])
    return [one for one in pieces if one != ""]


def filled(text: str, look: Look) -> str:
    """Return the text with the value of each ``${{ }}`` in it."""
    return "".join(one if isinstance(one, str) else text_of(one.value(look, True)) for one in parts_of(text))


def begins_expression(text: str) -> int:
    """Return where the text has a ``${{``; -1 if it has none."""
    return text.find(_OPENS)
