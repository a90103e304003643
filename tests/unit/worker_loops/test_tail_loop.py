"""The loop that keeps last words."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import timedelta
from pathlib import Path

import pytest

from common.errors import ServiceUnreachableError
from common.model.states import TaskState
from common.store.worker.ports import AttemptEnd, LogTail
from tests.builders import NOON
from tests.memory.store import MemoryDatabase, MemoryTaskStore
from worker.loops.tail_loop import TailLoop


class Store(MemoryTaskStore):
    """Attempts of run 7, whatever their id; away as often as `outages` says."""

    outages = 0

    def __init__(self) -> None:
        super().__init__(MemoryDatabase())
        self.kept: list[LogTail] = []

    def log_places(self, task_instance_ids: Collection[int]) -> dict[int, int]:
        return dict.fromkeys(task_instance_ids, 7)

    def keep_tails(self, tails: Sequence[LogTail]) -> int:
        if self.outages:
            self.outages -= 1
            raise ServiceUnreachableError("away")
        self.kept += tails
        return len(tails)


def ends(*states: TaskState) -> list[AttemptEnd]:
    return [
        AttemptEnd(task_instance_id=number, state=state, end_time=NOON)
        for number, state in enumerate(states, start=1)
    ]


def test_failures_alone_leave_words_and_an_outage_loses_none(tmp_path: Path) -> None:
    (tmp_path / "3" / "7").mkdir(parents=True)
    for number in (1, 2, 3):
        (tmp_path / "3" / "7" / f"{number}.log").write_bytes(b"x" * 20_000 + b"%d" % number)
    (tmp_path / "3" / "7" / "3.log").unlink()
    (tmp_path / "3" / "7" / "3.log").symlink_to("/etc/passwd")
    store = Store()
    store.outages = 1
    loop = TailLoop(store, logs=tmp_path)
    idle = loop.run_once()
    assert idle > timedelta(minutes=1)
    loop.reported(ends(TaskState.FAILURE, TaskState.SUCCESS, TaskState.FAILURE))
    with pytest.raises(ServiceUnreachableError):
        loop.run_once()
    assert [loop.run_once(), loop.run_once()] == [idle, idle]
    (tail,) = store.kept
    assert (tail.task_instance_id, tail.size) == (1, 20_001)
    assert tail.tail == b"x" * (16 * 1024 - 1) + b"1"
