"""The times that Joda-Time reads and prints by many patterns: the table in `joda_times.json`.

`JodaTimes.java` has made the table with the Joda-Time that is among the jars of pyspark. To make it
again:

    jars=$(.venv/bin/python -c 'import pyspark; print(pyspark.__path__[0])')/jars
    java -cp "$jars/*" -Dfile.encoding=UTF-8 tests/reference/JodaTimes.java \
        > tests/reference/joda_times.json

A pattern has the texts that it reads, with their milliseconds since 1970; any other of `TEXTS` is
no time by it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

_TABLE: Final[Mapping[str, Any]] = json.loads(
    Path(__file__).with_name("joda_times.json").read_text(encoding="ascii")
)

YEAR: Final[int] = _TABLE["year"]
"""The year in which `JodaTimes` ran; it decides what two digits of a year mean."""
TEXTS: Final[Sequence[str]] = _TABLE["texts"]
PATTERNS: Final[Mapping[str, Mapping[str, int]]] = _TABLE["patterns"]
ODD: Final[Sequence[str]] = _TABLE["odd"]
"""Patterns that Joda refuses, or follows in ways that no author means."""
NAMED: Final[Mapping[str, Mapping[str, int]]] = _TABLE["named"]
"""Druid's formats `iso` and `auto`, and its function `timestamp_parse` without a pattern."""
MOMENTS: Final[Sequence[int]] = _TABLE["moments"]
PRINTED: Final[Mapping[str, Sequence[str]]] = _TABLE["printed"]
JODA_ZONES: Final[Sequence[str]] = _TABLE["joda_zones"].split()
