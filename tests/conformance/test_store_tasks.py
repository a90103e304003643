"""Workers' claims, reports and re-adoption."""

from __future__ import annotations

import json

import pytest

from common.model.commands import CommandType
from common.model.decisions import FinishProcess
from common.model.definitions import TaskTimeout
from common.model.grants import GrantKind
from common.model.offers import Offer
from common.model.states import (
    ProcessState,
    TaskState,
    TimeoutStrategy,
)
from common.model.worker_needs import UNASSIGNED
from common.params import Origin
from common.store import tables as t
from common.store.listen import read_task_report
from common.store.worker.ports import ClaimedTask, DataSource, Environment, ReportRefusedError
from tests.builders import NOON
from tests.conformance.store_tables import (
    FOLDERS,
    LATER,
    MASTER,
    MINUTE,
    OTHER_WORKER,
    RESTARTED,
    WORKER,
    Tables,
    a_begin,
    a_definition,
    a_run,
    a_submit,
    an_end,
    claim,
    end,
    kill,
    load,
    pause,
    save,
    submit,
    the_task,
)


def test_a_claim_gives_all_that_the_process_needs(db: Tables) -> None:
    definition_id = a_definition(db)
    owned = a_run(
        db,
        process_definition_id=definition_id,
        schedule_time=NOON,
        business_time=LATER,
        global_params='[{"prop":"day"}]',
        command_type=CommandType.COMPLEMENT_DATA,
    )
    (task_id,) = submit(db, owned, "a")
    (claimed,) = db.tasks.claim(WORKER, [task_id], folders=FOLDERS, now=LATER)
    place = f"{definition_id}/{owned.process_instance_id}/{task_id}"
    assert (claimed.id, claimed.process_instance_id) == (task_id, owned.process_instance_id)
    assert (claimed.name, claimed.attempt, claimed.task_type) == ("a", 1, "SHELL")
    assert claimed.process_name == a_begin().name
    assert claimed.process_definition_id == definition_id
    assert claimed.task_json == '{"type":"SHELL"}'
    assert (claimed.global_params, claimed.moment) == ('[{"prop":"day"}]', LATER)
    assert claimed.complement
    assert (claimed.tenant_code, claimed.queue, claimed.executor_id) == ("tester", "default", 1)
    assert (claimed.execute_path, claimed.log_path) == (f"/attempts/{place}", f"/logs/{place}.log")
    row = the_task(db, task_id)
    assert (row["state"], row["host"], row["worker_incarnation"]) == (
        TaskState.RUNNING,
        WORKER.address,
        WORKER.incarnation,
    )
    assert (row["start_time"], claimed.start_time) == (LATER, LATER)
    assert (row["execute_path"], row["log_path"]) == (claimed.execute_path, claimed.log_path)


def test_t08b_claims_come_in_the_order_asked_and_only_for_what_may_start(db: Tables) -> None:
    owned, ended = a_run(db), a_run(db)
    a, b, c = submit(db, owned, "a", "b", "c")
    (orphan,) = submit(db, ended, "a")
    save(db, ended, FinishProcess(state=ProcessState.FAILURE))
    assert claim(db, [b], node=OTHER_WORKER) == [b]
    assert claim(db, [c, 2_000_000_000, 2**70, -1, b, orphan, a, c]) == [c, a]
    assert claim(db, [a, b, c]) == []
    assert claim(db, []) == []
    assert the_task(db, b)["host"] == OTHER_WORKER.address


def test_an_attempt_is_claimed_by_the_worker_that_was_chosen_for_it_alone(db: Tables) -> None:
    owned = a_run(db)
    a, b = submit(db, owned, "a", "b")
    db.update(t.task_instance, a, host=WORKER.address)
    db.update(t.task_instance, b, host=UNASSIGNED)
    assert claim(db, [a, b], node=OTHER_WORKER) == []
    assert claim(db, [a, b], node=WORKER) == [a]


