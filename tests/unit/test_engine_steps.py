"""A step of the engine costs what the neighbours of one task cost, whatever the size of the DAG.

Work is counted and not timed: in instructions of the interpreter, or in look-ups in the DAG.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import timedelta
from types import FrameType
from typing import Any

import pytest

from common.dag import Dag, build_dag, select
from common.model.control import Outcome
from common.model.states import FailureStrategy, ProcessState, TaskDependType, TaskState
from master.engine.advance import advance, decide
from master.engine.events import Event, PauseRequested, RunOpened, TimerFired
from master.engine.load import load_run
from master.engine.run import ProcessRun
from master.engine.variables import values_of
from tests.builders import (
    NOON,
    KeptRun,
    a_node,
    a_run,
    conditions,
    failed,
    killed,
    put_out,
    stop,
    succeeded,
)

SIZES = (10, 100, 1_000, 10_000)


def instructions(work: Callable[[], object]) -> int:
    """Count the instructions of Python code that this takes."""
    count = 0

    def traced(frame: FrameType, what: str, _: Any) -> Any:
        nonlocal count
        frame.f_trace_lines = False
        frame.f_trace_opcodes = True
        count += what == "opcode"
        return traced

    before = sys.gettrace()
    sys.settrace(traced)
    try:
        work()
    finally:
        sys.settrace(before)
    return count


def cost(run: ProcessRun, event: Event) -> int:
    """The cost of a step in instructions."""
    return instructions(lambda: advance(run, event, now=NOON))


def advanced(run: ProcessRun, *events: Event) -> ProcessRun:
    """The run after these events; unchecked, since a check costs what the DAG costs."""
    for event in events:
        advance(run, event, now=NOON)
    return run


def beside(size: int, text: str = "a >> b", **of_run: Any) -> ProcessRun:
    """A run of this DAG with as many other heads beside it."""
    others = " ".join(f"t{index}" for index in range(size))
    return a_run(f"{text}; {others}", opened=False, **of_run)


def in_a_chain(size: int) -> tuple[ProcessRun, Event]:
    chain = " >> ".join(f"t{index}" for index in range(size))
    return advanced(a_run(chain, opened=False), RunOpened()), succeeded("t0")


def in_a_fan_out(size: int) -> tuple[ProcessRun, Event]:
    leaves = " ".join(f"t{index}" for index in range(size))
    run = advanced(a_run(f"root >> {leaves}", opened=False), RunOpened(), succeeded("root"))
    return run, succeeded("t5")


def in_a_fan_in(size: int) -> tuple[ProcessRun, Event]:
    heads = " ".join(f"t{index}" for index in range(size))
    return advanced(a_run(f"{heads} >> join", opened=False), RunOpened()), succeeded("t5")


def while_many_retries_are_promised(size: int) -> tuple[ProcessRun, Event]:
    retries = {f"t{index}": 1 for index in range(size)}
    run = advanced(beside(size, retries=retries), RunOpened(), *map(failed, retries))
    return run, succeeded("a")


def when_one_of_many_retries_is_due(size: int) -> tuple[ProcessRun, Event]:
    retries = {f"t{index}": 1 for index in range(size)}
    early = failed("t7", at=NOON - timedelta(minutes=1))
    run = advanced(beside(size, retries=retries), RunOpened())
    advanced(run, *(failed(name) for name in retries if name != "t7"))
    # Decided, but not followed up: the next step has to find that it is due.
    for decision in decide(run, early, now=NOON):
        run.apply(decision)
    return run, TimerFired(name="t7", attempt=1)


def while_pausing(size: int) -> tuple[ProcessRun, Event]:
    return advanced(beside(size), RunOpened(), PauseRequested()), succeeded("a")


def while_much_is_held(size: int) -> tuple[ProcessRun, Event]:
    heads = " ".join(f"h{index}" for index in range(3))
    leaves = " ".join(f"t{index}" for index in range(size))
    run = a_run(f"root >> {leaves}; {heads}; a >> b", opened=False)
    return advanced(run, RunOpened(), PauseRequested(), succeeded("root")), succeeded("a")


def while_stopping(size: int) -> tuple[ProcessRun, Event]:
    return advanced(beside(size), RunOpened(), stop()), killed("a")


def while_failing_under_end(size: int) -> tuple[ProcessRun, Event]:
    run = beside(size, strategy=FailureStrategy.END)
    return advanced(run, RunOpened(), failed("t3")), killed("a")


def with_conditions_below(size: int) -> tuple[ProcessRun, Event]:
    of_node = {"c": conditions("go", "mail", a=Outcome.SUCCESS)}
    return advanced(beside(size, "a >> c >> go mail", of_node=of_node), RunOpened()), failed("a")


def with_values_put_out(size: int) -> tuple[ProcessRun, Event]:
    return advanced(beside(size), RunOpened()), succeeded("a", var_pool=put_out(x="1"))


@pytest.mark.parametrize(
    "situation",
    [
        in_a_chain,
        in_a_fan_out,
        in_a_fan_in,
        while_many_retries_are_promised,
        when_one_of_many_retries_is_due,
        while_pausing,
        while_much_is_held,
        while_stopping,
        while_failing_under_end,
        with_conditions_below,
        with_values_put_out,
    ],
)
def test_a_step_costs_the_same_whatever_the_size_of_the_dag(
    situation: Callable[[int], tuple[ProcessRun, Event]],
) -> None:
    least, *others = (cost(*situation(size)) for size in SIZES)
    assert least > 0
    # Promised retries are a heap, which a hundred times as many entries make a little deeper.
    assert max(others) <= least * 1.2


# Look-ups in the DAG


class Counted(Mapping[str, tuple[str, ...]]):
    """Neighbours that count the look-ups of each name."""

    def __init__(self, neighbours: Mapping[str, tuple[str, ...]], lookups: Counter[str]) -> None:
        self._neighbours = neighbours
        self._lookups = lookups

    def __getitem__(self, name: str) -> tuple[str, ...]:
        self._lookups[name] += 1
        return self._neighbours[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._neighbours)

    def __len__(self) -> int:
        return len(self._neighbours)


def counted(dag: Dag, lookups: Counter[str]) -> Dag:
    """The DAG, with each look-up in it counted."""
    return replace(
        dag,
        upstream=Counted(dag.upstream, lookups),
        downstream=Counted(dag.downstream, lookups),
    )


def layers(depth: int, width: int) -> dict[str, list[str]]:
    """Layers that are each fully connected to the next."""
    return {
        f"{layer}.{place}": [f"{layer - 1}.{other}" for other in range(width)] if layer else []
        for layer in range(depth)
        for place in range(width)
    }


def rerun_of_the_first(depth: int, lookups: Counter[str]) -> KeptRun:
    """Dense layers in which all succeeded but the first and the last, which were reset."""
    kept = KeptRun("x")
    kept.dag = build_dag(layers(depth, 4) | {"first": [], "last": [f"{depth - 1}.0"]})
    upstream = dict(kept.dag.upstream)
    for place in range(4):
        upstream[f"0.{place}"] = ("first",)
    kept.dag = build_dag(upstream)
    kept.nodes = {name: a_node(name) for name in kept.dag.names}
    kept.run = kept.load()
    kept.deliver(RunOpened())
    while not kept.run.is_over:
        name = next(iter(kept.run.live))
        state = TaskState.FAILURE if name == "last" else TaskState.SUCCESS
        kept.deliver(kept.end(name, state))
    kept.dag = counted(kept.dag, lookups)
    kept.restart(["first", "last"])
    lookups.clear()
    return kept


def test_new_values_pour_through_what_was_done_before_along_each_edge_once() -> None:
    lookups: Counter[str] = Counter()
    kept = rerun_of_the_first(6, lookups)
    event = kept.end("first", TaskState.SUCCESS, var_pool=put_out(x="1"))
    advance(kept.run, event, now=NOON)
    assert values_of(kept.run.input_variables("last")) == {"x": "1"}
    assert max(lookups.values()) <= 4


def test_loading_looks_at_each_edge_a_few_times_whatever_was_put_out() -> None:
    def look_ups(depth: int) -> float:
        lookups: Counter[str] = Counter()
        kept = KeptRun("x")
        kept.dag = build_dag(layers(depth, 5))
        kept.nodes = {name: a_node(name) for name in kept.dag.names}
        kept.run = kept.load()
        kept.deliver(RunOpened())
        for name in kept.dag.names[:-1]:
            kept.deliver(kept.end(name, TaskState.SUCCESS, var_pool=put_out(**{f"n{name}": "1"})))
        kept.dag = counted(kept.dag, lookups)
        load_run(kept.run.ownership, kept.process, kept.rows, dag=kept.dag, nodes=kept.nodes)
        return lookups.total() / len(kept.dag.names)

    assert look_ups(16) <= look_ups(8) * 1.1


def test_t29_dense_layers_are_built_and_selected_from_in_work_that_grows_as_they_do() -> None:
    def work(depth: int) -> int:
        upstream = layers(depth, 5)
        return instructions(lambda: select(build_dag(upstream), ["0.0"], TaskDependType.TASK_POST))

    assert work(60) <= 2.5 * work(30)


def test_a_run_of_ten_thousand_ends_in_as_many_steps() -> None:
    run, _ = in_a_chain(10_000)
    for index in range(10_000):
        advance(run, succeeded(f"t{index}"), now=NOON)
    assert run.state is ProcessState.SUCCESS
