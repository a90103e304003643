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

ZONED: Mapping[str, str | None] = {
    # In Berlin the clocks went forward on 2026-03-29 at 01:00Z, and back on 2026-10-25 at 01:00Z.
    "timestamp_floor(1774746000000, 'P1D', null, 'Europe/Berlin')": "1774738800000",
    "timestamp_ceil(1774746000000, 'P1D', null, 'Europe/Berlin')": "1774821600000",
    "timestamp_ceil(1774738800000, 'P1D', null, 'Europe/Berlin')": "1774738800000",
    "timestamp_floor(1792974600000, 'P1M', null, 'Europe/Berlin')": "1790805600000",
    "timestamp_floor(1792974600000, 'PT1H', null, 'Europe/Berlin')": "1792972800000",
    "timestamp_floor(1792889400000, 'PT1H', null, 'Asia/Kolkata')": "1792888200000",
    "timestamp_ceil(1792889400001, 'PT1H', null, 'Asia/Kolkata')": "1792891800000",
    "timestamp_floor(0, 'P1D', null, '-05:00')": "-68400000",
    "timestamp_floor(0, 'P1D', null, null)": "0",
    "timestamp_floor(0, 'P1D', null, 'UTC')": "0",
    # A day later at the same time of the clock, which is 23 hours.
    "timestamp_shift(1774738800000, 'P1D', 1, 'Europe/Berlin')": "1774821600000",
    "timestamp_shift(1774738800000, 'PT24H', 1, 'Europe/Berlin')": "1774825200000",
    "timestamp_shift(0, 'P1D', 9999999999, 'Europe/Berlin')": None,
    "timestamp_extract(1774746000000, 'HOUR', 'Europe/Berlin')": "3",
    "timestamp_extract(1774746000000, 'EPOCH', 'Europe/Berlin')": "1774746000",
    "timestamp_extract(1774738799999, 'DAY', 'Europe/Berlin')": "28",
    "timestamp_format(1774746000000, 'yyyy-MM-dd HH:mm', 'Europe/Berlin')": "2026-03-29 03:00",
    "timestamp_format(1774746000000, null, 'Europe/Berlin')": "2026-03-29T03:00:00.000+02:00",
    "timestamp_format(0, null, 'America/St_Johns')": "1969-12-31T20:30:00.000-03:30",
    "timestamp_parse('2026-03-29 04:00', 'yyyy-MM-dd HH:mm', 'Europe/Berlin')": "1774749600000",
    "timestamp_parse('2026-03-29 02:30', 'yyyy-MM-dd HH:mm', 'Europe/Berlin')": None,
    "timestamp_parse('2026-03-29 04:00Z', 'yyyy-MM-dd HH:mmZ', 'Europe/Berlin')": "1774756800000",
    "timestamp_parse('2026-03-29T04:00', null, 'Europe/Berlin')": "1774749600000",
    "timestamp_parse('2026-03-29T04:00Z', null, 'Europe/Berlin')": "1774756800000",
    "timestamp_parse('2026-03-29', null, 'Europe/Berlin')": "1774738800000",
    "like('100%', '100!%', '!')": "1",
    "like('a', '\\\\')": "0",
    "regexp_extract('a1b2', '([a-z])(\\\\d)', 2)": "1",
}
"""Expressions without columns, and their values."""
