"""The keys by which secrets of data sources and of environments are encrypted in their rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from common.datasource_keys import DatasourceKeyError, DatasourceKeys, is_sealed, key_file
from common.errors import NotAllowedError
from common.store.connect import Connection
from common.store.people.datasources import datasources
from common.store.people.environments import environments
from operations.session import Session


def secret_keys(session: Session, db: Connection) -> DatasourceKeys:
    """Return the keys, with a first one made unless another host's has encrypted rows already."""
    keys = DatasourceKeys(key_file(session.config))
    if not keys.exist() and not any(
        is_sealed(each)
        for each in (
            *(each.connection_params for each in datasources(db)),
            *(each.config for each in environments(db)),
        )
    ):
        keys.make()
    return keys


@contextmanager
def key_trouble() -> Iterator[None]:
    """Tell of a key that is not here as of a state in which an order can't be carried out."""
    try:
        yield
    except DatasourceKeyError as error:
        raise NotAllowedError(str(error)) from error
