"""The checkpoints of a topology, as Spark and the task keep them, and what of them is missing.

Everything here looks at files and changes none. A query's checkpoint has a log of the batches that
were planned (`offsets`), one of those that were done (`commits`), and the states of its bolts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from common.errors import SchedulerError

CHECKPOINTS: Final = "checkpoints"
HERITAGE: Final = "heritage.json"
CURE: Final = (
    "bring back what it was from a copy, or kill the topology and submit it anew, to begin where"
    " its spouts begin, with empty states"
)


class DamagedCheckpointError(SchedulerError):
    """A file of a checkpoint can't be read as it stands."""


def last_batch(log: Path) -> int:
    """Return the last batch of one of Spark's logs; -1 if there is none."""
    found = (
        [int(each.name) for each in log.iterdir() if each.name.isdecimal()] if log.is_dir() else []
    )
    return max(found, default=-1)


def is_open(checkpoint: Path) -> bool:
    """Return True if Spark has planned a batch that it has not committed."""
    return last_batch(checkpoint / "offsets") > last_batch(checkpoint / "commits")


def kept_tasks(checkpoint: Path) -> int | None:
    """Return the tasks over which the states are spread; None before the first batch.

    `DamagedCheckpointError` if the log does not say so.
    """
    last = last_batch(checkpoint / "offsets")
    if last < 0:
        return None
    file = checkpoint / "offsets" / str(last)
    try:
        _, about, *_ = file.read_text(encoding="utf-8").splitlines()
        kept = json.loads(about)["conf"].get("spark.sql.shuffle.partitions")
        return None if kept is None else int(kept)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedCheckpointError(f"{file} is damaged; {CURE}") from error


def missing(folder: Path) -> Iterator[str]:
    """Yield what is gone from the folder of a topology that has committed batches."""
    try:
        heritage = json.loads((folder / HERITAGE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        yield HERITAGE
        return
    except ValueError as error:
        raise DamagedCheckpointError(f"{folder / HERITAGE} is damaged; {CURE}") from error
    logs = {name: folder / CHECKPOINTS / name / "offsets" for name in heritage}
    if all(last_batch(log) < 0 for log in logs.values()):
        yield CHECKPOINTS
        return
    for name, log in logs.items():
        yield from _missing_of_query(heritage[name], log.parent, f"{CHECKPOINTS}/{name}")


def _missing_of_query(heritage: Mapping[str, Any], checkpoint: Path, place: str) -> Iterator[str]:
    if not (checkpoint / "metadata").is_file():
        yield place
    elif (
        heritage["stateful"]
        and last_batch(checkpoint / "commits") >= 0
        and not (checkpoint / "state").is_dir()
    ):
        yield f"{place}/state"
