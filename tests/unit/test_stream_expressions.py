"""Expressions of transforms: trees by rank, and mistakes that name their place."""

from __future__ import annotations

import pytest

from common.model.streams.expressions import (
    FUNCTIONS,
    MAX_DEPTH,
    MAX_HEIGHT,
    MAX_LENGTH,
    Call,
    Column,
    ExpressionTextError,
    Literal,
    Node,
    read_expression,
    zone_of,
)


def shown(node: Node) -> str:
    """Show a tree with all of its parentheses."""
    match node:
        case Literal():
            return repr(node.value)
        case Column():
            return node.name
        case Call():
            return f"({' '.join((node.function, *map(shown, node.arguments)))})"


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        ("delay", "delay"),
        ('"dep delay"', "dep delay"),
        (r"'it\'s\n\u00e9'", repr("it's\né")),
        ("1", "1"),
        ("2.5e3", "2500.0"),
        ("null", "None"),
        ("a + b * c", "(+ a (* b c))"),
        ("a - b - c", "(- (- a b) c)"),
        ("a ^ b ^ c", "(^ a (^ b c))"),
        ("-a ^ 2", "(^ (- a) 2)"),
        ("!a && b", "(&& (! a) b)"),
        ("--a", "(- (- a))"),
        ("(a + b) * c", "(* (+ a b) c)"),
        ("a + b > c * 2", "(> (+ a b) (* c 2))"),
        ("a == 1 && b != 'x' && c", "(&& (&& (== a 1) (!= b 'x')) c)"),
        ("(a || b) && c", "(&& (|| a b) c)"),
        ("IF(a > 5, 'late', concat(b, '!'))", "(if (> a 5) 'late' (concat b '!'))"),
        ("timestamp_floor(__time, 'PT1H')", "(timestamp_floor __time 'PT1H')"),
        ("case_searched(a>1,'x',a>0,'y','z')", "(case_searched (> a 1) 'x' (> a 0) 'y' 'z')"),
    ],
)
def test_an_expression_is_a_tree_by_the_rank_of_its_operators(text: str, tree: str) -> None:
    assert shown(read_expression(text)) == tree
    assert shown(read_expression(f"  ( {text} ) ")) == tree


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("", "a value was expected, not the end"),
        ("a +", "not the end"),
        ("* a", "not '*' at 1"),
        ("a b", "'b' at 3 was not expected"),
        ("(a", "')' was expected, not the end"),
        ("f(a", "',' was expected"),
        ("median(a)", "the function 'median' at 1 is unknown; known are abs"),
        ("1 + eval(a)", "'eval' at 5"),
        ("strlen()", "'strlen' at 1 takes 1 arguments, not 0"),
        ("if(a, b)", "takes 3 arguments, not 2"),
        ("substring(a)", "takes 2 to 3 arguments, not 1"),
        ("a && b || c", "needs parentheses"),
        ("a # b", "'# b' can't be read"),
        ("'open", "can't be read"),
        ("9223372036854775808", "more than a long holds"),
        ("1e999", "more than a double holds"),
        ("(" * (MAX_DEPTH + 2) + "a", "nested more than"),
        ("-" * (MAX_DEPTH + 2) + "a", "nested more than"),
        ("a" * (MAX_LENGTH + 1), "longer than"),
        ("cast(a, 'DATE')", "cast knows the types LONG, DOUBLE, FLOAT, STRING, not 'DATE'"),
        ("cast(a, b)", "cast needs argument 2 as a text in quotes"),
        ("round(1, a)", "round needs argument 2 as a number"),
        ("round(1, '2')", "round needs argument 2 as a number"),
        ("json_value(a, b)", "json_value needs argument 2 as a text in quotes"),
        ("timestamp_floor(a, 'never')", "timestamp_floor can't use the period 'never'"),
        ("timestamp_ceil(a, 1)", "timestamp_ceil needs argument 2 as a text"),
        ("timestamp_shift(a, 'P', 1)", "timestamp_shift can't use the period 'P'"),
        ("timestamp_extract(a, 'AGE')", "timestamp_extract knows the units EPOCH, SECOND"),
        ("timestamp_parse(a, b)", "timestamp_parse needs argument 2 as a text in quotes"),
        ("timestamp_parse(a, 'yyyyTMM')", "'yyyyTMM': the letter T means nothing"),
        ("timestamp(a, 'yyyy-ww')", "write xxxx in place of the year"),
        (
            "timestamp_format(a, 'yyyy q')",
            "timestamp_format can't use the pattern 'yyyy q': the letter q",
        ),
        ("if(a, timestamp_format(b, ''), 1)", "an empty pattern"),
    ],
)
def test_a_mistake_is_named_with_its_place(text: str, mistake: str) -> None:
    with pytest.raises(ExpressionTextError) as caught:
        read_expression(text)
    assert mistake in str(caught.value)


