"""One rule of dates per run: schedules × complements × DEPENDENT × zones, without any table."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from common.business_dates import business_date, slots_of
from common.complementing import plan_complements
from common.model.command_param import CommandParam
from common.model.commands import Command, CommandType
from common.model.complement_states import Reprocess
from common.model.complements import ComplementRequest, NewComplement
from common.model.control import Dependent, DependGroup, Relation
from common.model.date_rules import DateRule
from common.model.depend_items import DependItem
from common.model.plans import Begin, DefinitionSnapshot, Snapshot
from common.model.schedules import Schedule
from common.model.states import ProcessState, ReleaseState
from common.model.upstream import Answer, AnyQuestion, Question, UpstreamRun
from common.params import (
    effective_parameters,
    parse_properties,
    substitute,
    system_parameters,
)
from common.params.moments import on_wall
from master.commands import plan
from master.commands.origin import Origin
from master.logic.dependent import DependResult, evaluate, questions
from tests.builders import NOON, a_definition_json, read_graph

UNTIMED = settings(deadline=None, max_examples=60)
ZONES = tuple(
    map(
        ZoneInfo,
        (
            "UTC",
            "America/New_York",
            "America/Sao_Paulo",
            "Europe/Berlin",
            "Africa/Cairo",
            "Asia/Kolkata",
            "Australia/Lord_Howe",
            "Pacific/Apia",
        ),
    )
)
# Days around changes of clocks; Sao Paulo's and Cairo's are at midnight.
BEGINNINGS = (
    date(2011, 12, 20),
    date(2013, 3, 5),
    date(2013, 10, 16),
    date(2023, 4, 25),
    date(2026, 6, 1),
)
SKIPPED = date(2011, 12, 30)
"""The day that Apia's calendar leaves out."""
DAYS = 7
GLOBALS = json.dumps(
    [
        {"prop": "by_system", "value": "${system.biz.date}"},
        {"prop": "by_placeholder", "value": "$[yyyyMMdd-1]"},
    ]
)
SCRIPT = "${by_system} ${by_placeholder} ${system.biz.date} $[yyyyMMdd-1] ${local}"


@dataclass(frozen=True, slots=True)
class Way:
    """A daily or an hourly definition, whose complements follow a rule."""

    zone: ZoneInfo
    first: date
    at: time
    hourly: bool
    rule: DateRule

    @property
    def schedule(self) -> Schedule:
        hour = "*" if self.hourly else str(self.at.hour)
        line = f"0 {self.at.minute} {hour} * * ?"
        return Schedule(
            id=1,
            process_definition_id=3,
            definition_name="flights",
            definition_is_online=True,
            crontab=line,
            timezone_id=self.zone.key,
            missing_time="shift",
            repeated_time="first",
            start_time=datetime(2000, 1, 1, tzinfo=UTC),
            end_time=datetime(2100, 1, 1, tzinfo=UTC),
        )

    @property
    def definition(self) -> DefinitionSnapshot:
        return DefinitionSnapshot(
            id=3,
            name="flights",
            version=1,
            release_state=ReleaseState.ONLINE,
            usable=True,
            process_definition_json=a_definition_json("a"),
            global_params=GLOBALS,
            timeout_minutes=0,
            tenant_id=-1,
            date_rule=self.rule,
        )

    def complement(self) -> NewComplement:
        """Plan a complement of a few days for dates that have no run."""
        begin = on_wall(datetime.combine(self.first, time.min), self.zone)
        request = ComplementRequest(
            process_definition_id=3,
            first=begin,
            last=begin + timedelta(days=2 if self.hourly else DAYS),
            timezone_id=self.zone.key,
            reprocess=Reprocess.MISSING,
        )
        (new,) = plan_complements(
            request,
            self.definition,
            schedules=[self.schedule],
            dependents=(),
            zone=ZoneInfo("UTC"),
            graph=read_graph,
        )
        return new

    def begun(self, named: datetime, kind: CommandType) -> Begin:
        """Plan the run of a fire or of a complement's date."""
        param = {"schedule_timezone": self.zone.key}
        dates = {}
        if kind is CommandType.COMPLEMENT_DATA:
            param["complementDateRule"] = self.rule.value
            dates["complement_date_id"] = 7
        found = plan(
            Command(
                id=1,
                command_type=kind,
                process_definition_id=3,
                param=CommandParam(param),
                schedule_time=named,
                start_time=NOON,
                **dates,
            ),
            Snapshot(definition=self.definition),
            now=NOON,
            origin=Origin(zone=ZoneInfo("UTC"), graph=read_graph),
        )
        assert isinstance(found, Begin), found
        return found


