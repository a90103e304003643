"""Drivers in a standalone cluster, whose Master does not show their owners."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from common.model.states import TaskState
from common.spark_config import SparkConfig
from tests.integration.managers.bench import Bench
from tests.integration.managers.master import FakeMaster

OLD = "driver-20260102030405-0001"
OURS = "driver-20260102030405-0002"


@pytest.fixture
def master() -> Iterator[FakeMaster]:
    with FakeMaster() as master:
        yield master


@pytest.fixture
def bench(tmp_path: Path, master: FakeMaster) -> Iterator[Bench]:
    bench = Bench(
        tmp_path,
        spark=SparkConfig(standalone_urls=master.url),
        fake_url=master.url,
        master=master.master_url,
    )
    (tmp_path / "job.jar").touch()
    yield bench
    bench.close()


def begin(bench: Bench, main_class: str = "Job") -> None:
    """An attempt whose spark-submit has submitted its driver, and waits for that."""
    java = {
        "programType": "JAVA",
        "mainClass": main_class,
        "mainJar": str(bench.home / "job.jar"),
    }
    bench.begin(program=java, conf={"spark.fake.after": "60"})
    bench.wait_for("the application is there")


def test_a_stop_waits_until_a_driver_that_may_be_its_own_shows_whose_it_is(
    bench: Bench, master: FakeMaster
) -> None:
    master.drivers[OLD] = "SUBMITTED"
    begin(bench)
    bench.host.supervisor.kill(1)
    bench.wait_for(f"{OURS} may be this attempt's")
    master.drivers[OURS] = "RUNNING"
    master.add("app-1", tag=bench.tag(), driver=OURS)
    assert bench.host.end_of(1).state is TaskState.KILL
    assert master.drivers == {OLD: "SUBMITTED", OURS: "KILLED"}
    assert f"{OURS} is KILLED, says the Spark Master" in bench.log()


def test_a_stop_does_not_wait_for_a_driver_of_another_program(
    bench: Bench, master: FakeMaster
) -> None:
    begin(bench, main_class="Another")
    assert bench.kill().state is TaskState.KILL
    assert "may be this attempt's" not in bench.log()
    assert "no application was left, says the Spark Master" in bench.log()


def test_a_stop_does_not_wait_for_a_driver_that_ended_before_it_showed_anything(
    bench: Bench, master: FakeMaster
) -> None:
    begin(bench)
    bench.host.supervisor.kill(1)
    bench.wait_for("may be this attempt's")
    master.drivers.update(dict.fromkeys(master.drivers, "FAILED"))
    assert bench.host.end_of(1).state is TaskState.KILL
    assert "no application was left, says the Spark Master" in bench.log()
