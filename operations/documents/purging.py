"""Purges and their plans as documents: the fields of `orcaflow purge -o json`."""

from __future__ import annotations

from datetime import datetime

from common.store.people.purging import Planned
from operations.purging import PurgeResult


def purged_row(result: PurgeResult) -> dict[str, object]:
    """The rows that are gone, by table, and this computer's files."""
    return {
        "before": result.before,
        "deleted": dict(result.purged.rows),
        "folders": result.folders,
        "left": list(result.left),
        "longest_transaction": result.purged.longest.total_seconds(),
    }


def planned_row(before: datetime, found: Planned) -> dict[str, object]:
    """The rows that would go, by table and by definition."""
    return {
        "before": before,
        "rows": {table: count for table, count in found.rows.items() if count},
        "definitions": [
            {
                "id": number,
                "name": found.names.get(number),
                "process_instances": count,
                "task_instances": found.attempts[number],
            }
            for number, count in sorted(found.instances.items())
        ],
    }