@pytest.mark.parametrize("hinted", [False, True])
def test_a_reserved_worker_claims_no_attempt_without_a_group(db: Tables, *, hinted: bool) -> None:
    shared, bound = a_run(db), a_run(db)
    db.update(t.process_instance, bound.process_instance_id, worker_group_id=4)
    a, b, c, d = (*submit(db, shared, "a", "b", "c"), *submit(db, bound, "d"))
    db.update(t.task_instance, b, worker_group_id=4)
    # A master chose this worker before the worker was reserved.
    db.update(t.task_instance, c, host=WORKER.address)

    def claimed(*, is_reserved: bool) -> list[int]:
        found = db.tasks.claim(
            WORKER,
            [a, b, c, d],
            folders=FOLDERS,
            now=LATER,
            hinted=hinted,
            is_reserved=is_reserved,
        )
        return [each.id for each in found]

    # A hint never claims an attempt that is bound to a group.
    assert claimed(is_reserved=True) == ([] if hinted else [b, d])
    assert claimed(is_reserved=False) == [a, c]


def test_a_run_that_began_otherwise_is_no_complement_run(db: Tables) -> None:
    owned = a_run(db, command_type=CommandType.SCHEDULER)
    db.update(
        t.process_instance, owned.process_instance_id, history_cmd="SCHEDULER,COMPLEMENT_DATA"
    )
    (claimed,) = db.tasks.claim(WORKER, submit(db, owned, "a"), folders=FOLDERS, now=NOON)
    assert not claimed.complement


@pytest.mark.parametrize(
    ("of_run", "of_creator", "definition", "expected"),
    [
        ("own", "creators", "there", "own"),
        ("none", "creators", "there", "creators"),
        ("unknown", "creators", "there", "creators"),
        ("none", "unknown", "there", None),
        ("own", "creators", "gone", None),
    ],
)
def test_a_task_runs_as_the_runs_tenant_else_as_its_definitions_creators(
    db: Tables, of_run: str, of_creator: str, definition: str, expected: str | None
) -> None:
    tenants = {
        "own": db.insert(t.tenant, tenant_code="own"),
        "creators": db.insert(t.tenant, tenant_code="creators"),
        "none": -1,
        "unknown": 2_000_000_000,
    }
    creator = db.insert(t.user, user_name="ann", tenant_id=tenants[of_creator])
    there = a_definition(db, user_id=creator)
    definition_id = there if definition == "there" else 2_000_000_000
    owned = a_run(db, process_definition_id=definition_id, tenant_id=tenants[of_run])
    (claimed,) = db.tasks.claim(WORKER, submit(db, owned, "a"), folders=FOLDERS, now=NOON)
    assert claimed.tenant_code == expected


@pytest.mark.parametrize(
    ("of_executor", "expected"), [("fast", "fast"), ("", "slow"), (None, "slow")]
)
def test_a_task_goes_to_its_executors_queue_else_to_its_tenants(
    db: Tables, of_executor: str | None, expected: str
) -> None:
    slow = db.insert(t.queue, queue_name="slow", queue="slow")
    tenant_id = db.insert(t.tenant, tenant_code="etl", queue_id=slow)
    executor = db.insert(t.user, user_name="ann", tenant_id=1, queue=of_executor)
    owned = a_run(
        db, process_definition_id=a_definition(db), tenant_id=tenant_id, executor_id=executor
    )
    (claimed,) = db.tasks.claim(WORKER, submit(db, owned, "a"), folders=FOLDERS, now=NOON)
    assert claimed.queue == expected


def test_the_process_of_an_attempt_is_noted_for_its_holder_alone(db: Tables) -> None:
    a, b = submit(db, a_run(db), "a", "b")
    claim(db, [a])
    claim(db, [b], node=OTHER_WORKER)
    db.tasks.started(WORKER, {a: (4711, 1234.5), b: (4712, 1234.5)})
    db.tasks.started(RESTARTED, {a: (1, 1.0)})
    db.tasks.started(WORKER, {})
    assert (the_task(db, a)["pid"], the_task(db, a)["pid_start_time"]) == (4711, 1234.5)
    assert the_task(db, b)["pid"] is None


def test_a_report_ends_the_attempt_and_tells_its_owner(db: Tables) -> None:
    owned = a_run(db)
    (task_id,) = submit(db, owned, "a")
    claim(db, [task_id])
    db.tasks.started(WORKER, {task_id: (4711, 1.0)})
    report = an_end(task_id, TaskState.FAILURE, exit_code=3, reason="exit\0code 3")
    assert end(db, report) == {task_id}
    row = the_task(db, task_id)
    assert (row["state"], row["end_time"], row["exit_code"]) == (TaskState.FAILURE, LATER, 3)
    assert (row["reason"], row["pid"]) == ("exit\N{REPLACEMENT CHARACTER}code 3", 4711)
    assert not row["settled"]
    assert [found.task_instance_id for found in db.runs.reports(MASTER)] == [task_id]


