"""A seed's plan: the same for ever, within its bounds, and with every kind of fault among them."""

from __future__ import annotations

import pytest

from tests.faults.plan import PEOPLE, POSTGRES, REQUESTS, ZOOKEEPER, Action, Deed, Plan, plan
from tests.faults.workload import workload

NAMES = tuple(workload("lines"))
SEEDS = range(15)


def five_minutes(seed: int) -> Plan:
    return plan(seed, 300, NAMES)


def test_a_seed_is_one_plan() -> None:
    assert five_minutes(7) == five_minutes(7)
    assert five_minutes(7) != five_minutes(8)


@pytest.mark.parametrize("seconds", [1.0, 14.0, 300.0])
def test_actions_are_in_order_and_in_time(seconds: float) -> None:
    for seed in SEEDS:
        drawn = plan(seed, seconds, NAMES)
        times = [action.at for action in drawn.actions]
        assert times == sorted(times)
        assert all(0 <= at <= seconds for at in times)


def test_the_faults_of_a_lane_do_not_overlap() -> None:
    for seed in SEEDS:
        drawn = five_minutes(seed)
        for target in drawn.targets:
            lane = drawn.lane(target)
            if target != PEOPLE:
                ends = [action.at + action.lasts for action in lane[:-1]]
                begins = [action.at for action in lane[1:]]
                dies = Deed.STAY_DEAD in {action.deed for action in lane}
                # Death for good waits for the fault before it, whatever its own time.
                overlaps = [end > begin for end, begin in zip(ends, begins, strict=True)]
                assert not any(overlaps[:-1] if dies else overlaps)


def test_nothing_happens_to_a_daemon_after_its_end() -> None:
    for seed in SEEDS:
        drawn = five_minutes(seed)
        for target in drawn.targets:
            deeds = [action.deed for action in drawn.lane(target)]
            assert Deed.STAY_DEAD not in deeds[:-1]


def test_a_master_and_a_worker_come_back() -> None:
    for seed in range(60):
        lost = {each.target for each in five_minutes(seed).actions if each.deed is Deed.STAY_DEAD}
        assert lost <= {"master-0", "master-1", "worker-1", "worker-2"}
        assert not lost >= {"master-0", "master-1"}
    alone = plan(3, 300, NAMES, masters=1, workers=1)
    assert all(action.deed is not Deed.STAY_DEAD for action in alone.actions)


def test_every_kind_of_deed_happens_and_every_definition_runs() -> None:
    actions = [action for seed in SEEDS for action in five_minutes(seed).actions]
    assert {action.deed for action in actions} == set(Deed)
    assert {action.target for action in actions} >= {PEOPLE, POSTGRES, ZOOKEEPER, "worker-2"}
    for seed in SEEDS:
        assert {each.definition for each in _runs(five_minutes(seed))} == set(NAMES)


def test_even_a_short_plan_breaks_each_daemon_and_server() -> None:
    for seed in SEEDS:
        faults = [each for each in plan(seed, 14, NAMES).actions if each.deed not in REQUESTS]
        assert {each.target for each in faults} >= {POSTGRES, ZOOKEEPER, "master-0", "worker-1"}


def _runs(drawn: Plan) -> list[Action]:
    return [action for action in drawn.actions if action.deed is Deed.RUN]
