"""Regular expressions of Java that a specification may have, and some that it may not."""

from __future__ import annotations

GOOD: dict[str, int] = {
    "abc": 0,
    r"^(\S+) (\S+) \[([^\]]+)\] \"(.*?)\" (\d{3}) (\d+|-)$": 6,
    r"(?<host>[a-z0-9.-]+):(?<port>\d{2,5})": 2,
    r"(?i)error|warn": 0,
    r"(?i:error) (\w+)": 1,
    r"\p{Alpha}+\p{L}\P{Digit}[\p{Punct}&&[^.]]": 0,
    r"[a-z&&[^aeiou]]+": 0,
    r"\Qa.b(\E(c)": 1,
    r"(a)\1(?<n>b)\k<n>": 2,
    r"a++b*+c?+(?>d+)": 0,
    r"(?<=a)b(?<!c)(?=d)(?!e)": 0,
    r"\h\v\R\e\x41\x{1F600}\u0041\0101\cA\z": 0,
    r"a{2}b{2,}c{2,3}\{": 0,
    r"[\[\]\-\\^]": 0,
    "ü[à-ÿ]": 0,
    r"(a|(b))?": 2,
}
"""Expressions that are taken, each with the number of its groups."""

BAD: dict[str, str] = {
    "": "it is empty",
    "(a": "missing )",
    "a)": "unbalanced",
    "*a": "nothing to repeat",
    "a{": r"write \{",
    "a{,3}": r"write \{",
    "[a": "has no end",
    "[]": "empty class",
    "[[:alpha:]]": "p{Alpha}",
    "[z-a]": "bad character range",
    "[a&&]": "between two classes",
    r"\p{Klingon}": "known are",
    r"\y": "escape that is not supported",
    r"[\1]": "no group",
    r"(?P<name>a)": "not one of Java",
    r"(?<a_b>a)": "not one of Java",
    r"(?#note)a": "not one of Java",
    r"(a)(?(1)b|c)": "not one of Java",
    r"(?x) a": "not one of Java",
    r"\2(a)": "invalid group reference",
    "(" * 200 + ")" * 200: "more than 100 groups",
    "a" * 3_000: "at most 2000",
}
"""Expressions that are refused, with a part of the reason."""
