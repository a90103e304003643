"""A topology at a real database, and runs of its definition; the test is its worker."""

from __future__ import annotations

import itertools
import uuid
from dataclasses import replace
from typing import Final

from sqlalchemy import Engine

from common.model.commands import Command
from common.model.plans import Begin, Plan, Snapshot
from common.model.states import TaskState
from common.model.topologies import Code, Wanted
from common.model.topology_graphs import TopologyGraph
from common.store.people import topologies as people
from common.store.people.topologies import TopologyView
from common.store.worker.ports import AttemptEnd
from common.store.worker.tasks import PostgresTaskStore
from tests.builders import NOON
from tests.integration.store_races.racing import (
    MASTER,
    WORKER,
    a_begin,
    claim,
    commands,
    submit,
    take,
)

CODE: Final = Code(main="words.py:topology", files={"words.py": "topology = 1\n"})
GRAPH: Final = TopologyGraph(name="words", hash="spark", config=(), parts=())
_DEFINITIONS: Final = itertools.count(1000)


class TopologyStage:
    """One topology of a definition of its own, with its first version."""

    def __init__(self, made: Engine, *, name: str | None = None) -> None:
        self.made = made
        self.name = name or f"words-{uuid.uuid4().hex[:8]}"
        self.definition_id = next(_DEFINITIONS)
        with made.begin() as db:
            assert people.make_topology(
                db,
                self.name,
                project_id=1,
                process_definition_id=self.definition_id,
                wanted=Wanted(),
            )
        self.add_version(1)

    def add_version(self, version: int, code: Code = CODE) -> bool:
        with self.made.begin() as db:
            return people.add_version(
                db, self.name, version=version, code=code, graph=GRAPH, user_id=1
            )

    def want(self, wanted: Wanted, *, before: int) -> bool:
        with self.made.begin() as db:
            return people.want(db, self.name, wanted, before=before)

    def run(self) -> int:
        """Have a worker run the topology once more; returns the attempt."""
        (command_id,) = commands(self.made, 1, process_definition_id=self.definition_id)
        owned = take(self.made, MASTER, _a_begin)[command_id]
        assert owned is not None
        ids = submit(self.made, owned, "run")
        assert claim(self.made, WORKER, ids) == ids
        return ids[0]

    def end(self, attempt: int, state: TaskState = TaskState.FAILURE) -> None:
        ended = AttemptEnd(
            task_instance_id=attempt, state=state, end_time=NOON, exit_code=1, reason="it broke"
        )
        assert PostgresTaskStore(self.made).report(WORKER, [ended]) == {attempt}

    @property
    def view(self) -> TopologyView:
        with self.made.connect() as db:
            found = people.topology_named(db, self.name)
        assert found is not None
        return found


def _a_begin(command: Command, snapshot: Snapshot) -> Plan:
    begin = a_begin(command, snapshot)
    assert isinstance(begin, Begin)
    assert command.process_definition_id is not None
    return replace(begin, process_definition_id=command.process_definition_id)
