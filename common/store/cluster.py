"""The row of the cluster: the name of this database elsewhere, and the key of its tags."""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlalchemy import Engine, select

from common.errors import ConfigurationError
from common.store.tables import cluster


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterIdentity:
    """The row of the cluster, the same for every daemon of this database."""

    token: str
    """Twelve characters out of 0-9 and a-f."""
    tag_key: str = field(repr=False)
    """The secret from which the seals in the tags of Spark applications are derived."""
    unsealed_until: int
    """The last attempt at the upgrade to sealed tags: it and those before may lack a seal."""


def cluster_identity(engine: Engine) -> ClusterIdentity:
    """Return the row of the cluster."""
    columns = (cluster.c.token, cluster.c.tag_key, cluster.c.unsealed_until)
    with engine.connect() as db:
        row = db.execute(select(*columns)).one_or_none()
    if row is None:
        raise ConfigurationError(
            "t_ds_cluster is empty: INSERT INTO t_ds_cluster (id) VALUES (1) gives it a new token"
        )
    return ClusterIdentity(token=row.token, tag_key=row.tag_key, unsealed_until=row.unsealed_until)


def cluster_token(engine: Engine) -> str:
    """Return the token of the cluster."""
    return cluster_identity(engine).token
