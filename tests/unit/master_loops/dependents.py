"""A dependent loop that the test steps, over tables of a few lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from threading import Event, Lock
from typing import Any

from common.errors import ServiceUnreachableError
from common.model.cluster import Node
from common.model.failures import FailureReason
from common.model.instances import Ownership
from common.model.states import ProcessState, TaskState
from common.model.streams.progress import DatasetProgress, Feeding, PartitionProgress
from common.model.upstream import Answer, AnyQuestion, DatasetQuestion, UpstreamRun
from common.store.master.ports import PAGE, AnsweringRun, DependentDecision, WaitingDependent
from master.loops.dependent_loop import DependentConfig, DependentLoop
from tests.builders import NOON
from tests.unit.master_loops.place import MILLISECOND, SECOND, UTC_ZONE, Place

UPSTREAM = 1_000


def a_dependent(number: int = 1, **columns: Any) -> WaitingDependent:
    """A task that waits for today's run of the definition of its own number."""
    item = {"definitionId": number, "depTasks": "ALL", "cycle": "day", "dateValue": "today"}
    dependence = {
        "relation": "AND",
        "dependTaskList": [{"relation": "AND", "dependItemList": [item]}],
    }
    waiting = WaitingDependent(
        ownership=Ownership(process_instance_id=number, host="m1:5678", epoch=1),
        task_instance_id=number,
        name=f"wait{number}",
        task_json=json.dumps({"name": "wait", "type": "DEPENDENT", "dependence": dependence}),
        process_definition_id=3,
        moment=NOON,
        start_time=NOON,
        evidence=None,
    )
    return replace(waiting, **columns)


def a_wait_for_dataset(number: int, dataset: str) -> WaitingDependent:
    """A task that waits for the hour before NOON of a dataset."""
    item = {"dataset": dataset, "cycle": "hour", "dateValue": "last1Hour"}
    dependence = {"dependTaskList": [{"dependItemList": [item]}]}
    document = {"name": "wait", "type": "DEPENDENT", "dependence": dependence}
    return a_dependent(number, task_json=json.dumps(document))


def a_run(state: ProcessState) -> UpstreamRun:
    return UpstreamRun(
        id=UPSTREAM, state=state, schedule_time=NOON, moment=NOON, start_time=NOON, end_time=NOON
    )