def test_a_repeated_report_changes_nothing(db: Tables) -> None:
    (task_id,) = submit(db, a_run(db), "a")
    claim(db, [task_id])
    assert end(db, an_end(task_id, TaskState.SUCCESS, pid=5)) == {task_id}
    assert end(db, an_end(task_id, TaskState.FAILURE, pid=6)) == frozenset()
    assert end(db) == frozenset()
    assert (the_task(db, task_id)["state"], the_task(db, task_id)["pid"]) == (7, 5)


def test_only_the_incarnation_that_claimed_an_attempt_can_report_it(db: Tables) -> None:
    a, b = submit(db, a_run(db), "a", "b")
    claim(db, [a])
    for other in (RESTARTED, OTHER_WORKER):
        assert end(db, an_end(a), an_end(b), node=other) == frozenset()
    assert the_task(db, a)["state"] == TaskState.RUNNING
    assert end(db, an_end(a), an_end(b)) == {a}


def test_several_ends_are_one_report(db: Tables) -> None:
    a, b, c = submit(db, a_run(db), "a", "b", "c")
    claim(db, [a, b, c])
    ends = [
        an_end(c, TaskState.KILL, exit_code=137, reason="killed"),
        an_end(a, exit_code=0),
    ]
    assert end(db, *ends) == {a, c}
    assert [the_task(db, one)["state"] for one in (a, b, c)] == [7, 1, 9]
    assert db.tasks.running(WORKER) == {b: False}


def test_a_restarted_worker_adopts_what_its_former_self_left_running(db: Tables) -> None:
    a, b, ended = submit(db, a_run(db), "a", "b", "ended")
    claim(db, [a, ended])
    claim(db, [b], node=OTHER_WORKER)
    end(db, an_end(ended))
    assert db.tasks.running(RESTARTED) == {}
    assert db.tasks.adopt(RESTARTED, [a, b, ended]) == {a}
    assert db.tasks.adopt(RESTARTED, [a]) == frozenset()
    assert db.tasks.adopt(RESTARTED, []) == db.tasks.adopt(RESTARTED, [2**70]) == frozenset()
    assert (db.tasks.running(RESTARTED), db.tasks.running(WORKER)) == ({a: False}, {})
    assert end(db, an_end(a), node=WORKER) == frozenset()
    assert end(db, an_end(a), node=RESTARTED) == {a}


def test_a_claim_that_was_never_started_is_handed_back_to_all_workers(db: Tables) -> None:
    a, b, held = submit(db, a_run(db), "a", "b", "held")
    before = the_task(db, a)
    claim(db, [a, b])
    claim(db, [held], node=OTHER_WORKER)
    # A take-over has come in between.
    assert db.tasks.adopt(RESTARTED, [b]) == {b}
    claims = {a: NOON, b: NOON, held: NOON, 2**70: NOON}
    assert db.tasks.hand_back([WORKER, RESTARTED], claims) == {a, b}
    assert the_task(db, a) == before
    assert the_task(db, b)["state"] == TaskState.SUBMITTED
    assert db.tasks.running(OTHER_WORKER) == {held: False}
    assert db.tasks.hand_back([WORKER, RESTARTED], claims) == frozenset()
    assert db.tasks.hand_back([WORKER], {}) == frozenset()
    assert claim(db, [a, b], node=OTHER_WORKER) == [a, b]


def test_only_the_claim_that_was_given_up_is_handed_back(db: Tables) -> None:
    owned = a_run(db)
    again, started, killed, ended, foreign = submit(
        db, owned, "again", "started", "killed", "ended", "foreign"
    )
    ids = [again, started, killed, ended, foreign]
    claim(db, ids)
    db.tasks.hand_back([WORKER], {again: NOON})
    db.tasks.claim(WORKER, [again], folders=FOLDERS, now=LATER)
    db.tasks.started(WORKER, {started: (77, 1.5)})
    save(db, owned, kill("killed"))
    end(db, an_end(ended))
    db.tasks.adopt(RESTARTED, [foreign])
    rows = [the_task(db, each) for each in ids]
    assert db.tasks.hand_back([WORKER], dict.fromkeys(ids, NOON)) == frozenset()
    assert [the_task(db, each) for each in ids] == rows


