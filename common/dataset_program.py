"""The program that reads rows of Parquet files, with minimal privileges.

Tasks of tenants write these files, so a file may exhaust the memory or exploit a fault of the
library. `operations.dataset_rows` runs this script by its path with `-I`, an empty environment and
two limits as arguments: seconds, and the bytes of the answer. The script opens the files, drops its
privileges (`common.least_rights`) and only then reads them. A JSON object on its standard input
names the files, the columns and the number of rows, or a query in SQL. Its output is a JSON object
with the rows.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sqlite3
import sys
import zoneinfo
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from decimal import Decimal
from math import isfinite
from pathlib import Path
from typing import Any, Final

ROOT = Path(__file__).resolve().parents[1]
if __name__ == "__main__":
    sys.path.append(str(ROOT))

import pyarrow as pa
from pyarrow import dataset

from common.least_rights import give_up_rights
from common.log_files import open_below

_MOST_MEMORY_BYTES: Final = 2 * 1024**3
_MORE_FILES: Final = 64
"""The files that the library may open in addition to the dataset's, such as time zones."""
_FIRST_VICTIM: Final = "1000"
_LIBRARIES: Final = (
    Path(os.__file__).parent,
    Path(pa.__file__).parents[1],
    *map(Path, zoneinfo.TZPATH),
)


TABLE: Final = "dataset"
"""The name of the dataset in a query."""
_NO_COLUMN: Final = "none"
_READING: Final = frozenset(
    {
        sqlite3.SQLITE_SELECT,
        sqlite3.SQLITE_READ,
        sqlite3.SQLITE_FUNCTION,
        sqlite3.SQLITE_RECURSIVE,
    }
)


class _NoColumnError(Exception):
    """A column that no file has."""


def open_file(root: Path, name: str) -> int:
    """Open a file below the root. Raises `OSError` for a link or a path that leaves the root."""
    parts = name.split("/")
    if not all(part not in {"", ".", ".."} for part in parts):
        raise FileNotFoundError("it is not a path in the folder of datasets")
    return open_below(root, parts)


def _opened(files: Sequence[int]) -> dataset.Dataset:
    # Spark writes times in an old form. Its nanoseconds would end with the year 2262.
    form = dataset.ParquetFileFormat(read_options={"coerce_int96_timestamp_unit": "us"})
    fragments = [
        form.make_fragment(pa.PythonFile(os.fdopen(file, "rb"), mode="r")) for file in files
    ]
    schema = pa.unify_schemas(
        [each.physical_schema for each in fragments], promote_options="permissive"
    )
    return dataset.FileSystemDataset(fragments, schema, form)


def _rows(files: Sequence[int], columns: Sequence[str], limit: int) -> dict[str, Any]:
    whole = _opened(files)
    for name in columns:
        if name not in whole.schema.names:
            raise _NoColumnError(name, whole.schema.names)
    # Threads of the library would take more memory.
    found = whole.head(limit, columns=list(columns) or None, use_threads=False)
    cells = [[_plain(cell) for cell in each.to_pylist()] for each in found.columns]
    has_times = [any(isinstance(cell, datetime) for cell in column) for column in cells]
    return {
        "columns": found.column_names,
        "times": [at for at, has_time in enumerate(has_times) if has_time],
        "rows": list(zip(*cells, strict=True)),
    }


def _selected(files: Sequence[int], query: str, limit: int) -> dict[str, Any]:
    """Run a query on a table in memory that has the columns which the query reads."""
    whole = _opened(files)
    needed = columns_of(query, whole.schema.names)
    db = _table(needed or [_NO_COLUMN])
    insert = f"INSERT INTO {TABLE} VALUES ({', '.join('?' * max(1, len(needed)))})"  # noqa: S608
    # Threads of the library would take more memory.
    for batch in whole.to_batches(columns=needed, use_threads=False):
        cells = [[_stored(cell) for cell in each.to_pylist()] for each in batch.columns]
        rows = zip(*cells, strict=True) if cells else ((None,) for _ in range(batch.num_rows))
        db.executemany(insert, rows)
    db.commit()
    found = _allowed(db).execute(query)
    shown = [[_plain(cell) for cell in row] for row in found.fetchmany(limit)]
    return {
        "columns": [each[0] for each in found.description],
        "times": [],
        "rows": shown,
        "count": len(shown) + sum(1 for _ in found),
    }


