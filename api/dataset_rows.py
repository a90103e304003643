"""Reads rows of Parquet files in a process of its own, which a huge or broken file may cost.

`python -m api.dataset_rows` is that process: a JSON object on its input names the files, the
columns and the number of rows, and one on its output has them.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from common.errors import NotAllowedError
from operations.dataset_rows import read_rows

_SECONDS: Final = 4
"""Less than a request may take."""
_MOST_MEMORY: Final = 4 * 2**30
_MOST_BYTES: Final = 10_000_000
_CURE: Final = "ask for fewer columns, fewer rows or a shorter interval, or read it by Spark"


def read_rows_apart(
    files: Sequence[Path], columns: Sequence[str], limit: int
) -> tuple[tuple[str, ...], tuple[tuple[Any, ...], ...]]:
    """Do what `read_rows` does. `NotAllowedError` if that takes too long or is too much."""
    if not files:
        return read_rows(files, columns, limit)
    asked = {"files": [str(each) for each in files], "columns": list(columns), "limit": limit}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "api.dataset_rows"],
            input=json.dumps(asked).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd=Path(__file__).resolve().parents[1],
            env={"LC_ALL": "C.UTF-8"},
            timeout=_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotAllowedError(f"reading takes longer than {_SECONDS} s here; {_CURE}") from None
    if done.returncode != 0:
        raise NotAllowedError(f"reading takes more memory than there is for it; {_CURE}")
    answer = json.loads(done.stdout)
    if "missing" in answer:
        raise KeyError(answer["missing"], answer["known"])
    if "failed" in answer:
        raise OSError(answer["failed"])
    if "large" in answer:
        raise NotAllowedError(f"these rows have more than {_MOST_BYTES:,} bytes; {_CURE}")
    times = set(answer["times"])
    return tuple(answer["columns"]), tuple(
        tuple(
            datetime.fromisoformat(cell) if at in times and cell is not None else cell
            for at, cell in enumerate(row)
        )
        for row in answer["rows"]
    )


def _answer(asked: dict[str, Any]) -> dict[str, Any]:
    try:
        columns, rows = read_rows(
            [Path(each) for each in asked["files"]], asked["columns"], asked["limit"]
        )
    except KeyError as error:
        return {"missing": error.args[0], "known": error.args[1]}
    except OSError as error:
        return {"failed": error.strerror or str(error)}
    times = {at for row in rows for at, cell in enumerate(row) if isinstance(cell, datetime)}
    return {"columns": columns, "times": sorted(times), "rows": rows}


def _main() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY, _MOST_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    text = json.dumps(_answer(json.load(sys.stdin)), default=datetime.isoformat)
    sys.stdout.write(text if len(text) <= _MOST_BYTES else '{"large": true}')


if __name__ == "__main__":
    _main()
