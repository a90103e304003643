"""The examples of control tasks, as they stand in `examples/control`, run by real daemons."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.system.cluster import PrivateCluster, until
from tests.system.command_line import ROOT

FAILURE, SUCCESS = 6, 7
EXAMPLES = ROOT / "examples" / "control"


@pytest.fixture(autouse=True, scope="module")
def _imported(cluster: PrivateCluster) -> None:
    """All examples, in the order of their names."""
    done = cluster.orcaflow("definition", "import", *map(str, sorted(EXAMPLES.glob("*.json"))))
    assert done.returncode == 0, (done.stdout, done.stderr)


def _run(cluster: PrivateCluster, name: str, *options: str) -> tuple[int, int, dict[str, int]]:
    """Id and state of a run, and the states of its tasks by name."""
    done = cluster.orcaflow("run", name, "--wait", "-o", "json", *options)
    assert done.returncode in (0, 1), done.stderr
    ((instance, state),) = cluster.rows(
        "SELECT p.id, p.state FROM t_ds_process_instance p JOIN t_ds_process_definition d"
        " ON d.id = p.process_definition_id WHERE d.name = %s ORDER BY p.id DESC LIMIT 1",
        name,
    )
    tasks = dict(cluster.tasks_of(instance, "name", "state"))
    return instance, state, tasks


def _output(cluster: PrivateCluster, instance: int, task: str) -> str:
    ((path,),) = cluster.rows(
        "SELECT log_path FROM t_ds_task_instance WHERE process_instance_id = %s AND name = %s",
        instance,
        task,
    )
    return Path(path).read_text(encoding="utf-8")


def test_conditions_takes_the_success_branch_when_the_check_holds(
    cluster: PrivateCluster,
) -> None:
    _, state, tasks = _run(cluster, "conditions", "--param", "rows=5")
    assert state == SUCCESS
    assert tasks == {"check": 7, "is_good": 7, "enrich": 7, "publish": 7}


def test_conditions_takes_the_other_branch_and_the_failed_check_fails_nothing(
    cluster: PrivateCluster,
) -> None:
    _, state, tasks = _run(cluster, "conditions")
    assert state == SUCCESS
    assert tasks == {"check": 6, "is_good": 6, "repair": 7, "publish": 7}


def test_switch_chooses_by_what_a_task_has_put_out(cluster: PrivateCluster) -> None:
    instance, state, tasks = _run(cluster, "switch")
    assert (state, tasks) == (SUCCESS, {"count": 7, "how_much": 7, "load": 7})
    assert "500 rows at once" in _output(cluster, instance, "load")


def test_switch_takes_the_default_when_no_condition_holds(cluster: PrivateCluster) -> None:
    _, state, tasks = _run(cluster, "switch", "--param", "rows=0")
    assert (state, tasks) == (SUCCESS, {"count": 7, "how_much": 7, "nothing_to_do": 7})


def test_parameters_go_down_into_a_sub_process_and_come_up_again(cluster: PrivateCluster) -> None:
    instance, state, tasks = _run(cluster, "nightly", "--param", "day=2026-01-02")
    assert (state, tasks) == (SUCCESS, {"europe": 7, "report": 7})
    assert "7 parts of 2026-01-02" in _output(cluster, instance, "report")
    ((child, is_sub_process),) = cluster.rows(
        "SELECT p.id, p.is_sub_process FROM t_ds_relation_process_instance r"
        " JOIN t_ds_process_instance p ON p.id = r.process_instance_id"
        " WHERE r.parent_process_instance_id = %s",
        instance,
    )
    assert is_sub_process == 1
    assert "loading europe for 2026-01-02" in _output(cluster, child, "load")


def test_a_dependent_waits_for_todays_run_of_another_definition_and_goes_on_at_once(
    cluster: PrivateCluster,
) -> None:
    # Whatever ran before in this module counts for today, so the wait is for another date.
    date = {"schedule_time": "2026-03-04 05:06:07+00"}
    names = dict(cluster.rows("SELECT name, id FROM t_ds_process_definition"))
    waiting = cluster.begin(names["morning"], command_type=6, **date)
    until(
        lambda: cluster.tasks_of(waiting, "name", "state", "host") == [("nightly_is_done", 1, None)]
    )
    until(lambda: "no run" in str(cluster.tasks_of(waiting, "evidence")))
    upstream = cluster.begin(names["nightly"], command_type=6, **date)
    assert cluster.await_end(upstream) == SUCCESS
    assert cluster.await_end(waiting) == SUCCESS
    ((evidence,),) = cluster.rows(
        "SELECT evidence FROM t_ds_task_instance WHERE process_instance_id = %s"
        " AND name = 'nightly_is_done'",
        waiting,
    )
    assert f'"id": {upstream}' in evidence
