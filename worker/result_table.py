"""Rows of a result: as CSV, as a table for people, and as output parameters.

Shared by the runners of SQL and PROCEDURE tasks and by the session work of SPARK_SQL and
DATA_QUALITY tasks. Knows neither a database nor Spark: a row is a sequence of Python values.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from common.masking import printable

MAX_BYTES: Final = 1_000_000_000
"""Of a CSV file: a result larger than this belongs into a table or a file of the database's own."""

_MAX_OUTPUT_BYTES = 64 * 1024
_WIDEST = 60


class ResultTooLargeError(Exception):
    """A result exceeds a limit. Fail the task with the text, which names the limit."""


def text_of(value: object) -> str:
    """A value as text; nothing for NULL."""
    match value:
        case None:
            return ""
        case bool():
            return "true" if value else "false"
        case datetime():
            return value.isoformat(" ")
        case bytes() | memoryview():
            return bytes(value).hex()
        case dict() | list():
            return json.dumps(value, ensure_ascii=False, default=str)
        case _:
            return str(value)


class Result:
    """The part of a result that is kept while its rows go by: the first ones, and the outputs."""

    def __init__(
        self, columns: Sequence[str], *, rows_shown: int, outputs: Mapping[str, str]
    ) -> None:
        self.columns = tuple(columns)
        self.count = 0
        self._rows_shown = rows_shown
        self._shown: list[tuple[str, ...]] = []
        index = {name.lower(): position for position, name in reversed([*enumerate(columns)])}
        self._wanted = {
            name: (index[name.lower()], kind == "LIST")
            for name, kind in outputs.items()
            if name.lower() in index
        }
        self._lists: dict[str, list[str | float | None]] = {
            name: [] for name, (_, is_list) in self._wanted.items() if is_list
        }
        self._first: tuple[object, ...] | None = None
        self._output_bytes = 0

    def take(self, row: Sequence[object]) -> tuple[str, ...]:
        """Count a row; its values as text."""
        texts = tuple(map(text_of, row))
        if self._first is None:
            self._first = tuple(row)
        if self.count < self._rows_shown:
            self._shown.append(texts)
        self.count += 1
        for name, values in self._lists.items():
            position = self._wanted[name][0]
            value = row[position]
            values.append(value if isinstance(value, int | float | None) else texts[position])
            self._output_bytes += len(texts[position]) + 4
            if self._output_bytes > _MAX_OUTPUT_BYTES:
                raise ResultTooLargeError(
                    f"output parameter {name!r} has more than {_MAX_OUTPUT_BYTES:,} bytes"
                )
        return texts

    def outputs(self) -> dict[str, str]:
        """The declared parameters that have a column: the first row's value, or a list of all."""
        if self._first is None:
            return {name: json.dumps(values) for name, values in self._lists.items()}
        return {
            name: json.dumps(self._lists[name], ensure_ascii=False)
            if is_list
            else text_of(self._first[position])
            for name, (position, is_list) in self._wanted.items()
        }

    def table(self) -> str:
        """The first rows, with their columns under each other."""
        rows = [self.columns, *self._shown]
        cells = [[_cut(printable(cell)) for cell in row] for row in rows]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = [" | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in cells]
        lines.insert(1, "-+-".join("-" * width for width in widths))
        return "\n".join(line.rstrip() for line in lines)


def write_csv(path: Path, result: Result, rows: Iterable[Sequence[Any]]) -> None:
    """Write all rows; the file is there already, made by the worker."""
    with path.open("r+", encoding="utf-8", errors="replace", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(result.columns)
        for number, texts in _numbered(result, rows):
            writer.writerow(texts)
            if number % 1_000 == 0 and file.tell() > MAX_BYTES:
                raise ResultTooLargeError(f"the result has more than {MAX_BYTES:,} bytes as CSV")


def _numbered(
    result: Result, rows: Iterable[Sequence[Any]]
) -> Iterator[tuple[int, tuple[str, ...]]]:
    for number, row in enumerate(rows):
        yield number, result.take(row)


def _cut(cell: str) -> str:
    return cell if len(cell) <= _WIDEST else f"{cell[: _WIDEST - 1]}…"
