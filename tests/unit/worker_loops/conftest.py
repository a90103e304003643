"""One worker for each test."""

from __future__ import annotations

import pytest

from tests.unit.worker_loops.place import Place


@pytest.fixture
def place() -> Place:
    return Place()
