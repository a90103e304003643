"""The fixture of a measurement: a cluster, its database, and the reader of moments."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass

from tests.bench import cluster
from tests.bench.cluster import Cluster
from tests.bench.database import Database
from tests.bench.moments import Moments

PATIENCE_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Stage:
    """A running cluster that does nothing else."""

    cluster: Cluster
    database: Database
    moments: Moments


@contextmanager
def standing(settings: Mapping[str, object] | None = None) -> Iterator[Stage]:
    """Start a cluster; stop it on exit."""
    with (
        cluster.running(settings) as started,
        closing(Database(started.dsn)) as database,
        Moments(started.home / "moments") as moments,
    ):
        yield Stage(started, database, moments)
