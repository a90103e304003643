"""The people's side of a chaos run: commands typed as rows, and an account of those acknowledged.

A command counts as acknowledged when its INSERT was answered. One whose answer was lost may exist or
not: it is counted as *unsure*.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import psycopg2
import psycopg2.errors

from tests.faults.facts import Asked
from tests.faults.plan import Action, Deed
from tests.faults.workload import Expected
from tests.granting import GRANT_ALL

_CODES = {
    Deed.RUN: 0,
    Deed.RESUME: 3,
    Deed.RERUN_FAILED: 4,
    Deed.RERUN: 7,
    Deed.PAUSE: 8,
    Deed.STOP: 9,
}
_RECENT = """
    SELECT id FROM t_ds_process_instance WHERE is_sub_process = 0 AND state = ANY(%s)
    ORDER BY id DESC LIMIT 12
"""
_LIVE = [0, 1, 2, 4, 10, 14]
_WORTH = {
    Deed.STOP: _LIVE,
    Deed.PAUSE: _LIVE,
    Deed.RESUME: [3],
    Deed.RERUN_FAILED: [6, 6, 5],
    Deed.RERUN: [3, 5, 6, 7],
}
"""The states in which a request would mean something; a fifth of the requests are about any."""
_ANY_STATE = list(range(18))


class People:
    """Types commands."""

    def __init__(self, dsn: str) -> None:
        self._dsn = dsn
        self.definitions: dict[str, int] = {}
        self.asked: list[Asked] = []
        self.unsure = 0
        self.unsure_stops: list[int] = []
        self.unanswered = 0
        """Requests that did not reach the server."""

    def define(self, definitions: Mapping[str, Expected], pool: str, pool_size: int) -> None:
        """Type the definitions and the pool, before any fault."""
        with psycopg2.connect(self._dsn) as db, db.cursor() as cursor:
            cursor.execute(
                "INSERT INTO t_ds_task_group (name, group_size) VALUES (%s, %s)", (pool, pool_size)
            )
            cursor.execute(GRANT_ALL)
            for each in definitions.values():
                cursor.execute(
                    "INSERT INTO t_ds_process_definition"
                    " (name, process_definition_json, release_state, execution_type)"
                    " VALUES (%s, %s, 1, %s) RETURNING id",
                    (each.name, each.document(), each.execution_type),
                )
                row = cursor.fetchone()
                assert row is not None
                self.definitions[each.name] = row[0]
        db.close()

    def ask(self, action: Action) -> str:
        """Type what an action wants; return what became of it, for the history."""
        try:
            db = psycopg2.connect(self._dsn, connect_timeout=3)
        except psycopg2.OperationalError:
            self.unanswered += 1
            return "the server did not answer"
        db.autocommit = True
        instance = 0
        try:
            with db.cursor() as cursor:
                if action.deed is not Deed.RUN:
                    instance = self._chosen(cursor, action)
                    if not instance:
                        return "there is none"
                return self._typed(cursor, action, instance)
        except psycopg2.errors.UniqueViolation:
            return f"instance {instance} has such a request already"
        except psycopg2.Error as error:
            return f"no answer: {type(error).__name__}"
        finally:
            db.close()

    def _chosen(self, cursor: Any, action: Action) -> int:
        anyone = int(action.pick * 1000) % 5 == 0
        cursor.execute(_RECENT, (_ANY_STATE if anyone else _WORTH[action.deed],))
        found = [row[0] for row in cursor.fetchall()]
        return int(found[int(action.pick * len(found))]) if found else 0

    def _typed(self, cursor: Any, action: Action, instance: int) -> str:
        code = _CODES[action.deed]
        param = {"ProcessInstanceId": instance} if instance else {}
        ids = []
        for _ in range(action.times):
            try:
                cursor.execute(
                    "INSERT INTO t_ds_command"
                    " (command_type, process_definition_id, command_param, failure_strategy)"
                    " VALUES (%s, %s, %s, %s) RETURNING id",
                    (
                        code,
                        self.definitions.get(action.definition),
                        json.dumps(param),
                        int(action.pick * 1000) % 2,
                    ),
                )
                (command_id,) = cursor.fetchone()
            except psycopg2.errors.UniqueViolation:
                raise
            except psycopg2.Error:
                self.unsure += action.deed is Deed.RUN
                if action.deed is Deed.STOP:
                    self.unsure_stops.append(instance)
                raise
            ids.append(command_id)
            self.asked.append(
                Asked(
                    command_id=command_id,
                    command_type=code,
                    definition=action.definition,
                    instance=instance,
                )
            )
        about = action.definition or f"instance {instance}"
        return f"{about}: commands {', '.join(map(str, ids))}"
