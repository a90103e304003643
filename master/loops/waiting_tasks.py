"""A DEPENDENT task that waits, as its row has it: its condition, zone and moment, and the verdict.

Touches nothing; used by the loop that decides such tasks.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias
from zoneinfo import ZoneInfo

from common.model.control import Dependent, read_control
from common.model.depend_items import DependItem
from common.model.upstream import Answer, AnyQuestion
from common.store.master.ports import WaitingDependent
from master.logic.dependent import DependResult, Verdict, Wait, evaluate, questions, wait_of

Answers: TypeAlias = Mapping[AnyQuestion, Answer]


@dataclass(slots=True)
class WaitingTask:
    """A waiting task with its condition, and the zone of its dates.

    `needed`: the runs that keep it undecided while they are live, as of the last judgement.
    """

    row: WaitingDependent
    dependent: Dependent
    zone: ZoneInfo
    needed: tuple[int, ...] = ()

    @property
    def number(self) -> int:
        return self.row.task_instance_id

    @property
    def moment(self) -> datetime:
        return self.row.moment

    @property
    def own(self) -> int:
        """The id of its process instance."""
        return self.row.ownership.process_instance_id

    @property
    def apart_from(self) -> int:
        """The run that answers none of its questions; 0 if none is about its own definition.

        So all that wait for the same runs ask the same questions.
        """
        possible = (None, self.row.process_definition_id)
        items = (item for group in self.dependent.groups for item in group.items)
        named = (item.definition_id for item in items if isinstance(item, DependItem))
        return self.own if any(each in possible for each in named) else 0


def condition_of(each: WaitingDependent) -> Dependent | str:
    """Read the condition of the task, or return the reason why it can't be read."""
    mistakes: list[str] = []
    try:
        node = json.loads(each.task_json)
    except (ValueError, RecursionError) as error:
        return f"the task's JSON can't be read: {error}"
    if not isinstance(node, dict):
        return "the task's JSON is no object"
    control = read_control("DEPENDENT", node, f"task {each.name!r}", mistakes)
    if mistakes or not isinstance(control, Dependent):
        return "; ".join(mistakes) or "the task does not say what it depends on"
    return control


def questions_of(one: WaitingTask) -> tuple[AnyQuestion, ...]:
    """List the questions that the task's condition depends on."""
    return questions(
        one.dependent,
        one.moment,
        one.zone,
        apart_from=one.apart_from,
        project=one.row.project_id,
    )


def judged(one: WaitingTask, answers: Answers) -> tuple[Verdict, str]:
    """Return the verdict, and the evidence as the row keeps it."""
    verdict = evaluate(
        one.dependent,
        one.moment,
        one.zone,
        answers,
        apart_from=one.apart_from,
        project=one.row.project_id,
    )
    return verdict, json.dumps(verdict.evidence, ensure_ascii=False)


def wait_behind(one: WaitingTask, answers: Answers) -> Wait:
    return wait_of(
        one.dependent,
        one.moment,
        one.zone,
        answers,
        apart_from=one.apart_from,
        project=one.row.project_id,
    )


def reason_of(verdict: Verdict) -> str:
    failed = [entry for entry in verdict.evidence if entry["result"] == DependResult.FAILED.name]
    if not failed:
        return "what it depends on has failed"
    return f"{failed[0]['key']}: {failed[0]['why']}"
