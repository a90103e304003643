"""The worked traces of contract §14, told by the rows of real daemons.

In two places Orcaflow does otherwise on purpose: no instance is made to wait for threads (14.7), but
one that another release left waiting goes on; and a backfill has an instance for each date (14.9).
"""

from __future__ import annotations

import json

from operations.daemons import Kind
from tests.system.cluster import PrivateCluster, a_task, until

PAUSE, STOP, FAILURE, SUCCESS, KILL = 3, 5, 6, 7, 9


def _instance(cluster: PrivateCluster, instance: int, *columns: str) -> tuple[object, ...]:
    ((*values,),) = cluster.rows(
        f"SELECT {', '.join(columns)} FROM t_ds_process_instance WHERE id = %s", instance
    )
    return tuple(values)


def test_14_1_a_normal_run(cluster: PrivateCluster) -> None:
    definition = cluster.define("normal", [a_task("a", "true"), a_task("b", "true", "a")])
    command = cluster.put(definition)
    until(lambda: cluster.last_instance(definition) > 0)
    instance = cluster.last_instance(definition)
    assert cluster.await_end(instance) == SUCCESS
    assert cluster.rows("SELECT id FROM t_ds_command WHERE id = %s", command) == []
    name, run_times, history, recovery = _instance(
        cluster, instance, "name", "run_times", "history_cmd", "recovery"
    )
    assert str(name).startswith("normal-1-1")
    assert (run_times, history, recovery) == (1, "START_PROCESS", 0)
    assert cluster.tasks_of(instance, "name", "state", "retry_times", "flag") == [
        ("a", 7, 0, 1),
        ("b", 7, 0, 1),
    ]


def test_14_2_a_retry_is_a_new_row_and_the_third_failure_is_final(
    cluster: PrivateCluster,
) -> None:
    task = a_task("a", "exit 1", maxRetryTimes=2, retryInterval=0)
    instance = cluster.begin(cluster.define("retry", [task]))
    assert cluster.await_end(instance) == FAILURE
    assert cluster.tasks_of(instance, "state", "retry_times", "flag") == [
        (6, 0, 0),
        (6, 1, 0),
        (6, 2, 1),
    ]


def test_14_3_and_14_4_a_stop_and_the_recovery_after_it(cluster: PrivateCluster) -> None:
    gate = cluster.home / "stop.gate"
    script = f"until [ -e '{gate}' ]; do sleep 0.05; done"
    definition = cluster.define("stopped", [a_task("a", script), a_task("b", "true", "a")])
    instance = cluster.begin(definition)
    cluster.await_task(instance, 1)
    cluster.put(definition, json.dumps({"ProcessInstanceId": instance}), command_type=9)
    assert cluster.await_end(instance) == STOP
    assert _instance(cluster, instance, "command_type", "history_cmd") == (9, "START_PROCESS,STOP")
    assert cluster.tasks_of(instance, "name", "state") == [("a", KILL)]

    gate.touch()
    cluster.put(definition, json.dumps({"ProcessInstanceId": instance}), command_type=3)
    until(lambda: cluster.state_of(instance) == SUCCESS)
    assert _instance(cluster, instance, "run_times", "history_cmd", "state_reason") == (
        2,
        "START_PROCESS,STOP,RECOVER_SUSPENDED_PROCESS",
        None,
    )
    assert cluster.tasks_of(instance, "name", "state", "flag") == [
        ("a", KILL, 0),
        ("a", 7, 1),
        ("b", 7, 1),
    ]


def test_14_5_a_worker_dies_and_its_task_is_submitted_again_uncharged(
    cluster: PrivateCluster,
) -> None:
    gate = cluster.home / "worker.gate"
    definition = cluster.define(
        "orphan", [a_task("a", f"until [ -e '{gate}' ]; do sleep 0.05; done")]
    )
    instance = cluster.begin(definition)
    cluster.await_task(instance, 1)
    ((host,),) = cluster.tasks_of(instance, "host")
    port = int(host.rpartition(":")[2])
    cluster.kill(Kind.WORKER, port)
    until(lambda: len(cluster.tasks_of(instance, "id")) == 2)
    gate.touch()
    assert cluster.await_end(instance) == SUCCESS
    assert cluster.tasks_of(instance, "state", "retry_times", "flag") == [(8, 0, 0), (7, 0, 1)]
    assert cluster.rows(
        "SELECT title, content FROM t_ds_alert WHERE title LIKE 'worker fault tolerance: %%'"
        " AND content LIKE '%%orphan-%%'"
    )
    assert cluster.rows(
        "SELECT count(*) FROM t_ds_alert WHERE title = 'Fault tolerance warning'"
        f" AND content LIKE '%{host}%' AND content LIKE '%WORKER%'"
    ) == [(1,)]
    cluster.start_again(Kind.WORKER, port)


