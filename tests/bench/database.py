"""The bench's door to the tables: inserts definitions and commands as any program may.

Waits for the ends of process instances on PostgreSQL's own notifications, so that nothing queries
the database during a measurement.
"""

from __future__ import annotations

import json
import select
import time
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta

import psycopg2

_ENDED = "orcaflow_process"
_SUCCESS = 7
_READY_STOP = 4
_TAKEN_SECONDS = 30.0
_LOOK_SECONDS = 0.05
_ATTEMPTS = """
SELECT name, extract(epoch FROM start_time), extract(epoch FROM end_time) FROM t_ds_task_instance
WHERE process_instance_id =
    (SELECT max(id) FROM t_ds_process_instance WHERE process_definition_id = %s)
"""


class RunFailedError(Exception):
    """A process instance did not end as it should have, so its times mean nothing."""


class Database:
    """Two connections in autocommit: one executes statements, one listens."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self._acting = psycopg2.connect(dsn)
        self._acting.autocommit = True
        self._listening = psycopg2.connect(dsn)
        self._listening.autocommit = True
        with self._listening.cursor() as cursor:
            cursor.execute(f"LISTEN {_ENDED}")

    def close(self) -> None:
        self._acting.close()
        self._listening.close()

    def define(self, name: str, process_json: str) -> int:
        """Put a definition ONLINE; return its id."""
        with self._acting.cursor() as cursor:
            cursor.execute(
                "INSERT INTO t_ds_process_definition (name, release_state, process_definition_json)"
                " VALUES (%s, 1, %s) RETURNING id",
                (name, process_json),
            )
            return _only(cursor.fetchone())

    def start(self, definition_id: int, times: int = 1) -> float:
        """Insert this many commands in one transaction; return the time after its commit."""
        self._ended()
        with self._acting.cursor() as cursor:
            cursor.execute(
                "INSERT INTO t_ds_command (command_type, process_definition_id, command_param)"
                " SELECT 0, %s, '{}' FROM generate_series(1, %s)",
                (definition_id, times),
            )
            return time.monotonic()

    def run(self, definition_id: int, *, within: float) -> float:
        """Run one instance, which must succeed; return the seconds from its command to its end."""
        began = self.start(definition_id)
        ended = self.await_ends(1, within=within)
        self.check_success(definition_id)
        return ended - began

    def schedule(
        self, definition_id: int, *, first: datetime, last: datetime, times: int = 1
    ) -> None:
        """Schedule the definition for each second of a window, by this many schedules."""
        with self._acting.cursor() as cursor:
            cursor.execute(
                "INSERT INTO t_ds_schedules (process_definition_id, crontab, release_state,"
                " start_time, end_time) SELECT %s, '* * * * * ?', 1, %s, %s"
                " FROM generate_series(1, %s)",
                (definition_id, first, last + timedelta(milliseconds=500), times),
            )

    def complement(self, definition_id: int, *, dates: int, parallelism: int) -> int:
        """Run the definition for this many days, so many at a time; return the complement's id."""
        param = {
            "complementStartDate": "2020-01-01 00:00:00",
            "complementEndDate": f"{date(2020, 1, 1) + timedelta(days=dates - 1)} 00:00:00",
            "schedule_timezone": "UTC",
            "expectedParallelismNumber": parallelism,
        }
        deadline = time.monotonic() + _TAKEN_SECONDS
        with self._acting.cursor() as cursor:
            cursor.execute(
                "INSERT INTO t_ds_command (command_type, process_definition_id, command_param)"
                " VALUES (5, %s, %s) RETURNING id",
                (definition_id, json.dumps(param)),
            )
            command = _only(cursor.fetchone())
            while time.monotonic() < deadline:
                cursor.execute("SELECT id FROM t_ds_complement WHERE command_id = %s", (command,))
                row = cursor.fetchone()
                if row is not None:
                    return _only(row)
                # Nothing notifies that a command was taken; this is before any time is measured.
                time.sleep(_LOOK_SECONDS)
        raise TimeoutError("no master has taken the complement")

    def cancel(self, complement_id: int) -> None:
        """Request the end of a complement and of all its runs."""
        with self._acting.cursor() as cursor:
            cursor.execute(
                "UPDATE t_ds_complement SET state = %s WHERE id = %s", (_READY_STOP, complement_id)
            )

    def stop_all(self, definition_id: int) -> None:
        """Insert a STOP command for every instance of the definition that has not ended."""
        with self._acting.cursor() as cursor:
            cursor.execute(
                "SELECT id FROM t_ds_process_instance"
                " WHERE process_definition_id = %s AND end_time IS NULL",
                (definition_id,),
            )
            params = [json.dumps({"ProcessInstanceId": str(row[0])}) for row in cursor.fetchall()]
            cursor.execute(
                "INSERT INTO t_ds_command (command_type, process_definition_id, command_param)"
                " SELECT 9, %s, param FROM unnest(%s) AS param",
                (definition_id, params),
            )

    def await_ends(self, number: int, *, within: float) -> float:
        """Wait until this many process instances have ended since `start`; return the last end."""
        deadline = time.monotonic() + within
        ended: set[int] = set()
        while True:
            ended |= self._ended()
            if len(ended) >= number:
                return time.monotonic()
            left = deadline - time.monotonic()
            if left <= 0:
                raise TimeoutError(f"{len(ended)} of {number} instances ended in {within:g} s")
            select.select([self._listening], [], [], left)

    def check_success(self, definition_id: int) -> None:
        """Assert that every instance of the definition has ended in SUCCESS."""
        others = self.count(
            "SELECT count(*) FROM t_ds_process_instance"
            " WHERE process_definition_id = %s AND state <> %s",
            (definition_id, _SUCCESS),
        )
        if others:
            raise RunFailedError(f"{others} instances did not succeed")

    def count(self, query: str, values: Sequence[object]) -> int:
        """The result of a query for one number."""
        with self._acting.cursor() as cursor:
            cursor.execute(query, values)
            return _only(cursor.fetchone())

    def execute(self, statement: str, values: Mapping[str, object]) -> None:
        """Execute a statement in a transaction of its own, or in none if it allows none."""
        with self._acting.cursor() as cursor:
            # Without values a percent sign is one; with them it would begin a placeholder.
            cursor.execute(statement, values or None)

    def attempts(self, definition_id: int) -> dict[str, tuple[float, float]]:
        """The claim and the end of each task of the definition's last instance, in Unix time."""
        with self._acting.cursor() as cursor:
            cursor.execute(_ATTEMPTS, (definition_id,))
            return {name: (float(begun), float(ended)) for name, begun, ended in cursor.fetchall()}

    def _ended(self) -> set[int]:
        """The instances whose end has been notified since the last time."""
        self._listening.poll()
        ended = {int(notify.payload) for notify in self._listening.notifies}
        self._listening.notifies.clear()
        return ended


def _only(row: tuple[object, ...] | None) -> int:
    if row is None or not isinstance(row[0], int):
        raise RunFailedError(f"the database answered {row!r} when it was asked for a number")
    return row[0]
