"""A fixed statement is written out once, with its constants, and asks for its parameters."""

from __future__ import annotations

import os
import re
from typing import Any, cast

import pytest
from sqlalchemy import Connection, Integer, bindparam, select

from common.store.fixed_statement import FixedStatement
from common.store.tables import task_instance
from common.store.transaction import any_of, unnested

_SELECT = (
    select(task_instance.c.id)
    .where(task_instance.c.id == any_of("ids"))
    .where(task_instance.c.state.in_((0, 1)))
    .where(task_instance.c.name.like("a%"))
    .where(task_instance.c.host == bindparam("worker_host"))
)
SEVERAL = FixedStatement(_SELECT)
PREPARED = FixedStatement(_SELECT, prepared=True)
VALUES = {"ids": [1, 2], "worker_host": "w:1"}


class Driver:
    """Stands for a connection, and fills in a statement as the driver does."""

    def __init__(self) -> None:
        self.sent: list[str] = []
        self.info: dict[Any, Any] = {}

    def exec_driver_sql(
        self,
        statement: str,
        values: dict[str, Any] | None = None,
        execution_options: dict[str, Any] | None = None,
    ) -> None:
        if values is None:
            assert execution_options == {"no_parameters": True}
            self.sent.append(statement)
        else:
            self.sent.append(statement % {name: repr(value) for name, value in values.items()})


def test_each_value_comes_to_its_place_and_lists_of_constants_are_written_out() -> None:
    driver = Driver()
    for _ in range(2):
        SEVERAL.execute(cast(Connection, driver), VALUES)
    first, second = driver.sent
    assert first == second
    for part in ("CAST([1, 2] AS INTEGER[])", "IN (0, 1)", "LIKE 'a%'", "host = 'w:1'"):
        assert part in first


@pytest.mark.parametrize("statement", [SEVERAL, PREPARED])
def test_a_parameter_without_a_value_is_named(statement: FixedStatement) -> None:
    with pytest.raises(ValueError, match="no value for ids, worker_host"):
        statement.execute(cast(Connection, Driver()), {})


def test_a_prepared_one_is_prepared_once_for_each_connection() -> None:
    for driver in (Driver(), Driver()):
        for _ in range(2):
            PREPARED.execute(cast(Connection, driver), VALUES)
        made, *called = driver.sent
        assert made.startswith("PREPARE f")
        for part in ("CAST($1 AS INTEGER[])", "IN (0, 1)", "LIKE 'a%'", "host = $2"):
            assert part in made
        name = made.split()[1]
        # With the types of the parameters, since an empty list has none of its own.
        call = f"EXECUTE {name} (CAST([1, 2] AS INTEGER[]), 'w:1')"
        assert [each.rpartition(";")[2] for each in called] == [call, call]


def test_two_prepared_ones_have_names_of_their_own() -> None:
    driver = Driver()
    rows = unnested("given", id=Integer)
    other = FixedStatement(select(rows.c.id), prepared=True)
    PREPARED.execute(cast(Connection, driver), VALUES)
    other.execute(cast(Connection, driver), {"given_id": [1]})
    first, _, second, _ = driver.sent
    assert first.split()[1] != second.split()[1]


def _name_of(statement: FixedStatement) -> str:
    driver = Driver()
    statement.execute(cast(Connection, driver), VALUES)
    return driver.sent[0].split()[1]


def test_a_name_belongs_to_one_text_of_one_process() -> None:
    same = FixedStatement(_SELECT, prepared=True)
    other = FixedStatement(_SELECT.where(task_instance.c.id > 7), prepared=True)
    assert _name_of(same) == _name_of(PREPARED)
    assert _name_of(other) != _name_of(PREPARED)
    to_read, to_write = os.pipe()
    if (child := os.fork()) == 0:
        os.write(to_write, _name_of(PREPARED).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(to_write)
    with os.fdopen(to_read) as pipe:
        of_child = pipe.read()
    assert re.fullmatch(r"f[a-z2-7]{10}", of_child)
    assert of_child != _name_of(PREPARED)


def test_equal_texts_are_prepared_once_for_a_connection() -> None:
    driver = Driver()
    for each in (PREPARED, FixedStatement(_SELECT, prepared=True)):
        each.execute(cast(Connection, driver), VALUES)
    assert [each.startswith("PREPARE") for each in driver.sent] == [True, False, False]


def test_long_lists_are_planned_for() -> None:
    driver = Driver()
    PREPARED.execute(cast(Connection, driver), VALUES | {"ids": list(range(101))})
    (sent,) = driver.sent
    assert sent.startswith("SELECT")
