"""The cluster token: the name of this database where others are named too."""

from __future__ import annotations

from sqlalchemy import Engine, select

from common.errors import ConfigurationError
from common.store.tables import cluster


def cluster_token(engine: Engine) -> str:
    """Twelve characters out of 0-9 and a-f, the same for every daemon of this database."""
    with engine.connect() as db:
        token = db.execute(select(cluster.c.token)).scalar()
    if token is None:
        raise ConfigurationError(
            "t_ds_cluster is empty: INSERT INTO t_ds_cluster (id) VALUES (1) gives it a new token"
        )
    return str(token)
