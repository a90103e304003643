"""No text of a parameter is ever executed, whatever statement surrounds it (X11)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
import sqlalchemy
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from common.params import DataType
from worker.launching.base import TaskParameterError
from worker.launching.statements import statements
from worker.runners.database import Database
from worker.runners.job import JobError

EVIL = "insert into canary values (1)"

# Texts that close a string, a name, a comment or a dollar-quoted text in some dialect.
VALUES = st.sampled_from(
    [
        f"{close}; {EVIL}; {rest}"
        for close in ("", "'", "''", '"', "\\'", "*/", "$$", "$t$", "\n", "`", ")", "x'", "1")
        for rest in ("--", "/*", "")
    ]
)
PIECES = st.lists(
    st.sampled_from(
        [
            *("${v}", "${v}", "${v}", "'", "'", '"', "''", "e'", "E'", "U&'", "b'", "x'"),
            *("\\", "\\'", "$$", "$t$", "$", "--", "/*", "*/", "\n", "`", "#", ";", "%", "%s"),
            *(" ", "select ", "1", "a", ",", "||", "(", ")", "::text", "as ", "date ", "in "),
        ]
    ),
    max_size=12,
).map("".join)


@pytest.fixture(scope="module")
def postgresql(request: pytest.FixtureRequest) -> Iterator[sqlalchemy.Engine]:
    address = request.getfixturevalue("postgres")
    engine = sqlalchemy.create_engine(address.url, isolation_level="AUTOCOMMIT")
    yield engine
    engine.dispose()


@pytest.fixture(scope="module")
def sqlite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sqlalchemy.Engine]:
    path: Path = tmp_path_factory.mktemp("lite") / "lite.db"
    engine = sqlalchemy.create_engine(f"sqlite:///{path}", isolation_level="AUTOCOMMIT")
    yield engine
    engine.dispose()


@pytest.mark.parametrize("name", ["postgresql", "sqlite"])
def test_no_parameter_is_ever_run(request: pytest.FixtureRequest, name: str) -> None:
    engine: sqlalchemy.Engine = request.getfixturevalue(name)
    with engine.connect() as connection:
        connection.exec_driver_sql("create temporary table canary (a int)")
        database = Database(connection)
        ran = 0

        @settings(max_examples=400, deadline=None, suppress_health_check=[HealthCheck.nested_given])
        @given(PIECES, VALUES, st.sampled_from([DataType.VARCHAR, DataType.LIST]))
        @example("'${v}'", f"'; {EVIL}; --", DataType.VARCHAR)
        @example("'a ${v}'", f"'; {EVIL}; --", DataType.VARCHAR)
        @example("'a'${v}'b'", f"; {EVIL}; --", DataType.VARCHAR)
        @example("E'\\'${v}'", f"; {EVIL}; --", DataType.VARCHAR)
        @example("$$ ${v} $$", f"$$; {EVIL}; --", DataType.VARCHAR)
        @example("/* /* */ ${v} */ 1", f"*/ 1; {EVIL}; --", DataType.VARCHAR)
        def check(piece: str, value: str, kind: DataType) -> None:
            nonlocal ran
            given_value = value if kind is DataType.VARCHAR else '["' + EVIL + '"]'
            with suppress(TaskParameterError):
                for each in statements(
                    f"select {piece}",
                    "sql",
                    parameters={"v": given_value},
                    types={"v": kind},
                    dialect=name,
                ):
                    assert not any(EVIL in text for text in each.texts)
                    with suppress(JobError):
                        database.run("sql", each.texts, each.values).close()
                        ran += 1
            assert connection.exec_driver_sql("select count(*) from canary").scalar() == 0

        check()
        assert ran > 0
