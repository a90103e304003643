"""Parameters of a Spark task are Python values, by their declared types."""

from __future__ import annotations

from datetime import date, datetime, time

import pytest

from common.params import DataType
from common.params.values import ParameterValueError, typed
from worker.spark.session.parameters import from_job, in_job


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (DataType.VARCHAR, "", ""),
        (DataType.VARCHAR, "007", "007"),
        (DataType.FILE, "/a b", "/a b"),
        (DataType.INTEGER, " -7 ", -7),
        (DataType.LONG, "9223372036854775807", 9223372036854775807),
        (DataType.FLOAT, "1.5", 1.5),
        (DataType.DOUBLE, "1e3", 1000.0),
        (DataType.DATE, "2026-01-31", date(2026, 1, 31)),
        (DataType.TIME, "13:30:05", time(13, 30, 5)),
        (
            DataType.TIMESTAMP,
            "2026-01-31 13:30:05.25",
            datetime.fromisoformat("2026-01-31T13:30:05.25"),
        ),
        (DataType.BOOLEAN, "TRUE", True),
        (DataType.BOOLEAN, "0", False),
        (DataType.LIST, '["a", 1]', ["a", 1]),
        (DataType.INTEGER, "", None),
        (DataType.DATE, "", None),
        (DataType.LIST, "", None),
    ],
)
def test_a_text_is_a_value_of_its_type(kind: DataType, text: str, value: object) -> None:
    assert typed("p", kind, text) == value
    assert from_job(in_job({"p": text}, {"p": kind})) == {"p": value}


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (DataType.VARCHAR, "a\0b"),
        (DataType.INTEGER, "1.0"),
        (DataType.INTEGER, "2147483648"),
        (DataType.LONG, "9223372036854775808"),
        (DataType.LONG, "1" * 5_000),
        (DataType.DOUBLE, "1,5"),
        (DataType.DATE, "31.01.2026"),
        (DataType.DATE, "2026-02-30"),
        (DataType.TIME, "25:00"),
        (DataType.TIMESTAMP, "yesterday"),
        (DataType.BOOLEAN, "yes"),
        (DataType.LIST, '{"a": 1}'),
        (DataType.LIST, "[" * 100_000),
    ],
)
def test_a_text_that_is_none_is_refused_by_name_and_without_itself(
    kind: DataType, text: str
) -> None:
    with pytest.raises(ParameterValueError) as caught:
        in_job({"p": text}, {"p": kind})
    assert str(caught.value).startswith(f"parameter 'p' is declared {kind.name}, so its value must")
    assert text not in str(caught.value)


def test_what_has_no_type_is_text_and_what_a_job_holds_plainly_stays() -> None:
    assert in_job({"p": "7"}, {}) == {"p": {"type": "VARCHAR", "value": "7"}}
    assert from_job({"p": "7", "q": 8}) == {"p": "7", "q": 8}
