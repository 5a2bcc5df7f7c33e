"""The language of ``${{ }}``: what it computes, and what it refuses."""

from __future__ import annotations

from typing import Final

import pytest

from shellsession.workflow.expression import (
    Expression,
    ExpressionError,
    Name,
    Value,
    condition,
    filled,
    holds,
    parts_of,
)

_VALUES: Final[dict[Name, Value]] = {
    ("env", "MODE"): "fast",
    ("inputs", "count"): "3",
    ("steps", "build", "outcome"): "failure",
    ("steps", "build", "outputs", "V-1"): "it's",
}
_CASES: Final[list[tuple[str, Value]]] = [
    ("'a'", "a"),
    ("'it''s'", "it's"),
    ("1.50", 1.5),
    ("true", True),
    ("null", None),
    ("env.MODE", "fast"),
    ("env.NONE", None),
    ("env.MODE == 'FAST'", True),
    ("env.MODE != 'slow' && inputs.count == 3", True),
    ("inputs.count == '3.0'", False),
    ("steps.build.outputs.V-1 == 'it''s'", True),
    ("env.NONE || 'default'", "default"),
    ("env.NONE && 'x'", None),
    ("!env.NONE", True),
    ("!!env.MODE", True),
    ("!(true == false) && !false", True),
    ("false || true && false", False),
    ("(false || true) == true", True),
    ("success()", False),
    ("failure() && steps.build.outcome == 'failure'", True),
    ("always()", True),
    ("'a' == 1", False),
    ("'' == 0", True),
    ("-2 == '-2'", True),
]
_WRONG: Final = [
    "",
    "a b",
    "env.X ==",
    "== 1",
    "'open",
    "(true",
    "true)",
    "cancelled()",
    "success(1)",
    "env.X = 1",
    "__import__('os')",
    "1.2.3",
    "env.X; 1",
    "a[0]",
    "(" * 50 + "1" + ")" * 50,
    "!" * 3000,
]


@pytest.mark.parametrize(("text", "value"), _CASES, ids=[text for text, _ in _CASES])
def test_expression_has_its_value(text: str, value: Value) -> None:
    assert Expression(text).value(_VALUES.get, succeeded=False) == value


@pytest.mark.parametrize("text", _WRONG)
def test_expression_that_is_wrong_is_refused_with_what_is_allowed(text: str) -> None:
    with pytest.raises(ExpressionError):
        Expression(text)


def test_condition_without_function_needs_success() -> None:
    plain, judging = condition("${{ env.MODE == 'fast' }}"), condition("env.MODE == 'fast' && failure()")
    assert [holds(plain, _VALUES.get, succeeded) for succeeded in (True, False)] == [True, False]
    assert [holds(judging, _VALUES.get, succeeded) for succeeded in (True, False)] == [False, True]


def test_many_expressions_that_are_not_closed_are_refused_at_once() -> None:
    with pytest.raises(ExpressionError, match="is missing"):
        parts_of("${{ " * 200_000)


def test_text_with_expressions_is_filled() -> None:
    assert filled("a ${{ env.MODE }}-${{inputs.count}}${{ env.NONE }} $X {}", _VALUES.get) == "a fast-3 $X {}"
    assert filled("${{ 2 == 2 }} ${{ 1.0 }} ${{ 12345678 }} ${{ '}' }}", _VALUES.get) == "true 1 12345678 }"
    with pytest.raises(ExpressionError):
        parts_of("a ${{ env.X")
