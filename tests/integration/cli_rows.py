"""Definitions, instances and attempts in the tables, for the command line to find."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Engine, insert, select

from common.model.commands import CommandType
from common.model.states import ProcessState, TaskState
from common.store.tables import command, process_definition, process_instance, task_instance

NOW = datetime.now(UTC)


def parsed(answer: tuple[int, str, str]) -> Any:
    code, out, err = answer
    assert code == 0, err
    return json.loads(out)


def a_definition(db: Engine, **values: Any) -> int:
    with db.begin() as connection:
        made: int = connection.execute(
            insert(process_definition)
            .values({"name": "nightly", "release_state": 1} | values)
            .returning(process_definition.c.id)
        ).scalar_one()
    return made


def an_instance(db: Engine, state: ProcessState, **values: Any) -> int:
    tasks = [
        {"name": name, "type": "SHELL", "params": {"rawScript": "true"}, "preTasks": above}
        for name, above in (("a", []), ("b", ["a"]))
    ]
    with db.begin() as connection:
        made: int = connection.execute(
            insert(process_instance)
            .values(
                {
                    "name": "nightly-1",
                    "process_definition_id": 1,
                    "state": int(state),
                    "command_type": 0,
                    "executor_id": 1,
                    "process_instance_json": json.dumps({"tasks": tasks}),
                    "end_time": NOW if state.is_terminal else None,
                    "host": None if state.is_terminal else "127.0.0.1:5678",
                    "owner_incarnation": None if state.is_terminal else 1,
                }
                | values
            )
            .returning(process_instance.c.id)
        ).scalar_one()
    return made


def an_attempt(db: Engine, instance: int, state: TaskState, **values: Any) -> int:
    running = state is TaskState.RUNNING
    with db.begin() as connection:
        made: int = connection.execute(
            insert(task_instance)
            .values(
                {
                    "name": "a",
                    "task_type": "SHELL",
                    "process_definition_id": 1,
                    "process_instance_id": instance,
                    "task_json": "{}",
                    "state": int(state),
                    "submit_time": NOW,
                    "start_time": NOW,
                    "end_time": NOW if state.is_finished else None,
                    "host": "127.0.0.1:1234" if running else None,
                    "worker_incarnation": 7 if running else None,
                }
                | values
            )
            .returning(task_instance.c.id)
        ).scalar_one()
    return made


def commands(db: Engine) -> list[tuple[CommandType, dict[str, str], int]]:
    with db.connect() as connection:
        rows = connection.execute(select(command).order_by(command.c.id)).all()
    return [
        (CommandType(row.command_type), json.loads(row.command_param), row.process_instance_id)
        for row in rows
    ]
