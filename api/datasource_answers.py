"""The shapes of answers and requests about data sources; no answer has a password."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from api.answers import Answer, Shape
from api.grant_answers import Projects

_Type = Literal[
    "mysql", "postgresql", "hive", "spark", "clickhouse", "oracle", "sqlserver", "db2", "kafka"
]
_Text = Annotated[str, StringConstraints(max_length=1000)]


class DatasourceChange(Shape):
    """A database: by the `url` that SQLAlchemy has for it, or PostgreSQL by its `address`.

    The URL holds no password; that is given beside it, and never given back.
    """

    url: _Text | None = None
    address: _Text | None = None
    database: _Text | None = None
    user: _Text | None = None
    other: Annotated[dict[_Text, _Text], Field(max_length=100)] = Field(default_factory=dict)
    type: _Type | None = None
    password: Annotated[str, StringConstraints(max_length=1024)] | None = Field(
        default=None, repr=False
    )
    properties: (
        Annotated[
            dict[
                Annotated[str, StringConstraints(max_length=200)],
                Annotated[str, StringConstraints(max_length=100_000)],
            ],
            Field(max_length=100),
        ]
        | None
    ) = Field(default=None, repr=False)
    """The properties of a connection to Kafka, with its secrets; only for the type kafka."""
    note: _Text | None = None


class NewDatasource(DatasourceChange):
    """A data source to make; with neither `url` nor `address` it is the cluster's own database.

    With `replace` it takes the place of one of that name.
    """

    name: Annotated[str, StringConstraints(min_length=1, max_length=1000)]
    replace: bool = False
    projects: Projects = Field(default_factory=list)


class Datasource(Answer):
    """A data source; `has_password` is all that is told of a password."""

    id: int
    name: str
    type: str
    kind: str | None
    address: str | None
    database: str | None
    user: str | None
    has_password: bool | None
    note: str | None
    problem: str | None
    create_time: datetime
    update_time: datetime


class SavedDatasource(Datasource):
    """A data source that was saved; `new` unless it took another one's place."""

    new: bool


class DatasourcePage(Answer):
    """A page of data sources."""

    items: list[Datasource]
    next: str | None


class DatasourceTest(Answer):
    """The answer of a data source's server to one question, asked by this server."""

    id: int
    name: str
    server: str
    milliseconds: int
