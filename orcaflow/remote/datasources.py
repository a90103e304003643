"""The operations on data sources that an api-server answers; a name is looked up first."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from common.errors import NotAllowedError, NotFoundError
from operations.datasource_params import TYPES
from operations.datasources import (
    DatasourceAnswer,
    KafkaConnection,
    PostgresAddress,
    SavedDatasource,
    ShownDatasource,
    Target,
)
from orcaflow.remote.client import Client

_PAGE: Final = 500
_PARTS: Final = ("kind", "address", "database", "user", "has_password")


def create_datasource(
    client: Client,
    name: str,
    target: Target,
    *,
    password: str | None,
    type_: int | None,
    note: str | None,
    replace: bool,
    projects: Sequence[str | int] = (),
) -> SavedDatasource:
    """Make a data source of a URL or of an address."""
    place: dict[str, Any] = {"url": target}
    if isinstance(target, PostgresAddress):
        place = {
            "address": target.address,
            "database": target.database,
            "user": target.user,
            "other": dict(target.other),
        }
    if isinstance(target, KafkaConnection):
        place = {"properties": dict(target.properties)}
    words = {code: word for word, code in TYPES.items()}
    body = {
        **place,
        "name": name,
        "password": password,
        "type": None if type_ is None else words[type_],
        "note": note,
        "replace": replace,
        "projects": projects,
    }
    return _saved(client.post("/datasources", body))


def create_own_datasource(
    client: Client,
    name: str,
    *,
    note: str | None,
    replace: bool,
    projects: Sequence[str | int] = (),
) -> SavedDatasource:
    """Make a data source of the cluster's own database."""
    body = {"name": name, "note": note, "replace": replace, "projects": projects}
    return _saved(client.post("/datasources", body))


def list_datasources(client: Client) -> list[ShownDatasource]:
    """List all data sources by their names, a page at a time."""
    found: list[ShownDatasource] = []
    after: str | None = None
    while True:
        answer = client.get("/datasources", {"limit": _PAGE, "after": after})
        found += [_shown(row) for row in answer["items"]]
        after = answer["next"]
        if after is None:
            return sorted(found, key=lambda each: (each.name, each.id))


def remove_datasource(client: Client, name: str) -> ShownDatasource:
    """Remove a data source, whatever it is by now."""
    return _shown(client.delete(f"/datasources/{_named(client, name).id}"))


def try_datasource(client: Client, name: str) -> DatasourceAnswer:
    """Have the server connect to a data source."""
    view = _named(client, name)
    answer = client.post(f"/datasources/{view.id}/test")
    return DatasourceAnswer(view=view, server=answer["server"], milliseconds=answer["milliseconds"])


def _named(client: Client, name: str) -> ShownDatasource:
    known = list_datasources(client)
    found = [each for each in known if each.name == name]
    if len(found) == 1:
        return found[0]
    if found:
        ids = ", ".join(str(each.id) for each in found)
        raise NotAllowedError(f"{name!r:.100} is ambiguous: data sources {ids}")
    near = difflib.get_close_matches(name, [each.name for each in known], n=1)
    perhaps = f"; did you mean {near[0]!r}?" if near else "; see `orcaflow datasource list`"
    raise NotFoundError(f"there is no data source {name!r:.100}{perhaps}")


def _saved(row: Mapping[str, Any]) -> SavedDatasource:
    return SavedDatasource(view=_shown(row), is_new=row["new"])


def _shown(row: Mapping[str, Any]) -> ShownDatasource:
    word = row["type"]
    return ShownDatasource(
        id=row["id"],
        name=row["name"],
        type=TYPES[word.lower()] if word.lower() in TYPES else int(word),
        parts={key: row[key] for key in _PARTS if key != "has_password" or row[key] is not None},
        note=row["note"],
        problem=row["problem"],
        create_time=datetime.fromisoformat(row["create_time"]),
        update_time=datetime.fromisoformat(row["update_time"]),
        tag="",
    )


ANSWERS: Final[Mapping[str, Callable[..., Any]]] = {
    "datasources.create_datasource": create_datasource,
    "datasources.create_own_datasource": create_own_datasource,
    "datasources.list_datasources": list_datasources,
    "datasources.remove_datasource": remove_datasource,
    "datasources.try_datasource": try_datasource,
}
