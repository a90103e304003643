"""The checkpoints of a topology, as Spark and the task keep them, and what of them is missing.

Of the files here the task writes `heritage.json` and `running.json` alone. A query's checkpoint has
a log of the batches that were planned (`offsets`), one of those that were done (`commits`), and the
states of its bolts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from common.errors import SchedulerError
from common.model.topologies import Code, Wanted
from worker.spark.streaming.documents import replace

CHECKPOINTS: Final = "checkpoints"
HERITAGE: Final = "heritage.json"
RUNNING: Final = "running.json"
CURE: Final = (
    "bring back what it was from a copy, or kill the topology and submit it anew, to begin where"
    " its spouts begin, with empty states"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    """The version and the shape that the queries were last started with.

    A batch that was begun is to be done by them, whoever does it.
    """

    version: int
    code: Code
    wanted: Wanted

    def keep(self, folder: Path) -> None:
        """Replace what is kept in the folder of a topology."""
        document = {
            "version": self.version,
            "code": self.code.document(),
            "wanted": self.wanted.document(),
        }
        replace(folder / RUNNING, document)

    @classmethod
    def kept(cls, folder: Path) -> Running | None:
        """Return what is kept; None before the first start. `DamagedCheckpointError`."""
        try:
            found = json.loads((folder / RUNNING).read_text(encoding="utf-8"))
            return cls(
                version=int(found["version"]),
                code=Code.of(found["code"]),
                wanted=Wanted.of(found["wanted"]),
            )
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DamagedCheckpointError(f"{folder / RUNNING} is damaged; {CURE}") from error


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
