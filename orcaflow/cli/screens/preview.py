"""Prints a preview of schedules for people: heads, overdue fires, fires to come, clock changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from common.cron import Timetable
from operations.documents.schedules import coming_cells
from operations.texts import counted
from operations.times import local_text
from orcaflow.cli.output import escaped, say, write, write_table


def print_preview(
    document: Mapping[str, Any], timetables: Mapping[int, Timetable], *, count: int
) -> None:
    """Print the document of a preview of at most `count` fires."""
    for head in document["schedules"]:
        _write_head(head)
    for row in document["overdue"]:
        _write_overdue(row, timetables)
    fires = document["fires"]
    many = len(timetables) > 1
    if fires:
        write("")
        columns = ("local", "utc", "clock")
        write_table(coming_cells(fires), ("schedule_id", *columns) if many else columns)
    if timetables and len(fires) < count:
        say("there are no more fires" if fires else "there are no fires")
    for row in document["clock_changes"]:
        which = f"schedule {row['schedule_id']}: " if many else ""
        write(f"{which}{row['effect']}")


def _write_head(head: Mapping[str, Any]) -> None:
    meaning = head["description"] or "it can't be read"
    line = f"{escaped(str(head['crontab']))} in {head['timezone_id']}: {meaning}"
    if head["id"] is None:
        write(line)
        return
    owner = escaped(str(head["definition"] or "a definition that is gone"))
    write(f"schedule {head['id']} of {owner} ({head['release_state']}): {line}")
    if head["hindrance"] is not None and head["description"] is not None:
        say(f"none of this happens as it stands: {head['hindrance']}")


def _write_overdue(row: Mapping[str, Any], timetables: Mapping[int, Timetable]) -> None:
    schedule_id = row["schedule_id"]
    words = ", ".join(f"{count} {outcome}" for outcome, count in row["outcomes"].items())
    begin = local_text(row["since"], timetables[schedule_id].zone)
    write(
        f"schedule {schedule_id} has {counted(row['number'], 'fire')} that no master has carried"
        f" out, from {begin} on; one that looked now would make of them: {words}"
    )
