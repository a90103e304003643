"""Branches that were not taken and whose tasks have other upstream as well: they do not run."""

from __future__ import annotations

from typing import Any

from common.model.control import Outcome
from common.model.decisions import Decision, SkipTask
from common.model.states import ProcessState, TaskState
from master.engine.events import RunOpened
from tests.builders import KeptRun, conditions, switch

SUCCESS, FAILURE = Outcome.SUCCESS, Outcome.FAILURE

CHECKED = "extract check; check >> c >> load mail; extract >> load"
IF_CHECK = {"c": conditions("load", "mail", check=SUCCESS)}


def checked_run(text: str = CHECKED, **of_run: Any) -> KeptRun:
    """A stored run whose `load` needs `extract`, and that `c` found `check` to be good."""
    kept = KeptRun(text, **{"of_node": IF_CHECK, **of_run})
    kept.deliver(RunOpened())
    return kept


def good(kept: KeptRun, name: str) -> list[Decision]:
    return kept.deliver(kept.end(name, TaskState.SUCCESS))


def bad(kept: KeptRun, name: str) -> list[Decision]:
    return kept.deliver(kept.end(name, TaskState.FAILURE))


def test_a_branch_that_was_not_taken_does_not_run_whatever_else_leads_to_it() -> None:
    kept = checked_run()
    good(kept, "extract")
    decisions = bad(kept, "check")
    assert SkipTask(name="load") in decisions
    assert (kept.phases()["load"], kept.phases()["mail"]) == ("skipped", "live")
    good(kept, "mail")
    assert kept.state() is ProcessState.SUCCESS
    assert "load" not in kept.states()


def test_a_branch_that_was_not_taken_is_skipped_once_its_other_upstream_has_ended() -> None:
    kept = checked_run()
    bad(kept, "check")
    good(kept, "mail")
    assert kept.phases()["load"] == "idle"
    assert SkipTask(name="load") in good(kept, "extract")
    assert kept.state() is ProcessState.SUCCESS


def test_a_branch_that_was_taken_waits_for_its_other_upstream() -> None:
    kept = checked_run()
    good(kept, "check")
    assert kept.phases()["load"] == "idle"
    good(kept, "extract")
    assert (kept.phases()["load"], kept.phases()["mail"]) == ("live", "skipped")


def test_what_follows_a_branch_that_was_not_taken_is_skipped_with_it() -> None:
    kept = checked_run(CHECKED + "; load >> publish >> report")
    good(kept, "extract")
    bad(kept, "check")
    assert [kept.phases()[name] for name in ("publish", "report")] == ["skipped", "skipped"]


def test_a_task_to_which_the_taken_branch_leads_as_well_runs_after_it() -> None:
    kept = checked_run(CHECKED + "; mail >> load")
    good(kept, "extract")
    bad(kept, "check")
    assert kept.phases()["load"] == "idle"
    good(kept, "mail")
    assert kept.phases()["load"] == "live"


def test_a_join_of_both_branches_with_other_upstream_runs() -> None:
    kept = checked_run(CHECKED + "; extract load mail >> join")
    good(kept, "extract")
    bad(kept, "check")
    good(kept, "mail")
    assert kept.phases()["join"] == "live"


def test_a_switch_skips_what_it_did_not_choose_whatever_else_leads_there() -> None:
    kept = checked_run(
        "a >> s >> big small; b >> big",
        of_node={"s": switch(("1 > 2", "big"), default="small")},
    )
    good(kept, "b")
    good(kept, "a")
    assert (kept.phases()["big"], kept.phases()["small"]) == ("skipped", "live")


def test_conditions_that_are_skipped_take_no_branch_whatever_else_leads_there() -> None:
    kept = checked_run(
        "extract check; check >> c >> again mail; again >> d >> load alarm; extract >> load",
        of_node={
            "c": conditions("again", "mail", check=SUCCESS),
            "d": conditions("load", "alarm", again=SUCCESS),
        },
    )
    good(kept, "extract")
    bad(kept, "check")
    assert [kept.phases()[name] for name in ("again", "d", "load", "alarm")] == ["skipped"] * 4


def test_conditions_that_are_skipped_refuse_nothing_that_the_taken_branch_leads_to() -> None:
    """The second check is for what the first refused; both lead to the load."""
    kept = checked_run(
        "check >> c >> load d; check >> d >> load mail",
        of_node={
            "c": conditions("load", "d", check=SUCCESS),
            "d": conditions("load", "mail", check=FAILURE),
        },
    )
    good(kept, "check")
    assert [kept.phases()[name] for name in ("load", "d", "mail")] == ["live", "skipped", "skipped"]


