"""The simulated cluster, seed by seed; rerun a failing seed with `-k "[17]"`.

There are 500 seeds from 0 on, and 20,000 in a long run; `ORCAFLOW_SEEDS` and `ORCAFLOW_FIRST_SEED`
set others.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from common.model.complement_states import ComplementState, DateState
from common.model.schedules import FireOutcome
from common.model.states import ProcessState, TaskState
from tests.memory.store import (
    ComplementDateRecord,
    ComplementRecord,
    ErrorCommandRecord,
    FireRecord,
    ProcessRecord,
    ScheduleRecord,
    TaskRecord,
)
from tests.simulation.checkers import broken
from tests.simulation.history import has_ended, has_restarted
from tests.simulation.world import World

_FIRST = int(os.environ.get("ORCAFLOW_FIRST_SEED", "0"))
_SEEDS = int(os.environ.get("ORCAFLOW_SEEDS", "500"))
_TELLING = 1500
"""The seeds among which every kind of fault and event occurs, the rarest once in several hundred."""

_brought: dict[int, frozenset[str]] = {}
"""The kinds that the seeds have brought so far, so that no world is simulated twice for them."""


@pytest.mark.parametrize("seed", range(_FIRST, _FIRST + _SEEDS))
def test_whatever_happens_all_ends_right(seed: int) -> None:
    world = _simulated(seed)
    found = broken(world) + world.violations
    assert found == [], f"seed {seed} ({world.options}):\n" + "\n".join([*found, *world.log])


def test_a_seed_gives_the_same_history_each_time() -> None:
    first, second = World(5), World(5)
    first.run()
    second.run()
    assert first.log == second.log
    assert first.database.changes == second.database.changes


def test_seeds_bring_every_kind_of_fault_and_event() -> None:
    missing = {*_LOGGED, *_WANTED, "third owner"}
    for seed in range(_TELLING):
        if seed not in _brought:
            _simulated(seed)
        missing -= _brought[seed]
        if not missing:
            break
    assert sorted(missing) == []


_LOGGED = (
    "freezes",
    "is held up before save",
    "dies before",
    "dies after",
    "people are refused",
    "to success",
    "all daemons are away",
    "the clock is wrong",
    "ZooKeeper is back as it was",
    "ZooKeeper is back without its data",
    "is cut off from ZooKeeper",
    "is cut off from everything",
)
_WANTED = (
    *(f"root ends {name}" for name in ("SUCCESS", "FAILURE", "STOP", "PAUSE")),
    *(f"child ends {name}" for name in ("SUCCESS", "FAILURE", "STOP", "PAUSE")),
    *(f"restart {number}" for number in (3, 4, 7, 12)),
    *(f"{kind} SUCCESS" for kind in ("SHELL", "SUB_PROCESS", "DEPENDENT", "SWITCH", "CONDITIONS")),
    "child restarts",
    "root begins SERIAL_WAIT",
    "root begins STOP",
    "SHELL WAITING_DEPEND",
    "SHELL DELAY_EXECUTION",
    "DEPENDENT FAILURE",
    "PYSPARK FAILURE",
    "PYSPARK NEED_FAULT_TOLERANCE",
    "memory raised",
    "memory raised twice",
    *("OUT_OF_MEMORY", "TIMED_OUT", "CONFIGURATION"),
    "given up",
    "time-out",
    "refused",
    *(f"fire {outcome.value}" for outcome in FireOutcome),
    "fire has a run",
    "schedule has a fault",
    *(f"complement {state.name}" for state in ComplementState),
    *(f"date {state.value}" for state in DateState),
    "a recovered date goes on",
    "a command of a date was taken back",
)


def _simulated(seed: int) -> World:
    """The world of a seed after its end, whose kinds are noted."""
    world = World(seed)
    world.run()
    if seed < _TELLING:
        _brought[seed] = frozenset(_kinds(world))
    return world


def _kinds(world: World) -> Iterator[str]:
    """The kinds of faults and events that a world has brought."""
    log = "\n".join(world.log)
    yield from (words for words in _LOGGED if words in log)
    yield from _events(world)
    if any(process.owner_epoch > 2 for process in world.database.processes):
        yield "third owner"


_STEPS = {
    ("failure", "running"): "a recovered date goes on",
    ("submitted", "pending"): "a command of a date was taken back",
}


def _events(world: World) -> Iterator[str]:
    for change in world.database.changes:
        match change.new:
            case ProcessRecord() as process:
                kind = "child" if process.is_sub_process else "root"
                if change.old is None:
                    yield f"{kind} begins {ProcessState(process.state).name}"
                elif has_ended(change):
                    yield f"{kind} ends {ProcessState(process.state).name}"
                elif has_restarted(change):
                    yield f"restart {process.command_type}"
                    yield f"{kind} restarts"
                if process.timeout_flag:
                    yield "time-out"
            case FireRecord() as fire:
                yield f"fire {fire.outcome}"
                if fire.process_instance_id:
                    yield "fire has a run"
            case ScheduleRecord() as schedule if schedule.fault:
                yield "schedule has a fault"
            case ComplementRecord() as complement:
                yield f"complement {ComplementState(complement.state).name}"
            case ComplementDateRecord() as date:
                yield f"date {DateState(date.state).value}"
                if isinstance(change.old, ComplementDateRecord):
                    yield _STEPS.get((change.old.state, date.state), "")
            case TaskRecord() as task:
                yield f"{task.task_type} {TaskState(task.state).name}"
                if (task.reason or "").startswith("given up"):
                    yield "given up"
                if task.memory_factor > 1:
                    yield "memory raised" if task.memory_factor < 2 else "memory raised twice"
                yield task.failure_reason or ""
            case ErrorCommandRecord():
                yield "refused"
            case _:
                pass
