"""Schedules and complements as rows of a cluster whose tests type them by hand."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from tests.system.cluster import PrivateCluster

ZONE: Final = "America/New_York"
SUCCESS: Final = 7


def a_range(first: str, last: str, parallelism: int = 1, **others: str) -> str:
    """The `command_param` of a COMPLEMENT_DATA row for the midnights of these dates."""
    return json.dumps(
        {
            "complementStartDate": f"{first} 00:00:00",
            "complementEndDate": f"{last} 00:00:00",
            "expectedParallelismNumber": parallelism,
            **others,
        }
    )


def lines_of(lines: Path) -> list[str]:
    """Lines that tasks have written into a file; none if there is no file yet."""
    return lines.read_text().splitlines() if lines.exists() else []


def add_schedule(cluster: PrivateCluster, definition: int, crontab: str, **columns: object) -> int:
    """Insert a row of t_ds_schedules, online unless said otherwise; its id."""
    columns = {
        "process_definition_id": definition,
        "crontab": crontab,
        "release_state": 1,
        **columns,
    }
    names, marks = ", ".join(columns), ", ".join(["%s"] * len(columns))
    ((schedule_id,),) = cluster.rows(
        f"INSERT INTO t_ds_schedules ({names}) VALUES ({marks}) RETURNING id", *columns.values()
    )
    return int(schedule_id)


def ledger_of(cluster: PrivateCluster, schedule_id: int) -> list[tuple[datetime, str, int]]:
    """Fire time, outcome and process instance of each fire so far, in order of time."""
    return cluster.rows(
        "SELECT fire_time, outcome, process_instance_id FROM t_ds_schedule_fire"
        " WHERE schedule_id = %s ORDER BY fire_time",
        schedule_id,
    )


def complement_of(cluster: PrivateCluster, definition: int) -> tuple[Any, ...]:
    """State, reason and whether it has an end, of the only complement of a definition, if any."""
    found = cluster.rows(
        "SELECT state, state_reason, end_time IS NOT NULL FROM t_ds_complement"
        " WHERE process_definition_id = %s",
        definition,
    )
    return found[0] if found else ()
