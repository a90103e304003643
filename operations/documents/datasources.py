"""Data sources as documents: the fields of `orcaflow datasource … -o json`, without passwords."""

from __future__ import annotations

from typing import TYPE_CHECKING

from operations.datasource_params import TYPES

if TYPE_CHECKING:
    from operations.datasources import ShownDatasource


def datasource_row(view: ShownDatasource) -> dict[str, object]:
    """A data source; `has_password` is all that is shown of a password.

    `problem` is the reason for which tasks can't use it.
    """
    names = {code: name for name, code in TYPES.items()}
    return {
        "id": view.id,
        "name": view.name,
        "type": names.get(view.type, str(view.type)).upper(),
        **view.parts,
        "note": view.note,
        "problem": view.problem,
        "create_time": view.create_time,
        "update_time": view.update_time,
    }