def columns_of(query: str, names: Sequence[str]) -> list[str]:
    """Return the columns that a query reads, as SQLite finds them in an empty table."""
    read: set[str] = set()
    db = _allowed(_table(names), read)
    if db.execute(query).description is None:
        raise sqlite3.ProgrammingError("it is not a SELECT statement")
    return [name for name in names if name in read]


def _table(names: Sequence[str]) -> sqlite3.Connection:
    db = sqlite3.connect(":memory:")
    db.execute("PRAGMA temp_store = MEMORY")
    # Without types the table converts no value.
    columns = ", ".join('"' + name.replace('"', '""') + '"' for name in names)
    db.execute(f"CREATE TABLE {TABLE} ({columns})")
    return db


def _allowed(db: sqlite3.Connection, read: set[str] | None = None) -> sqlite3.Connection:
    """Let statements of this connection only read; note the columns that they read."""

    def authorize(
        action: int, table: str | None, column: str | None, _db: str | None, _by: str | None
    ) -> int:
        if action == sqlite3.SQLITE_READ and table == TABLE and column and read is not None:
            read.add(column)
        return sqlite3.SQLITE_OK if action in _READING else sqlite3.SQLITE_DENY

    db.set_authorizer(authorize)
    return db


def _stored(cell: object) -> object:
    """Return a value that SQLite can compare: times as texts of one length, in UTC."""
    match cell:
        case None | str() | float() | bytes():
            return cell
        case int():
            return cell if -(2**63) <= cell < 2**63 else float(cell)
        case Decimal():
            return float(cell)
        case datetime():
            moment = cell if cell.tzinfo is not None else cell.replace(tzinfo=UTC)
            return moment.astimezone(UTC).replace(tzinfo=None).isoformat("T", "microseconds") + "Z"
        case list() | dict() | tuple():
            return json.dumps(cell, default=str)
        case _:
            return str(cell)


def _plain(cell: object) -> object:
    """Return a value that JSON has too; a time without a zone is taken for UTC."""
    match cell:
        case datetime():
            return cell if cell.tzinfo is not None else cell.replace(tzinfo=UTC)
        case float() if not isfinite(cell):
            return str(cell)
        case None | str() | bool() | int() | float():
            return cell
        case _:
            return str(cell)


def answer(asked: dict[str, Any], *, most_bytes: int) -> dict[str, Any]:
    """Open the files, drop all privileges, and return rows or the reason for the failure."""
    try:
        files = [open_file(Path(asked["root"]), name) for name in asked["files"]]
        give_up_rights(
            libraries=_LIBRARIES,
            most_memory_bytes=_MOST_MEMORY_BYTES,
            most_written_bytes=most_bytes,
            most_files=max(files) + _MORE_FILES,
        )
        if "sql" in asked:
            return _selected(files, asked["sql"], asked["limit"])
        return _rows(files, asked["columns"], asked["limit"])
    except _NoColumnError as error:
        return {"missing": error.args[0], "known": error.args[1]}
    except MemoryError:
        raise  # Some are errors of the library too. The process then ends with a code.
    except sqlite3.Error as error:
        return {"refused": str(error)}
    except pa.ArrowException as error:
        return {"failed": f"no Parquet: {error}"}
    except OSError as error:
        return {"failed": error.strerror or str(error)}


def main() -> None:
    """Answer the request on standard input, and end the process."""
    # The library may hang in native code, where no Python signal handler runs.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(int(sys.argv[1]))
    # If the memory of the computer ends, the kernel kills this process and no daemon.
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text(_FIRST_VICTIM, encoding="ascii")
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    most_bytes = int(sys.argv[2])
    found = answer(json.load(sys.stdin), most_bytes=most_bytes)
    text = json.dumps(found, default=datetime.isoformat).encode()
    sys.stdout.buffer.write(text if len(text) <= most_bytes else b'{"large": true}')
    sys.stdout.flush()
    # At a normal end the library waits for its threads, and aborts at times.
    os._exit(0)


if __name__ == "__main__":
    main()
