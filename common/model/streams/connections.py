"""A connection to Kafka as a row of `t_ds_datasource`: brokers, log-in, certificates and keys.

Pure. The row has the form of other data sources: `address` contains the brokers, and `password`
contains all properties as JSON, so they are encrypted and masked like a password.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from common.model.grants import GrantKind, cure, missing
from common.model.streams.consumer import (
    ConsumerPropertyError,
    connection_properties,
    read_properties,
)
from common.model.streams.properties import SERVERS

KAFKA: Final = 100
"""The code in `t_ds_datasource.type`; the codes of DolphinScheduler are far smaller."""
_SCHEME: Final = "kafka://"
_USER: Final = "sasl.username"


def connection_params(properties: Mapping[str, Any]) -> str:
    """Return `connection_params` in clear; `ConsumerPropertyError` names every mistake."""
    read = read_properties(properties, in_connection=True)
    mistakes = [f"{name} {problem}" for name, problem in read.mistakes]
    if SERVERS not in properties:
        mistakes.append(f"{SERVERS} is missing")
    if mistakes:
        raise ConsumerPropertyError("; ".join(mistakes))
    found = connection_properties({name: str(value) for name, value in read.found.items()})
    return json.dumps(
        {
            "address": f"{_SCHEME}{found[SERVERS]}",
            "user": found.get(_USER, ""),
            "password": json.dumps(found, ensure_ascii=False),
        },
        ensure_ascii=False,
    )


def connection_named(document: Mapping[str, Any] | None) -> str:
    """Return the connection that a specification of either shape names; "" without one."""
    for part in (document, (document or {}).get("spec")):
        io = part.get("ioConfig") if isinstance(part, Mapping) else None
        name = io.get("connection") if isinstance(io, Mapping) else None
        if isinstance(name, str) and name:
            return name
    return ""


def properties_in(params: str | None, name: str) -> dict[str, str]:
    """Read the decrypted `connection_params` of the connection `name`; None if the row is missing.

    The `ConsumerPropertyError` names the remedy and repeats nothing from the row.
    """
    if params is None:
        kind = GrantKind.DATASOURCE
        raise ConsumerPropertyError(f"connection: {missing(kind, name)}: {cure(kind, name)}")
    try:
        found = json.loads(json.loads(params)["password"])
        if not all(isinstance(each, str) for pair in found.items() for each in pair):
            raise TypeError
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise ConsumerPropertyError(
            f"connection {name!r:.100} can't be read; make it again: orcaflow datasource create"
            " NAME --type kafka --properties FILE --replace"
        ) from None
    try:
        return connection_properties(found)
    except ConsumerPropertyError as error:
        raise ConsumerPropertyError(f"connection {name!r:.100}: {error}") from None
