"""Follows paths into the JSON text of a field, as columns of Spark.

The paths are those of `common.model.streams.paths`. A value is a text, as all fields of records
are: of a text its letters, of a number or a nested part the JSON. What is not there, and JSON null,
is null. Several values are a JSON list of texts, because Druid keeps them as texts too.
"""

from __future__ import annotations

from pyspark.sql import Column
from pyspark.sql import functions as f

from common.model.streams.paths import Path

_TEXTS = "array<string>"


def value_at(whole: Column, path: Path) -> Column:
    """Return the value at a path in a field; an empty path is the field itself."""
    if None not in path:
        return _single(whole, path)
    place = path.index(None)
    items = f.from_json(_single(whole, path[:place]), _TEXTS)
    found = f.transform(items, lambda item: value_at(item, path[place + 1 :]))
    return f.to_json(f.filter(found, lambda each: each.isNotNull()))


def _single(whole: Column, path: Path) -> Column:
    if not path:
        return whole
    steps = (f"[{each}]" if isinstance(each, int) else f"['{each}']" for each in path)
    return f.get_json_object(whole, "$" + "".join(steps))
