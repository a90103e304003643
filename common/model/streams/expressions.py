"""Reads expressions of transforms: a small part of Druid's language, as a tree.

Pure. Operators, from the tightest: unary `-` and `!`; `^`, which joins from the right; `*` `/` `%`;
`+` `-`; comparisons; `&&` and `||`, which Druid ranks equal, so that mixing them takes parentheses
here. Names are columns, also in double quotes; texts have single quotes. Unknown functions and
wrong numbers of arguments are refused. An argument that Spark needs before it reads records (a
type, a unit, a period, a pattern) has to be a constant. It is checked here, so that no task fails
because of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, TypeAlias

from common.model.streams.joda import PatternError, printed_parts, reader_of
from common.model.streams.periods import Granularity, PeriodError, read_granularity
from common.model.streams.regexes import RegexError, like_pattern, read_regex
from common.model.streams.zones import JODA_ZONES

MAX_LENGTH: Final = 10_000
MAX_DEPTH: Final = 50
MAX_HEIGHT: Final = 100
_MANY: Final = 100

FUNCTIONS: Final[Mapping[str, tuple[int, int]]] = {
    **dict.fromkeys(("abs", "ceil", "floor", "sqrt", "exp", "log", "log10"), (1, 1)),
    **dict.fromkeys(("strlen", "lower", "upper", "reverse", "isnull", "notnull"), (1, 1)),
    **dict.fromkeys(("trim", "ltrim", "rtrim", "round"), (1, 2)),
    **dict.fromkeys(("pow", "div", "mod", "nvl", "cast", "strpos", "repeat"), (2, 2)),
    **dict.fromkeys(("contains_string", "icontains_string", "regexp_like"), (2, 2)),
    **dict.fromkeys(("timestamp_floor", "timestamp_ceil"), (2, 4)),
    **dict.fromkeys(("timestamp_format", "timestamp_parse"), (1, 3)),
    **dict.fromkeys(("greatest", "least", "concat"), (1, _MANY)),
    **dict.fromkeys(("if", "replace", "lpad", "rpad"), (3, 3)),
    **dict.fromkeys(("substring", "regexp_extract", "like", "timestamp_extract"), (2, 3)),
    "timestamp": (1, 2),
    "timestamp_shift": (3, 4),
    "case_searched": (2, _MANY),
    "case_simple": (3, _MANY),
    "json_value": (2, 2),
}
"""The functions, each with the least and the greatest number of arguments."""

ZONES: Final[Mapping[str, int]] = {
    **dict.fromkeys(("timestamp_floor", "timestamp_ceil", "timestamp_shift"), 3),
    **dict.fromkeys(("timestamp_format", "timestamp_parse", "timestamp_extract"), 2),
}
"""The functions that take a zone, each with the index of that argument."""
_ORIGIN: Final = 2
"""The index of the argument between the period and the zone of a floor or ceil."""
CAST_TYPES: Final = ("LONG", "DOUBLE", "FLOAT", "STRING")
TIME_UNITS: Final = (
    *("EPOCH", "SECOND", "MINUTE", "HOUR", "DAY", "DOW"),
    *("DOY", "WEEK", "MONTH", "QUARTER", "YEAR"),
)

_TOKEN: Final = re.compile(
    r"\s*(?:(?P<number>[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[A-Za-z_$][A-Za-z0-9_$]*)"
    r'|(?P<quoted>"(?:[^"\\]|\\.)*")'
    r"|(?P<text>'(?:[^'\\]|\\.)*')"
    r"|(?P<sign>&&|\|\||[<>=!]=|[-+*/%^!<>(),]))"
)
_ZONES_IN_SMALL: Final = {each.lower(): each for each in JODA_ZONES}
_HOUR: Final = timedelta(hours=1)
_UTC: Final = frozenset({"UTC", "Etc/UTC", "Z", "+00:00"})
_OFFSET: Final = re.compile(r"[+-](?:0[0-9]|1[0-4]):[0-5][0-9]")
_ESCAPE: Final = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_ESCAPED: Final = {"n": "\n", "t": "\t", "r": "\r"}
_RANKS: Final[Mapping[str, int]] = {
    "&&": 1,
    "||": 1,
    **dict.fromkeys(("<", "<=", ">", ">=", "==", "!="), 2),
    "+": 3,
    "-": 3,
    "*": 4,
    "/": 4,
    "%": 4,
    "^": 5,
}
_UNARY_RANK: Final = 6


class ExpressionTextError(ValueError):
    """A text that is no expression; the message names the mistake and its place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Literal:
    """A constant; None is null."""

    value: str | int | float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """The value of a column, null if a record has none."""

    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """A function or an operator with its arguments; unary operators have one."""

    function: str
    arguments: tuple[Node, ...]


