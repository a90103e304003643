"""Reads the parts of a node that make a control task: SUB_PROCESS, CONDITIONS, SWITCH, DEPENDENT.

Pure. `read_control` reads that part of a node leniently (contract §1.20.4 and §10: objects
may be text that holds JSON, numbers may be text, `[""]` is an empty list) and adds every mistake
to the list it is given, with its place; `check_targets` compares the result with the node's
neighbours. Both are used by `common.model.definitions`; deciding is `master.logic`'s.

A *branch* is a list of direct successors, its *targets*, of which one list is taken and the
others are skipped. A *relation* joins results: AND or OR.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import Any, TypeAlias, assert_never

from common.expressions import Expression, ExpressionError, parse
from common.model.depend_items import (
    ALL_TASKS,
    DependItem,
    Item,
    is_about_dataset,
    read_dataset_item,
    read_dates,
    shown,
)

MAX_BRANCHES = 100
MAX_SWITCH_STEPS = 10_000
"""The steps that all conditions of a switch may take, since it is decided on a run's thread."""

MAX_ITEMS = 100
"""The items that a DEPENDENT may have. Each is up to 31 intervals, so 3,100 rows to look at."""

MAX_CONDITIONS = 1_000


class Relation(IntEnum):
    """The rule by which several results make one."""

    AND = 0
    OR = 1


