"""Data sources: listed and shown to authors, made, changed, tried and removed by administrators."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from fastapi import Response

from api import cursors
from api.asking import Asked, Condition, needed
from api.cursors import After, Limit
from api.datasource_answers import (
    Datasource,
    DatasourceChange,
    DatasourcePage,
    DatasourceTest,
    NewDatasource,
    SavedDatasource,
)
from api.route import Id, Route, delete, get, post, put
from common.datasource_keys import DatasourceKeyError
from common.errors import NotAllowedError
from operations import datasources as operations
from operations.datasource_params import TYPES, DatasourceError
from operations.datasources import KafkaConnection, PostgresAddress, ShownDatasource, Target
from operations.documents.datasources import datasource_row
from operations.errors import UsageError
from operations.limits import check_password

_PATIENCE_SECONDS: Final = 4


def list_datasources(session: Asked, limit: Limit = 50, after: After = None) -> dict[str, Any]:
    """List the data sources, by id; for authors of any project."""
    found = operations.datasource_page(
        session, after=cursors.read("datasources", after) or 0, limit=limit
    )
    return {
        "items": [_row(each) for each in found],
        "next": cursors.next_of("datasources", [each.id for each in found], limit),
    }


def show_datasource(id: Id, session: Asked, response: Response) -> dict[str, Any]:  # noqa: A002
    """Show a data source, without its password."""
    return _tagged(operations.datasource_with_id(session, id), response)


def make(given: NewDatasource, session: Asked, response: Response) -> dict[str, Any]:
    """Make a data source; its password is stored encrypted, and never given out."""
    with _key_trouble():
        if given.url is None and given.address is None and given.properties is None:
            _check_own(given)
            saved = operations.create_own_datasource(
                session,
                given.name,
                note=given.note,
                replace=given.replace,
                projects=given.projects,
            )
        else:
            saved = operations.create_datasource(
                session,
                given.name,
                _target(given),
                password=_password(given),
                type_=None if given.type is None else TYPES[given.type],
                note=given.note,
                replace=given.replace,
                projects=given.projects,
            )
    return _tagged(saved.view, response) | {"new": saved.is_new}


def change(
    id: Id,  # noqa: A002
    given: DatasourceChange,
    session: Asked,
    response: Response,
    condition: Condition = None,
) -> dict[str, Any]:
    """Change a data source that is as you have read it.

    Without a password it keeps its own, unless address, database or user change.
    """
    expected = needed(condition)
    with _key_trouble():
        view = operations.replace_datasource(
            session,
            id,
            _target(given),
            password=_password(given),
            type_=None if given.type is None else TYPES[given.type],
            note=given.note,
            expected=expected,
        )
    return _tagged(view, response)


def remove(id: Id, session: Asked, condition: Condition = None) -> dict[str, Any]:  # noqa: A002
    """Remove a data source that no definition names, and that is as you have read it."""
    return _row(operations.remove_datasource(session, id, expected=needed(condition)))


def try_one(id: Id, session: Asked) -> dict[str, Any]:  # noqa: A002
    """Connect to a data source from this server, and ask for one row."""
    with _key_trouble():
        answer = operations.try_datasource(session, id, patience_seconds=_PATIENCE_SECONDS)
    return {
        "id": answer.view.id,
        "name": answer.view.name,
        "server": answer.server,
        "milliseconds": answer.milliseconds,
    }


def _target(given: DatasourceChange) -> Target:
    if given.properties is not None or given.type == "kafka":
        if given.properties is None or given.type != "kafka":
            raise UsageError("properties", "and the type kafka need each other")
        if given.url or given.address or given.database or given.user or given.other:
            raise UsageError("properties", "have the brokers and the log-in of a connection")
        if given.password is not None:
            raise UsageError("password", "is a property of a connection: sasl.password")
        return KafkaConnection(properties=given.properties)
    if given.url is not None:
        if given.address is not None:
            raise UsageError("url", "give either url or address")
        if given.database or given.user or given.other:
            raise UsageError("url", "database, user and other go with address")
        return given.url
    if given.address is None:
        raise UsageError("url", "give a url or an address")
    if given.type not in (None, "postgresql"):
        raise UsageError("type", "an address is for PostgreSQL; give any other by its url")
    if not given.database or not given.user:
        raise UsageError("address", "needs database and user")
    return PostgresAddress(
        address=given.address, database=given.database, user=given.user, other=given.other
    )


def _check_own(given: NewDatasource) -> None:
    if given.password or given.database or given.user or given.other or given.type:
        raise UsageError("url", "give a url or an address; the own database needs neither")


def _password(given: DatasourceChange) -> str | None:
    if given.password is not None:
        check_password(given.password, "password")
    return given.password


@contextmanager
def _key_trouble() -> Iterator[None]:
    """Tell of a key that is not here, and of a row that can't be read, as of its state."""
    try:
        yield
    except (DatasourceKeyError, DatasourceError) as error:
        raise NotAllowedError(str(error)) from error


def _tagged(view: ShownDatasource, response: Response) -> dict[str, Any]:
    response.headers["ETag"] = f'"{view.tag}"'
    return _row(view)


def _row(view: ShownDatasource) -> dict[str, Any]:
    return {"has_password": None, **datasource_row(view)}


ROUTES: Final[tuple[Route, ...]] = (
    get("/datasources", list_datasources, DatasourcePage),
    post("/datasources", make, SavedDatasource, status=201),
    get("/datasources/{id}", show_datasource, Datasource),
    put("/datasources/{id}", change, Datasource),
    delete("/datasources/{id}", remove, Datasource, is_conditional=True),
    post("/datasources/{id}/test", try_one, DatasourceTest),
)
