"""A daemon's server plans for its Spark host, and the changes that make a server outdated."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from common.spark_config import SparkConfig, SparkProfile
from worker.loops.host_loop import wanted

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


def test_who_brings_something_has_other_servers_of_a_local_profile() -> None:
    profiles = {"default": PROFILE, "far": replace(PROFILE, master="spark://host:7077")}
    config = SparkConfig(profiles=profiles, prewarm="default")
    told: Any = wanted(config, python="/python", data_dir=Path("/var/lib"))
    shares = {name: each["plan"]["shares"] for name, each in told.items()}
    assert shares == {"default": True, "default/isolated": False, "far": False}
    kept = {name: each["limits"]["kept"] for name, each in told.items()}
    assert kept == {"default": True, "default/isolated": False, "far": False}
    for name, each in told.items():
        assert each["plan"]["profile"] == name
        assert each["plan"]["revision"] == each["limits"]["revision"]
    assert len({each["plan"]["revision"] for each in told.values()}) == 3


def test_a_profile_may_isolate_all_of_its_sessions() -> None:
    profile = replace(PROFILE, conf={"spark.sql.artifact.isolation.enabled": "true"})
    config = SparkConfig(profiles={"default": profile})
    told: Any = wanted(config, python="/python", data_dir=Path("/var/lib"))
    assert list(told) == ["default"]
    assert told["default"]["plan"]["shares"] is False
