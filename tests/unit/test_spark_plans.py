"""What a daemon tells its Spark host of profiles, and what makes a server one of yesterday's."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from common.spark_config import SparkConfig, SparkProfile
from worker.host_loop import wanted

PROFILE = SparkProfile(conf={"spark.sql.ansi.enabled": "true"})


def revision(
    profile: SparkProfile = PROFILE, *, python: str = "/python", data_dir: str = "/var/lib"
) -> str:
    config = SparkConfig(profiles={"default": profile})
    told: Any = wanted(config, python=python, data_dir=Path(data_dir))["default"]
    plan, limits = told["plan"]["revision"], told["limits"]["revision"]
    assert plan == limits
    return str(plan)


@pytest.mark.parametrize(
    "changes",
    [
        {"profile": replace(PROFILE, conf={})},
        {"profile": replace(PROFILE, driver_memory="2g")},
        {"profile": replace(PROFILE, python="/another")},
        {"python": "/another"},
        {"data_dir": "/srv"},
    ],
    ids=str,
)
def test_a_server_is_one_of_yesterdays_if_it_would_be_started_otherwise_now(
    changes: dict[str, Any],
) -> None:
    assert revision(**changes) != revision()


def test_a_server_is_the_same_as_long_as_it_would_be_started_alike() -> None:
    assert revision(replace(PROFILE, python="/python")) == revision()


def test_other_limits_hold_for_the_servers_that_there_are() -> None:
    assert revision(replace(PROFILE, max_sessions=3, idle_timeout_seconds=5)) == revision()