Node: TypeAlias = Literal | Column | Call


def read_expression(text: str) -> Node:
    """Read an expression; `ExpressionTextError` names the first mistake."""
    if len(text) > MAX_LENGTH:
        raise ExpressionTextError(f"it is longer than {MAX_LENGTH} characters")
    parser = _Parser(text)
    node = parser.expression(0, depth=0)
    if parser.kind:
        raise ExpressionTextError(f"{parser.here} was not expected")
    if _is_higher(node, MAX_HEIGHT):
        raise ExpressionTextError(f"it joins more than {MAX_HEIGHT} operands in a row")
    return node


def _is_higher(node: Node, most: int) -> bool:
    """Return True for a tree that functions which call themselves could not walk."""
    level: list[Node] = [node]
    for _ in range(most):
        level = [part for each in level if isinstance(each, Call) for part in each.arguments]
        if not level:
            return False
    return True


def written_text(call: Call, index: int) -> str:
    """Return an argument that has to be a text in quotes."""
    argument = call.arguments[index]
    if isinstance(argument, Literal) and isinstance(argument.value, str):
        return argument.value
    raise ExpressionTextError(f"{call.function} needs argument {index + 1} as a text in quotes")


def written_number(call: Call, index: int) -> int:
    """Return an argument that has to be a whole number."""
    argument, sign = call.arguments[index], 1
    if isinstance(argument, Call) and argument.function == "-" and len(argument.arguments) == 1:
        argument, sign = argument.arguments[0], -1
    if isinstance(argument, Literal) and isinstance(argument.value, int):
        return sign * argument.value
    raise ExpressionTextError(f"{call.function} needs argument {index + 1} as a number")


def written_period(call: Call, index: int) -> Granularity:
    """Return the period of an argument, such as `PT1H`."""
    written = written_text(call, index)
    try:
        return read_granularity({"type": "period", "period": written})
    except PeriodError as error:
        raise ExpressionTextError(
            f"{call.function} can't use the period {written!r}: {error}"
        ) from error


def written_regex(call: Call) -> str:
    """Return the second argument, which has to be a regular expression."""
    pattern = written_text(call, 1)
    try:
        groups = read_regex(pattern)
    except RegexError as error:
        raise ExpressionTextError(f"{call.function} can't use {pattern!r}: {error}") from None
    if len(call.arguments) > 2 and not 0 <= written_number(call, 2) <= groups:
        raise ExpressionTextError(f"{call.function}: {pattern!r} has {groups} groups")
    return pattern


def written_like(call: Call) -> str:
    """Return the pattern of `like` as Spark reads it."""
    pattern = written_text(call, 1)
    escape = written_text(call, 2) if len(call.arguments) > 2 else None
    try:
        return like_pattern(pattern, escape)
    except RegexError as error:
        raise ExpressionTextError(f"like can't use {pattern!r}: {error}") from None