def test_14_6_a_master_dies_and_another_goes_on_with_its_run(cluster: PrivateCluster) -> None:
    gate = cluster.home / "master.gate"
    definition = cluster.define(
        "ownerless",
        [a_task("a", f"until [ -e '{gate}' ]; do sleep 0.05; done"), a_task("b", "true", "a")],
    )
    instance = cluster.begin(definition)
    cluster.await_task(instance, 1)
    (host,) = _instance(cluster, instance, "host")
    port = int(str(host).rpartition(":")[2])
    cluster.kill(Kind.MASTER, port)
    until(lambda: _instance(cluster, instance, "host") != (host,))
    gate.touch()
    assert cluster.await_end(instance) == SUCCESS
    assert _instance(cluster, instance, "recovery", "run_times", "history_cmd") == (
        1,
        1,
        "START_PROCESS,RECOVER_TOLERANCE_FAULT_PROCESS",
    )
    assert cluster.tasks_of(instance, "name", "state", "attempt") == [("a", 7, 1), ("b", 7, 1)]
    cluster.start_again(Kind.MASTER, port)


def test_14_7_an_instance_that_waited_for_threads_goes_on(cluster: PrivateCluster) -> None:
    definition = cluster.define("crowded", [a_task("a", "true")])
    model = cluster.begin(definition)
    assert cluster.await_end(model) == SUCCESS
    ((instance,),) = cluster.rows(
        "INSERT INTO t_ds_process_instance (name, process_definition_id, state, command_type,"
        " command_param, process_instance_json, executor_id, start_time, run_times, history_cmd)"
        " SELECT 'waits', process_definition_id, 10, 0, '{}', process_instance_json, executor_id,"
        " now(), 1, 'START_PROCESS' FROM t_ds_process_instance WHERE id = %s RETURNING id",
        model,
    )
    cluster.put(
        definition, json.dumps({"WaittingThreadInstanceId": str(instance)}), command_type=10
    )
    assert cluster.await_end(instance) == SUCCESS
    assert _instance(cluster, instance, "history_cmd", "run_times", "recovery") == (
        "START_PROCESS,RECOVER_WAITTING_THREAD",
        1,
        0,
    )
    assert cluster.tasks_of(instance, "name", "state") == [("a", 7)]


def test_14_9_a_date_of_a_backfill_fails_and_is_recovered_for_that_date(
    cluster: PrivateCluster,
) -> None:
    gate = cluster.home / "backfill.gate"
    # By the rule of 1.2 the business date of a complement run is the chosen one.
    script = f"[ '${{system.biz.date}}' != 20200102 ] || [ -e '{gate}' ]"
    definition = cluster.define("backfill", [a_task("a", script), a_task("b", "true", "a")])
    days = [f"2020-01-0{day} 00:00:00" for day in (1, 2, 3)]
    instances = [
        cluster.begin(
            definition,
            json.dumps(
                {
                    "complementStartDate": day,
                    "complementEndDate": day,
                    "complementDateRule": "business_date",
                }
            ),
            command_type=5,
        )
        for day in days
    ]
    assert [cluster.await_end(instance) for instance in instances] == [SUCCESS, FAILURE, SUCCESS]
    failed = instances[1]
    before = _instance(cluster, failed, "schedule_time")
    gate.touch()
    cluster.put(definition, json.dumps({"ProcessInstanceId": failed}), command_type=4)
    until(lambda: cluster.state_of(failed) == SUCCESS)
    assert _instance(cluster, failed, "schedule_time") == before
    assert _instance(cluster, failed, "command_type", "history_cmd", "run_times") == (
        4,
        "COMPLEMENT_DATA,START_FAILURE_TASK_PROCESS",
        2,
    )
    assert cluster.tasks_of(failed, "name", "state", "flag") == [
        ("a", FAILURE, 0),
        ("a", 7, 1),
        ("b", 7, 1),
    ]
    for instance in (instances[0], instances[2]):
        assert cluster.tasks_of(instance, "name", "state") == [("a", 7), ("b", 7)]


def test_14_8_a_sub_process_and_its_rows(cluster: PrivateCluster) -> None:
    child = cluster.define("child", [a_task("c", "true")])
    parent = cluster.define(
        "parent",
        [
            {
                "name": "sub",
                "type": "SUB_PROCESS",
                "params": {"processDefinitionId": child},
                "preTasks": [],
            }
        ],
    )
    instance = cluster.begin(parent)
    assert cluster.await_end(instance) == SUCCESS
    ((task, state),) = cluster.tasks_of(instance, "id", "state")
    assert state == 7
    ((relation, child_instance),) = cluster.rows(
        "SELECT id, process_instance_id FROM t_ds_relation_process_instance"
        " WHERE parent_process_instance_id = %s AND parent_task_instance_id = %s",
        instance,
        task,
    )
    is_sub_process, param, end = _instance(
        cluster, child_instance, "is_sub_process", "command_param", "state"
    )
    assert (is_sub_process, end) == (1, SUCCESS)
    assert json.loads(str(param)) == {
        "id": str(relation),
        "parentProcessInstanceId": str(instance),
        "parentTaskInstanceId": str(task),
        "processInstanceId": str(child_instance),
    }
