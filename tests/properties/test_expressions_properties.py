"""Properties of conditions: each is refused with a position, or evaluates as written."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal

from hypothesis import given, settings
from hypothesis import strategies as st

from common.expressions import MAX_LENGTH, Expression, ExpressionError, parse

# A busy machine is no failure of the code.
UNTIMED = settings(deadline=None)

_SYMBOLS = [
    *("(", ")", "==", "!=", "<", "<=", ">", ">=", "&&", "||", "!", " ", "'", '"', "\\", "=", "."),
    *(" and ", " or ", " not ", "true", "false", "${a}", "${b}", "'x'", '"1"', "1", "-2.5", "1e3"),
    *("${", "}", "__class__", "[", "**", "\x00", "é", "$"),
]
# Mostly symbols with a meaning, so that most examples are nearly valid.
TEXTS = st.one_of(
    st.text(max_size=80), st.lists(st.sampled_from(_SYMBOLS), max_size=40).map("".join)
)
VALUES = st.dictionaries(
    st.sampled_from(["a", "b"]),
    st.one_of(st.text(max_size=20), st.sampled_from(["true", "1", "NaN", "1e9999", "Infinity"])),
)


def read(text: str) -> Expression | ExpressionError:
    try:
        return parse(text)
    except ExpressionError as error:
        return error


@UNTIMED
@given(TEXTS, VALUES)
def test_arbitrary_text_raises_nothing_but_an_expression_error(
    text: str, values: dict[str, str]
) -> None:
    expression = read(text)
    if isinstance(expression, ExpressionError):
        assert 1 <= expression.position <= len(text) + 1
        assert str(expression).isprintable()
        return
    assert expression.steps <= 2 * len(text) + 1
    with suppress(ExpressionError):
        assert expression.evaluate(values) in (True, False)


@UNTIMED
@given(st.lists(st.sampled_from(_SYMBOLS), min_size=1, max_size=6), st.integers(1, 4_000))
def test_repeated_text_raises_nothing_but_an_expression_error(
    symbols: list[str], times: int
) -> None:
    text = ("".join(symbols) * times)[: MAX_LENGTH + 10]
    with suppress(ExpressionError):
        expression = parse(text)
        assert expression.steps <= 2 * len(text)
        assert expression.evaluate({"a": "1", "b": "true"}) in (True, False)


_TRUTHS: st.SearchStrategy[tuple[str, bool]] = st.recursive(
    st.sampled_from([("true", True), ("1 < 2", True), ("${a} == 'no'", False), ("0", False)]),
    lambda inner: st.one_of(
        st.tuples(inner, inner, st.sampled_from(["and", "&&"])).map(
            lambda parts: (
                f"({parts[0][0]}) {parts[2]} ({parts[1][0]})",
                parts[0][1] and parts[1][1],
            )
        ),
        st.tuples(inner, inner, st.sampled_from(["or", "||"])).map(
            lambda parts: (
                f"({parts[0][0]}) {parts[2]} ({parts[1][0]})",
                parts[0][1] or parts[1][1],
            )
        ),
        inner.map(lambda part: (f"not ({part[0]})", not part[1])),
        inner.map(lambda part: (f"!({part[0]})", not part[1])),
    ),
    max_leaves=12,
)


@UNTIMED
@given(_TRUTHS)
def test_and_or_not_mean_what_they_say(case: tuple[str, bool]) -> None:
    text, expected = case
    assert parse(text).evaluate({"a": "yes"}) is expected


@UNTIMED
@given(
    st.decimals(-(10**9), 10**9, places=3),
    st.decimals(-(10**9), 10**9, places=3),
    st.sampled_from(["==", "!=", "<", "<=", ">", ">="]),
)
def test_numbers_compare_as_numbers_wherever_they_stand(
    left: Decimal, right: Decimal, operator: str
) -> None:
    outcomes = {
        parse(f"{left} {operator} {right}").evaluate({}),
        parse(f"'{left}' {operator} ${{b}}").evaluate({"b": str(right)}),
        parse(f"${{a}} {operator} ${{b}}").evaluate({"a": str(left), "b": f" {right} "}),
    }
    expected = {
        "==": left == right,
        "!=": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }
    assert outcomes == {expected[operator]}
