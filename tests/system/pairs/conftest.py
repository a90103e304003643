"""Two masters and two workers, on which the modules of this folder run definitions of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.system.cluster import PrivateCluster, private_cluster
from tests.system.time_rows import ZONE

SESSION_SECONDS = 8
"""A daemon that lives keeps its session on a busy machine."""


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateCluster]:
    """The cluster, which is there until the last test of the folder has ended."""
    with private_cluster(
        tmp_path_factory.mktemp("pairs"),
        TIME_ZONE=ZONE,
        WORKER__KILL_GRACE_SECONDS="1",
        ZOOKEEPER__SESSION_TIMEOUT_SECONDS=str(SESSION_SECONDS),
    ) as made:
        made.start(masters=2, workers=2, slots=6)
        yield made
