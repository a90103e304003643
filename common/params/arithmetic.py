"""Integer arithmetic as the amounts in `$[…]` use it.

Non-negative integers, `+ - * /`, parentheses, and a sign at the start, after an operator or after
`(`. Division cuts towards zero. There are no decimals: half a day is `1/2`, and `0.5` an error.
"""

import re
from collections.abc import Callable


class NotArithmeticError(Exception):
    """The text is no such expression, or divides by zero."""


def evaluate(text: str) -> int:
    """The value of an expression, which may have blanks around it but not inside."""
    # Two stacks instead of recursion: a text of nothing but parentheses must not exhaust Python's.
    values: list[int] = []
    operators: list[str] = []
    wants_value = True
    for symbol in _symbols(text.strip(" ")):
        if symbol.isdigit():
            if not wants_value:
                raise NotArithmeticError("an operator is missing")
            values.append(int(symbol))
            wants_value = False
        elif symbol == "(":
            if not wants_value:
                raise NotArithmeticError("an operator is missing")
            operators.append(symbol)
        elif wants_value:
            if symbol not in "+-":
                raise NotArithmeticError("a number is missing")
            operators.append(_SIGN[symbol])
        elif symbol == ")":
            while operators and operators[-1] != "(":
                _apply(operators.pop(), values)
            if not operators:
                raise NotArithmeticError("a parenthesis was never opened")
            operators.pop()
        else:
            while operators and _STRENGTH[operators[-1]] >= _STRENGTH[symbol]:
                _apply(operators.pop(), values)
            operators.append(symbol)
            wants_value = True
    if wants_value:
        raise NotArithmeticError("a number is missing")
    while operators:
        operator = operators.pop()
        if operator == "(":
            raise NotArithmeticError("a parenthesis is not closed")
        _apply(operator, values)
    return values.pop()


_SYMBOL = re.compile(r"[0-9]+|[-+*/()]")


def _symbols(text: str) -> list[str]:
    symbols = _SYMBOL.findall(text)
    if sum(map(len, symbols)) != len(text):
        raise NotArithmeticError("only integers, + - * / and parentheses are allowed")
    return symbols


_SIGN = {"-": "negative", "+": "positive"}
_STRENGTH = {"(": 0, "+": 1, "-": 1, "*": 2, "/": 2, "negative": 3, "positive": 3}


def _apply(operator: str, values: list[int]) -> None:
    right = values.pop()
    if operator == "negative":
        values.append(-right)
    elif operator == "positive":
        values.append(right)
    else:
        values.append(_OPERATIONS[operator](values.pop(), right))


def _divide(left: int, right: int) -> int:
    if right == 0:
        raise NotArithmeticError("division by zero")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


_OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "+": lambda left, right: left + right,
    "-": lambda left, right: left - right,
    "*": lambda left, right: left * right,
    "/": _divide,
}
