"""Refuses complements that would never end because of the order of their dates.

A definition that waits for its run of yesterday can be complemented in ascending order only.
`common.complement_order` has the rule. This module reads the existing runs and the sub processes.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from common.business_dates import business_date, moment_of_date, slots_of
from common.complement_order import OwnWait, StuckDate, own_waits, stuck_date
from common.errors import InvalidDefinitionError, NotAllowedError
from common.model.complement_states import RunOrder
from common.model.complements import NewComplement
from common.model.control import SubProcess
from common.model.definitions import ProcessGraph, read_process_json
from common.store.connect import Connection
from common.store.people.complement_views import newest_runs
from common.store.people.definitions import DefinitionRow, definitions_by_id
from common.task_types import known_task_types
from common.zones import zone_named
from operations.complement_plans import skip_reason

_MOST_DEFINITIONS: Final = 100
"""Of a tree of sub processes no more definitions are read."""


def check_order(db: Connection, complements: Sequence[NewComplement]) -> None:
    """Raise `NotAllowedError` for a complement that would wait for ever, with the cure."""
    for new in complements:
        # With chosen start nodes, the tasks that wait may not be among those that run.
        if new.parallelism < len(new.dates) and not new.settings.start_node_names:
            _check(db, new)


def _check(db: Connection, new: NewComplement) -> None:
    tree = _tree(db, new.process_definition_id)
    own = {number: row.name for number, (row, _) in tree.items()}
    waits: list[OwnWait] = []
    for _, graph in tree.values():
        waits.extend(own_waits(graph, own))
    if not waits:
        return
    runs = newest_runs(db, new.process_definition_id, slots_of(new))
    skipped = [
        place for place, (run, state) in runs.items() if skip_reason(new.reprocess, run, state)
    ]
    found = stuck_date(new, waits, own, skipped=skipped, answered=list(runs))
    if found is not None:
        raise NotAllowedError(_refusal(new, own[new.process_definition_id], found))


def _tree(db: Connection, definition_id: int) -> dict[int, tuple[DefinitionRow, ProcessGraph]]:
    """Read a definition and its sub processes, to any depth; those that can't be read are left.

    Sub processes of other projects are left too: a refusal names tasks.
    """
    found: dict[int, tuple[DefinitionRow, ProcessGraph]] = {}
    wanted, project_id = {definition_id}, None
    while wanted and len(found) < _MOST_DEFINITIONS:
        rows = definitions_by_id(db, wanted)
        below: set[int] = set()
        for number, row in rows.items():
            project_id = row.project_id if number == definition_id else project_id
            if row.project_id != project_id:
                continue
            try:
                graph = read_process_json(
                    row.process_definition_json or "", task_types=known_task_types()
                )
            except InvalidDefinitionError:
                continue
            found[number] = row, graph
            below |= {
                node.control.process_definition_id
                for node in graph.nodes.values()
                if isinstance(node.control, SubProcess)
                and node.control.process_definition_id is not None
            }
        wanted = below - found.keys() - wanted
    return found


def _refusal(new: NewComplement, name: str, found: StuckDate) -> str:
    zone = zone_named(new.timezone_id)
    day, awaited = (
        business_date(moment_of_date(new.dates[place], new.date_rule, zone), zone)
        for place in (found.place, found.awaited)
    )
    other = "ascending" if new.order is RunOrder.DESCENDING else "descending"
    at_once = (
        "one date at a time"
        if new.parallelism == 1
        else f"{new.parallelism} dates at the same time"
    )
    return (
        f"the complement of {name!r} would never end in {new.order.value} order: for the business"
        f" date {day}, task {found.task!r} waits for the run of {awaited}, which starts later, with"
        f" {at_once} (item {found.item}). Run the dates in {other} order"
    )
