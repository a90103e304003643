"""Prints the plan of a complement, for people and as JSON, before anything is written."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, tzinfo

from common.clock import SystemClock
from operations.complement_plans import ComplementPlan, end_of
from operations.documents.complements import (
    PLAN_COLUMNS,
    RULES_IN_WORDS,
    date_text,
    plan_date_rows,
    plan_row,
)
from operations.texts import counted, duration
from orcaflow.cli.output import (
    Format,
    Row,
    escaped,
    moment,
    print_json,
    say,
    table,
    terminal_width,
    write,
)

_SHOWN_DATES = 20
"""As many dates are shown all; of more the first and the last few."""
_SHOWN_ENDS = 5


def print_plan(plans: Sequence[ComplementPlan], *, form: Format, zone: tzinfo | None) -> None:
    """Print each complement with its dates, then the estimated end; `zone` is the reader's."""
    end: datetime | None = SystemClock().now()
    rows = []
    for each in plans:
        # Each waits for the one before it.
        end = end_of(each, begins_at=end)
        rows.append(plan_row(each, ends_at=end))
    if form is Format.JSON:
        print_json({"complements": rows, "estimated_end": end})
        return
    for place, (each, row) in enumerate(zip(plans, rows, strict=True)):
        if place:
            write("")
        _print_one(each, row, after=plans[each.new.after] if each.new.after is not None else None)
    write("")
    write(_expected_end(plans, end, zone))
    say("Nothing was written; the same without --plan begins it.")


def _print_one(plan: ComplementPlan, row: Row, *, after: ComplementPlan | None) -> None:
    new = plan.new
    follows = "" if after is None else f", after {escaped(after.definition_name)} has succeeded"
    span = date_text(new.dates[0], new.timezone_id)
    if len(new.dates) > 1:
        span += f" to {date_text(new.dates[-1], new.timezone_id)}"
    write(
        f"complement of {escaped(plan.definition_name)}{follows}:"
        f" {counted(len(new.dates), 'date')}, {span} ({new.timezone_id}), {new.order},"
        f" {new.parallelism} at a time"
    )
    write(f"{RULES_IN_WORDS[new.date_rule]} ({new.date_rule})")
    first, last = plan.dates, plan.dates[:0]
    if len(plan.dates) > _SHOWN_DATES:
        first, last = plan.dates[:_SHOWN_ENDS], plan.dates[-_SHOWN_ENDS:]
    rows = [_for_people(each) for each in plan_date_rows(plan, (*first, *last))]
    lines = table(rows, PLAN_COLUMNS, width=terminal_width()).splitlines()
    if last:
        left_out = len(plan.dates) - len(first) - len(last)
        lines.insert(1 + len(first), f"… {left_out} more (-o json lists all)")
    write("\n".join(lines))
    write(f"{counted(plan.to_run, 'date')} would run, {row['to_skip']} would be skipped")


def _for_people(row: Row) -> dict[str, object]:
    exists = None
    if row["process_instance_id"] is not None:
        exists = f"process instance {row['process_instance_id']} {row['instance_state']}"
    becomes = row["becomes"] if row["reason"] is None else f"skipped: {row['reason']}"
    return {
        "date": row["date"],
        "business_date": row["business_date"],
        "exists": exists,
        "becomes": becomes,
    }


def _expected_end(
    plans: Sequence[ComplementPlan], end: datetime | None, zone: tzinfo | None
) -> str:
    """The estimate with its grounds, and the time at which all would be over."""
    lines = []
    for plan in plans:
        estimate = plan.estimate
        name = escaped(plan.definition_name)
        if estimate is None:
            lines.append(f"estimate for {name}: no history yet (no run of it has succeeded)")
            continue
        lines.append(
            f"estimate for {name}: {counted(estimate.rounds, 'round')} of"
            f" {duration(estimate.typical)} (the median of its last"
            f" {counted(estimate.runs, 'successful run')}) = {duration(estimate.total)}"
        )
    if end is not None:
        lines.append(f"begun now, it would end at about {moment(end, zone)}")
    return "\n".join(lines)
