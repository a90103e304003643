"""Data sources as documents: the fields of `orcaflow datasource … -o json`, without passwords."""

from __future__ import annotations

from typing import TYPE_CHECKING

from operations.datasource_params import TYPES, fault_of, shown

if TYPE_CHECKING:
    from common.store.people.datasources import DatasourceView


def datasource_row(view: DatasourceView, *, data_dir: str) -> dict[str, object]:
    """A data source; `has_password` is all that is shown of a password.

    `problem` is the reason for which tasks can't use it.
    """
    names = {code: name for name, code in TYPES.items()}
    return {
        "id": view.id,
        "name": view.name,
        "type": names.get(view.type, str(view.type)).upper(),
        **shown(view.connection_params),
        "note": view.note,
        "problem": fault_of(view.connection_params, data_dir=data_dir),
        "create_time": view.create_time,
        "update_time": view.update_time,
    }
