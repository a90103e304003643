"""The data sources that a Spark task names, of which there may be several: `params.datasources`.

Pure. Written as an object from the names that the task uses to data sources, or as a list of data
sources, whose own names count: `{"sales": 3}`, `["sales"]`. A data source is a name in a file and
an id in a stored definition. Used by the reader and writer of definition files and by the worker.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from common.model.task_type import DATASOURCES


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkSource:
    """One of them. `name` is the task's own, "" if there is none."""

    key: str
    name: str
    source: int | str
    """The id, or the name, of the data source."""
    problem: str = ""


def spark_sources(params: Mapping[str, Any]) -> Iterator[SparkSource]:
    """Yield the sources in `params.datasources`; an entry that can't be read has a `problem`."""
    given = params.get(DATASOURCES)
    if given in (None, "", [], {}):
        return
    if isinstance(given, Mapping):
        entries = [(f"{DATASOURCES}.{name}", str(name), each) for name, each in given.items()]
    elif isinstance(given, list):
        entries = [(f"{DATASOURCES}[{index}]", "", each) for index, each in enumerate(given)]
    else:
        problem = 'must be an object like {"sales": 3}, or a list of data sources'
        yield SparkSource(key=DATASOURCES, name="", source=0, problem=problem)
        return
    for key, name, each in entries:
        source = _source(each)
        if source is None:
            problem = "must be the name or the id of a data source"
            yield SparkSource(key=key, name=name, source=0, problem=problem)
        else:
            yield SparkSource(key=key, name=name, source=source)


def replace_sources(
    params: dict[str, Any], change: Callable[[SparkSource], SparkSource]
) -> list[SparkSource]:
    """Change each of them, in place; the problems that there were or that the change has found."""
    problems = []
    changed: list[SparkSource] = []
    for each in spark_sources(params):
        changed.append(each if each.problem else change(each))
        if changed[-1].problem:
            problems.append(changed[-1])
    if not changed or problems:
        return problems
    if isinstance(params[DATASOURCES], Mapping):
        params[DATASOURCES] = {each.name: each.source for each in changed}
    else:
        params[DATASOURCES] = [each.source for each in changed]
    return []


def _source(value: object) -> int | str | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value if 0 < value < 1 << 31 else None
    if isinstance(value, str) and value.strip():
        text = value.strip()
        is_number = text.isascii() and text.isdecimal() and len(text) < 10
        return int(text) if is_number and int(text) else text
    return None
