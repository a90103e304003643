"""The small language of a SWITCH's conditions, such as `${cnt} > 10 and ${flag} == 'Y'`.

Pure. A text is parsed when a definition is saved, and evaluated with parameters when its task is
reached. Nothing of it ever reaches an interpreter: there are no calls, no attributes, no
arithmetic, and no way to name anything but a parameter. A text is short (`MAX_LENGTH`), its
parentheses are shallow (`MAX_DEPTH`), and both directions run on stacks of their own in linear
time, so that no text can exhaust the interpreter's stack or hold a daemon up.

    any        := all (("or" | "||") all)*
    all        := negated (("and" | "&&") negated)*
    negated    := "not" negated | comparison
    comparison := value (("==" | "!=" | "<" | "<=" | ">" | ">=") value)?
    value      := "!" value | "(" any ")" | number | quoted text | true | false | "${" name "}"

Words are read in any case. In quoted text, `${name}` stands for the parameter as it does outside,
and a backslash before a quote or a backslash takes its meaning away. Every parameter that is
named must exist, whichever side decides: a typing mistake must not hide until the day it matters.

How two sides compare:

| one side           | other side               | compared as                                   |
|--------------------|--------------------------|-----------------------------------------------|
| a number           | a number                 | numbers, exactly: `1.0` is `1`, 9 is below 10 |
| a number or text   | text                     | text, by code points: `abc` is above `10`     |
| true, false, `a<b` | true, false, `a<b`       | truth values                                  |
| true, false, `a<b` | text `true`/`false`      | truth values; the text in any case            |
| true, false, `a<b` | any other number or text | never equal                                   |

Quotes don't matter: what a value looks like decides, so `'10'` is a number. A number is at most
`MAX_NUMBER_LENGTH` characters of digits with an optional sign, point and exponent; anything longer
is text. `<`, `<=`, `>` and `>=` refuse truth values. A value that stands alone must be `true`,
`false` (in any case) or a number, of which zero is false.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, auto
from typing import TypeAlias

from common.errors import SchedulerError

MAX_LENGTH = 4_000
MAX_DEPTH = 50
MAX_NUMBER_LENGTH = 64
MAX_TEXT_LENGTH = 65_536


class ExpressionError(SchedulerError):
    """A condition can't be read, or can't be decided with the parameters at hand.

    `position` counts characters of the condition from 1; `reason` is the message without it.
    """

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"position {position}: {reason}")
        self.position = position
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Expression:
    """A condition that has been read; `parameters` are the names it needs, in the order written."""

    text: str
    parameters: tuple[str, ...]
    _steps: tuple[_Step, ...]

    @property
    def steps(self) -> int:
        """The most steps that one evaluation takes."""
        return len(self._steps)

    def evaluate(self, values: Mapping[str, str]) -> bool:
        """Evaluate the condition.

        Raises `ExpressionError` for a parameter without a value, and for one that stands alone
        and is neither true nor false.
        """
        stack: list[_Value] = []
        for step in self._steps:
            match step:
                case _Literal():
                    stack.append(step.value)
                case _Text():
                    stack.append(_rendered(step, values))
                case _Truth():
                    stack.append(_truth(stack.pop(), step.position))
                case _Apply(operator=_Operator.NOT | _Operator.BANG):
                    stack.append(not stack.pop())
                case _Apply():
                    right, left = stack.pop(), stack.pop()
                    stack.append(_APPLIED[step.operator](left, right))
        return stack.pop() is True


def parse(text: str) -> Expression:
    """Read a condition, or raise `ExpressionError` at the first character that does not fit."""
    return _Parser(text).parse()


_Value: TypeAlias = str | bool


class _Operator(Enum):
    OR = auto()
    AND = auto()
    NOT = auto()
    EQUAL = auto()
    UNEQUAL = auto()
    LESS = auto()
    LESS_OR_EQUAL = auto()
    GREATER = auto()
    GREATER_OR_EQUAL = auto()
    BANG = auto()
    OPENING = auto()


@dataclass(frozen=True, slots=True)
class _Literal:
    """Push a value that is known."""

    value: _Value


@dataclass(frozen=True, slots=True)
class _Reference:
    """A parameter, and where it is named."""

    name: str
    position: int


@dataclass(frozen=True, slots=True)
class _Text:
    """Push a text that parameters have a part in."""

    pieces: tuple[str | _Reference, ...]
    position: int


@dataclass(frozen=True, slots=True)
class _Truth:
    """Make a truth value of the text on top."""

    position: int


@dataclass(frozen=True, slots=True)
class _Apply:
    """Take one or two values from the stack and push the result."""

    operator: _Operator


_Step: TypeAlias = _Literal | _Text | _Truth | _Apply


def _rendered(text: _Text, values: Mapping[str, str]) -> str:
    parts: list[str] = []
    length = 0
    for piece in text.pieces:
        if isinstance(piece, _Reference):
            value = values.get(piece.name)
            if value is None:
                raise ExpressionError(
                    piece.position, f"the parameter {_shown(piece.name)} has no value"
                )
            part = value
        else:
            part = piece
        parts.append(part)
        length += len(part)
        if length > MAX_TEXT_LENGTH and len(text.pieces) > 1:
            raise ExpressionError(
                text.position, f"the text grows longer than {MAX_TEXT_LENGTH:,} characters"
            )
    return "".join(parts)


_NUMBER = re.compile(r"[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,4})?")
_TRUTHS = {"true": True, "false": False}


def _number(value: str) -> Decimal | None:
    if len(value) > MAX_NUMBER_LENGTH:
        return None
    value = value.strip()
    return Decimal(value) if _NUMBER.fullmatch(value) else None


def _truth_named(value: _Value) -> bool | None:
    if isinstance(value, bool):
        return value
    return _TRUTHS.get(value.strip().lower()) if len(value) <= MAX_NUMBER_LENGTH else None


def _truth(value: _Value, position: int) -> bool:
    named = _truth_named(value)
    if named is not None:
        return named
    number = _number(str(value))
    if number is None:
        # The value itself is not shown: it may be a secret.
        raise ExpressionError(position, "the value is neither true nor false nor a number")
    return number != 0


def _are_equal(left: _Value, right: _Value) -> bool:
    if isinstance(left, bool) or isinstance(right, bool):
        one, other = _truth_named(left), _truth_named(right)
        return one is not None and one == other
    return _order(left, right) == 0


def _order(left: _Value, right: _Value) -> int:
    """Negative, zero or positive, as the left is below, equal to or above the right."""
    left, right = str(left), str(right)
    one, other = _number(left), _number(right)
    if one is not None and other is not None:
        return (one > other) - (one < other)
    return (left > right) - (left < right)


_APPLIED: dict[_Operator, Callable[[_Value, _Value], bool]] = {
    _Operator.OR: lambda left, right: left is True or right is True,
    _Operator.AND: lambda left, right: left is True and right is True,
    _Operator.EQUAL: _are_equal,
    _Operator.UNEQUAL: lambda left, right: not _are_equal(left, right),
    _Operator.LESS: lambda left, right: _order(left, right) < 0,
    _Operator.LESS_OR_EQUAL: lambda left, right: _order(left, right) <= 0,
    _Operator.GREATER: lambda left, right: _order(left, right) > 0,
    _Operator.GREATER_OR_EQUAL: lambda left, right: _order(left, right) >= 0,
}

_STRENGTH = {
    _Operator.OPENING: 0,
    _Operator.OR: 1,
    _Operator.AND: 2,
    _Operator.NOT: 3,
    _Operator.EQUAL: 4,
    _Operator.UNEQUAL: 4,
    _Operator.LESS: 4,
    _Operator.LESS_OR_EQUAL: 4,
    _Operator.GREATER: 4,
    _Operator.GREATER_OR_EQUAL: 4,
    _Operator.BANG: 5,
}
_COMPARISON = 4
_ORDERING = (
    _Operator.LESS,
    _Operator.LESS_OR_EQUAL,
    _Operator.GREATER,
    _Operator.GREATER_OR_EQUAL,
)

_BINARY = {
    "==": _Operator.EQUAL,
    "!=": _Operator.UNEQUAL,
    "<": _Operator.LESS,
    "<=": _Operator.LESS_OR_EQUAL,
    ">": _Operator.GREATER,
    ">=": _Operator.GREATER_OR_EQUAL,
    "&&": _Operator.AND,
    "and": _Operator.AND,
    "||": _Operator.OR,
    "or": _Operator.OR,
}

# Each alternative begins with another character and has no nested repetition: no text makes it
# go back further than the token it is in.
_TOKEN = re.compile(
    r"""
      (?P<space>\s+)
    | (?P<quoted>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
    | (?P<reference>\$\{[^${}]+\})
    | (?P<number>[-+]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][-+]?[0-9]{1,4})?(?![\w.]))
    | (?P<word>[^\W\d]\w*)
    | (?P<sign>==|!=|<=|>=|&&|\|\||[<>!()])
    """,
    re.VERBOSE | re.DOTALL,
)
_PIECE = re.compile(r"\$\{(?P<name>[^${}]+)\}|\\(?P<plain>[\\'\"])")

_A_VALUE = "a value (a number, quoted text, true, false or ${name})"


@dataclass(frozen=True, slots=True)
class _Pending:
    """An operator, or a parenthesis, that waits for what is behind it."""

    operator: _Operator
    found: str
    position: int


class _Parser:
    """Turns the text into steps for a stack, with a stack of operators instead of recursion."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._steps: list[_Step] = []
        # Whether each value that will lie on the stack is known to be a truth value, and where
        # it begins.
        self._kinds: list[tuple[bool, int]] = []
        self._pending: list[_Pending] = []
        self._names: dict[str, None] = {}
        self._depth = 0

    def parse(self) -> Expression:
        text = self._text
        if len(text) > MAX_LENGTH:
            raise ExpressionError(
                MAX_LENGTH + 1,
                f"the condition has {len(text):,} characters; at most {MAX_LENGTH:,} are allowed",
            )
        wants_value = True
        offset = 0
        while offset < len(text):
            token = _TOKEN.match(text, offset)
            if token is None:
                raise self._unreadable(offset, wants_value=wants_value)
            if token.lastgroup != "space":
                wants_value = self._take(token, wants_value=wants_value)
            offset = token.end()
        if wants_value:
            raise ExpressionError(len(text) + 1, f"expected {_A_VALUE}, found the end")
        self._reduce(1)
        if self._pending:
            opening = self._pending[-1].position
            raise ExpressionError(
                len(text) + 1, f"expected a ')' for the '(' at position {opening}, found the end"
            )
        self._as_truth()
        return Expression(text, tuple(self._names), tuple(self._steps))

    def _take(self, token: re.Match[str], *, wants_value: bool) -> bool:
        """Read one token; return True if a value must follow it."""
        found = token.group()
        position = token.start() + 1
        word = found.lower()
        if wants_value:
            match token.lastgroup:
                case "number":
                    self._push(_Literal(found), position, is_truth=False)
                case "quoted":
                    self._push(self._quoted(found, position), position, is_truth=False)
                case "reference":
                    reference = self._reference(found[2:-1], position)
                    self._push(_Text((reference,), position), position, is_truth=False)
                case "word" if word in _TRUTHS:
                    self._push(_Literal(_TRUTHS[word]), position, is_truth=True)
                case "word" if word == "not":
                    self._negate(_Operator.NOT, found, position)
                    return True
                case "word" if word not in _BINARY:
                    raise ExpressionError(
                        position,
                        f"expected {_A_VALUE}, found the bare word {_shown(found)};"
                        " text stands in quotes, a parameter in ${}",
                    )
                case "sign" if found == "!":
                    self._negate(_Operator.BANG, found, position)
                    return True
                case "sign" if found == "(":
                    self._open(position)
                    return True
                case _:
                    raise ExpressionError(position, f"expected {_A_VALUE}, found {_shown(found)}")
            return False
        if found == ")":
            self._close(position)
            return False
        operator = _BINARY.get(word)
        if operator is None:
            raise ExpressionError(position, f"expected {self._behind()}, found {_shown(found)}")
        self._join(operator, found, position)
        return True

    def _push(self, step: _Step, position: int, *, is_truth: bool) -> None:
        self._steps.append(step)
        self._kinds.append((is_truth, position))

    def _quoted(self, found: str, position: int) -> _Step:
        inner = found[1:-1]
        pieces: list[str | _Reference] = []
        plain: list[str] = []
        end = 0
        for piece in _PIECE.finditer(inner):
            plain.append(inner[end : piece.start()])
            end = piece.end()
            name = piece.group("name")
            if name is None:
                plain.append(piece.group("plain"))
                continue
            pieces.extend(("".join(plain), self._reference(name, position + 1 + piece.start())))
            plain = []
        plain.append(inner[end:])
        if not pieces:
            return _Literal("".join(plain))
        return _Text((*pieces, "".join(plain)), position)

    def _reference(self, name: str, position: int) -> _Reference:
        self._names[name] = None
        return _Reference(name, position)

    def _negate(self, operator: _Operator, found: str, position: int) -> None:
        # `1 == not 2` would be read as `(1 == not) 2`: a weaker prefix can't follow a stronger one.
        if self._pending and _STRENGTH[self._pending[-1].operator] > _STRENGTH[operator]:
            raise ExpressionError(
                position, f"expected {_A_VALUE}, found {_shown(found)}; put it in parentheses"
            )
        self._pending.append(_Pending(operator, found, position))

    def _open(self, position: int) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise ExpressionError(position, f"parentheses are nested deeper than {MAX_DEPTH}")
        self._pending.append(_Pending(_Operator.OPENING, "(", position))

    def _close(self, position: int) -> None:
        self._reduce(1)
        if not self._pending:
            raise ExpressionError(position, f"expected {self._behind()}, found ')'")
        opening = self._pending.pop()
        self._depth -= 1
        is_truth, _ = self._kinds.pop()
        self._kinds.append((is_truth, opening.position))

    def _join(self, operator: _Operator, found: str, position: int) -> None:
        strength = _STRENGTH[operator]
        if strength == _COMPARISON:
            self._reduce(strength + 1)
            if self._pending and _STRENGTH[self._pending[-1].operator] == strength:
                raise ExpressionError(
                    position,
                    f"expected 'and', 'or'{self._closing()}, found {_shown(found)}:"
                    " comparisons don't chain",
                )
            if operator in _ORDERING:
                self._refuse_truth(found, position)
        else:
            self._reduce(strength)
            self._as_truth()
        self._pending.append(_Pending(operator, found, position))

    def _reduce(self, strength: int) -> None:
        """Apply what waits and binds at least that strongly to the values before it."""
        while self._pending and _STRENGTH[self._pending[-1].operator] >= strength:
            waiting = self._pending.pop()
            operator = waiting.operator
            if operator in _ORDERING:
                self._refuse_truth(waiting.found, waiting.position)
            elif _STRENGTH[operator] != _COMPARISON:
                self._as_truth()
            _, begin = self._kinds.pop()
            if operator not in (_Operator.NOT, _Operator.BANG):
                _, begin = self._kinds.pop()
            else:
                begin = waiting.position
            self._push(_Apply(operator), begin, is_truth=True)

    def _refuse_truth(self, found: str, position: int) -> None:
        is_truth, _ = self._kinds[-1]
        if is_truth:
            raise ExpressionError(
                position, f"a truth value has no order: expected == or !=, found {_shown(found)}"
            )

    def _as_truth(self) -> None:
        """Make sure that the value on top is a truth value."""
        is_truth, position = self._kinds.pop()
        if not is_truth:
            self._steps.append(_Truth(position))
        self._kinds.append((True, position))

    def _behind(self) -> str:
        """Parse what follows a value."""
        return f"a comparison, 'and', 'or'{self._closing()}"

    def _closing(self) -> str:
        return " or ')'" if self._depth else " or the end"

    def _unreadable(self, offset: int, *, wants_value: bool) -> ExpressionError:
        position = offset + 1
        found = self._text[offset]
        if found in "'\"":
            return ExpressionError(position, f"expected the closing {found} of the text")
        if found == "$":
            return ExpressionError(position, "expected a parameter, written ${name}")
        if wants_value and (found.isdigit() or found in "+-."):
            return ExpressionError(
                position, f"expected a number such as 10, -2.5 or 1e3, found {_shown(found)}"
            )
        if found == "=":
            return ExpressionError(position, "expected == to compare, found '='")
        expected = _A_VALUE if wants_value else self._behind()
        return ExpressionError(position, f"expected {expected}, found {_shown(found)}")


def _shown(found: str) -> str:
    """A part of the text for a message, bounded and without control characters."""
    return ascii(found) if len(found) <= 40 else f"{found[:40]!a}…"
