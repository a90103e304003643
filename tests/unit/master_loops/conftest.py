"""Masters for the tests of their loops, one for each test."""

from __future__ import annotations

import pytest

from tests.one_master import OneMaster
from tests.unit.master_loops.dependents import Waiter
from tests.unit.master_loops.place import Place


@pytest.fixture
def place() -> Place:
    return Place()


@pytest.fixture
def master() -> OneMaster:
    return OneMaster()


@pytest.fixture
def waiter(place: Place) -> Waiter:
    return Waiter(place)
