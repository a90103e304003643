"""A good definition for the tests of one cluster, and a run that nothing may touch.

A module of tests defines `cluster` itself.
"""

from __future__ import annotations

import pytest

from tests.system.cluster import PrivateCluster
from tests.system.frame import begin_bystander, good_definition


@pytest.fixture(scope="module")
def good(cluster: PrivateCluster) -> int:
    """The id of a definition whose run succeeds."""
    return good_definition(cluster)


@pytest.fixture(scope="module")
def bystander(cluster: PrivateCluster) -> int:
    """The id of a run that goes on throughout the module's tests."""
    return begin_bystander(cluster)
