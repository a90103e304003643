"""The variable pool: outputs of tasks, their receivers, and the same after loading."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from common.model.control import Outcome
from common.model.decisions import DecideTask, FinishProcess, SubmitTask
from common.model.states import ProcessState, TaskState
from common.params import Direct, Property, properties_json
from master.engine.context import RunContext
from master.engine.events import RunOpened, TaskSucceeded, TimerFired
from master.engine.task_run import ImpossibleError
from master.engine.variables import Variable, merged, properties_of, put_out, values_of
from tests import builders
from tests.builders import NOON, KeptRun, a_run, conditions, deliver, failed, lost, succeeded

SECOND = timedelta(seconds=1)


def input_pool(decisions: list[object], name: str) -> dict[str, str]:
    """The input pool of a submitted attempt."""
    (one,) = [each for each in decisions if isinstance(each, SubmitTask) and each.name == name]
    return {each["prop"]: each["value"] for each in json.loads(one.input_pool or "[]")}


def opened(text: str, **of_run: Any) -> KeptRun:
    kept = KeptRun(text, **of_run)
    kept.deliver(RunOpened())
    return kept


def good(kept: KeptRun, name: str, seconds: int = 0, **values: str) -> list[object]:
    at = NOON + seconds * SECOND
    pool = builders.put_out(**values) if values else None
    return list(kept.deliver(kept.end(name, TaskState.SUCCESS, at=at, var_pool=pool)))


def test_a_task_is_given_what_its_upstream_put_out() -> None:
    kept = opened("a >> b")
    assert input_pool(good(kept, "a", size="3"), "b") == {"size": "3"}


def test_a_task_is_given_what_tasks_further_up_put_out() -> None:
    kept = opened("a >> b >> c")
    good(kept, "a", x="1", y="1")
    assert input_pool(good(kept, "b", y="2", seconds=1), "c") == {"x": "1", "y": "2"}


def test_a_task_is_not_given_what_others_beside_it_put_out() -> None:
    kept = opened("a >> b; other")
    good(kept, "other", x="1")
    assert input_pool(good(kept, "a"), "b") == {}


def test_the_pool_stands_in_rows_as_a_list_of_properties() -> None:
    kept = opened("a >> b")
    (one,) = [each for each in good(kept, "a", x="1") if isinstance(each, SubmitTask)]
    assert json.loads(str(one.input_pool)) == [
        {"prop": "x", "direct": "IN", "type": "VARCHAR", "value": "1"}
    ]


def test_a_task_without_upstream_is_given_nothing() -> None:
    (one,) = deliver(a_run("a", opened=False), RunOpened())
    assert isinstance(one, SubmitTask)
    assert one.input_pool is None


@pytest.mark.parametrize(("first", "second"), [("a", "b"), ("b", "a")])
def test_of_equal_names_the_value_that_was_put_out_last_counts(first: str, second: str) -> None:
    kept = opened("a b >> c")
    good(kept, first, x="early", seconds=1)
    assert input_pool(good(kept, second, x="late", seconds=2), "c") == {"x": "late"}


def test_the_end_of_the_task_counts_and_not_the_order_of_its_report() -> None:
    kept = opened("a b >> c")
    good(kept, "a", x="late", seconds=2)
    assert input_pool(good(kept, "b", x="early", seconds=1), "c") == {"x": "late"}


def test_of_equal_times_the_task_further_down_counts() -> None:
    kept = opened("a >> b >> c")
    good(kept, "a", x="a")
    assert input_pool(good(kept, "b", x="b"), "c") == {"x": "b"}


def test_t48_a_retry_is_given_the_same_as_the_attempt_before_it() -> None:
    kept = opened("a >> b", retries={"b": 1}, interval=timedelta())
    good(kept, "a", x="1")
    again = kept.deliver(kept.end("b", TaskState.FAILURE))
    assert input_pool(list(again), "b") == {"x": "1"}


def test_t48_an_attempt_that_makes_up_for_a_lost_worker_is_given_the_same() -> None:
    run = a_run("a >> b")
    deliver(run, succeeded("a", var_pool=builders.put_out(x="1")))
    assert input_pool(list(deliver(run, lost("b"))), "b") == {"x": "1"}


def test_a_retry_after_a_failover_is_given_the_same() -> None:
    kept = opened("a >> b", retries={"b": 1})
    good(kept, "a", x="1")
    kept.deliver(kept.end("b", TaskState.FAILURE))
    kept.forget()
    due = kept.deliver(TimerFired(name="b", attempt=1), now=NOON + timedelta(minutes=1))
    assert input_pool(list(due), "b") == {"x": "1"}


def test_what_a_failed_attempt_put_out_is_not_passed_on() -> None:
    kept = opened("a >> c >> go mail", of_node={"c": conditions("go", "mail", a=Outcome.SUCCESS)})
    report = kept.end("a", TaskState.FAILURE, var_pool=builders.put_out(x="1"))
    assert input_pool(list(kept.deliver(report)), "mail") == {}


def test_variables_pass_through_forbidden_branching_and_skipped_tasks() -> None:
    kept = opened(
        "a >> f >> c >> go mail; go mail >> join",
        forbidden=["f"],
        of_node={"c": conditions("go", "mail", f=Outcome.SUCCESS)},
    )
    assert input_pool(good(kept, "a", x="1"), "go") == {"x": "1"}
    assert input_pool(good(kept, "go"), "join") == {"x": "1"}


def test_a_rerun_task_gives_its_new_values_to_what_runs_after_it() -> None:
    kept = opened("a >> b >> c; d")
    good(kept, "a", x="old")
    good(kept, "b")
    kept.deliver(kept.end("c", TaskState.FAILURE), kept.end("d", TaskState.SUCCESS))
    assert kept.state() is ProcessState.FAILURE
    kept.restart(["a", "c"])
    # b keeps its result, and passes on the value that a puts out now.
    good(kept, "a", x="new", seconds=9)
    assert kept.row("c").attempt == 2
    assert values_of(kept.run.input_variables("c")) == {"x": "new"}


# Outputs of a sub process for the task that began it


def handed(declared: list[Property], **values: str) -> str | None:
    context = RunContext(moment=NOON, hands_up=True, global_params=properties_json(declared))
    kept = opened("a", context=context)
    end = good(kept, "a", 0, **values)[-1]
    assert isinstance(end, FinishProcess)
    return end.var_pool


def test_a_sub_process_hands_up_what_its_tasks_made_of_its_out_parameters() -> None:
    declared = [Property(prop="x", value="0", direct=Direct.OUT), Property(prop="y", value="7")]
    assert json.loads(str(handed(declared, x="5", y="8"))) == [
        {"prop": "x", "direct": "IN", "type": "VARCHAR", "value": "5"}
    ]


def test_an_out_parameter_that_no_task_put_out_is_handed_up_with_its_own_value() -> None:
    declared = [Property(prop="x", value="0", direct=Direct.OUT)]
    assert json.loads(str(handed(declared)))[0]["value"] == "0"


def test_a_sub_process_without_out_parameters_hands_up_nothing() -> None:
    assert handed([Property(prop="x", value="0")], x="5") is None


def test_a_process_that_is_no_sub_process_hands_up_nothing() -> None:
    declared = properties_json([Property(prop="x", value="0", direct=Direct.OUT)])
    kept = opened("a", context=RunContext(moment=NOON, global_params=declared))
    assert good(kept, "a", x="5")[-1] == FinishProcess(state=ProcessState.SUCCESS)


def test_a_sub_process_that_fails_hands_up_nothing() -> None:
    declared = properties_json([Property(prop="x", value="0", direct=Direct.OUT)])
    kept = opened("a", context=RunContext(moment=NOON, hands_up=True, global_params=declared))
    end = kept.deliver(kept.end("a", TaskState.FAILURE))[-1]
    assert isinstance(end, FinishProcess)
    assert end.var_pool is None


# Reading and writing


@pytest.mark.parametrize(
    "text", [None, "", "x", "{}", "7", "null", "[7]", "[[]]", '[{"value": "1"}]', "[" * 100_000]
)
def test_a_pool_that_can_not_be_read_holds_nothing(text: str | None) -> None:
    assert put_out(text, at=NOON, place=0) == {}


@pytest.mark.parametrize(
    ("value", "read"), [('"5"', "5"), ("0", "0"), ("null", ""), ("1.5", "1.5")]
)
def test_a_value_is_text_whatever_it_was_written_as(value: str, read: str) -> None:
    pool = put_out(f'[{{"prop": "x", "value": {value}}}]', at=NOON, place=0)
    assert values_of(pool) == {"x": read}


def test_a_value_that_has_no_utf8_form_can_still_be_stored() -> None:
    text = properties_of({"x": Variable(NOON, 0, "\ud800")})
    assert text is not None
    assert text.encode()
    assert json.loads(text)[0]["value"] == "\ud800"


def test_a_marked_output_stays_marked_on_its_way() -> None:
    pool = properties_json([Property(prop="copy", value="x", secret=True), Property(prop="day")])
    passed = properties_of(
        merged([put_out(pool, at=NOON, place=0), put_out(None, at=None, place=1)])
    )
    assert [each.get("secret") for each in json.loads(passed or "[]")] == [True, None]


def test_merging_prefers_the_later_and_then_the_further_down() -> None:
    early, late = Variable(NOON, 9, "early"), Variable(NOON + SECOND, 1, "late")
    assert merged([{"x": late}, {"x": early}]) == {"x": late}
    below = Variable(NOON, 10, "below")
    assert merged([{"x": below}, {"x": early}]) == {"x": below}


def test_of_nothing_there_is_nothing_to_write() -> None:
    assert properties_of({}) is None


def test_the_story_of_a_run_does_not_repeat_what_tasks_put_out() -> None:
    run = a_run("a", context=RunContext(moment=NOON, hands_up=True, global_params=SECRET_OUT))
    deliver(run, succeeded("a", var_pool=builders.put_out(key="hunter2")))
    assert "FinishProcess" in run.story()[-1]
    assert "hunter2" not in " ".join(run.story())


def test_an_impossible_report_does_not_repeat_what_the_task_put_out() -> None:
    run = a_run("a >> b; c")
    with pytest.raises(ImpossibleError) as error:
        deliver(run, failed("a"), succeeded("a", var_pool=builders.put_out(key="hunter2")))
    assert "TaskSucceeded(name='a', attempt=1) can't have happened" in str(error.value)
    assert "hunter2" not in str(error.value)


SECRET_OUT = properties_json([Property(prop="key", value="", direct=Direct.OUT)])


def test_a_task_that_would_be_given_too_much_fails_with_the_reason_and_is_not_submitted() -> None:
    run = a_run("a >> b", opened=False)
    deliver(run, RunOpened())
    pool = json.dumps([{"prop": "x", "direct": "IN", "type": "VARCHAR", "value": "v" * 1_048_576}])
    decided = deliver(run, TaskSucceeded(name="a", attempt=1, at=NOON, var_pool=pool))
    (failure,) = [one for one in decided if isinstance(one, DecideTask)]
    assert (failure.name, failure.state, failure.branch) == ("b", TaskState.FAILURE, None)
    assert "1,048,577 characters" in str(failure.reason)
    assert run.state is ProcessState.FAILURE
