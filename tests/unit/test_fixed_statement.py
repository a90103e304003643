"""A fixed statement is written out once, with its constants, and asks for its parameters."""

from __future__ import annotations

from typing import Any, cast

import pytest
from sqlalchemy import Connection, bindparam, select

from common.store.fixed_statement import FixedStatement
from common.store.tables import task_instance
from common.store.transaction import any_of

SEVERAL = FixedStatement(
    select(task_instance.c.id)
    .where(task_instance.c.id == any_of("ids"))
    .where(task_instance.c.state.in_((0, 1)))
    .where(task_instance.c.name.like("a%"))
    .where(task_instance.c.host == bindparam("worker_host"))
)


class Driver:
    """Stands for a connection, and fills in a statement as the driver does."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    def exec_driver_sql(self, statement: str, values: dict[str, Any]) -> None:
        self.sent.append(statement % {name: repr(value) for name, value in values.items()})


def test_each_value_comes_to_its_place_and_lists_of_constants_are_written_out() -> None:
    driver = Driver()
    values = {"ids": [1, 2], "worker_host": "w:1"}
    for _ in range(2):
        SEVERAL.execute(cast(Connection, driver), values)
    first, second = driver.sent
    assert first == second
    for part in ("CAST([1, 2] AS INTEGER[])", "IN (0, 1)", "LIKE 'a%'", "host = 'w:1'"):
        assert part in first


def test_a_parameter_without_a_value_is_named() -> None:
    with pytest.raises(ValueError, match="no value for ids, worker_host"):
        SEVERAL.execute(cast(Connection, Driver()), {})
