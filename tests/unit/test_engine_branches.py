"""CONDITIONS and SWITCH: taken branches, skipped tasks, and the same after loading."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from common.errors import InvalidDefinitionError
from common.model.control import Outcome, Relation
from common.model.decisions import DecideTask, KillTask, PassForbidden, SkipTask, SubmitTask
from common.model.failures import FailureReason
from common.model.lock_needs import LockNeed
from common.model.origins import Origin
from common.model.states import FailureStrategy, ProcessState, TaskState
from common.params import Direct, Property, properties_json
from master.engine.context import RunContext
from master.engine.events import RunOpened
from master.engine.load import load_run
from tests.builders import (
    NOON,
    KeptRun,
    a_definition_json,
    a_run,
    conditions,
    deliver,
    failed,
    lost,
    put_out,
    read_graph,
    succeeded,
    switch,
)

SUCCESS, FAILURE = Outcome.SUCCESS, Outcome.FAILURE
IF_A = {"c": conditions("go", "mail", a=SUCCESS)}
BRANCHES = "a >> c >> go mail"


def branch_run(text: str = BRANCHES, **of_run: Any) -> KeptRun:
    """A stored run with a CONDITIONS `c`, which checks `a` by default."""
    kept = KeptRun(text, **{"of_node": IF_A, **of_run})
    kept.deliver(RunOpened())
    return kept


def good(kept: KeptRun, name: str, var_pool: str | None = None) -> list[object]:
    return list(kept.deliver(kept.end(name, TaskState.SUCCESS, var_pool=var_pool)))


def bad(kept: KeptRun, name: str) -> list[object]:
    return list(kept.deliver(kept.end(name, TaskState.FAILURE)))


# CONDITIONS


def test_conditions_are_decided_in_the_step_that_settles_their_upstream() -> None:
    run = a_run(BRANCHES, of_node=IF_A)
    decided = [one for one in deliver(run, succeeded("a")) if isinstance(one, DecideTask)]
    (decision,) = decided
    assert (decision.name, decision.attempt, decision.state) == ("c", 1, TaskState.SUCCESS)
    assert decision.branch == ("go",)
    assert (decision.reason, decision.failure) == ("branch go", None)


def test_conditions_that_hold_run_their_success_branch_and_skip_the_other() -> None:
    kept = branch_run()
    decisions = good(kept, "a")
    assert SkipTask(name="mail") in decisions
    assert kept.phases() == {"a": "succeeded", "c": "branched", "go": "live", "mail": "skipped"}


def test_t42_a_failed_upstream_of_conditions_fails_nothing_and_runs_their_failed_branch() -> None:
    kept = branch_run()
    (decided,) = [one for one in bad(kept, "a") if isinstance(one, DecideTask)]
    assert (decided.state, decided.failure) == (TaskState.FAILURE, FailureReason.CONDITION_FALSE)
    assert kept.phases() == {"a": "tolerated", "c": "branched", "go": "skipped", "mail": "live"}
    good(kept, "mail")
    assert kept.state() is ProcessState.SUCCESS
    assert kept.row("c").state is TaskState.FAILURE


def test_t42_after_a_failover_a_failed_upstream_of_conditions_is_still_no_error() -> None:
    kept = branch_run()
    bad(kept, "a")
    assert kept.forget() == []
    assert list(kept.run.failed) == []
    good(kept, "mail")
    assert kept.state() is ProcessState.SUCCESS


def test_t42_branch_heads_that_have_not_run_are_not_passed_over_after_a_failover() -> None:
    kept = branch_run("a >> c >> go mail; go >> after")
    good(kept, "a")
    kept.forget()
    assert kept.phases()["go"] == "live"
    assert kept.phases()["after"] == "idle"


def test_the_failure_of_an_upstream_of_conditions_comes_after_its_retries() -> None:
    run = a_run(BRANCHES, of_node=IF_A, retries={"a": 1})
    assert not [one for one in deliver(run, failed("a")) if isinstance(one, DecideTask)]


def test_under_end_the_failure_of_an_upstream_of_conditions_kills_nothing() -> None:
    kept = branch_run("a >> c >> go mail; b >> d", strategy=FailureStrategy.END)
    assert not [one for one in bad(kept, "a") if isinstance(one, KillTask)]
    good(kept, "b")
    assert kept.phases()["d"] == "live"


def test_under_end_another_failure_leaves_conditions_undecided() -> None:
    kept = branch_run("a >> c >> go mail; b", strategy=FailureStrategy.END)
    kept.claim("a")
    bad(kept, "b")
    good(kept, "a")
    assert kept.phases()["c"] == "idle"
    assert kept.state() is ProcessState.FAILURE


def test_t42_a_join_of_both_branches_runs_once_the_one_that_was_taken_is_done() -> None:
    kept = branch_run("a >> c >> go mail; go mail >> join")
    good(kept, "a")
    assert kept.phases()["join"] == "idle"
    good(kept, "go")
    assert kept.phases()["join"] == "live"
    good(kept, "join")
    assert kept.state() is ProcessState.SUCCESS


def test_t42b_a_task_is_skipped_only_when_all_that_leads_to_it_is() -> None:
    kept = branch_run("a >> c >> go mail; mail >> m1 >> m2; b m2 >> join")
    good(kept, "a")
    phases = kept.phases()
    assert [phases[name] for name in ("mail", "m1", "m2", "join")] == ["skipped"] * 3 + ["idle"]
    good(kept, "b")
    assert kept.phases()["join"] == "live"


def test_t42b_a_join_waits_for_what_is_not_skipped() -> None:
    kept = branch_run("a >> c >> go mail; b mail >> join")
    good(kept, "a")
    assert kept.phases()["join"] == "idle"


def test_t42_what_was_skipped_is_skipped_again_after_loading() -> None:
    kept = branch_run("a >> c >> go mail; mail >> m1 >> m2")
    good(kept, "a")
    kept.forget()
    assert [kept.phases()[name] for name in ("mail", "m1", "m2")] == ["skipped"] * 3
    good(kept, "go")
    assert kept.state() is ProcessState.SUCCESS


def test_an_empty_branch_skips_all_and_ends_well() -> None:
    kept = branch_run("a >> c >> mail", of_node={"c": conditions("", "mail", a=SUCCESS)})
    good(kept, "a")
    assert kept.row("c").branch == ()
    assert kept.load().tasks["mail"].phase.value == "skipped"
    assert kept.state() is ProcessState.SUCCESS


def test_conditions_may_follow_conditions() -> None:
    kept = branch_run(
        "a >> c >> go mail; go >> d >> x y",
        of_node=IF_A | {"d": conditions("x", "y", go=FAILURE)},
    )
    good(kept, "a")
    bad(kept, "go")
    assert kept.phases()["x"] == "live"
    assert kept.phases()["y"] == "skipped"


def test_t42_conditions_whose_expression_did_not_hold_have_done_well_for_the_next() -> None:
    kept = branch_run(
        "a >> c >> d; d >> x y",
        of_node={"c": conditions("", "d", a=SUCCESS), "d": conditions("x", "y", c=SUCCESS)},
    )
    bad(kept, "a")
    assert kept.phases()["x"] == "live"


def test_conditions_that_nothing_leads_to_are_skipped_with_all_below() -> None:
    kept = branch_run(
        "a >> c >> go mail; mail >> d >> x y",
        of_node=IF_A | {"d": conditions("x", "y", mail=SUCCESS)},
    )
    good(kept, "a")
    assert [kept.phases()[name] for name in ("d", "x", "y")] == ["skipped"] * 3
    assert not [row for row in kept.rows if row.name == "d"]


def test_a_skipped_upstream_of_conditions_is_neither_good_nor_bad() -> None:
    kept = branch_run(
        "a >> c >> go mail; go mail >> d >> x y",
        of_node=IF_A
        | {"d": conditions("x", "y", relation=Relation.OR, mail=SUCCESS)}
        | {"go": {"forbidden": True}},
    )
    good(kept, "a")
    assert kept.phases()["y"] == "live"


def test_a_forbidden_upstream_of_conditions_counts_as_good() -> None:
    kept = branch_run(forbidden=["a"])
    assert kept.phases()["go"] == "live"


def test_forbidden_conditions_are_passed_and_skip_nothing() -> None:
    kept = branch_run(of_node={"c": {**IF_A["c"], "forbidden": True}})
    assert PassForbidden(name="c") in good(kept, "a")
    assert (kept.phases()["go"], kept.phases()["mail"]) == ("live", "live")


def test_forbidden_conditions_do_not_make_up_for_a_failure() -> None:
    kept = branch_run(of_node={"c": {**IF_A["c"], "forbidden": True}})
    bad(kept, "a")
    assert kept.state() is ProcessState.FAILURE


def test_a_plain_task_below_a_failure_that_conditions_look_at_never_runs_and_is_named() -> None:
    kept = branch_run("a >> c >> go mail; a >> plain")
    bad(kept, "a")
    decisions = good(kept, "mail")
    assert kept.phases()["plain"] == "idle"
    assert kept.state() is ProcessState.FAILURE
    assert "'plain' could not run, since 'a' failed" in str(decisions[-1])


def test_a_lost_worker_of_an_upstream_of_conditions_is_made_up_for_first() -> None:
    run = a_run(BRANCHES, of_node=IF_A)
    (again,) = [one for one in deliver(run, lost("a")) if isinstance(one, SubmitTask)]
    assert (again.name, again.attempt) == ("a", 2)
    assert run.tasks["c"].phase.value == "idle"


# SWITCH

SIZE = {"s": switch(("${size} > 10", "big"), default="small")}
CHOICE = "a >> s >> big small"


def switch_run(
    of_node: Mapping[str, object] = SIZE, *, command_param: str = "{}", **globals_: str
) -> KeptRun:
    context = RunContext(
        moment=NOON,
        global_params=properties_json(
            Property(prop=name, value=value) for name, value in globals_.items()
        ),
    )
    kept = KeptRun(CHOICE, of_node=of_node, context=context, command_param=command_param)
    kept.deliver(RunOpened())
    return kept


@pytest.mark.parametrize(
    ("size", "taken", "other"), [("11", "big", "small"), ("9", "small", "big")]
)
def test_a_switch_is_chosen_by_global_parameters(size: str, taken: str, other: str) -> None:
    kept = switch_run(size=size)
    good(kept, "a")
    assert (kept.phases()[taken], kept.phases()[other]) == ("live", "skipped")


def test_a_switch_is_chosen_by_what_upstream_put_out_before_globals() -> None:
    kept = switch_run(size="1")
    good(kept, "a", put_out(size="99"))
    assert kept.phases()["big"] == "live"


def test_a_switch_is_chosen_by_its_local_parameters_before_the_pool() -> None:
    local = [Property(prop="size", value="50")]
    kept = switch_run({"s": switch(("${size} > 10", "big"), default="small", local=local)})
    good(kept, "a", put_out(size="1"))
    assert kept.phases()["big"] == "live"


def test_an_empty_local_parameter_of_a_switch_takes_the_pools_value() -> None:
    local = [Property(prop="size", value="")]
    kept = switch_run({"s": switch(("${size} > 10", "big"), default="small", local=local)})
    good(kept, "a", put_out(size="77"))
    assert kept.phases()["big"] == "live"


def test_an_out_parameter_of_a_switch_is_not_read() -> None:
    local = [Property(prop="size", value="50", direct=Direct.OUT)]
    kept = switch_run(
        {"s": switch(("${size} > 10", "big"), default="small", local=local)}, size="1"
    )
    good(kept, "a")
    assert kept.phases()["small"] == "live"


def test_a_switch_is_chosen_by_start_parameters_before_all_others() -> None:
    local = [Property(prop="size", value="50")]
    kept = switch_run(
        {"s": switch(("${size} > 10", "big"), default="small", local=local)},
        command_param='{"StartParams": "{\\"size\\": 3}"}',
        size="3",
    )
    good(kept, "a", put_out(size="60"))
    assert kept.phases()["small"] == "live"


def test_a_switch_may_look_at_the_business_date_of_its_run() -> None:
    local = [Property(prop="day", value="${system.biz.date}")]
    kept = KeptRun(
        CHOICE,
        of_node={"s": switch(("${day} == '20260101'", "big"), default="small", local=local)},
        context=RunContext(moment=datetime(2026, 1, 2, tzinfo=UTC), zone=ZoneInfo("UTC")),
    )
    kept.deliver(RunOpened())
    good(kept, "a")
    assert kept.phases()["big"] == "live"


def test_a_switch_reads_the_names_of_its_run() -> None:
    origin = Origin(definition_name="trips", project_name="etl", project_code=7)
    condition = "'${system.project.name}/${which}/${system.task.definition.name}' == 'etl/trips/s'"
    local = [Property(prop="which", value="${system.workflow.definition.name}")]
    kept = KeptRun(
        CHOICE,
        of_node={"s": switch((condition, "big"), default="small", local=local)},
        context=RunContext(moment=NOON, origin=origin),
    )
    kept.deliver(RunOpened())
    good(kept, "a")
    assert kept.phases()["big"] == "live"


@pytest.mark.parametrize(
    ("of_process", "date"),
    [
        ({}, "20191103"),
        ({"timezone_id": "America/New_York"}, "20191102"),
        ({"timezone_id": "America/New_York", "complement": True}, "20191102"),
    ],
)
def test_t45_a_switch_reads_dates_in_the_zone_of_its_run(
    of_process: dict[str, Any], date: str
) -> None:
    local = [Property(prop="day", value="${system.biz.date}")]
    of_node = {"s": switch((f"${{day}} == '{date}'", "big"), default="small", local=local)}
    kept = KeptRun(CHOICE, of_node=of_node)
    # Half past eleven in the evening of the day of 25 hours.
    moment = datetime(2019, 11, 4, 4, 30, tzinfo=UTC)
    run = load_run(
        kept.run.ownership,
        replace(kept.process, moment=moment, **of_process),
        (),
        dag=kept.dag,
        nodes=kept.nodes,
    )
    deliver(run, RunOpened(), succeeded("a"))
    assert (run.tasks["big"].phase.value, run.tasks["small"].phase.value) == ("live", "skipped")


def test_the_first_branch_that_holds_is_taken_and_the_default_last() -> None:
    of_node = {"s": switch(("1 > 2", "big"), ("2 > 1", "small"), default="big")}
    kept = switch_run(of_node)
    good(kept, "a")
    assert kept.row("s").branch == ("small",)


def test_a_missing_parameter_fails_the_switch_and_the_reason_names_it() -> None:
    kept = switch_run()
    decisions = good(kept, "a")
    (decided,) = [one for one in decisions if isinstance(one, DecideTask)]
    assert decided.state is TaskState.FAILURE
    assert decided.branch is None
    assert decided.failure is FailureReason.CONFIGURATION
    assert decided.reason is not None
    assert "the parameter 'size' has no value" in decided.reason
    assert kept.state() is ProcessState.FAILURE
    assert "task 's' failed" in str(decisions[-1])


def test_a_switch_that_failed_is_failed_again_after_loading() -> None:
    kept = KeptRun(CHOICE + "; b", of_node=SIZE)
    kept.deliver(RunOpened())
    good(kept, "a")
    kept.forget()
    assert kept.phases()["s"] == "failed"
    good(kept, "b")
    assert kept.state() is ProcessState.FAILURE


def test_under_end_a_switch_that_can_not_be_decided_kills_what_is_live() -> None:
    kept = KeptRun(CHOICE + "; b", of_node=SIZE, strategy=FailureStrategy.END)
    kept.deliver(RunOpened())
    assert KillTask(name="b", attempt=1) in good(kept, "a")


def test_conditions_may_look_at_a_switch_that_failed() -> None:
    kept = KeptRun(
        "a >> s >> big small c; c >> ok mail",
        of_node={
            "s": switch(("${size} > 10", "big"), default="small c"),
            "c": conditions("ok", "mail", s=SUCCESS),
        },
    )
    kept.deliver(RunOpened())
    good(kept, "a")
    assert kept.phases()["mail"] == "live"


def test_a_secret_value_does_not_stand_in_the_reason_of_a_choice() -> None:
    kept = switch_run({"s": switch(("${key} == 'x'", "big"), default="small")}, key="hunter2")
    (decided,) = [one for one in good(kept, "a") if isinstance(one, DecideTask)]
    assert "hunter2" not in str(decided.reason)


def test_a_switch_of_circular_parameters_fails_with_the_reason_and_not_the_run() -> None:
    local = [Property(prop="x", value="${size}")]
    kept = switch_run(
        {"s": switch(("${x} > 10", "big"), default="small", local=local)},
        size="${other}",
        other="${size}",
    )
    good(kept, "a")
    assert kept.row("s").state is TaskState.FAILURE


def test_x10_an_expression_of_a_megabyte_is_a_mistake_of_the_definition() -> None:
    text = a_definition_json(
        "a >> s >> big small",
        s={
            "type": "SWITCH",
            "switchResult": {
                "dependTaskList": [{"condition": "(" * 1_000_000, "nextNode": "big"}],
                "nextNode": "small",
            },
        },
    )
    with pytest.raises(InvalidDefinitionError) as refused:
        read_graph(text)
    (mistake,) = refused.value.mistakes
    assert "switchResult.dependTaskList[0].condition" in mistake
    assert len(mistake) < 300


def test_branching_tasks_are_not_retried_whatever_their_author_asked_for() -> None:
    text = a_definition_json(
        "a >> s >> big small",
        s={
            "type": "SWITCH",
            "maxRetryTimes": 5,
            "switchResult": {
                "dependTaskList": [{"condition": "${x} > 1", "nextNode": "big"}],
                "nextNode": "small",
            },
        },
    )
    assert read_graph(text).nodes["s"].max_retry_times == 0


# Locks


@pytest.mark.parametrize(
    ("interval", "asked"),
    [
        ("$[yyyy-MM-dd]/P1D", "2026-01-02/P1D"),
        ("${system.biz.date}/P1D", "20260101/P1D"),
        ("${day}T04:00/PT1H", "2026-03-04T04:00/PT1H"),
        ("${unknown}/P1D", "${unknown}/P1D"),
    ],
)
def test_an_attempt_asks_for_its_locks_with_the_values_of_parameters(
    interval: str, asked: str
) -> None:
    need = LockNeed(dataset="ds", interval=interval)
    kept = KeptRun(
        "a >> b",
        of_node={"b": {"locks": (need,)}},
        context=RunContext(moment=datetime(2026, 1, 2, tzinfo=UTC), zone=ZoneInfo("UTC")),
    )
    kept.deliver(RunOpened())
    decisions = good(kept, "a", put_out(day="2026-03-04"))
    (submitted,) = [each for each in decisions if isinstance(each, SubmitTask)]
    assert submitted.locks == (replace(need, interval=asked),)
