"""Every reader of a data source's `connection_params` is as strict as for definitions."""

from __future__ import annotations

import pytest

from common.store.worker.ports import DataSource
from operations.datasource_params import DatasourceError, connection_url, fault_of
from worker.launching.base import TaskParameterError
from worker.launching.datasource import passwords_of, target

_TWICE = '{"url": "postgresql://u:sesame@a/b", "url": "postgresql://u:sesame@c/d"}'


def _source(params: str) -> DataSource:
    return DataSource(id=1, name="d", type=1, connection_params=params)


@pytest.mark.parametrize(
    ("params", "why"),
    [
        (_TWICE, "repeated key"),
        ('{"user": NaN, "address": "sesame"}', "NaN"),
        ('{"a": ' + "[" * 200 + "]" * 200 + "}", "depth"),
        ('["sesame"]', "object"),
        ("sesame", "not valid JSON"),
    ],
)
def test_connection_params_with_a_repeated_key_or_above_a_limit_are_refused_x65(
    params: str, why: str
) -> None:
    with pytest.raises(TaskParameterError, match=why) as of_worker:
        target({"datasource": 1}, _source(params))
    with pytest.raises(DatasourceError, match=why) as of_operations:
        connection_url(1, params, data_dir="")
    assert "sesame" not in f"{of_worker.value} {of_operations.value}"
    assert why in (fault_of(params, data_dir="") or "")
    assert passwords_of(_source(params)) == ()


def test_other_parameters_with_a_repeated_key_are_refused_x65() -> None:
    params = (
        '{"address": "jdbc:postgresql://h:1", "database": "d", "user": "u",'
        ' "other": "{\\"ssl\\": \\"true\\", \\"ssl\\": \\"false\\"}"}'
    )
    with pytest.raises(TaskParameterError, match=r"other .*repeated key"):
        target({"datasource": 1}, _source(params))