# The inputs and outputs of an attempt


def test_a_claim_gives_what_upstream_and_the_command_have_given(db: Tables) -> None:
    param = json.dumps({"StartParams": {"day": "2026-01-01", "n": 1}, "x": "y"})
    owned = a_run(db, command_param=param)
    timeout = TaskTimeout(after=MINUTE, strategy=TimeoutStrategy.FAILED)
    (offer,) = save(db, owned, a_submit("a", input_pool='[{"prop":"x"}]', timeout=timeout)).offers
    (claimed,) = db.tasks.claim(WORKER, [offer.task_instance_id], folders=FOLDERS, now=NOON)
    assert claimed.input_pool == '[{"prop":"x"}]'
    assert json.loads(claimed.start_params or "") == {"day": "2026-01-01", "n": 1}
    assert claimed.timeout == MINUTE
    assert claimed.datasource is None


@pytest.mark.parametrize(
    ("param", "expected"),
    [
        ("", None),
        ("{}", None),
        ("{not JSON", None),
        ("[1]", None),
        ('{"StartParams":null}', None),
        ('{"StartParams":"{\\"a\\": 1}"}', '{"a": 1}'),
    ],
)
def test_start_params_may_be_absent_spoilt_or_text(
    db: Tables, param: str, expected: str | None
) -> None:
    owned = a_run(db, command_param=param)
    (claimed,) = db.tasks.claim(WORKER, submit(db, owned, "a"), folders=FOLDERS, now=NOON)
    assert claimed.start_params == expected
    assert (claimed.input_pool, claimed.timeout) == (None, None)


def test_a_report_carries_what_the_attempt_puts_out(db: Tables) -> None:
    owned = a_run(db)
    a, b = submit(db, owned, "a", "b")
    claim(db, [a, b])
    pool = '[{"prop":"rows","direct":"OUT","type":"VARCHAR","value":"7"}]'
    db.notifications()
    end(db, an_end(a, var_pool=pool), an_end(b))
    assert (the_task(db, a)["var_pool"], the_task(db, b)["var_pool"]) == (pool, None)
    told = [(one.name, one.var_pool, one.has_output) for one in db.runs.reports(MASTER)]
    assert told == [("a", pool, True), ("b", None, False)]
    assert [task.var_pool for task in load(db, owned).tasks] == [pool, None]
    # A notification says only that there is something to read.
    notifications = [read_task_report(payload) for _, payload in db.notifications()]
    called = sorted((one.name, one.var_pool, one.has_output) for one in notifications)
    assert called == [("a", None, True), ("b", None, False)]


def test_the_data_sources_that_exist_are_given_by_id(db: Tables) -> None:
    params = '{"user":"u","password":"secret"}'
    first = db.insert(t.datasource, name="dw", type=1, connection_params=params)
    db.insert(t.datasource, name="other", type=0, connection_params="{}")
    numbers = (first, first, 2_000_000_000, 2**70, -1)
    found = db.tasks.datasources([(1, each) for each in numbers])
    assert found == {(1, first): DataSource(id=first, name="dw", type=1, connection_params=params)}
    assert "secret" not in repr(found)
    assert db.tasks.datasources([(2**40, first), (-1, first)]) == {}
    db.revoke(GrantKind.DATASOURCE, first)
    assert db.tasks.datasources([(1, first)]) == {}


def test_the_environments_that_exist_are_given_by_code_and_a_claim_tells_that_of_the_run(
    db: Tables,
) -> None:
    code = 2**40
    db.insert(t.environment, code=code, name="java", config="export A=1")
    found = db.tasks.environments([(1, each) for each in (code, code + 1, -1, 2**70)])
    assert found == {(1, code): Environment(code=code, name="java", config="export A=1")}
    assert "export" not in repr(found)
    for param, expected in ((f'{{"environmentCode": "{code}"}}', code), ("{}", None)):
        owned = a_run(db, command_param=param)
        (claimed,) = db.tasks.claim(WORKER, submit(db, owned, "a"), folders=FOLDERS, now=NOON)
        assert claimed.environment_code == expected
    db.revoke(GrantKind.ENVIRONMENT, code)
    assert db.tasks.environments([(1, code)]) == {}


