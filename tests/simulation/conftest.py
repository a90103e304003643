"""What the simulated daemons log is of no use here, and dear: a failing seed tells its own story."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """Log nothing for as long as a test runs."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