class Outcome(Enum):
    """The end of a task, as a CONDITIONS sees it; a forbidden task counts as a success."""

    SUCCESS = "SUCCESS"
    FAILURE = "FAILURE"
    OTHER = "OTHER"
    """Skipped, killed, paused or not run: matches no condition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubProcess:
    """Another definition that runs as one task, by its id or by its name.

    `project` is the project that the task gives with the name, by name or by id.
    """

    process_definition_id: int | None
    process_definition_name: str | None
    project: str | int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """A direct upstream task, and how it must have ended."""

    task: str
    wanted: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionGroup:
    """Conditions that one relation joins."""

    relation: Relation
    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """A choice between two branches by how upstream tasks ended."""

    relation: Relation
    groups: tuple[ConditionGroup, ...]
    success: tuple[str, ...]
    failed: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SwitchBranch:
    """Targets, and the condition for them; without a condition the branch is taken when reached."""

    expression: Expression | None
    targets: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Switch:
    """A choice of the first branch whose condition holds, else of the default."""

    branches: tuple[SwitchBranch, ...]
    default: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DependGroup:
    """Items that one relation joins."""

    relation: Relation
    items: tuple[Item, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Dependent:
    """A wait for runs of other definitions, and for datasets."""

    relation: Relation
    groups: tuple[DependGroup, ...]


Control: TypeAlias = SubProcess | Conditions | Switch | Dependent


def read_control(
    task_type: str, node: Mapping[str, Any], place: str, mistakes: list[str]
) -> Control | None:
    """Return the control part of a node; None for a type that a worker runs.

    Every mistake is added to `mistakes`, with `place` (such as "task 'a'") and the key. What could
    be read is returned all the same, so that `check_targets` finds its mistakes in the same pass;
    None as well if not even the targets could be read. A caller whose list has grown must refuse
    the definition.
    """
    reader = _ControlReader(node, place, mistakes)
    match task_type.upper():
        case "SUB_PROCESS":
            return reader.sub_process()
        case "CONDITIONS":
            return reader.conditions()
        case "SWITCH":
            return reader.switch()
        case "DEPENDENT":
            return reader.dependent()
        case _:
            return None


def check_targets(
    name: str,
    control: Control,
    downstream: Sequence[str],
    node_names: Collection[str],
    upstream: Sequence[str],
) -> list[str]:
    """Return the mistakes between a control task and its neighbours in the DAG.

    A branch leads to direct successors, every successor is in a branch, a switch has a default,
    and a condition looks at a direct upstream.
    """
    place = f"task {shown(name)}"
    match control:
        case SubProcess() | Dependent():
            return []
        case Conditions():
            mistakes = _misplaced_conditions(place, control, node_names, upstream)
            branches = [
                ("conditionResult.successNode", control.success),
                ("conditionResult.failedNode", control.failed),
            ]
            cure = "name it in conditionResult.successNode or conditionResult.failedNode"
        case Switch():
            mistakes = []
            branches = [
                (f"switchResult.dependTaskList[{index}].nextNode", branch.targets)
                for index, branch in enumerate(control.branches)
            ]
            branches.append(("switchResult.nextNode", control.default))
            if not control.default:
                mistakes.append(
                    f"{place}, switchResult.nextNode: the switch has no default;"
                    " name the node that runs when no condition holds"
                )
            cure = "name it in a nextNode"
        case _:
            assert_never(control)
    followers = frozenset(downstream)
    for key, targets in branches:
        for target in targets:
            if target not in followers:
                fault = _fault_of_target(name, target, node_names)
                mistakes.append(f"{place}, {key}: {fault}")
    taken = frozenset(target for _, targets in branches for target in targets)
    mistakes.extend(
        f"{place}: its successor {shown(follower)} is in no branch;"
        f" {cure}, or take {shown(name)} out of its preTasks"
        for follower in downstream
        if follower not in taken
    )
    return mistakes


def _misplaced_conditions(
    place: str, control: Conditions, node_names: Collection[str], upstream: Sequence[str]
) -> list[str]:
    mistakes: list[str] = []
    before = frozenset(upstream)
    for index, group in enumerate(control.groups):
        for number, condition in enumerate(group.conditions):
            task = condition.task
            if task in before:
                continue
            key = f"dependence.dependTaskList[{index}].dependItemList[{number}].depTasks"
            fault = (
                f"{shown(task)} is not a direct upstream; add it to preTasks"
                if task in node_names
                else f"there is no task {shown(task)}"
            )
            mistakes.append(f"{place}, {key}: {fault}")
    return mistakes


_CODES_CURE = "task codes of later generations are not known here, write the task's name"


def _fault_of_target(name: str, target: str, node_names: Collection[str]) -> str:
    if target in node_names:
        return f"{shown(target)} is not a direct successor; add {shown(name)} to its preTasks"
    if _WHOLE_NUMBER.fullmatch(target):
        return f"there is no task {shown(target)}; {_CODES_CURE}"
    return f"there is no task {shown(target)}"


_WHOLE_NUMBER = re.compile(r"[0-9]{1,20}")
_LARGEST_ID = 2**31 - 1
_MISSING = (None, "")


class _ControlReader:
    """Reads one node, and collects mistakes while it reads."""

    def __init__(self, node: Mapping[str, Any], place: str, mistakes: list[str]) -> None:
        self._node = node
        self._place = place
        self._mistakes = mistakes

    def sub_process(self) -> SubProcess:
        params = self._object(self._node.get("params"), "params")
        number, name = self._definition(
            params, "params", "processDefinitionId", "processDefinitionName"
        )
        return SubProcess(
            process_definition_id=number,
            process_definition_name=name,
            project=self._project(params),
        )

    def conditions(self) -> Conditions | None:
        result, result_key = self._part("conditionResult")
        dependence, dependence_key = self._part("dependence")
        relation, entries = self._groups(dependence, dependence_key)
        count = 0
        groups: list[ConditionGroup] = []
        for inner, items, key in entries:
            count += len(items)
            if count > MAX_CONDITIONS:
                self._mistake(key, f"more than {MAX_CONDITIONS:,} conditions")
                break
            conditions = (
                self._condition(item, f"{key}.dependItemList[{index}]")
                for index, item in enumerate(items)
            )
            groups.append(
                ConditionGroup(
                    relation=inner, conditions=tuple(one for one in conditions if one is not None)
                )
            )
        if entries and not count:
            self._mistake(f"{dependence_key}.dependTaskList", "at least one condition is needed")
        success = self._targets(result.get("successNode"), f"{result_key}.successNode")
        failed = self._targets(result.get("failedNode"), f"{result_key}.failedNode")
        if success is None or failed is None:
            return None
        return Conditions(relation=relation, groups=tuple(groups), success=success, failed=failed)

    def switch(self) -> Switch | None:
        result, key = self._part("switchResult")
        entries = self._list(result.get("dependTaskList"), f"{key}.dependTaskList")
        if len(entries) > MAX_BRANCHES:
            self._mistake(f"{key}.dependTaskList", f"more than {MAX_BRANCHES} branches")
            return None
        branches: list[SwitchBranch] = []
        all_read = True
        steps = 0
        for index, entry in enumerate(entries):
            branch_key = f"{key}.dependTaskList[{index}]"
            branch = self._object(entry, branch_key, needed=True)
            targets = self._targets(branch.get("nextNode"), f"{branch_key}.nextNode")
            if targets == ():
                self._mistake(f"{branch_key}.nextNode", "name the node that this branch runs")
            expression = self._expression(branch.get("condition"), f"{branch_key}.condition")
            steps += expression.steps if expression else 0
            all_read = all_read and targets is not None
            branches.append(SwitchBranch(expression=expression, targets=targets or ()))
        if steps > MAX_SWITCH_STEPS:
            self._mistake(
                f"{key}.dependTaskList",
                f"the conditions take {steps:,} steps; at most {MAX_SWITCH_STEPS:,} are allowed",
            )
        default = self._targets(result.get("nextNode"), f"{key}.nextNode")
        if default is None or not all_read:
            return None
        return Switch(branches=tuple(branches), default=default)

    def dependent(self) -> Dependent:
        dependence, dependence_key = self._part("dependence")
        relation, entries = self._groups(dependence, dependence_key)
        count = 0
        groups: list[DependGroup] = []
        for inner, items, key in entries:
            count += len(items)
            if count > MAX_ITEMS:
                self._mistake(key, f"more than {MAX_ITEMS} items")
                break
            read = (
                self._depend_item(item, f"{key}.dependItemList[{index}]")
                for index, item in enumerate(items)
            )
            groups.append(
                DependGroup(relation=inner, items=tuple(one for one in read if one is not None))
            )
        if entries and not count:
            self._mistake(f"{dependence_key}.dependTaskList", "at least one item is needed")
        return Dependent(relation=relation, groups=tuple(groups))

    def _groups(
        self, dependence: Mapping[str, Any], key: str
    ) -> tuple[Relation, list[tuple[Relation, list[Any], str]]]:
        """Return the outer relation, and each group with its inner one, its items and its key."""
        relation = self._relation(dependence.get("relation"), f"{key}.relation")
        entries = self._list(dependence.get("dependTaskList"), f"{key}.dependTaskList")
        if not entries:
            self._mistake(f"{key}.dependTaskList", "at least one group is needed")
        if len(entries) > MAX_CONDITIONS:
            self._mistake(f"{key}.dependTaskList", f"more than {MAX_CONDITIONS:,} groups")
            return relation, []
        groups: list[tuple[Relation, list[Any], str]] = []
        for index, entry in enumerate(entries):
            place = f"{key}.dependTaskList[{index}]"
            group = self._object(entry, place, needed=True)
            inner = self._relation(group.get("relation"), f"{place}.relation")
            items = self._list(group.get("dependItemList"), f"{place}.dependItemList")
            groups.append((inner, items, place))
        return relation, groups

    def _condition(self, entry: object, key: str) -> Condition | None:
        item = self._object(entry, key, needed=True)
        if not item:
            return None
        task = self._name(item.get("depTasks"), f"{key}.depTasks", "the upstream task looked at")
        status = item.get("status")
        if status not in (Outcome.SUCCESS.value, Outcome.FAILURE.value):
            self._mistake(f"{key}.status", f"must be SUCCESS or FAILURE, not {shown(status)}")
            return None
        return None if task is None else Condition(task=task, wanted=Outcome(status))

    def _depend_item(self, entry: object, key: str) -> Item | None:
        item = self._object(entry, key, needed=True)
        if not item:
            return None
        if is_about_dataset(item):
            return read_dataset_item(item, key, self._mistake)
        definition_id, name = self._definition(item, key, "definitionId", "definitionName")
        project_id = self._id(item.get("projectId"), f"{key}.projectId")
        project = self._project(item) if definition_id is None else None
        task = self._name(item.get("depTasks"), f"{key}.depTasks", "ALL or a task of it")
        dates = read_dates(item, key, self._mistake)
        if dates is None:
            return None
        cycle, date_value, any_interval = dates
        return DependItem(
            definition_id=definition_id,
            definition_name=name,
            project_id=project_id,
            project=project,
            task=None if task == ALL_TASKS else task,
            cycle=cycle,
            date_value=date_value,
            any_interval=any_interval,
        )

    def _definition(
        self, entry: Mapping[str, Any], key: str, id_key: str, name_key: str
    ) -> tuple[int | None, str | None]:
        """Return a definition by its id or by its name."""
        name = entry.get(name_key)
        if entry.get(id_key) in _MISSING and name in _MISSING:
            code_key = id_key.removesuffix("Id") + "Code"
            cure = "" if code_key not in entry else f"; {code_key} is not known here"
            self._mistake(
                f"{key}.{id_key}", f"give the definition's id, or its name as {name_key}{cure}"
            )
            return None, None
        if entry.get(id_key) not in _MISSING and name not in _MISSING:
            self._mistake(f"{key}.{name_key}", f"give {id_key} or {name_key}, not both")
        number = self._id(entry.get(id_key), f"{key}.{id_key}")
        if name in _MISSING:
            return number, None
        return number, self._name(name, f"{key}.{name_key}", "a definition")

    def _project(self, entry: Mapping[str, Any]) -> str | int | None:
        """Return the project that is given with a definition's name: by name, or else by id."""
        name, number = entry.get("projectName"), entry.get("projectId")
        if isinstance(name, str) and name:
            return name
        if isinstance(number, int) and not isinstance(number, bool) and number > 0:
            return number
        return None

    def _id(self, value: object, key: str) -> int | None:
        if value in _MISSING:
            return None
        text = value.strip() if isinstance(value, str) else ""
        if isinstance(value, int) and not isinstance(value, bool):
            text = str(value)
        if not _WHOLE_NUMBER.fullmatch(text) or not 1 <= int(text) <= _LARGEST_ID:
            self._mistake(
                key, f"must be a whole number from 1 to {_LARGEST_ID}, not {shown(value)}"
            )
            return None
        return int(text)

    def _name(self, value: object, key: str, what: str) -> str | None:
        if not isinstance(value, str) or not value:
            self._mistake(key, f"must name {what}, not be {shown(value)}")
            return None
        return value

    def _relation(self, value: object, key: str) -> Relation:
        if value in _MISSING:
            return Relation.AND
        if not isinstance(value, str) or value not in Relation.__members__:
            self._mistake(key, f"must be AND or OR, not {shown(value)}")
            return Relation.AND
        return Relation[value]

    def _expression(self, value: object, key: str) -> Expression | None:
        if value is None:
            return None
        if not isinstance(value, str):
            self._mistake(key, f"must be text, not {shown(value)}")
            return None
        if not value.strip():
            return None
        try:
            return parse(value)
        except ExpressionError as error:
            self._mistake(key, str(error))
            return None

    def _targets(self, value: object, key: str) -> tuple[str, ...] | None:
        """Return the names of a branch, one or a list of them; None if it has anything else."""
        if isinstance(value, str) and value.lstrip().startswith("["):
            # A list may come as text; a task whose name merely begins so is a name.
            with suppress(ValueError, RecursionError):
                value = json.loads(value)
        entries: list[Any] = value if isinstance(value, list) else [value]
        names: list[str] = []
        for entry in entries:
            # 0 is how later generations write that there is no target.
            if entry in _MISSING or (entry == 0 and not isinstance(entry, bool)):
                continue
            if isinstance(entry, int) and not isinstance(entry, bool):
                self._mistake(key, f"{shown(entry)} is a number; {_CODES_CURE}")
                return None
            if not isinstance(entry, str):
                self._mistake(key, f"must be the names of tasks, not {shown(entry)}")
                return None
            names.append(entry)
        return tuple(dict.fromkeys(names))

    def _part(self, key: str) -> tuple[dict[str, Any], str]:
        """Return an object of the node, or of its `params` as in later releases, and its key."""
        own = self._object(self._node.get(key), key)
        if own:
            return own, key
        params = self._object(self._node.get("params"), "params")
        if params.get(key) in _MISSING:
            return {}, key
        return self._object(params[key], f"params.{key}"), f"params.{key}"

    def _object(self, value: object, key: str, *, needed: bool = False) -> dict[str, Any]:
        value = self._unpacked(value, key)
        if value is None and not needed:
            return {}
        if not isinstance(value, dict):
            self._mistake(key, "must be an object")
            return {}
        return value

    def _list(self, value: object, key: str) -> list[Any]:
        value = self._unpacked(value, key)
        if value is None:
            return []
        if not isinstance(value, list):
            self._mistake(key, "must be a list")
            return []
        return value

    def _unpacked(self, value: object, key: str) -> object:
        """Return a value, or the one that a text holds as JSON; None if there is none."""
        if not isinstance(value, str):
            return value
        if not value.strip():
            return None
        try:
            return json.loads(value)
        except (ValueError, RecursionError):
            self._mistake(key, "the text is not JSON")
            return None

    def _mistake(self, key: str, fault: str) -> None:
        self._mistakes.append(f"{self._place}, {key}: {fault}")


def named_definitions(controls: Iterable[Control]) -> tuple[int | str, ...]:
    """Return the definitions that control tasks name, by id or name, each once and in order."""
    found: dict[int | str, None] = {}
    for control in controls:
        match control:
            case SubProcess():
                named = [(control.process_definition_id, control.process_definition_name)]
            case Dependent():
                named = [
                    (item.definition_id, item.definition_name)
                    for group in control.groups
                    for item in group.items
                    if isinstance(item, DependItem)
                ]
            case Conditions() | Switch():
                named = []
            case _:
                assert_never(control)
        for number, name in named:
            one = name if number is None else number
            if one is not None:
                found[one] = None
    return tuple(found)