@pytest.mark.parametrize("of_task", [True, False])
def test_a_claim_tells_the_tenant_and_the_group_that_the_project_may_not_use(
    db: Tables, of_task: bool
) -> None:
    tenant = db.insert(t.tenant, tenant_code="etl")
    group = db.insert(t.worker_group, name="big")
    owned = a_run(
        db,
        process_definition_id=a_definition(db),
        tenant_id=tenant,
        worker_group_id=-1 if of_task else group,
    )

    def claimed(name: str) -> ClaimedTask:
        ids = submit(db, owned, name, worker_group_id=group if of_task else -1)
        (found,) = db.tasks.claim(WORKER, ids, folders=FOLDERS, now=NOON)
        return found

    before = claimed("a")
    assert (before.project_id, before.lacks, before.names_tenant) == (1, (), True)
    db.revoke(GrantKind.TENANT, tenant)
    db.revoke(GrantKind.WORKER_GROUP, group)
    # The claim checks grants again: a grant can be revoked after an attempt was submitted.
    assert claimed("b").lacks == ((GrantKind.TENANT, tenant), (GrantKind.WORKER_GROUP, group))


def test_a_claim_names_the_definition_and_the_project_of_its_run(db: Tables) -> None:
    definition = a_definition(db, name="trips")
    owned = a_run(db, process_definition_id=definition)
    (found,) = db.tasks.claim(WORKER, submit(db, owned, "a"), folders=FOLDERS, now=NOON)
    assert found.origin == Origin(
        definition_name="trips",
        definition_code=definition,
        project_name="default",
        project_code=1,
    )


def test_a_claim_tells_that_the_creator_s_tenant_is_not_granted(db: Tables) -> None:
    owned = a_run(db, process_definition_id=a_definition(db))
    db.revoke(GrantKind.TENANT, 1)
    (found,) = db.tasks.claim(WORKER, submit(db, owned, "a"), folders=FOLDERS, now=NOON)
    assert (found.lacks, found.names_tenant) == (((GrantKind.TENANT, 1),), False)


def test_a_kill_is_wanted_of_what_is_to_be_killed_and_not_of_what_is_to_be_paused(
    db: Tables,
) -> None:
    owned = a_run(db)
    a, b = submit(db, owned, "a", "b")
    claim(db, [a, b])
    save(db, owned, kill("a"), pause("b"))
    assert db.tasks.running(WORKER) == {a: True, b: False}


def test_a_report_that_the_tables_can_not_take_is_refused_and_nothing_of_it_is_written(
    db: Tables,
) -> None:
    good, bad = submit(db, a_run(db), "good", "bad")
    claim(db, [good, bad])
    with pytest.raises(ReportRefusedError, match="out of range"):
        end(db, an_end(good), an_end(bad, exit_code=2**40))
    assert [the_task(db, each)["state"] for each in (good, bad)] == [TaskState.RUNNING] * 2
    assert end(db, an_end(good)) == {good}


def test_an_incarnation_records_its_offer_in_place_of_former_ones_at_its_address(
    db: Tables,
) -> None:
    def told() -> list[tuple[int, str]]:
        return [
            (row["incarnation"], json.loads(row["res_info"])["version"])
            for row in db.rows(t.worker_server)
        ]

    def offer(version: str) -> Offer:
        return Offer(slots=4, version=version, groups=("etl",), group_ids=frozenset({3}))

    db.insert(t.worker_server, host="10.0.0.3", port=1234, res_info='{"version": "by hand"}')
    for node, version in ((OTHER_WORKER, "x"), (WORKER, "1"), (WORKER, "1"), (RESTARTED, "2")):
        db.tasks.record_offer(node, offer(version))
    assert told() == [(OTHER_WORKER.incarnation, "x"), (RESTARTED.incarnation, "2")]
    (row,) = [each for each in db.rows(t.worker_server) if each["host"] == "10.0.0.3"]
    assert (row["port"], Offer.read(row["res_info"])) == (1234, offer("2"))
    # One that was frozen, and is late: its successor's stands.
    db.tasks.record_offer(WORKER, offer("1"))
    assert (RESTARTED.incarnation, "2") in told()
