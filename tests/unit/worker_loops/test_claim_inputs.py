"""The data sources that the claim loop hands to an attempt, and attempts that still wait for them."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection

import pytest

from common.errors import ServiceUnreachableError
from common.model.states import TaskState
from common.store.worker.ports import DataSource, Wanted
from tests.unit.worker_loops.place import Place


def awaiting_inputs(place: Place, datasource: object = 7) -> int:
    """A submitted SQL task."""
    task = place.row()
    place.database.update(
        place.database.tasks,
        task,
        task_type="SQL",
        task_json=json.dumps({"params": json.dumps({"datasource": datasource})}),
    )
    place.registry.task_queue.offer([place.entry(task)])
    place.zookeeper.deliver()
    return task


def a_datasource(place: Place) -> None:
    place.database.insert(
        place.database.datasources, id=7, name="dw", type=1, connection_params="{}"
    )


@pytest.mark.parametrize("given", [7, "7", " 7 "])
def test_a_task_that_needs_a_data_source_is_started_with_it(place: Place, given: object) -> None:
    place.join()
    a_datasource(place)
    task, other = awaiting_inputs(place, given), place.submit()
    place.worker.claims.run_once()
    source = place.attempts.tasks[task].datasource
    assert source is not None
    assert (source.id, source.name) == (7, "dw")
    assert place.attempts.tasks[other].datasource is None
    assert place.worker.claims.claiming() == frozenset()


@pytest.mark.parametrize("given", [8, 0, "x", None])
def test_a_task_without_its_data_source_is_started_all_the_same_and_says_so_itself(
    place: Place, given: object
) -> None:
    place.join()
    a_datasource(place)
    task = awaiting_inputs(place, given)
    place.worker.claims.run_once()
    assert place.attempts.tasks[task].datasource is None


def test_a_spark_task_is_started_with_all_the_data_sources_that_it_names(place: Place) -> None:
    place.join()
    a_datasource(place)
    place.database.insert(
        place.database.datasources, id=9, name="crm", type=0, connection_params="{}"
    )
    task, plain = place.row(), place.row()
    for row, params in ((task, {"datasources": {"a": 9, "b": 7, "c": 8}}), (plain, {})):
        place.database.update(
            place.database.tasks,
            row,
            task_type="SPARK_SQL",
            task_json=json.dumps({"params": json.dumps(params)}),
        )
        place.registry.task_queue.offer([place.entry(row)])
    place.zookeeper.deliver()
    place.worker.claims.run_once()
    assert [each.id for each in place.attempts.tasks[task].datasources] == [9, 7]
    # An attempt that names none waits for none.
    assert place.attempts.started == [plain, task]
    assert place.attempts.tasks[plain].datasources == ()


@pytest.fixture
def deaf(place: Place, monkeypatch: pytest.MonkeyPatch) -> Callable[[bool], None]:
    """Makes reads of data sources fail, or work again."""
    look = place.store.datasources

    def make(deaf: bool) -> None:
        def datasources(ids: Collection[Wanted]) -> dict[Wanted, DataSource]:
            if deaf:
                raise ServiceUnreachableError("no answer")
            return look(ids)

        monkeypatch.setattr(place.store, "datasources", datasources)

    make(True)
    return make


def test_a_look_for_data_sources_that_fails_loses_no_attempt(
    place: Place, deaf: Callable[[bool], None]
) -> None:
    place.join()
    a_datasource(place)
    task, other = awaiting_inputs(place), place.submit()
    with pytest.raises(ServiceUnreachableError):
        place.worker.claims.run_once()
    # The others are not held up, and the one that awaits inputs is not taken for lost.
    assert place.attempts.started == [other]
    assert place.worker.claims.claiming() == {task}
    place.worker.kills.run_once()
    place.pass_time(6)
    place.worker.kills.run_once()
    with pytest.raises(ServiceUnreachableError):
        place.worker.claims.run_once()
    place.worker.reporter.run_once()
    assert place.state(task) is TaskState.RUNNING
    deaf(False)
    place.worker.claims.run_once()
    assert place.attempts.started == [other, task]
    assert place.attempts.tasks[task].datasource is not None
    assert place.worker.claims.claiming() == frozenset()


def test_while_a_data_source_is_looked_for_nothing_else_is_claimed(
    place: Place, deaf: Callable[[bool], None]
) -> None:
    place.join()
    awaiting_inputs(place)
    with pytest.raises(ServiceUnreachableError):
        place.worker.claims.run_once()
    place.submit()
    with pytest.raises(ServiceUnreachableError):
        place.worker.claims.run_once()
    assert place.attempts.started == []


def test_an_attempt_awaiting_inputs_of_a_lost_session_is_handed_back_and_started_later(
    place: Place, deaf: Callable[[bool], None]
) -> None:
    place.join()
    task = awaiting_inputs(place)
    with pytest.raises(ServiceUnreachableError):
        place.worker.claims.run_once()
    place.zookeeper.expire(place.registry)
    place.pass_time(1)
    place.worker.heartbeat.run_once()
    deaf(False)
    place.worker.claims.run_once()
    assert place.attempts.started == []
    assert place.claim() == [task]
    assert place.store.running(place.node) == {task: False}


def test_a_task_is_started_with_the_environment_that_it_names_else_with_its_run_s(
    place: Place,
) -> None:
    place.join()
    for number, name in ((7, "of the task"), (9, "of the run")):
        place.database.insert(place.database.environments, id=number, code=number, name=name)
    rows = {place.submit(): node for node in ({"environmentCode": "7"}, {"environmentCode": -1})}
    plain = place.submit()
    for row, node in rows.items():
        place.database.update(place.database.tasks, row, task_json=json.dumps(node))
    run = place.database.tasks.the(plain).process_instance_id
    place.database.update(place.database.processes, run, command_param='{"environmentCode": "9"}')
    place.worker.claims.run_once()
    named = [place.attempts.tasks[row].environment for row in (*rows, plain)]
    assert [each.name for each in named if each] == ["of the task", "of the run", "of the run"]


def test_no_look_is_made_for_tasks_without_an_environment(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.join()
    asked: list[object] = []
    monkeypatch.setattr(place.store, "environments", lambda codes: asked.append(codes) or {})
    plain, gone = place.submit(), place.submit()
    place.database.update(place.database.tasks, gone, task_json='{"environmentCode": 8}')
    place.worker.claims.run_once()
    assert asked == [[(1, 8)]]
    assert [place.attempts.tasks[each].environment for each in (plain, gone)] == [None, None]
