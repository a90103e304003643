"""Commands as documents: the fields of `orcaflow command list|show -o json`."""

from __future__ import annotations

from common.model.commands import CommandType
from common.store.people.ledger import CommandView
from operations.documents.instances import name_of


def command_row(view: CommandView) -> dict[str, object]:
    """A command; `outcome` is WAITING, TAKEN, DROPPED or REFUSED, and `host` the master's."""
    return {
        "id": view.id,
        "command_type": name_of(CommandType, view.command_type),
        "command_type_code": view.command_type,
        "definition": view.definition_name,
        "process_definition_id": view.process_definition_id,
        "outcome": "WAITING" if view.outcome is None else view.outcome.name,
        "process_instance_id": view.process_instance_id,
        "start_time": view.start_time,
        "handled_at": view.handled_at,
        "host": view.host,
        "reason": view.reason,
    }
