"""Reads and queries rows of Parquet files in a separate process without privileges.

The process (`common.dataset_program`) may be exhausted or taken over by a file, so its answer
is limited in size and checked. Nothing here parses a file.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

import common
from common.errors import NotAllowedError

SECONDS: Final = 60
"""The time limit of the command line."""
_PROGRAM: Final = Path(common.__file__).with_name("dataset_program.py")
"""A path, because an import would load the library into this process."""
MOST_BYTES: Final = 10_000_000
"""The maximum size of an answer of the process."""
_MORE_SECONDS: Final = 5
"""The time after which a process is killed that the kernel has not ended."""
_CURE: Final = "name fewer columns, fewer rows or a shorter interval, or read the dataset by Spark"


class ReadRows(NamedTuple):
    """Rows by column; `total` is the number of rows of a query, including those not shown."""

    columns: tuple[str, ...]
    values: tuple[tuple[Any, ...], ...]
    total: int


class QueryError(Exception):
    """A query that SQLite refuses; the message is SQLite's."""


def read_rows(
    root: Path, files: Sequence[str], columns: Sequence[str], limit: int, *, seconds: int = SECONDS
) -> ReadRows:
    """Return the names of the columns, and rows of files below `root`.

    Raises `KeyError` for a column that no file has, `OSError` for a file that is missing or
    invalid, and `NotAllowedError` at the limits of time, memory and size.
    """
    if not files:
        return ReadRows(columns=tuple(columns), values=(), total=0)
    asked = {"root": str(root), "files": list(files), "columns": list(columns), "limit": limit}
    return _answer(asked, seconds)


def query_rows(
    root: Path, files: Sequence[str], sql: str, limit: int, *, seconds: int = SECONDS
) -> ReadRows:
    """Return the first rows of a SELECT statement on the table `dataset`, and their count.

    Raises `QueryError` for a statement that SQLite refuses, and else as `read_rows`.
    """
    asked = {"root": str(root), "files": list(files), "sql": sql, "limit": limit}
    return _answer(asked, seconds)


def _answer(asked: Mapping[str, Any], seconds: int) -> ReadRows:
    output = os.memfd_create("dataset-rows", os.MFD_CLOEXEC)
    try:
        done = subprocess.run(
            [sys.executable, "-I", str(_PROGRAM), str(seconds), str(MOST_BYTES)],
            input=json.dumps(asked).encode(),
            stdout=output,
            stderr=subprocess.DEVNULL,
            env={},
            cwd="/",
            start_new_session=True,
            timeout=seconds + _MORE_SECONDS,
            check=False,
        )
        text = os.pread(output, MOST_BYTES + 1, 0)
    except subprocess.TimeoutExpired:
        done, text = None, b""
    finally:
        os.close(output)
    if done is None or done.returncode == -signal.SIGALRM:
        raise NotAllowedError(f"the rows could not be read within {seconds} s; {_CURE}")
    if done.returncode != 0:
        raise NotAllowedError(
            f"the files are invalid, or reading them takes more memory than is allowed; {_CURE}"
        )
    return read_answer(text)


def read_answer(text: bytes) -> ReadRows:
    """Read an answer of the process, which may have any form."""
    try:
        answer = json.loads(text)
        match answer:
            case {"large": _}:
                raise NotAllowedError(f"these rows have more than {MOST_BYTES:,} bytes; {_CURE}")
            case {"failed": str(reason)}:
                raise OSError(reason)
            case {"refused": str(reason)}:
                raise QueryError(reason)
            case {"missing": str(name), "known": [*known]} if _are_words(known):
                raise KeyError(name, known)
            case {"columns": [*columns], "times": [*times], "rows": [*rows]} if _are_words(columns):
                values = tuple(_row(each, len(columns), times) for each in rows)
                return ReadRows(tuple(columns), values, int(answer.get("count", len(values))))
    except (ValueError, TypeError, RecursionError):
        pass
    raise OSError("the program that reads it was broken by its content")


def _are_words(values: list[Any]) -> bool:
    return all(isinstance(each, str) for each in values)


def _row(cells: Any, width: int, times: list[Any]) -> tuple[Any, ...]:
    """Return the cells of a row; `ValueError` or `TypeError` if they are not plain values."""
    if len(cells) != width or not all(
        cell is None or isinstance(cell, str | int | float) for cell in cells
    ):
        raise ValueError("no row")
    return tuple(
        datetime.fromisoformat(cell) if at in times and cell is not None else cell
        for at, cell in enumerate(cells)
    )
