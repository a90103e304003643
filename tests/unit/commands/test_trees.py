"""Commands to runs with sub processes, carried out on tables in memory by the real run worker."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest

from common.model.commands import CommandType
from common.model.states import ProcessState, TaskState
from tests.builders import a_definition_json
from tests.one_master import MINUTE, OneMaster

OF_CHILD = {"sub": {"type": "SUB_PROCESS", "params": {"processDefinitionName": "child"}}}
DATE = "2020-01-01 00:00:00"


class Tree:
    """A run of `sub >> after`; `sub` is a sub process, whose definition has the one task `x`."""

    def __init__(self, command_type: CommandType = CommandType.START_PROCESS, **columns: Any):
        self.master = OneMaster()
        self.define("child", a_definition_json("x"))
        parent = self.define("parent", a_definition_json("sub >> after", **OF_CHILD))
        ownership = self.master.command(command_type, process_definition_id=parent, **columns)
        assert ownership is not None
        self.root = ownership.process_instance_id
        self.master.runs.open([ownership])
        self.master.step()

    def define(self, name: str, text: str) -> int:
        return self.master.database.insert(
            self.master.database.definitions,
            name=name,
            release_state=1,
            process_definition_json=text,
        )

    def begin_child(self) -> int:
        child = self.master.take_child()
        self.master.step()
        return child

    def command(self, command_type: CommandType, run: int) -> None:
        param = json.dumps({"ProcessInstanceId": run})
        # Of the highest priority, so that no child's command goes before it.
        ownership = self.master.command(
            command_type, command_param=param, process_instance_priority=0
        )
        if ownership is not None:
            self.master.runs.open([ownership])
        self.master.runs.check_tables()
        self.settle()

    def end(self, run: int, name: str, state: TaskState = TaskState.SUCCESS) -> None:
        self.master.end(run, name, state)
        self.settle()

    def settle(self) -> None:
        """Deliver all notifications."""
        for _ in range(4):
            self.master.later(timedelta(seconds=1))
            self.master.deliver_notifications()

    def runs(self) -> list[int]:
        return [process.id for process in self.master.database.processes]

    def refusals(self) -> list[str]:
        return [str(error.message) for error in self.master.database.error_commands]


@pytest.mark.parametrize("asked_of", ["root", "child"])
def test_a_stopped_tree_goes_on_with_the_same_child_t74(asked_of: str) -> None:
    tree = Tree()
    child = tree.begin_child()
    named = {"root": tree.root, "child": child}[asked_of]
    tree.command(CommandType.STOP, named)
    assert tree.master.state(child) is tree.master.state(tree.root) is ProcessState.STOP
    tree.command(CommandType.RECOVER_SUSPENDED_PROCESS, named)
    assert tree.begin_child() == child
    tree.end(child, "x")
    tree.end(tree.root, "after")
    assert tree.master.state(child) is tree.master.state(tree.root) is ProcessState.SUCCESS
    assert tree.runs() == [tree.root, child]


def test_a_paused_tree_goes_on_where_it_paused() -> None:
    tree = Tree()
    child = tree.begin_child()
    tree.command(CommandType.PAUSE, child)
    assert tree.master.state(child) is tree.master.state(tree.root) is ProcessState.PAUSE
    tree.command(CommandType.RECOVER_SUSPENDED_PROCESS, tree.root)
    assert tree.begin_child() == child
    tree.end(child, "x")
    tree.end(tree.root, "after")
    assert tree.master.state(tree.root) is ProcessState.SUCCESS


def test_what_failed_in_a_sub_process_is_rerun_through_the_root() -> None:
    tree = Tree()
    child = tree.begin_child()
    tree.end(child, "x", TaskState.FAILURE)
    assert tree.master.state(tree.root) is ProcessState.FAILURE
    tree.command(CommandType.START_FAILURE_TASK_PROCESS, child)
    assert tree.begin_child() == child
    tree.end(child, "x")
    tree.end(tree.root, "after")
    assert tree.master.state(tree.root) is ProcessState.SUCCESS
    assert tree.master.names(child) == ["x", "x"]


@pytest.mark.parametrize(
    ("command_type", "columns"),
    [
        (CommandType.START_PROCESS, {}),
        (CommandType.SCHEDULER, {}),
        (
            CommandType.COMPLEMENT_DATA,
            {"command_param": json.dumps({"complementStartDate": DATE, "complementEndDate": DATE})},
        ),
    ],
)
def test_repeating_a_tree_repeats_its_child_however_it_began_t34(
    command_type: CommandType, columns: dict[str, Any]
) -> None:
    tree = Tree(command_type, **columns)
    child = tree.begin_child()
    assert tree.master.process(child).history == (command_type.name,)
    tree.end(child, "x")
    tree.end(tree.root, "after")
    tree.command(CommandType.REPEAT_RUNNING, tree.root)
    assert tree.begin_child() == child
    tree.end(child, "x")
    tree.end(tree.root, "after")
    assert tree.master.state(tree.root) is ProcessState.SUCCESS
    assert tree.master.names(child) == ["x", "x"]


def test_a_stop_before_the_child_began_keeps_it_from_beginning_t36c() -> None:
    tree = Tree()
    tree.command(CommandType.STOP, tree.root)
    assert tree.master.state(tree.root) is ProcessState.STOP
    with pytest.raises(AssertionError, match="does not wait for its child any more"):
        tree.begin_child()
    assert tree.runs() == [tree.root]
    assert tree.refusals() == []


def test_a_definition_that_contains_itself_fails_the_task_and_says_so_t36e() -> None:
    tree = Tree()
    definition = tree.master.database.definitions
    inner = a_definition_json("sub", sub=OF_CHILD["sub"])
    tree.master.database.update(definition, 1, process_definition_json=inner)
    child = tree.begin_child()
    with pytest.raises(AssertionError, match="would run inside itself"):
        tree.begin_child()
    tree.settle()
    assert tree.master.state(child) is tree.master.state(tree.root) is ProcessState.FAILURE
    assert "would run inside itself" in str(tree.master.valid(child, "sub").reason)
    assert len(tree.refusals()) == 1


def test_a_child_whose_definition_is_offline_begins_and_recovers_all_the_same_t39() -> None:
    tree = Tree()
    tree.master.database.update(tree.master.database.definitions, 1, release_state=0)
    child = tree.begin_child()
    tree.end(child, "x", TaskState.FAILURE)
    tree.command(CommandType.START_FAILURE_TASK_PROCESS, tree.root)
    assert tree.begin_child() == child
    tree.end(child, "x")
    assert tree.master.names(tree.root) == ["sub", "sub", "after"]


def test_running_a_task_of_a_sub_process_alone_is_refused() -> None:
    tree = Tree()
    child = tree.begin_child()
    tree.end(child, "x")
    tree.end(tree.root, "after")
    tree.command(CommandType.EXECUTE_TASK, child)
    (reason,) = tree.refusals()
    assert f"is a sub process of {tree.root}" in reason


def test_running_a_sub_process_task_alone_repeats_its_child() -> None:
    tree = Tree()
    child = tree.begin_child()
    tree.end(child, "x")
    tree.end(tree.root, "after")
    param = json.dumps({"ProcessInstanceId": tree.root, "StartNodeNameList": "sub"})
    ownership = tree.master.command(
        CommandType.EXECUTE_TASK, command_param=param, task_depend_type=0
    )
    assert ownership is not None
    tree.master.runs.open([ownership])
    tree.settle()
    assert tree.begin_child() == child
    tree.end(child, "x")
    tree.master.later(MINUTE)
    assert tree.master.state(tree.root) is ProcessState.SUCCESS
    assert tree.master.names(tree.root) == ["sub", "after", "sub"]