def test_two_choices_must_both_lead_to_a_task() -> None:
    kept = checked_run(
        "a b; a >> c >> load mail; b >> d >> load alarm",
        of_node={
            "c": conditions("load", "mail", a=SUCCESS),
            "d": conditions("load", "alarm", b=SUCCESS),
        },
    )
    good(kept, "a")
    bad(kept, "b")
    assert [kept.phases()[name] for name in ("load", "alarm")] == ["skipped", "live"]


def test_forbidden_conditions_refuse_nothing() -> None:
    kept = checked_run(of_node={"c": {**IF_CHECK["c"], "forbidden": True}})
    good(kept, "check")
    good(kept, "extract")
    assert kept.phases()["load"] == "live"


def test_a_forbidden_task_of_a_branch_that_was_not_taken_is_skipped_and_not_passed() -> None:
    kept = checked_run(
        CHECKED + "; load >> publish", of_node=IF_CHECK | {"load": {"forbidden": True}}
    )
    good(kept, "extract")
    bad(kept, "check")
    assert [kept.phases()[name] for name in ("load", "publish")] == ["skipped", "skipped"]


def test_a_tolerated_failure_above_a_branch_that_was_not_taken_fails_nothing() -> None:
    kept = checked_run(
        CHECKED + "; extract >> d >> ok alarm",
        of_node=IF_CHECK | {"d": conditions("ok", "alarm", extract=SUCCESS)},
    )
    bad(kept, "extract")
    good(kept, "alarm")
    assert kept.phases()["load"] == "idle"
    bad(kept, "check")
    assert kept.phases()["load"] == "skipped"
    good(kept, "mail")
    assert kept.state() is ProcessState.SUCCESS


def test_a_tolerated_failure_above_a_branch_that_was_taken_is_named() -> None:
    kept = checked_run(
        CHECKED + "; extract >> d >> ok alarm",
        of_node=IF_CHECK | {"d": conditions("ok", "alarm", extract=SUCCESS)},
    )
    bad(kept, "extract")
    good(kept, "alarm")
    decisions = good(kept, "check")
    assert kept.state() is ProcessState.FAILURE
    assert "'load' could not run, since 'extract' failed" in str(decisions[-1])


def test_a_failover_finds_the_same_branch_not_taken() -> None:
    kept = checked_run(CHECKED + "; load >> publish")
    bad(kept, "check")
    kept.forget()
    good(kept, "extract")
    kept.forget()
    assert [kept.phases()[name] for name in ("load", "publish")] == ["skipped", "skipped"]
    good(kept, "mail")
    assert kept.state() is ProcessState.SUCCESS


def test_a_rerun_of_the_failed_keeps_a_branch_not_taken() -> None:
    kept = checked_run()
    good(kept, "extract")
    bad(kept, "check")
    bad(kept, "mail")
    assert kept.state() is ProcessState.FAILURE
    kept.restart(["mail"])
    assert kept.phases()["load"] == "skipped"
    good(kept, "mail")
    assert kept.state() is ProcessState.SUCCESS
    assert "load" not in kept.states()


def test_a_rerun_of_the_check_runs_what_was_not_taken_before() -> None:
    kept = checked_run()
    good(kept, "extract")
    bad(kept, "check")
    bad(kept, "mail")
    kept.restart(["check", "c", "mail"])
    good(kept, "check")
    assert (kept.phases()["load"], kept.phases()["mail"]) == ("live", "skipped")


def test_a_chosen_check_with_all_below_skips_what_it_does_not_take() -> None:
    kept = checked_run()
    good(kept, "extract")
    good(kept, "check")
    good(kept, "load")
    chosen = ["check", "c", "load", "mail"]
    kept.restart(chosen, scope=chosen)
    bad(kept, "check")
    assert (kept.phases()["load"], kept.phases()["mail"]) == ("skipped", "live")


def test_a_run_of_chosen_nodes_ends_well_though_a_branch_outside_was_not_taken() -> None:
    kept = checked_run()
    good(kept, "extract")
    bad(kept, "check")
    bad(kept, "mail")
    kept.restart(["mail"], scope=["mail"])
    good(kept, "mail")
    assert kept.state() is ProcessState.SUCCESS
