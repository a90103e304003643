"""Properties of intervals at every moment in every zone, and of verdicts on all answers."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from zoneinfo import ZoneInfo

from hypothesis import given, settings
from hypothesis import strategies as st

from common.depend_intervals import DATE_VALUES_CUT, Interval, intervals
from common.model.control import Dependent, DependGroup, Relation
from common.model.depend_items import DependItem
from common.model.states import ProcessState, TaskState
from common.model.upstream import UpstreamRun, UpstreamTask
from master.logic.dependent import Absence, Answer, DependResult, evaluate, questions

# A busy machine is no failure of the code.
UNTIMED = settings(deadline=None)

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
ZONES = st.sampled_from(
    [
        ZoneInfo(name)
        for name in (
            "Europe/Berlin",
            "America/New_York",
            "Australia/Lord_Howe",
            "Pacific/Apia",
            # Changes at midnight, and at a minute behind it.
            "America/Sao_Paulo",
            "America/St_Johns",
            "Asia/Kathmandu",
        )
    ]
)
# Moments near the changes of those zones, and any others of a century.
_CHANGES = (
    datetime(2020, 3, 29, 1, tzinfo=UTC),
    datetime(2020, 10, 25, 1, tzinfo=UTC),
    datetime(2020, 3, 8, 7, tzinfo=UTC),
    datetime(2020, 11, 1, 6, tzinfo=UTC),
    datetime(2020, 4, 4, 15, tzinfo=UTC),
    datetime(2020, 10, 3, 15, 30, tzinfo=UTC),
    datetime(2011, 12, 30, 10, tzinfo=UTC),
    datetime(2018, 2, 18, 2, tzinfo=UTC),
    datetime(2018, 11, 4, 3, tzinfo=UTC),
    datetime(2010, 3, 14, 3, 31, tzinfo=UTC),
    datetime(2010, 11, 7, 2, 31, tzinfo=UTC),
)
MOMENTS = st.one_of(
    st.builds(
        lambda change, seconds: change + timedelta(seconds=seconds),
        st.sampled_from(_CHANGES),
        st.integers(-200_000, 200_000),
    ),
    st.integers(-(10**9), 4 * 10**9).map(lambda seconds: EPOCH + timedelta(seconds=seconds)),
)
DATE_VALUES = st.sampled_from(list(DATE_VALUES_CUT))


def cut(date_value: str, moment: datetime, zone: ZoneInfo) -> tuple[Interval, ...]:
    cycle = next(cycle for cycle, value in DATE_VALUES_CUT if value == date_value)
    return intervals(an_item(cycle, date_value), moment, zone)


def an_item(
    cycle: str, date_value: str, definition: int = 1, task: str | None = None
) -> DependItem:
    return DependItem(
        definition_id=definition,
        definition_name=None,
        project_id=None,
        task=task,
        cycle=cycle,
        date_value=date_value,
    )


@UNTIMED
@given(DATE_VALUES, MOMENTS, ZONES)
def test_intervals_follow_each_other_without_gap_or_overlap(
    value: tuple[str, str], moment: datetime, zone: ZoneInfo
) -> None:
    found = intervals(an_item(*value), moment, zone)
    assert all(interval.start < interval.end for interval in found)
    assert all(one.end == other.start for one, other in pairwise(found))
    step = HOUR if value[0] == "hour" else DAY
    # A change of the clock makes an interval longer or shorter by an hour at most.
    assert all(interval.end - interval.start <= step + HOUR for interval in found)


@UNTIMED
@given(MOMENTS, ZONES)
def test_the_current_hour_and_day_hold_the_moment(moment: datetime, zone: ZoneInfo) -> None:
    (hour,), (day,) = cut("currentHour", moment, zone), cut("today", moment, zone)
    assert hour.contains(moment)
    assert day.contains(moment)
    assert day.start <= hour.start
    assert hour.end <= day.end


@UNTIMED
@given(MOMENTS, ZONES)
def test_what_lies_before_ends_where_the_current_begins(moment: datetime, zone: ZoneInfo) -> None:
    (hour,), (day,) = cut("currentHour", moment, zone), cut("today", moment, zone)
    for count, name in ((1, "last1Hour"), (2, "last2Hours"), (3, "last3Hours")):
        found = cut(name, moment, zone)
        assert (len(found), found[-1].end) == (count, hour.start)
    for count in (1, 2, 3, 7):
        found = cut(f"last{count}Days", moment, zone)
        assert (len(found), found[-1].end) == (count, day.start)
    for name in ("thisWeek", "thisMonth"):
        assert cut(name, moment, zone)[-1] == day
    # On days that skip from midnight to 01:00, there is no hour 00.
    last = cut("last24Hours", moment, zone)[-1]
    assert day.start in (last.start, last.end)
    assert cut("lastWeek", moment, zone)[-1].end == cut("thisWeek", moment, zone)[0].start
    assert cut("lastMonth", moment, zone)[-1].end == cut("thisMonth", moment, zone)[0].start


@UNTIMED
@given(MOMENTS, ZONES)
def test_any_two_instants_of_a_day_mean_the_same_days(moment: datetime, zone: ZoneInfo) -> None:
    (day,) = cut("today", moment, zone)
    for other in (day.start, day.end - timedelta(microseconds=1)):
        for cycle, value in DATE_VALUES_CUT:
            if cycle != "hour" or value == "last24Hours":
                assert cut(value, other, zone) == cut(value, moment, zone)


@UNTIMED
@given(MOMENTS, ZONES)
def test_weeks_begin_on_mondays_and_months_on_their_first(moment: datetime, zone: ZoneInfo) -> None:
    # The clock may skip midnight itself, but never the whole of a Monday or a first here.
    for name in ("thisWeek", "lastWeek", "lastMonday"):
        assert cut(name, moment, zone)[0].start.astimezone(zone).isoweekday() == 1
    for name in ("thisMonth", "thisMonthBegin", "lastMonth", "lastMonthBegin"):
        assert cut(name, moment, zone)[0].start.astimezone(zone).day == 1
    for name in ("thisMonthEnd", "lastMonthEnd"):
        (last,) = cut(name, moment, zone)
        assert last.end.astimezone(zone).day == 1


ITEMS = st.builds(
    lambda value, definition, task: an_item(value[0], value[1], definition, task),
    DATE_VALUES,
    st.integers(1, 3),
    st.sampled_from([None, "load"]),
)
RELATIONS = st.sampled_from(Relation)
DEPENDENTS = st.builds(
    lambda relation, groups: Dependent(relation=relation, groups=tuple(groups)),
    RELATIONS,
    st.lists(
        st.builds(
            lambda relation, items: DependGroup(relation=relation, items=tuple(items)),
            RELATIONS,
            st.lists(ITEMS, max_size=3),
        ),
        max_size=3,
    ),
)


@UNTIMED
@given(DEPENDENTS, MOMENTS, ZONES, st.data())
def test_a_verdict_follows_from_the_results_that_are_shown(
    dependent: Dependent, moment: datetime, zone: ZoneInfo, data: st.DataObject
) -> None:
    answers: dict[object, Answer] = {}
    asked = questions(dependent, moment, zone)
    states = data.draw(
        st.lists(
            st.tuples(
                st.sampled_from([*ProcessState, *Absence, None]),
                st.sampled_from([*TaskState, None]),
                st.booleans(),
            ),
            min_size=1,
            max_size=6,
        )
    )
    for number, question in enumerate(asked):
        state, task, flag = states[number % len(states)]
        answers[question] = (
            UpstreamRun(
                id=number + 1,
                state=state,
                schedule_time=question.start,
                moment=question.start,
                start_time=moment,
                end_time=None,
                task=None
                if task is None
                else UpstreamTask(id=1, state=task, retry_pending=flag, end_time=moment),
                has_node=flag,
            )
            if isinstance(state, ProcessState)
            else state
        )
    found = evaluate(dependent, moment, zone, {one: answers[one] for one in asked})
    assert evaluate(dependent, moment, zone, {one: answers[one] for one in asked}) == found
    json.dumps(found.evidence)
    results = iter(found.items)
    groups = [
        joined(group.relation, [next(results).result for _ in group.items])
        for group in dependent.groups
    ]
    assert found.result is joined(dependent.relation, groups)


def joined(relation: Relation, results: list[DependResult]) -> DependResult:
    """Contract §10.1, word by word."""
    if relation is Relation.AND:
        if DependResult.FAILED in results:
            return DependResult.FAILED
        return DependResult.WAITING if DependResult.WAITING in results else DependResult.SUCCESS
    if DependResult.SUCCESS in results:
        return DependResult.SUCCESS
    return DependResult.WAITING if DependResult.WAITING in results else DependResult.FAILED
