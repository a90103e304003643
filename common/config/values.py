"""The values in force, for people and for scripts; secrets are masked for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from common.config.addresses import (
    api_url,
    database_dsn,
    database_url,
    zookeeper_digest,
    zookeeper_hosts,
)
from common.config.keys import flattened
from common.config.settings import Config
from common.masking import SHORT_MASK, mask_text
from common.spark_config import shown_conf

DERIVED_KEYS = (
    *("api.url", "database.dsn", "database.url"),
    *("zookeeper.digest", "zookeeper.hosts"),
)
"""Keys that `get` resolves: the configured server, or else the embedded one."""


def effective(config: Config) -> list[tuple[str, str, str]]:
    """Return every key with its value and origin; secrets are masked."""
    return [
        (key, shown(key, value), config.origins.get(key, "default"))
        for key, value in flattened(config)
    ]


def get(config: Config, key: str) -> str:
    """Return one value, secrets included, for scripts; `KeyError` if there is no such key.

    `database.dsn` (for libpq), `database.url` (for SQLAlchemy) and `zookeeper.hosts` are those of
    the embedded servers if none are configured; `ServiceUnreachableError` if they are not running.
    So is `zookeeper.digest`, which may be empty only if there is a `zookeeper.hosts`.
    """
    match key:
        case "api.url":
            return api_url(config)
        case "database.dsn":
            return database_dsn(config)
        case "database.url":
            return database_url(config)
        case "zookeeper.digest":
            # Of a home without a server nobody need know.
            zookeeper_hosts(config)
            return zookeeper_digest(config)
        case "zookeeper.hosts":
            return zookeeper_hosts(config)
        case _:
            known = dict(flattened(config))
            map_key, _, setting = key.partition(".conf.")
            if setting and isinstance(conf := known.get(f"{map_key}.conf"), Mapping):
                return as_text(conf[setting])
            return as_text(known[key])


def shown(key: str, value: object) -> str:
    """Return the value as a person may see it: secrets are masked."""
    if isinstance(value, Mapping):
        return shown_conf(value)
    text = as_text(value)
    if key == "database.url":
        return mask_text(text, [unquote(urlsplit(text).password or "")], mask=SHORT_MASK)
    if key == "log_store":
        return mask_text(text, mask=SHORT_MASK)
    if key == "zookeeper.digest" and text:
        return SHORT_MASK
    return text


def as_text(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return json.dumps(dict(value))
    return str(value)