def zone_of(call: Call) -> str:
    """Return the zone of a function of times; "" for UTC, which is the zone without one."""
    index = ZONES.get(call.function, len(call.arguments))
    if index >= len(call.arguments) or call.arguments[index] == Literal(value=None):
        return ""
    zone = written_text(call, index)
    if zone in _UTC:
        return ""
    if zone in JODA_ZONES or _OFFSET.fullmatch(zone):
        return zone
    near = _ZONES_IN_SMALL.get(zone.lower())
    advice = f"did you mean {near}?" if near else "write as in Europe/Berlin or +01:00"
    raise ExpressionTextError(f"{call.function}: {zone[:40]!r} is no zone; {advice}")


def is_of_hours(call: Call) -> bool:
    """Return True if the period of a call is one of hours, minutes or seconds, not of days."""
    return "T" in written_text(call, 1)


def has_pattern(call: Call) -> bool:
    """Return True if a function of times has a pattern; without one, texts are ISO 8601."""
    return len(call.arguments) > 1 and call.arguments[1] != Literal(value=None)


def _check_origin(call: Call) -> None:
    if len(call.arguments) <= _ORIGIN or call.arguments[_ORIGIN] == Literal(value=None):
        return
    origin = call.arguments[_ORIGIN]
    cure = f"an origin is not supported; write null as argument {_ORIGIN + 1}"
    if isinstance(origin, Literal) and origin.value in JODA_ZONES:
        cure = f"a zone is argument {_ORIGIN + 2}, behind null for the origin"
    raise ExpressionTextError(f"{call.function}: {cure}")


def _check_cut(call: Call) -> None:
    period = written_period(call, 1)
    _check_origin(call)
    if zone_of(call) and is_of_hours(call) and period.length > _HOUR:
        raise ExpressionTextError(
            f"{call.function}: a period of hours in a zone is PT1H or shorter; write P1D for days,"
            " or leave the zone out"
        )


def _check_shift(call: Call) -> None:
    written_period(call, 1)
    if zone_of(call) and not written_text(call, 1).startswith("PT") and is_of_hours(call):
        raise ExpressionTextError(
            f"{call.function}: in a zone, a period has days or hours; shift twice for both"
        )


def _check_type(call: Call) -> None:
    _check_word(call, "types", CAST_TYPES)


def _check_unit(call: Call) -> None:
    _check_word(call, "units", TIME_UNITS)


def _check_word(call: Call, what: str, known: tuple[str, ...]) -> None:
    word = written_text(call, 1)
    if word.upper() not in known:
        raise ExpressionTextError(
            f"{call.function} knows the {what} {', '.join(known)}, not {word!r}"
        )


def _check_pattern(call: Call) -> None:
    if not has_pattern(call) and len(call.arguments) > 2:
        return  # Only the zone is given.
    read = printed_parts if call.function == "timestamp_format" else reader_of
    pattern = written_text(call, 1)
    try:
        read(pattern)
    except PatternError as error:
        raise ExpressionTextError(
            f"{call.function} can't use the pattern {pattern!r}: {error}"
        ) from error


def _check_printed_zone(call: Call) -> None:
    _check_pattern(call)
    if zone_of(call) and has_pattern(call):
        parts = printed_parts(written_text(call, 1))
        if any(each.letter in ("Z", "z") for each in parts):
            raise ExpressionTextError(
                f"{call.function} can't print the name or offset of another zone than UTC by a"
                " pattern; write null as the pattern, which prints the offset"
            )


_CHECKS: Final[Mapping[str, Callable[[Call], object]]] = {
    "cast": _check_type,
    "round": lambda call: written_number(call, 1),
    "json_value": lambda call: written_text(call, 1),
    "timestamp_extract": _check_unit,
    "timestamp_shift": _check_shift,
    **dict.fromkeys(("timestamp_floor", "timestamp_ceil"), _check_cut),
    **dict.fromkeys(("regexp_like", "regexp_extract"), written_regex),
    "like": written_like,
    **dict.fromkeys(("timestamp", "timestamp_parse"), _check_pattern),
    "timestamp_format": _check_printed_zone,
}
"""The check of the arguments of a call that has at least two."""


