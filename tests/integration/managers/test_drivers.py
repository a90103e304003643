"""Drivers in a standalone cluster, whose Master does not show their owners."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from common.model.failures import FailureReason
from common.model.states import TaskState
from common.spark_config import SparkConfig
from tests.integration.managers.bench import OOM, Bench
from tests.integration.managers.master import FakeMaster

OLD = "driver-20260102030405-0001"
OURS = "driver-20260102030405-0002"
DRIVER = "driver-20260102030405-0001"
"""The id of the first driver of a cluster."""


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


def begin(bench: Bench, number: int = 1, main_class: str = "Job", **conf: str) -> None:
    """An attempt whose spark-submit has submitted its driver, and waits for that."""
    java = {
        "programType": "JAVA",
        "mainClass": main_class,
        "mainJar": str(bench.home / "job.jar"),
    }
    orders = {"after": "60", **conf}
    bench.begin(
        number, program=java, conf={f"spark.fake.{key}": text for key, text in orders.items()}
    )
    bench.wait_for("the application is there", number)


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


@pytest.mark.parametrize(
    ("state", "ends", "failure"),
    [
        ("FINISHED", TaskState.SUCCESS, None),
        ("FAILED", TaskState.FAILURE, FailureReason.OUT_OF_MEMORY),
        ("ERROR", TaskState.FAILURE, FailureReason.OUT_OF_MEMORY),
        ("KILLED", TaskState.FAILURE, FailureReason.KILLED),
    ],
)
def test_the_master_says_how_a_driver_ended_and_its_worker_has_the_log(
    bench: Bench,
    master: FakeMaster,
    state: str,
    ends: TaskState,
    failure: FailureReason | None,
) -> None:
    master.has_worker = True
    begin(bench)
    master.printed[DRIVER] = OOM
    master.drivers[DRIVER] = state
    # spark-submit still polls, and would end with 0.
    assert bench.host.end_of(1).state is ends, bench.log()
    assert bench.facts().failure is failure
    assert bench.facts().application_ids == (DRIVER,)
    assert (OOM.expandtabs(4) in bench.log()) == (failure is not None)


@pytest.mark.parametrize(
    ("state", "ends"), [("FINISHED", TaskState.SUCCESS), ("FAILED", TaskState.FAILURE)]
)
def test_without_a_worker_s_log_the_only_driver_that_came_counts(
    bench: Bench, master: FakeMaster, state: str, ends: TaskState
) -> None:
    master.drivers[OLD] = "FINISHED"
    begin(bench, after="0")
    master.drivers[OURS] = state
    assert bench.host.end_of(1).state is ends, bench.log()


def test_of_two_drivers_without_a_log_the_printed_id_selects_the_state(
    bench: Bench, master: FakeMaster
) -> None:
    begin(bench, 1)
    begin(bench, 2, after="0")
    master.drivers.update({DRIVER: "FINISHED", OURS: "FAILED"})
    assert bench.host.end_of(2).state is TaskState.FAILURE, bench.log(2)
    assert "the application failed, says the Spark Master" in bench.log(2)
    bench.kill(1)


def test_a_spark_submit_that_fails_does_not_get_the_state_of_another_driver(
    bench: Bench, master: FakeMaster
) -> None:
    submit = bench.home / "spark" / "bin" / "spark-submit"
    submit.write_text("#!/bin/sh\necho the application is there\nexit 1\n")
    begin(bench)
    master.drivers[OURS] = "FINISHED"
    end = bench.host.end_of(1)
    assert end.state is TaskState.FAILURE, bench.log()
    assert "spark-submit ended with exit code 1" in (end.reason or "")
