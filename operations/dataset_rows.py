"""Reads rows out of Parquet files. The door to pyarrow for whoever looks at a dataset."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from math import isfinite
from pathlib import Path
from typing import Any


def read_rows(
    files: Sequence[Path], columns: Sequence[str], limit: int
) -> tuple[tuple[str, ...], tuple[tuple[Any, ...], ...]]:
    """Return the names of the columns, and rows. `KeyError` for a column that no file has.

    Raises `OSError` for a file that is missing or broken.
    """
    if not files:
        return tuple(columns), ()
    import pyarrow as pa
    from pyarrow import dataset, fs

    # Spark writes times in an old form, whose nanoseconds would end with the year 2262.
    form = dataset.ParquetFileFormat(read_options={"coerce_int96_timestamp_unit": "us"})
    try:
        here = fs.LocalFileSystem()
        schemas = [form.inspect(str(path), filesystem=here) for path in files]
        schema = pa.unify_schemas(schemas, promote_options="permissive")
        for name in columns:
            if name not in schema.names:
                raise KeyError(name, schema.names)
        names = [str(path) for path in files]
        whole = dataset.dataset(names, format=form, schema=schema, filesystem=here)
        found = whole.head(limit, columns=list(columns) or None)
    except pa.ArrowException as error:
        raise OSError(f"no Parquet: {error}") from error
    rows = zip(
        *([_plain(cell) for cell in each.to_pylist()] for each in found.columns), strict=True
    )
    return tuple(found.column_names), tuple(rows)


def _plain(cell: object) -> object:
    """A value that JSON has too; a time without a zone is taken for UTC."""
    match cell:
        case datetime():
            return cell if cell.tzinfo is not None else cell.replace(tzinfo=UTC)
        case float() if not isfinite(cell):
            return str(cell)
        case None | str() | bool() | int() | float():
            return cell
        case _:
            return str(cell)
