"""The conditions of a SWITCH: their meaning, and refusals with a place (X10)."""

from __future__ import annotations

import pytest

from common.expressions import MAX_DEPTH, MAX_LENGTH, MAX_TEXT_LENGTH, ExpressionError, parse

VALUES = {"cnt": "12", "flag": "Y", "on": "True", "off": "false", "empty": "", "a b": "x"}


def holds(text: str, **more: str) -> bool:
    return parse(text).evaluate(VALUES | more)


@pytest.mark.parametrize(
    "text",
    [
        "${cnt} > 10",
        "${flag} == 'Y'",
        '${flag} == "Y"',
        "${flag} != 'N'",
        "${cnt} >= 12 && ${cnt} <= 12",
        "10 < ${cnt}",
        "${cnt} == '12.0'",
        "${cnt} == 1.2e1",
        "-5 < .5",
        "+1 == 1.",
        "-0 == 0",
        "9 < 10",
        "'abc' > '10'",
        "'B' < 'a'",
        "'' == ${empty}",
        "'${flag}/${cnt}' == 'Y/12'",
        r"'it\'s' == " + '"it\'s"',
        r"'a\\b' == 'a\\b' and 'a\b' == 'a\\b'",
        "${a b} == 'x'",
        "${on} and not ${off}",
        "${on} == true",
        "true == ${on}",
        "${flag} != true",
        "(1 < 2) == (3 < 4)",
        "(${cnt}) > (10)",
        "!(1 > 2)",
        "!${off} == true",
        "not 1 == 2",
        "not not true",
        "false or true and true",
        "true OR false AND false",
        "true || false && false",
        "not false and true",
        "((${cnt} > 10 or ${missing_not}) and true)".replace("${missing_not}", "false"),
        "\n\t${cnt}\n>\t10 ",
        "1",
        "'0.0' == 0",
        "not 0",
    ],
)
def test_a_condition_holds(text: str) -> None:
    assert holds(text)


@pytest.mark.parametrize(
    "text",
    [
        "${cnt} > 100",
        "${flag} == 'y'",
        "1 == 2 or 2 == 3",
        "(true or true) and false",
        "not (true or false)",
        "${cnt} == true",
        "true == 1",
        "0",
        "${off}",
        "1e9999 < 1",
    ],
)
def test_a_condition_does_not_hold(text: str) -> None:
    assert not holds(text)


def test_a_number_of_too_many_digits_is_text() -> None:
    assert holds("${a} == ${b}", a="1" * 64, b="1" * 61 + "111")
    assert not holds("${a} == ${b}", a="0" * 64 + "1", b="1")


def test_a_value_is_never_read_as_part_of_the_condition() -> None:
    assert not holds("${flag} == 'Y'", flag="x' or 'Y' == 'Y")
    assert not holds("'${flag}' == 'Y'", flag="x' or 'Y' == 'Y")
    assert holds("${flag} == '${cnt}x'", flag="${cnt}x", cnt="${cnt}")


def test_the_parameters_that_a_condition_needs_are_known_before_it_is_decided() -> None:
    text = "${b} > 1 or '${a}-${b}' == 'x'"
    assert parse(text).parameters == ("b", "a")


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("${gone} == 1", 1, "the parameter 'gone' has no value"),
        ("true or ${gone} == 1", 9, "the parameter 'gone' has no value"),
        ("'ab ${gone}' == 1", 5, "the parameter 'gone' has no value"),
        ("true and ${flag}", 10, "neither true nor false"),
        ("not 'x'", 5, "neither true nor false"),
    ],
)
def test_what_can_not_be_decided_is_an_error_that_names_the_place(
    text: str, position: int, reason: str
) -> None:
    with pytest.raises(ExpressionError) as caught:
        holds(text)
    assert caught.value.position == position
    assert reason in caught.value.reason


def test_an_error_of_evaluation_does_not_show_the_value() -> None:
    with pytest.raises(ExpressionError) as caught:
        holds("${password}", password="hunter2")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("", 1, "expected a value"),
        ("${flag} == Y", 12, "the bare word 'Y'; text stands in quotes"),
        ("${flag} = 'Y'", 9, "expected == to compare, found '='"),
        ("${flag} === 'Y'", 11, "found '='"),
        ("${flag} ==", 11, "found the end"),
        ("1 < 2 < 3", 7, "comparisons don't chain"),
        ("(1 < 2) < 3", 9, "a truth value has no order: expected == or !=, found '<'"),
        ("1 < true", 3, "a truth value has no order"),
        ("1 == not 2", 6, "put it in parentheses"),
        ("'abc", 1, "expected the closing ' of the text"),
        ("${a", 1, "expected a parameter"),
        ("${}", 1, "expected a parameter"),
        ("$[yyyy]", 1, "expected a parameter"),
        ("(1 == 1", 8, "expected a ')' for the '(' at position 1"),
        ("1 == 1)", 7, "or the end, found ')'"),
        ("()", 2, "expected a value"),
        ("1 == 1 1", 8, "expected a comparison, 'and', 'or' or the end"),
        ("10abc == 1", 1, "expected a number"),
        ("1 & 2", 3, "found '&'"),
        ("1 == 1 and", 11, "found the end"),
        ("null == ${a}", 1, "the bare word 'null'"),
        ("1 == 1; 2", 7, "found ';'"),
        ("1 == \x00", 6, r"found '\x00'"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_position(
    text: str, position: int, reason: str
) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert caught.value.position == position
    assert reason in str(caught.value)
    assert str(caught.value).startswith(f"position {position}: ")


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("__import__('os')", 1),
        ("().__class__", 2),
        ("9**9**9", 2),
        ("${a}.__class__ == 1", 5),
        ("[x for x in ()]", 1),
        ("lambda: 1", 1),
        ("1 if 1 else 2", 3),
        ("java.lang.Runtime", 1),
        ("this.constructor", 1),
        ("`id`", 1),
        ("(" * 1_000_000, MAX_LENGTH + 1),
        ("x" * 1_000_000, MAX_LENGTH + 1),
        ("(" * 1_000, MAX_DEPTH + 1),
        ("(" * (MAX_DEPTH + 1) + "1" + ")" * (MAX_DEPTH + 1), MAX_DEPTH + 1),
        ("'" + "\\" * 3_000, 1),
        ("1" * 3_999 + "x", 1),
    ],
)
def test_x10_hostile_texts_are_refused_with_a_position(text: str, position: int) -> None:
    with pytest.raises(ExpressionError) as caught:
        parse(text)
    assert caught.value.position == position
    assert len(str(caught.value)) < 300


def test_x10_the_longest_conditions_take_few_steps() -> None:
    longest = (
        "!" * (MAX_LENGTH - 1) + "1",
        "not " * (MAX_LENGTH // 4 - 1) + "true",
        "1&&" * (MAX_LENGTH // 3) + "1",
        "(" * MAX_DEPTH + "1" + ")" * MAX_DEPTH,
    )
    for text in longest:
        expression = parse(text)
        assert expression.steps <= 2 * MAX_LENGTH
        assert expression.evaluate({}) in (True, False)


def test_x10_a_quoted_text_does_not_grow_without_limit() -> None:
    expression = parse(f"'{'${a}' * 900}' == 'x'")
    with pytest.raises(ExpressionError, match=f"{MAX_TEXT_LENGTH:,}"):
        expression.evaluate({"a": "y" * 10_000})
