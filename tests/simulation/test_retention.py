"""Retention in the simulated cluster: masters die between any two of its statements."""

from __future__ import annotations

from dataclasses import replace

import pytest

from common.model.states import ProcessState
from tests.memory.store import MemoryDatabase, ProcessRecord
from tests.simulation.checkers import broken
from tests.simulation.world import World

_SEEDS = (3, 8, 12)


@pytest.mark.parametrize("seed", _SEEDS)
def test_old_runs_go_whole_whenever_masters_die(seed: int) -> None:
    options = replace(World(seed).options, crash_at_commit=0.1, no_answer=0.1, locks=0.0)
    world = World(seed, options=options)
    world.run()
    assert broken(world) + world.violations == []
    before = {process.id for process in world.database.processes}
    world.age(3, kept=1)
    database = world.database
    assert {process.id for process in database.processes} < before
    left = [each.id for each in database.processes if _should_be_gone(database, each)]
    assert left == [], "\n".join(world.log)
    assert [each.id for each in database.processes if not each.flag] == []
    _assert_nothing_is_orphaned(database)


def _should_be_gone(database: MemoryDatabase, process: ProcessRecord) -> bool:
    """True of a root of which nothing is a reason to stay; `broken` has seen that all is at rest."""
    tree = [each for each in database.processes if process.id in (each.id, each.root_id)]
    newest = {each.process_definition_id: each.id for each in database.processes}
    dated = {date.process_instance_id for date in database.complement_dates}
    return not process.is_sub_process and not any(
        each.state == ProcessState.PAUSE
        or newest[each.process_definition_id] == each.id
        or each.id in dated
        or any(task.lost_at for task in database.attempts(each.id))
        for each in tree
    )


def _assert_nothing_is_orphaned(database: MemoryDatabase) -> None:
    ids = {process.id for process in database.processes}
    assert {task.process_instance_id for task in database.tasks} <= ids
    assert {share.task_id for share in database.pool_queue} <= {task.id for task in database.tasks}
    children = {process.id for process in database.processes if process.is_sub_process}
    assert children <= {relation.process_instance_id for relation in database.relations}
    assert {relation.parent_process_instance_id for relation in database.relations} <= ids
