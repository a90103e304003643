"""Silences the simulated daemons' log, which is costly: a failing seed reports its own history."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def silence() -> Iterator[None]:
    """Log nothing while a test runs."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
