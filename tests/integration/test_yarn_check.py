"""The doctor's checks of YARN, against a fake ResourceManager."""

from __future__ import annotations

from pathlib import Path

import pytest

from common.spark_config import SparkConfig
from operations.checks import Result, yarn_findings
from operations.yarn_probe import ManagerState, probe, state_in
from tests.integration.managers.yarn import FakeYarn


def results(spark: SparkConfig, environment: dict[str, str]) -> dict[str, Result]:
    return {each.check: each.result for each in yarn_findings(spark, environment)}


@pytest.fixture
def folder(tmp_path: Path) -> dict[str, str]:
    """The environment of a worker with YARN's configuration."""
    (tmp_path / "yarn-site.xml").touch()
    return {"HADOOP_CONF_DIR": str(tmp_path)}


def test_a_worker_without_yarn_is_not_checked() -> None:
    assert results(SparkConfig(), {}) == {}


def test_yarn_is_well_if_one_resource_manager_is_active(folder: dict[str, str]) -> None:
    with FakeYarn() as active, FakeYarn() as standby:
        standby.active = active.url
        spark = SparkConfig(yarn_urls=f"{standby.url},{active.url}")
        assert results(spark, folder) == {
            "yarn configuration": Result.OK,
            "yarn": Result.OK,
        }
        active.trouble = "500"
        assert results(spark, folder)["yarn"] is Result.FAILED
        active.trouble, standby.trouble = "", "401"
        assert results(spark, folder)["yarn"] is Result.WARNING


def test_what_is_missing_is_named(tmp_path: Path, folder: dict[str, str]) -> None:
    with FakeYarn() as yarn:
        spark = SparkConfig(yarn_urls=yarn.url)
        (unset, _) = yarn_findings(spark, {})
        assert "neither HADOOP_CONF_DIR nor YARN_CONF_DIR is set" in unset.detail
        empty = tmp_path / "empty"
        empty.mkdir()
        (wrong, _) = yarn_findings(spark, {"YARN_CONF_DIR": str(empty)})
        assert f"there is no yarn-site.xml in YARN_CONF_DIR={empty}" in wrong.detail
    assert results(SparkConfig(), folder)["yarn"] is Result.WARNING


@pytest.mark.parametrize(
    ("status", "body", "state"),
    [
        (200, b'{"clusterInfo": {"state": "STARTED", "haState": "ACTIVE"}}', ManagerState.ACTIVE),
        (200, b'{"clusterInfo": {"state": "STARTED"}}', ManagerState.ACTIVE),
        (200, b'{"clusterInfo": {"state": "STARTED", "haState": "STANDBY"}}', ManagerState.STANDBY),
        (200, b'{"clusterInfo": {"state": "INITED"}}', ManagerState.NONE),
        (200, b"<html>It works!</html>", ManagerState.NONE),
        (200, b"[]", ManagerState.NONE),
        (500, b'{"clusterInfo": {"state": "STARTED"}}', ManagerState.NONE),
        (401, b"", ManagerState.REFUSES),
        (403, b"", ManagerState.REFUSES),
    ],
)
def test_the_state_of_a_resource_manager_follows_from_its_answer(
    status: int, body: bytes, state: ManagerState
) -> None:
    assert state_in(status, body) is state


def test_an_address_where_nothing_listens_does_not_answer() -> None:
    assert probe("http://127.0.0.1:9") is ManagerState.NONE