WAYS = st.builds(
    Way,
    st.sampled_from(ZONES),
    st.sampled_from(BEGINNINGS),
    st.times().map(lambda each: each.replace(second=0, microsecond=0)),
    st.booleans(),
    st.sampled_from(DateRule),
)
KINDS = st.sampled_from((CommandType.SCHEDULER, CommandType.COMPLEMENT_DATA))


def moment_of(run: Begin) -> datetime:
    """The moment of a run, as the tables give it back."""
    found = run.business_time or run.schedule_time
    assert found is not None
    return found.astimezone(UTC)


@UNTIMED
@given(WAYS, KINDS, st.data())
def test_every_placeholder_of_a_run_gives_one_day(
    way: Way, kind: CommandType, data: st.DataObject
) -> None:
    run = way.begun(data.draw(st.sampled_from(way.complement().dates)), kind)
    moment = moment_of(run)
    system = system_parameters(moment=moment, zone=way.zone)
    local = parse_properties([{"prop": "local", "value": "$[yyyyMMdd-1]"}])
    values = effective_parameters(
        parse_properties(run.global_params), local, system=system, moment=moment, zone=way.zone
    )
    said = substitute(SCRIPT, values, moment=moment, zone=way.zone)
    assert set(said.split()) == {f"{business_date(moment, way.zone):%Y%m%d}"}


@UNTIMED
@given(WAYS, st.data())
def test_a_complement_by_business_date_processes_the_date_that_it_names(
    way: Way, data: st.DataObject
) -> None:
    named = data.draw(st.sampled_from(way.complement().dates))
    moment = moment_of(way.begun(named, CommandType.COMPLEMENT_DATA))
    day = named.astimezone(way.zone).date()
    # A day that the zone leaves out is no day after this one.
    assume(SKIPPED not in (day, day + timedelta(days=1)) or way.zone.key != "Pacific/Apia")
    expected = day if way.rule is DateRule.BUSINESS_DATE else day - timedelta(days=1)
    assert business_date(moment, way.zone) == expected


@UNTIMED
@given(WAYS, KINDS, st.sampled_from(DateRule), st.data())
def test_a_date_has_the_runs_that_process_the_same_thing(
    way: Way, kind: CommandType, other_rule: DateRule, data: st.DataObject
) -> None:
    """`missing` and `failed` find a run if and only if it has the business date, and the hour."""
    new = way.complement()
    other = Way(way.zone, way.first, way.at, way.hourly, other_rule)
    there = moment_of(other.begun(data.draw(st.sampled_from(new.dates)), kind))
    for named, slot in zip(new.dates, slots_of(new), strict=True):
        own = moment_of(way.begun(named, CommandType.COMPLEMENT_DATA))
        same = (
            own == there
            if way.hourly
            else business_date(own, way.zone) == business_date(there, way.zone)
        )
        assert slot.contains(there) == same


@UNTIMED
@given(WAYS, KINDS, WAYS, KINDS, st.data())
def test_dependents_wait_for_runs_with_their_own_business_date(
    way: Way, kind: CommandType, upstream: Way, of_upstream: CommandType, data: st.DataObject
) -> None:
    upstream = Way(way.zone, way.first, upstream.at, upstream.hourly, upstream.rule)
    asking = moment_of(way.begun(data.draw(st.sampled_from(way.complement().dates)), kind))
    asked = moment_of(
        upstream.begun(data.draw(st.sampled_from(upstream.complement().dates)), of_upstream)
    )
    own, theirs = (business_date(each, way.zone) for each in (asking, asked))
    assert (own == theirs) == waits_for("today", asking, asked, way.zone)
    if way.zone.key != "Pacific/Apia":
        # Days that the zone has left out are passed over.
        assert (own - theirs == timedelta(days=1)) == waits_for(
            "last1Days", asking, asked, way.zone
        )


def waits_for(date_value: str, asking: datetime, asked: datetime, zone: ZoneInfo) -> bool:
    """True if a wait at this moment is over by the successful run of the other moment."""
    item = DependItem(
        definition_id=9,
        definition_name=None,
        project_id=None,
        task=None,
        cycle="day",
        date_value=date_value,
    )
    group = DependGroup(relation=Relation.AND, items=(item,))
    dependent = Dependent(relation=Relation.AND, groups=(group,))
    wanted: Sequence[AnyQuestion] = questions(dependent, asking, zone)
    answers: dict[AnyQuestion, Answer] = {}
    for each in wanted:
        assert isinstance(each, Question)
        answers[each] = UpstreamRun(
            id=5,
            state=ProcessState.SUCCESS,
            schedule_time=asked,
            moment=asked,
            start_time=NOON,
            end_time=NOON,
        )
    return evaluate(dependent, asking, zone, answers).result is DependResult.SUCCESS