class _Parser:
    """One pass over a text, with one token of look-ahead in `kind` and `word`."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._end = 0
        self.kind = ""
        self.word = ""
        self._place = 0
        self._advance()

    @property
    def here(self) -> str:
        """The present token with its place, for mistakes."""
        return f"{self.word!r} at {self._place + 1}" if self.kind else "the end"

    def expression(self, rank: int, *, depth: int) -> Node:
        """Read operands joined by operators of more than `rank`."""
        if depth > MAX_DEPTH:
            raise ExpressionTextError(f"it is nested more than {MAX_DEPTH} deep")
        left = self._operand(depth)
        logical = ""
        while self.kind == "sign" and _RANKS.get(self.word, 0) > rank:
            operator = self.word
            if operator in {"&&", "||"}:
                if logical not in {"", operator}:
                    raise ExpressionTextError("&& beside || needs parentheses")
                logical = operator
            self._advance()
            # A power joins from the right: its own rank is allowed there again.
            own = _RANKS[operator] - (operator == "^")
            right = self.expression(own, depth=depth + 1)
            left = Call(function=operator, arguments=(left, right))
        return left

    def _operand(self, depth: int) -> Node:
        kind, word = self.kind, self.word
        if kind == "sign" and word in {"-", "!"}:
            self._advance()
            argument = self.expression(_UNARY_RANK, depth=depth + 1)
            return Call(function=word, arguments=(argument,))
        if kind == "sign" and word == "(":
            self._advance()
            inner = self.expression(0, depth=depth + 1)
            self._expect(")")
            return inner
        if kind in {"", "sign"}:
            raise ExpressionTextError(f"a value was expected, not {self.here}")
        place = self.here
        self._advance()
        match kind:
            case "number":
                return Literal(value=_number(word))
            case "text":
                return Literal(value=_unescaped(word))
            case "quoted":
                return Column(name=_unescaped(word))
        if self.kind == "sign" and self.word == "(":
            return self._call(word, place, depth)
        return Literal(value=None) if word == "null" else Column(name=word)

    def _call(self, name: str, place: str, depth: int) -> Node:
        function = name.lower()
        self._advance()
        arguments: list[Node] = []
        while not (self.kind == "sign" and self.word == ")"):
            if arguments:
                self._expect(",")
            arguments.append(self.expression(0, depth=depth + 1))
        self._advance()
        if function not in FUNCTIONS:
            known = ", ".join(sorted(FUNCTIONS))
            raise ExpressionTextError(f"the function {place} is unknown; known are {known}")
        least, most = FUNCTIONS[function]
        if not least <= len(arguments) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            raise ExpressionTextError(f"{place} takes {wanted} arguments, not {len(arguments)}")
        call = Call(function=function, arguments=tuple(arguments))
        if len(arguments) > 1 and function in _CHECKS:
            _CHECKS[function](call)
        zone_of(call)
        return call

    def _expect(self, sign: str) -> None:
        if self.kind != "sign" or self.word != sign:
            raise ExpressionTextError(f"{sign!r} was expected, not {self.here}")
        self._advance()

    def _advance(self) -> None:
        found = _TOKEN.match(self._text, self._end)
        if found is None:
            rest = self._text[self._end :].strip()
            if rest:
                raise ExpressionTextError(f"{rest[:10]!r} can't be read")
            self.kind = self.word = ""
            return
        self._end = found.end()
        self.kind = found.lastgroup or ""
        self.word = found[self.kind]
        self._place = found.start(self.kind)


def _number(token: str) -> int | float:
    if token.isdecimal():
        value = int(token)
        if value >= 2**63:
            raise ExpressionTextError(f"{token[:30]} is more than a long holds")
        return value
    number = float(token)
    if number == float("inf"):
        raise ExpressionTextError(f"{token[:30]} is more than a double holds")
    return number


def _unescaped(token: str) -> str:
    return _ESCAPE.sub(
        lambda found: (
            chr(int(found[1][1:], 16)) if len(found[1]) > 1 else _ESCAPED.get(found[1], found[1])
        ),
        token[1:-1],
    )
