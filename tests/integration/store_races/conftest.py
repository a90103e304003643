"""Two engines on one database of the module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from sqlalchemy import Engine

from common.store.connect import engine


@pytest.fixture
def here(url: str) -> Iterator[Engine]:
    made = engine(url, application_name="here")
    yield made
    made.dispose()


@pytest.fixture
def there(url: str) -> Iterator[Engine]:
    made = engine(url, application_name="there")
    yield made
    made.dispose()
