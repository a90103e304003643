"""Parts of Druid's specifications with a record, and what Druid makes of it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NESTED: dict[str, Any] = {
    "user": {"name": "Ada", "age": 36, "score": 1.5, "is_new": True, "none": None},
    "tags": ["x", "y", 3],
    "items": [{"id": 1, "sizes": [7, 8]}, {"id": None}, {"id": "z"}, 5],
    "odd name": {"a.b": {"c d": "deep"}},
    "text": "plain",
}
PATHS: Mapping[tuple[str, str], str | None] = {
    ("path", "$.user.name"): "Ada",
    ("path", "$.user.age"): "36",
    ("path", "$.user.score"): "1.5",
    ("path", "$.user.is_new"): "true",
    ("path", "$.user.none"): None,
    ("path", "$.user.nothing"): None,
    ("path", "$.nothing.at.all"): None,
    ("path", "$.text.name"): None,
    ("path", "$.text"): "plain",
    ("path", "$.tags[1]"): "y",
    ("path", "$.tags[9]"): None,
    ("path", "$.tags[*]"): '["x","y",3]',
    ("path", "$.items[0].sizes[1]"): "8",
    ("path", "$.items[*].id"): '["1","z"]',
    ("path", "$.user.name[*].id"): None,
    ("path", "$['odd name']['a.b']['c d']"): "deep",
    ("jq", ".user.name"): "Ada",
    ("jq", '."odd name"["a.b"]["c d"]'): "deep",
    ("jq", ".items | .[2] | .id"): "z",
    ("root", "text"): "plain",
}
"""Types of fields and their expressions, with the text that is read of `NESTED`."""

LINES: Mapping[str, tuple[str | None, ...] | None] = {
    "2026-11-20T04:05:06Z GET /a 7": ("GET", "7"),
    "2026-11-20T04:05:06Z PUT /ü 8\n": ("PUT", "8"),
    "2026-11-20T04:05:06Z  /a 9": (None, "9"),
    "2026-11-20T04:05:06Z GET /a": None,
    "before 2026-11-20T04:05:06Z GET /a 7": None,
    "2026-11-20T04:05:06Z GET /a 7\n2026-11-20T04:05:06Z GET /b 8": None,
}
"""Records of `LINE`, each with its method and its number; None for an unparseable one."""
LINE = r"(\S+) ([A-Z]*) /(?:\S+) (\d+)"

FILTERS: list[tuple[dict[str, Any], list[str | None]]] = [
    ({"type": "regex", "pattern": "^a.*z$"}, ["abz", "az"]),
    ({"type": "regex", "pattern": "b"}, ["abz", "b%"]),
    ({"type": "regex", "pattern": r"(?i)^B\p{Punct}"}, ["b%"]),
    ({"type": "like", "pattern": "a%"}, ["abz", "az"]),
    ({"type": "like", "pattern": "_z"}, ["az"]),
    ({"type": "like", "pattern": "b!%", "escape": "!"}, ["b%"]),
    ({"type": "like", "pattern": "\\"}, ["\\"]),
    ({"type": "equals", "matchValueType": "STRING", "matchValue": "7"}, ["7"]),
    ({"type": "equals", "matchValueType": "LONG", "matchValue": 7}, ["7", "7.0"]),
    ({"type": "range", "matchValueType": "DOUBLE", "lower": 7, "lowerOpen": True}, ["10"]),
    ({"type": "range", "lower": "a", "upper": "az", "upperOpen": True}, ["abz"]),
    ({"type": "inType", "matchValueType": "STRING", "sortedValues": ["10", "az"]}, ["az", "10"]),
    ({"type": "null"}, [None]),
]
"""Filters of the column `s`, each with the `VALUES` that pass."""
VALUES = ["abz", "az", "b%", "\\", "", "7", "7.0", "10", None]
