"""Rows of runs that are spoilt by hand while the run is going on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.system.cluster import PrivateCluster, a_task, until
from tests.system.frame import FAILURE, RUNNING, SUCCESS


@dataclass(frozen=True, slots=True, kw_only=True)
class Spoilt:
    """Columns of the process instance, or with `task` of the attempt at it, and what follows."""

    columns: str
    state: int
    says: str = ""
    task: str | None = None


NESTED = "repeat('[', 50000)"

SPOILT = (
    Spoilt(columns="run_scope = '[]'", state=FAILURE, says="not chosen"),
    Spoilt(columns="run_scope = '[\"gone\"]'", state=FAILURE, says="not chosen"),
    Spoilt(columns="global_params = '{broken'", state=FAILURE, says="global parameters"),
    Spoilt(columns=f"global_params = {NESTED}", state=FAILURE, says="nested too deeply"),
    Spoilt(columns="global_params = '5'", state=FAILURE, says="must be a JSON list"),
    Spoilt(columns="global_params = '[{\"prop\": 7}]'", state=SUCCESS),
    Spoilt(columns="command_param = '{broken'", state=FAILURE, says="command_param"),
    Spoilt(columns=f"command_param = {NESTED}", state=FAILURE, says="command_param"),
    Spoilt(columns="command_param = '[1]'", state=SUCCESS),
    Spoilt(
        columns='command_param = \'{"StartNodeNameList": "gone"}\'',
        state=FAILURE,
        says="not selected",
    ),
    Spoilt(columns="process_instance_json = '{broken'", state=FAILURE, says="not JSON"),
    Spoilt(columns="process_instance_json = '{}'", state=FAILURE, says="at least one task"),
    Spoilt(columns="history_cmd = 'nonsense,,'", state=SUCCESS),
    Spoilt(columns="task_depend_type = 0", state=FAILURE, says="not selected"),
    Spoilt(columns="state = 0", state=FAILURE, says="can't have happened"),
    Spoilt(columns="state = 2", state=FAILURE, says="pausing"),
    Spoilt(columns="state = 4", state=FAILURE, says="halting"),
    Spoilt(columns="state = 10", state=FAILURE, says="can't have happened"),
    Spoilt(columns="state = 14", state=SUCCESS),
    Spoilt(columns="timeout = -5", state=SUCCESS),
    Spoilt(columns="root_id = -1, parent_task_instance_id = -1", state=SUCCESS),
    Spoilt(columns="host = 'nobody:1'", state=SUCCESS),
    Spoilt(task="s", columns="branch = '[\"gone\"]'", state=FAILURE, says="upstream is not done"),
    Spoilt(task="s", columns="branch = '[]'", state=FAILURE, says="upstream is not done"),
    Spoilt(task="a", columns="var_pool = '{broken'", state=SUCCESS),
    Spoilt(task="a", columns=f"var_pool = {NESTED}", state=SUCCESS),
    Spoilt(task="a", columns='var_pool = \'[{"prop": "x", "value": {}}]\'', state=SUCCESS),
    Spoilt(task="a", columns="name = 'foreign'", state=FAILURE, says="'foreign'"),
    Spoilt(task="a", columns="settled = false", state=SUCCESS),
    Spoilt(task="a", columns="flag = 0", state=SUCCESS),
    Spoilt(task="b", columns="task_json = '{broken'", state=SUCCESS),
    Spoilt(task="b", columns="pid = -1", state=SUCCESS),
    Spoilt(task="b", columns="timeout_seconds = -5, timeout_strategy = 0", state=SUCCESS),
)


def going_on(cluster: PrivateCluster, names: Iterable[str], gate: Path) -> list[int]:
    """Runs whose task 'b' runs until there is a file at the gate."""
    switch = {"dependTaskList": [], "nextNode": "b"}
    tasks = [
        a_task("a", "true"),
        {"name": "s", "type": "SWITCH", "preTasks": ["a"], "switchResult": switch},
        a_task("b", f"while [ ! -e '{gate}' ]; do sleep 0.05; done", "s"),
        a_task("c", "true", "b"),
    ]
    instances = [cluster.begin(cluster.define(name, tasks)) for name in names]

    def are_there() -> bool:
        return all(("b", RUNNING) in cluster.tasks_of(each, "name", "state") for each in instances)

    until(are_there)
    return instances


def spoil(cluster: PrivateCluster, instance: int, columns: str, task: str | None = None) -> None:
    """Spoil a row, and have its master read the run again as after a failover."""
    if task is None:
        where = "id = %s"
        cluster.rows(f"UPDATE t_ds_process_instance SET {columns} WHERE {where}", instance)
    else:
        where = "process_instance_id = %s AND name = %s"
        cluster.rows(f"UPDATE t_ds_task_instance SET {columns} WHERE {where}", instance, task)
    cluster.rows(
        "UPDATE t_ds_process_instance SET owner_epoch = owner_epoch + 1 WHERE id = %s", instance
    )


def mend(cluster: PrivateCluster, instance: int) -> None:
    """End a run by hand, so that what is wrong with it troubles no other test."""
    cluster.rows(
        "UPDATE t_ds_task_instance SET state = 9, start_time = now(), end_time = now(),"
        " retry_at = NULL, due_at = NULL WHERE process_instance_id = %s",
        instance,
    )
    cluster.rows(
        "UPDATE t_ds_process_instance SET state = 5, start_time = now(), end_time = now(),"
        " schedule_time = NULL, wanted_at = NULL, wanted_deadline = NULL WHERE id = %s",
        instance,
    )
