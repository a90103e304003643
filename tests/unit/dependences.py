"""DEPENDENT tasks, the runs that they wait for, and the verdict on both."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from common.model.control import Dependent, DependGroup, Relation
from common.model.depend_items import DATE_VALUES, DependItem
from common.model.states import ProcessState, TaskState
from common.model.upstream import Question, UpstreamRun, UpstreamTask
from master.logic.dependent import Answer, DependResult, Verdict, evaluate, questions

AND, OR = Relation.AND, Relation.OR
SUCCESS, WAITING, FAILED = DependResult.SUCCESS, DependResult.WAITING, DependResult.FAILED
BERLIN = ZoneInfo("Europe/Berlin")
NEW_YORK = ZoneInfo("America/New_York")
APIA = ZoneInfo("Pacific/Apia")
ST_JOHNS = ZoneInfo("America/St_Johns")
SAO_PAULO = ZoneInfo("America/Sao_Paulo")
LORD_HOWE = ZoneInfo("Australia/Lord_Howe")
UTC_ZONE = ZoneInfo("UTC")
# A Wednesday.
NOON = datetime(2020, 3, 11, 12, 34, 56, 789, tzinfo=UTC)
FIRST = datetime(1, 1, 1, tzinfo=UTC)
LAST = datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)


def an_item(date_value: str = "today", **changes: Any) -> DependItem:
    cycle = next((name for name, values in DATE_VALUES.items() if date_value in values), "day")
    fields: dict[str, Any] = {
        "definition_id": 9,
        "definition_name": None,
        "project_id": 1,
        "task": None,
        "cycle": cycle,
        "date_value": date_value,
    }
    return DependItem(**fields | changes)


def waits_for(*items: DependItem, relation: Relation = AND) -> Dependent:
    return Dependent(relation=AND, groups=(DependGroup(relation=relation, items=items),))


def a_run(state: ProcessState = ProcessState.SUCCESS, **changes: Any) -> UpstreamRun:
    fields: dict[str, Any] = {
        "id": 5,
        "state": state,
        "schedule_time": None,
        "start_time": NOON,
        "end_time": None,
    }
    fields |= changes
    fields.setdefault("moment", fields["schedule_time"] or fields["start_time"])
    return UpstreamRun(**fields)


def an_attempt(state: TaskState, *, retry_pending: bool = False) -> UpstreamTask:
    return UpstreamTask(id=77, state=state, retry_pending=retry_pending, end_time=NOON)


def verdict(
    dependent: Dependent,
    answer: Answer | Callable[[Question], Answer],
    *,
    at: datetime = NOON,
    zone: ZoneInfo = UTC_ZONE,
    apart_from: int = 0,
) -> Verdict:
    asked = questions(dependent, at, zone, apart_from=apart_from)
    answers = {question: answer(question) if callable(answer) else answer for question in asked}
    return evaluate(dependent, at, zone, answers, apart_from=apart_from)


def result_of(item: DependItem, answer: Answer) -> DependResult:
    return verdict(waits_for(item), answer).result


def by_definition(**answers: Answer) -> Callable[[Question], Answer]:
    """Return an answer by the name of the definition, as `d1=`, …"""
    return lambda question: answers[f"d{question.definition_id}"]
