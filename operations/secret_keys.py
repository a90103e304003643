"""The keys by which secrets of data sources and of environments are encrypted in their rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from common.config import Config
from common.datasource_keys import DatasourceKeyError, DatasourceKeys, is_sealed, key_file
from common.errors import NotAllowedError
from common.store.connect import Connection, Engine
from common.store.people.datasources import datasources
from common.store.people.environments import environments
from common.store.people.sealed_columns import has_encrypted_parameters
from operations.session import Session


def secret_keys(session: Session, db: Connection) -> DatasourceKeys:
    """Return the keys, with a first one made unless another host's has encrypted rows already."""
    return keys_made(session.config, db)


def keys_made(config: Config, db: Connection, *, for_parameters: bool = False) -> DatasourceKeys:
    """Return the keys in the file of these settings; create the first one like `secret_keys`.

    `for_parameters` also turns on the encryption of parameters. A new database can have it from the
    start, since no process of an older version uses that database.
    """
    keys = DatasourceKeys(key_file(config))
    if not keys.exist() and not (
        any(
            is_sealed(each)
            for each in (
                *(each.connection_params for each in datasources(db)),
                *(each.config for each in environments(db)),
            )
        )
        or has_encrypted_parameters(db)
    ):
        keys.make(for_parameters=for_parameters)
    return keys


def make_key_of_new(config: Config, engine: Engine) -> None:
    """Create the key of a new database."""
    with engine.connect() as db:
        keys_made(config, db, for_parameters=True)


@contextmanager
def key_trouble() -> Iterator[None]:
    """Tell of a key that is not here as of a state in which an order can't be carried out."""
    try:
        yield
    except DatasourceKeyError as error:
        raise NotAllowedError(str(error)) from error