class Dependents:
    """Tables of a few lines, for several threads. `upstream` answers by definition id.

    So does `waited_for`, with the id of a run that goes on.
    """

    def __init__(self) -> None:
        self.rows: dict[int, WaitingDependent] = {}
        self.upstream: dict[int, ProcessState] = {}
        self.waited_for: dict[int, int] = {}
        # The latest times that the streams of datasets have published.
        self.published: dict[str, datetime] = {}
        self.asked_about: list[str] = []
        self.decided: dict[int, tuple[TaskState, str | None]] = {}
        self.failures: dict[int, FailureReason | None] = {}
        # The definitions of upstream runs that may be named in a notification.
        self.definitions: dict[int, int] = {}
        self.asked: list[list[int]] = []
        self.looks = 0
        self.pages = 0
        self.writes = 0
        self.poisoned: tuple[int, ...] = ()
        self.unwritable: tuple[int, ...] = ()
        # Runs of other masters, runs that still move, and the arguments of every query.
        self.elsewhere: dict[int, WaitingDependent] = {}
        self.moving: tuple[int, ...] = ()
        self.followed: list[list[int]] = []
        self.broken: tuple[str, ...] = ()
        self.read: Callable[[], None] = lambda: None
        self.all_decided = Event()
        self.expected = -1
        self._lock = Lock()

    def add(self, *rows: WaitingDependent) -> None:
        with self._lock:
            self.rows |= {row.task_instance_id: row for row in rows}

    def undecided(self, node: Node) -> Mapping[int, int]:
        self._answers("undecided")
        with self._lock:
            self.looks += 1
            found = {number: row.ownership.epoch for number, row in self.rows.items()}
        self.read()
        return found

    def waiting(
        self, node: Node, *, after: int = 0, limit: int = PAGE
    ) -> tuple[WaitingDependent, ...]:
        self._answers("waiting")
        with self._lock:
            self.pages += 1
            found = [row for number, row in sorted(self.rows.items()) if number > after]
        return tuple(found[:limit])

    def runs(self, process_instance_ids: Collection[int]) -> tuple[AnsweringRun, ...]:
        self._answers("runs")
        return tuple(
            AnsweringRun(
                process_instance_id=number,
                process_definition_id=self.definitions[number],
                definition_name=None,
                moment=NOON,
            )
            for number in sorted(process_instance_ids)
            if number in self.definitions
        )

    def look_up(self, questions: Sequence[AnyQuestion]) -> tuple[Answer, ...]:
        self._answers("look_up")
        about = [each.dataset for each in questions if isinstance(each, DatasetQuestion)]
        if about:
            assert len(about) == len(questions)
            self.asked_about += about
            return tuple(self._progress(each) for each in about)
        self.asked.append([question.definition_id or 0 for question in questions])
        ids = [question.definition_id or 0 for question in questions]
        if any(number in self.poisoned for number in ids):
            raise ValueError("a mistake of ours")
        return tuple(self._run(number) for number in ids)

    def held_up(self, process_instance_ids: Collection[int]) -> tuple[WaitingDependent, ...]:
        self._answers("held_up")
        with self._lock:
            self.followed.append(sorted(process_instance_ids))
            rows = [*self.rows.values(), *self.elsewhere.values()]
        named = set(process_instance_ids) - set(self.moving)
        return tuple(row for row in rows if row.ownership.process_instance_id in named)

    def _progress(self, dataset: str) -> DatasetProgress:
        latest = self.published.get(dataset)
        partition = PartitionProgress(offset=1, since=NOON, latest_event=latest)
        return DatasetProgress(feeding=Feeding.RUNNING, partitions={0: partition})

    def _run(self, number: int) -> UpstreamRun | None:
        if number in self.waited_for:
            return replace(a_run(ProcessState.RUNNING), id=self.waited_for[number])
        return a_run(self.upstream[number]) if number in self.upstream else None

    def decide(self, decisions: Sequence[DependentDecision], *, now: datetime) -> frozenset[int]:
        self._answers("decide")
        with self._lock:
            self.writes += 1
            numbers = [each.waiting.task_instance_id for each in decisions]
            if any(number in self.unwritable for number in numbers):
                raise ValueError("a row that can't be written")
            there = {number for number in numbers if number in self.rows}
            for each in decisions:
                number = each.waiting.task_instance_id
                if number not in there:
                    continue
                if each.state is None:
                    self.rows[number] = replace(self.rows[number], evidence=each.evidence)
                    continue
                del self.rows[number]
                self.decided[number] = (each.state, each.reason)
                self.failures[number] = each.failure
                if len(self.decided) == self.expected:
                    self.all_decided.set()
            return frozenset(there)

    def _answers(self, question: str) -> None:
        if question in self.broken:
            raise ServiceUnreachableError(f"no answer to {question}")


class Waiter:
    """A dependent loop that the test steps, with a count of its wakes."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.store = Dependents()
        self.wakes = 0
        self.config = DependentConfig(interval=5 * SECOND, breath=50 * MILLISECOND)
        self.loop = self.made()

    def made(self, **config: Any) -> DependentLoop:
        return DependentLoop(
            self.store,
            identity=self.place.identity,
            clock=self.place.clock,
            zone=UTC_ZONE,
            wake=self._woken,
            config=replace(self.config, **config),
        )

    def later(self, passed: timedelta) -> timedelta:
        self.place.pass_by(passed)
        return self.loop.run_once()

    def _woken(self) -> None:
        self.wakes += 1