BERLIN = "'Europe/Berlin'"
CONSTANTS = {
    "cast": ("'LONG'",),
    "round": ("-2",),
    "json_value": ("'$.a'",),
    "like": ("'a%'", "'!'"),
    "regexp_like": ("'a'",),
    "regexp_extract": ("'(a)'", "1"),
    "timestamp": ("'yyyy'",),
    "timestamp_extract": ("'YEAR'", BERLIN),
    "timestamp_shift": ("'P1D'", "a", BERLIN),
    **dict.fromkeys(("timestamp_floor", "timestamp_ceil"), ("'P1D'", "null", BERLIN)),
    **dict.fromkeys(("timestamp_parse", "timestamp_format"), ("'yyyy'", BERLIN)),
}
"""The arguments behind the first one that some functions have to have as constants."""


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_a_function_takes_its_numbers_of_arguments_and_no_others(name: str) -> None:
    least, most = FUNCTIONS[name]
    for count in (least, most):
        assert read_expression(called(name, count))
    for count in (least - 1, most + 1):
        with pytest.raises(ExpressionTextError):
            read_expression(called(name, count))


def called(name: str, count: int) -> str:
    constants = CONSTANTS.get(name, ())
    arguments = ["a", *constants, *["a"] * count]
    return f"{name}({','.join(arguments[:count])})"


@pytest.mark.parametrize(
    ("text", "mistake"),
    [
        ("timestamp_floor(a, 'P1D', null, 'europe/berlin')", "did you mean Europe/Berlin?"),
        ("timestamp_floor(a, 'P1D', 'Europe/Berlin')", "a zone is argument 4, behind null"),
        ("timestamp_floor(a, 'P1D', '2000-01-01', 'UTC')", "an origin is not supported"),
        ("timestamp_floor(a, 'P1D', null, zone)", "needs argument 4 as a text in quotes"),
        ("timestamp_ceil(a, 'PT6H', null, 'Europe/Berlin')", "PT1H or shorter"),
        ("timestamp_shift(a, 'P1DT1H', 1, 'Europe/Berlin')", "shift twice for both"),
        ("timestamp_extract(a, 'DAY', '+25:00')", "is no zone; write as in Europe/Berlin"),
        ("timestamp_format(a, 'HH:mm Z', 'Europe/Berlin')", "write null as the pattern"),
        ("regexp_like(a, '(')", "missing )"),
        ("regexp_extract(a, '(b)', 2)", "has 1 groups"),
        ("regexp_like(a, b)", "needs argument 2 as a text in quotes"),
        ("like(a, 'b!', '!')", "ends with its escape"),
    ],
)
def test_a_zone_or_pattern_that_no_task_could_use_is_refused(text: str, mistake: str) -> None:
    with pytest.raises(ExpressionTextError) as caught:
        read_expression(text)
    assert mistake in str(caught.value)


@pytest.mark.parametrize("zone", ["'UTC'", "'Z'", "null", "'Etc/UTC'"])
def test_utc_is_the_zone_without_one(zone: str) -> None:
    call = read_expression(f"timestamp_extract(a, 'DAY', {zone})")
    assert isinstance(call, Call)
    assert zone_of(call) == ""


def test_a_long_chain_of_operators_is_refused_before_anything_walks_it() -> None:
    assert read_expression(" + ".join("a" * MAX_HEIGHT))
    with pytest.raises(ExpressionTextError, match="operands in a row"):
        read_expression(" + ".join("a" * 2_000))
