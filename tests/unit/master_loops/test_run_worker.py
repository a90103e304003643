"""The loop that owns runs, on tables in memory: it opens, saves, forgets and gives up runs."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

from common.errors import ServiceUnreachableError
from common.model.failures import FailureReason
from common.model.instances import Ownership
from common.model.states import ProcessState, TaskState
from common.store.transaction import StoreConflictError
from master.loops.run_worker import RunWorkerConfig
from tests.builders import a_definition_json
from tests.one_master import MASTER, MINUTE, OTHER_MASTER, OneMaster


def test_a_run_goes_from_its_opening_to_its_end_without_a_comparison(master: OneMaster) -> None:
    run = master.begin("a >> b")
    master.step()
    master.end(run, "a")
    master.step()
    master.end(run, "b")
    master.step()
    assert master.state(run) is ProcessState.SUCCESS
    assert master.names(run) == ["a", "b"]
    assert (master.runs.active, master.ends) == (0, 1)


def test_runs_count_while_they_are_loaded_and_saved(
    master: OneMaster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(3):
        master.begin("a")
    counts: list[tuple[int, int]] = []

    def counted(method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            counts.append((master.runs.active, master.runs.active_live))
            return method(*given, **named)

        return call

    for name in ("load", "save"):
        monkeypatch.setattr(master.store, name, counted(getattr(master.store, name)))
    master.step()
    # Else the command loop, on its own thread, would begin as many once more meanwhile.
    assert counts == [(3, 3), (3, 3)]
    assert (master.runs.active, master.runs.active_live) == (3, 3)


def test_what_was_submitted_is_offered_once_the_rows_stand(master: OneMaster) -> None:
    run = master.begin("a b")
    master.step()
    (saved,) = master.saved
    assert [entry.task_instance_id for entry in saved.offers] == [
        task.id for task in master.attempts(run)
    ]


def test_runs_of_one_pass_share_one_save(master: OneMaster) -> None:
    for _ in range(3):
        master.begin("a")
    master.step()
    assert len(master.saved) == 1


def test_a_refused_step_does_not_hold_up_the_others_of_its_batch(master: OneMaster) -> None:
    good, bad, other = (master.begin("a >> b") for _ in range(3))
    master.step()
    for run in (good, bad, other):
        master.end(run, "a")
    # Between the reading of the report and the save, as a person with a client would.
    master.amid_the_next_save(lambda: master.spoil(bad))
    master.step()
    assert master.names(good) == master.names(other) == ["a", "b"]
    assert master.names(bad) == ["a"]
    for run in (good, other):
        master.end(run, "b")
    master.later(MINUTE)
    master.later(MINUTE)
    assert master.state(good) is master.state(other) is ProcessState.SUCCESS


def test_runs_that_are_saved_apart_from_a_refused_step_end_and_stay_like_others(
    master: OneMaster, caplog: pytest.LogCaptureFixture
) -> None:
    ending, bad, staying = master.begin("a"), master.begin("a >> b"), master.begin("a >> b")
    master.step()
    for run in (ending, bad, staying):
        master.end(run, "a")
    master.amid_the_next_save(lambda: master.spoil(bad))
    with caplog.at_level("INFO"):
        master.step()
    ended = [one for one in caplog.records if one.getMessage() == "process instance ended"]
    assert [vars(one)["process_instance_id"] for one in ended] == [ending]
    master.end(staying, "b")
    master.step()
    assert master.state(staying) is ProcessState.SUCCESS
    # Only the run whose step was refused was loaded again.
    assert master.store.loads == [3, 1]


def test_a_run_that_can_t_be_ends_as_failure_and_says_why(master: OneMaster) -> None:
    run = master.begin("a >> b")
    master.step()
    master.claim(run, "a")
    # No master runs an instance in this state, so its opening is impossible.
    master.database.update(master.database.processes, run, state=int(ProcessState.WAITING_THREAD))
    master.runs.forget_all()
    for _ in range(2):
        master.later(MINUTE)
        assert master.state(run) is ProcessState.WAITING_THREAD
    master.later(MINUTE)
    assert master.state(run) is ProcessState.FAILURE
    assert "WAITING_THREAD" in str(master.process(run).state_reason)


def test_a_run_that_is_given_up_leaves_no_live_task(master: OneMaster) -> None:
    run = master.begin("a b")
    master.step()
    running = master.claim(run, "a")
    master.database.update(master.database.processes, run, state=int(ProcessState.READY_PAUSE))
    master.runs.forget_all()
    for _ in range(3):
        master.later(MINUTE)
    assert master.valid(run, "b").state == TaskState.KILL
    assert master.valid(run, "a").wanted_state == TaskState.KILL
    assert [kill.task_instance_id for kill in master.saved[-1].kills] == [running]


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"process_instance_json": "{"}, "not JSON"),
        ({"process_instance_json": a_definition_json("a >> b; b >> a")}, "cycle"),
        ({"process_instance_json": a_definition_json("x")}, "'a', which was not selected"),
        ({"command_param": "{"}, "command_param"),
        ({"task_depend_type": 9}, "9 is not a valid TaskDependType"),
        ({"timezone_id": "Mars/Base"}, "the run's time zone: 'Mars/Base' is no zone"),
        ({"timezone_id": ""}, "the run's time zone: '' is no zone"),
    ],
)
def test_a_row_that_makes_no_run_ends_as_failure_and_the_others_go_on(
    master: OneMaster, columns: dict[str, Any], why: str
) -> None:
    bad, good = master.begin("a >> b"), master.begin("a")
    master.step()
    master.database.update(master.database.processes, bad, **columns)
    master.start()
    for _ in range(3):
        master.later(MINUTE)
    master.end(good, "a")
    master.step()
    assert master.state(bad) is ProcessState.FAILURE
    assert why in str(master.process(bad).state_reason)
    assert master.state(good) is ProcessState.SUCCESS


def test_a_run_that_was_given_up_is_not_opened_again(master: OneMaster) -> None:
    run, good = master.begin("a >> b"), master.begin("a")
    master.step()
    # The first refusal of a step with a notified report does not count as a fault of the run.
    for _ in range(4):
        if master.state(run) is not ProcessState.RUNNING:
            break
        master.end(run, "a")
        master.database.update(master.database.tasks, master.attempts(run)[0].id, settled=False)
        master.amid_the_next_save(lambda: master.spoil(run))
        master.later(MINUTE)
        master.database.update(master.database.tasks, master.attempts(run)[0].id, settled=False)
    assert master.state(run) is ProcessState.FAILURE
    master.later(MINUTE)
    master.end(good, "a")
    master.later(MINUTE)
    assert master.state(good) is ProcessState.SUCCESS


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_save_without_an_answer_is_looked_up_in_the_tables(
    master: OneMaster, moment: str
) -> None:
    run = master.begin("a >> b")
    master.step()
    master.end(run, "a")

    def hook(name: str, when: str) -> None:
        if name == "save" and when == moment:
            raise ServiceUnreachableError("gone")

    master.database.commit_hook = hook
    with pytest.raises(ServiceUnreachableError):
        master.step()
    master.database.commit_hook = lambda *_: None
    master.later(MINUTE)
    assert master.names(run) == ["a", "b"]
    master.end(run, "b")
    master.step()
    assert master.state(run) is ProcessState.SUCCESS


def test_a_master_without_a_run_asks_the_tables_for_runs_alone(master: OneMaster) -> None:
    for _ in range(3):
        master.later(MINUTE)
    assert master.store.asked == ["owned"] * 3
    master.begin("a")
    master.step()
    master.store.asked.clear()
    master.later(MINUTE)
    assert master.store.asked == ["owned", "reports", "wanted", "propagate_intents"]


@pytest.mark.parametrize("question", ["load", "owned", "reports", "wanted"])
def test_a_read_without_an_answer_costs_no_run_its_start(master: OneMaster, question: str) -> None:
    run = master.begin("a")
    master.store.broken = (question,)
    with pytest.raises(ServiceUnreachableError):
        master.step()
    master.store.broken = ()
    master.later(MINUTE)
    assert master.names(run) == ["a"]


@pytest.mark.parametrize("question", ["owned", "reports", "wanted"])
def test_a_read_without_an_answer_costs_no_task_its_retry(master: OneMaster, question: str) -> None:
    run = master.begin("a", of_task={"a": {"maxRetryTimes": 1, "retryInterval": 1}})
    master.step()
    master.end(run, "a", TaskState.FAILURE)
    master.step()
    master.store.broken = (question,)
    with pytest.raises(ServiceUnreachableError):
        master.later(MINUTE)
    master.store.broken = ()
    master.later(MINUTE)
    assert master.names(run) == ["a", "a"]


@pytest.mark.parametrize("forgets", [False, True])
def test_the_attempt_after_too_little_memory_has_more_whoever_makes_it(
    master: OneMaster, forgets: bool
) -> None:
    policy = {"factor": 1.5, "ceiling": "8G"}
    keys = {"type": "PYSPARK", "maxRetryTimes": 3, "retryInterval": 1, "memoryRetry": policy}
    run = master.begin("a", of_task={"a": keys})
    master.step()
    for _ in range(2):
        master.end(run, "a", TaskState.FAILURE, failure=FailureReason.OUT_OF_MEMORY)
        master.step()
        if forgets:
            master.runs.forget_all()
            master.later(timedelta(seconds=1))
        master.later(MINUTE)
    assert [task.memory_factor for task in master.attempts(run)] == [1, 1.5, 2.25]


def test_a_fault_of_one_run_costs_no_other_its_start_or_its_retry(master: OneMaster) -> None:
    waiting = master.begin("a", of_task={"a": {"maxRetryTimes": 1, "retryInterval": 1}})
    bad = master.begin("a")
    master.step()
    master.end(waiting, "a", TaskState.FAILURE)
    master.step()
    master.database.update(master.database.processes, bad, process_instance_json="{")
    bad_again = Ownership(process_instance_id=bad, host=MASTER.address, epoch=1)
    new = master.begin("a")
    master.runs.forget_all()
    master.runs.open([bad_again])

    def hook(name: str, when: str) -> None:
        if name == "save" and when == "before":
            raise ServiceUnreachableError("gone")

    master.database.commit_hook = hook
    with pytest.raises(ServiceUnreachableError):
        master.later(MINUTE)
    master.database.commit_hook = lambda *_: None
    master.later(MINUTE)
    master.later(MINUTE)
    assert master.state(bad) is ProcessState.FAILURE
    assert master.names(new) == ["a"]
    assert master.names(waiting) == ["a", "a"]


def test_a_run_that_was_taken_over_is_forgotten_and_not_written(master: OneMaster) -> None:
    run = master.begin("a >> b")
    master.step()
    master.end(run, "a")
    master.amid_the_next_save(lambda: _taken_over(master, run))
    master.step()
    assert master.names(run) == ["a"]
    assert master.runs.active == 0
    master.later(MINUTE)
    assert master.names(run) == ["a"]
    assert master.store.loads == [1]


def test_a_run_that_was_taken_over_meanwhile_is_forgotten_at_the_next_comparison(
    master: OneMaster,
) -> None:
    run = master.begin("a")
    master.step()
    _taken_over(master, run)
    master.end(run, "a")
    master.later(MINUTE)
    assert master.runs.active == 0
    assert master.state(run) is ProcessState.RUNNING


def test_a_stop_that_is_taken_while_a_pause_comes_about_is_carried_out(master: OneMaster) -> None:
    run = master.begin("a >> b")
    master.step()
    master.end(run, "a")
    master.pause(run)
    master.runs.check_tables()
    master.amid_the_next_save(lambda: master.stop(run))
    master.step()
    assert master.state(run) is not ProcessState.PAUSE
    master.later(MINUTE)
    assert master.state(run) is ProcessState.STOP
    assert master.runs.active == 0


def _taken_over(master: OneMaster, run: int) -> None:
    master.database.update(
        master.database.processes,
        run,
        host=OTHER_MASTER.address,
        owner_incarnation=OTHER_MASTER.incarnation,
        owner_epoch=2,
    )


def test_t01_a_master_that_is_nobody_forgets_its_runs_and_writes_nothing(master: OneMaster) -> None:
    run = master.begin("a >> b")
    master.step()
    master.end(run, "a")
    master.identity.become(None)
    master.runs.forget_all()
    master.step()
    assert master.names(run) == ["a"]
    assert master.runs.active == 0


def test_a_pass_opens_no_more_runs_than_its_limit() -> None:
    master = OneMaster(config=RunWorkerConfig(opened_at_once=2))
    runs = [master.begin("a") for _ in range(5)]
    rests = [master.step() for _ in range(3)]
    assert master.store.loads == [2, 2, 1]
    assert rests[:2] == [timedelta(), timedelta()]
    assert rests[2] > timedelta()
    assert all(master.names(run) == ["a"] for run in runs)


def test_runs_that_wait_to_be_opened_count_as_active() -> None:
    master = OneMaster(config=RunWorkerConfig(opened_at_once=2))
    for _ in range(5):
        master.begin("a")
    assert master.runs.active == 5
    master.step()
    assert master.runs.active == 5


def test_a_run_of_a_complement_takes_no_room_from_live_runs(master: OneMaster) -> None:
    complement, live = master.begin("a >> b"), master.begin("a")
    master.database.update(master.database.processes, complement, history_cmd="COMPLEMENT_DATA")
    # Before they are loaded, nothing tells them apart.
    assert (master.runs.active, master.runs.active_live) == (2, 2)
    master.step()
    assert (master.runs.active, master.runs.active_live) == (2, 1)
    # Its state is known, so there is room for one more.
    assert master.ends == 1
    master.end(complement, "a")
    master.end(live, "a")
    master.step()
    assert (master.runs.active, master.runs.active_live, master.ends) == (1, 0, 2)
    master.end(complement, "b")
    master.step()
    assert (master.runs.active, master.runs.active_live, master.ends) == (0, 0, 3)


def test_what_a_complement_submits_is_offered_behind_live_runs(master: OneMaster) -> None:
    complement, live = master.begin("a"), master.begin("a")
    history = "COMPLEMENT_DATA,RECOVER_TOLERANCE_FAULT_PROCESS"
    master.database.update(master.database.processes, complement, history_cmd=history)
    master.step()
    (saved,) = master.saved
    offers = sorted(saved.offers, key=lambda entry: entry.sort_key)
    assert [(entry.process_instance_id, entry.yields) for entry in offers] == [
        (live, False),
        (complement, True),
    ]


def test_a_run_that_is_announced_twice_is_opened_once(master: OneMaster) -> None:
    run = master.begin("a")
    (ownership,) = master.store.owned(MASTER)
    master.runs.open([ownership, ownership])
    master.step()
    master.runs.open([ownership])
    master.step()
    assert master.store.loads == [1]
    assert master.names(run) == ["a"]


def test_a_run_that_can_neither_go_on_nor_be_ended_is_left_to_the_next_comparison(
    master: OneMaster,
) -> None:
    master.begin("a")

    def hook(name: str) -> None:
        if name == "save":
            raise StoreConflictError("no")

    master.database.begin_hook = hook
    rests = [master.step() for _ in range(5)]
    assert rests == [timedelta()] * 2 + [timedelta(seconds=1)] * 3
    assert master.store.loads == [1] * 4
    for _ in range(3):
        assert master.later(timedelta(seconds=1)) == timedelta(seconds=1)


def test_the_loop_rests_no_longer_than_its_check_interval(master: OneMaster) -> None:
    master.begin("a", of_task={"a": {"maxRetryTimes": 1, "retryInterval": 100}})
    assert master.step() == timedelta(seconds=1)


def test_nothing_is_kept_of_runs_that_have_ended(master: OneMaster) -> None:
    for _ in range(3):
        run = master.begin("a", of_task={"a": {"maxRetryTimes": 1, "retryInterval": 0}})
        master.step()
        master.end(run, "a", TaskState.FAILURE)
        master.step()
        master.end(run, "a", TaskState.FAILURE)
        master.step()
    worker = master.runs
    assert not worker._runs
    assert not worker._known
    assert not worker._faults
    assert worker.active == 0


def test_a_run_that_is_announced_amid_a_comparison_does_no_harm(master: OneMaster) -> None:
    class Meddler(Ownership):
        """Has the command loop's thread report another run whenever the queue is read."""

        def __hash__(self) -> int:
            master.runs.open([Ownership(process_instance_id=98, host="m:1", epoch=1)])
            return 1

    run = master.begin("a")
    master.runs.open([Meddler(process_instance_id=99, host="m:1", epoch=1)])
    master.step()
    master.later(timedelta(seconds=2))
    assert master.names(run) == ["a"]


def test_reports_and_runs_are_read_page_by_page_until_none_is_left() -> None:
    master = OneMaster(config=RunWorkerConfig(page=2))
    runs = [master.begin("a") for _ in range(5)]
    master.step()
    # Nobody notifies of these ends.
    for run in runs:
        master.claim(run, "a")
        master.end(run, "a")
    master.later(timedelta(seconds=1))
    while master.step() == timedelta():
        pass
    assert [master.state(run) for run in runs] == [ProcessState.SUCCESS] * 5


def test_a_restarted_master_opens_all_its_runs_though_a_page_holds_few() -> None:
    master = OneMaster(config=RunWorkerConfig(page=2))
    runs = [master.begin("a") for _ in range(5)]
    master.step()
    master.start()
    while master.step() == timedelta():
        pass
    assert master.runs.active == 5
    # And one that was taken over by somebody else is forgotten, on whatever page it is.
    master.database.update(master.database.processes, runs[3], host="m9:1")
    for _ in range(3):
        master.later(timedelta(seconds=1))
    assert master.runs.active == 4
