"""The types of Spark's own settings: values that Spark would refuse are refused before."""

from __future__ import annotations

import pytest

from common.model.spark_keys import RefusedError, check_setting, mistakes
from common.model.spark_settings import fault_of_setting
from common.spark_config import conf_from


@pytest.mark.parametrize(
    ("key", "good", "bad", "says"),
    [
        ("spark.sql.ansi.enabled", ("true", "FALSE", " true "), ("1", "yes"), "true or false"),
        ("spark.sql.shuffle.partitions", ("8", " 8 ", "+8"), ("8.0", "many"), "whole number"),
        ("spark.executor.instances", ("2",), ("true", "2x"), "whole number"),
        ("spark.memory.fraction", ("0.6", "1", ".5", "1e-1"), ("60%", "half"), "a number"),
        ("spark.executor.memory", ("4g", "512M", "4096", "1gb"), ("4x", "1.5g", "true"), "size"),
        ("spark.sql.autoBroadcastJoinThreshold", ("-1", "10MB"), ("-1.5",), "size"),
        ("spark.network.timeout", ("120s", "2min", "500ms"), ("2 minutes", "1.5s"), "a time"),
    ],
)
def test_a_setting_takes_what_spark_takes_for_its_type(
    key: str, good: tuple[str, ...], bad: tuple[str, ...], says: str
) -> None:
    assert [fault_of_setting(key, each) for each in good] == [None] * len(good)
    for each in bad:
        assert says in (fault_of_setting(key, each) or "")
        with pytest.raises(RefusedError, match=key):
            check_setting(key, each)
        with pytest.raises(ValueError, match=key):
            conf_from({key: each})


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("spark.sql.session.timeZone", "8"),
        ("spark.hadoop.fs.s3a.endpoint", "true"),
        ("fs.s3a.endpoint", "x"),
        ("spark.sql.ansi.enabled", ""),
        ("spark.sql.shuffle.partitions", "${n}"),
    ],
)
def test_nothing_is_said_of_a_value_that_may_be_right(key: str, value: str) -> None:
    assert fault_of_setting(key, value) is None


def test_lint_names_the_setting_and_never_the_value() -> None:
    found = [*mistakes({"conf": {"spark.sql.ansi.enabled": "hunter2", "spark.executor.cores": 2}})]
    assert found == [("conf", "spark.sql.ansi.enabled must be true or false")]
