"""Tags, managers, and the page of a driver: the pure parts."""

from __future__ import annotations

from typing import Any

import pytest

from common.spark_config import SparkConfig
from worker.spark.managers import tags
from worker.spark.managers.driver_page import about, reading
from worker.spark.managers.settings import ManagerSettings, kubernetes_server
from worker.spark.progress.tally import Tally

CLUSTER = "0123456789ab"
TAGS = tags.Tags(cluster=CLUSTER, key="secret", unsealed_until=6)
TAG = TAGS.of(7)

# Tags.


def test_a_tag_says_whose_it_is() -> None:
    assert f"orcaflow-{CLUSTER}-7-dd1832dcf8827d2a" == TAG
    assert tags.parse(TAG) == tags.Tagged(CLUSTER, 7, "dd1832dcf8827d2a")
    assert TAG.startswith(tags.prefix(CLUSTER))
    assert tags.cluster_of_prefix(tags.prefix(CLUSTER)) == CLUSTER


@pytest.mark.parametrize(
    "text",
    [
        "",
        "orcaflow",
        f"orcaflow-{CLUSTER}-",
        f"orcaflow-{CLUSTER}-0",
        f"orcaflow-{CLUSTER}-x",
        f"orcaflow-{CLUSTER}-7 ",
        f"orcaflow-{CLUSTER[:-1]}-7",
        f"orcaflow-{CLUSTER.upper()}-7",
        f"orcaflow-{CLUSTER}-" + "9" * 30,
        f"orcaflow-{CLUSTER}-7-",
        f"orcaflow-{CLUSTER}-7-0123456789abcde",
    ],
)
def test_what_is_no_tag_says_nothing(text: str) -> None:
    assert tags.parse(text) is None


def test_x102_a_tag_with_another_seal_names_no_attempt() -> None:
    assert TAGS.attempt_to_sweep(TAG) == 7
    assert TAGS.attempt_to_sweep(TAG.replace("-7-", "-8-")) is None
    assert TAGS.attempt_to_sweep(tags.Tags(cluster=CLUSTER, key="guessed").of(7)) is None
    assert TAGS.attempt_to_sweep(tags.Tags(cluster="f" * 12, key="secret").of(7)) is None


def test_x102_a_tag_without_a_seal_counts_for_attempts_of_before_the_upgrade() -> None:
    assert TAGS.of_earlier([7, 6]) == [TAG, TAGS.of(6), f"orcaflow-{CLUSTER}-6"]
    assert TAGS.attempt_to_sweep(f"orcaflow-{CLUSTER}-9") == 9


def test_the_key_of_the_seals_is_not_shown() -> None:
    assert "secret" not in repr(TAGS)


def test_a_cluster_has_twelve_hexadecimal_digits() -> None:
    with pytest.raises(ValueError, match="twelve"):
        tags.prefix("prod")


def test_a_label_is_one_that_kubernetes_takes() -> None:
    conf = tags.conf(TAGS.of(9_223_372_036_854_775_807), "k8s://https://h:6443")
    assert all(len(value) <= 63 for value in conf.values())


def test_only_a_standalone_application_is_named_by_its_tag() -> None:
    name = tags.named("daily load", TAG, "spark://h:7077")
    assert tags.in_name(name) == TAG
    assert tags.named("daily load", TAG, "yarn") == "daily load"
    assert tags.in_name("daily load") is None
    assert tags.in_name(f"about [{TAG}] or so") is None


@pytest.mark.parametrize(
    ("master", "ruler"),
    [
        ("yarn", "yarn"),
        ("spark://a:7077,b:7077", "standalone"),
        ("k8s://h:6443", "kubernetes"),
        ("local", "local"),
        ("local[*]", "local"),
        ("mesos://h", None),
    ],
)
def test_a_master_has_one_ruler(master: str, ruler: str | None) -> None:
    assert tags.ruler(master) == ruler


# The managers to query.


def test_settings_go_through_a_job_unchanged() -> None:
    settings = ManagerSettings.of(
        SparkConfig(yarn_urls="http://a:1/, http://b:2", kubernetes_namespace="x, y")
    )
    assert settings.yarn_urls == ("http://a:1", "http://b:2")
    assert settings.kubernetes_namespaces == ("x", "y")
    assert ManagerSettings.from_document(settings.to_document()) == settings


def test_a_master_s_page_is_guessed_if_none_is_configured() -> None:
    assert ManagerSettings().standalone_pages("spark://a:7077,[::1]:7077") == (
        "http://a:8080",
        "http://[::1]:8080",
    )


def test_a_page_on_the_master_s_own_host_is_meant_before_others() -> None:
    settings = ManagerSettings(standalone_urls=("http://a:8081", "http://b:8080"))
    assert settings.standalone_pages("spark://b:7077") == ("http://b:8080",)
    assert settings.standalone_pages("spark://c:7077") == ("http://a:8081", "http://b:8080")


@pytest.mark.parametrize(
    ("master", "missing"),
    [
        ("yarn", ""),
        ("spark://h:7077", ""),
        ("local", ""),
        ("k8s://https://k8s:6443", ""),
        ("k8s://k8s:6443", ""),
        ("k8s://http://k8s:6443", "spark.kubernetes_url"),
        ("k8s://https://evil:6443", "spark.kubernetes_url"),
        ("k8s://https://k8s", "spark.kubernetes_url"),
    ],
)
def test_a_token_goes_to_the_configured_server_alone(master: str, missing: str) -> None:
    settings = ManagerSettings(yarn_urls=("http://rm",), kubernetes_url="https://k8s:6443")
    assert settings.what_is_missing(master) == missing
    assert kubernetes_server("k8s://h:1") == "https://h:1"


# The page of a driver.


def test_progress_is_the_sum_of_the_stages_that_were_not_skipped() -> None:
    stages = [
        {"stageId": 0, "status": "COMPLETE", "numTasks": 4, "numCompleteTasks": 4, "inputBytes": 9},
        {"stageId": 1, "status": "SKIPPED", "numTasks": 100},
        {
            "stageId": 2,
            "status": "FAILED",
            "numTasks": 2,
            "numFailedTasks": 2,
            "failureReason": "Job aborted due to stage failure: …",
        },
    ]
    executors = [
        {"id": "driver", "totalDuration": 99_000},
        {"id": "1", "totalDuration": 1_500, "peakMemoryMetrics": {"JVMHeapMemory": 5}},
    ]
    found = reading([{"status": "FAILED"}], stages, executors, Tally())
    assert (found.progress.tasks, found.progress.tasks_done) == (4, 4)
    assert found.progress.jobs_failed == 1
    assert found.progress.bytes_in == 9
    assert found.core_seconds == 1.5
    assert found.failed_stage.startswith("Job aborted")


def test_tasks_of_a_stage_that_was_tried_again_are_not_waited_for() -> None:
    stage = {"stageId": 0, "numTasks": 20}
    stages = [
        {**stage, "attemptId": 0, "status": "FAILED", "numCompleteTasks": 5},
        {**stage, "attemptId": 1, "status": "COMPLETE", "numCompleteTasks": 20},
    ]
    progress = reading([], stages, [], Tally()).progress
    assert (progress.tasks, progress.tasks_done) == (25, 25)


def test_stages_that_spark_has_forgotten_are_still_counted() -> None:
    done = {"status": "COMPLETE", "numTasks": 4, "numCompleteTasks": 4}
    job = {"status": "SUCCEEDED"}
    tally = Tally()
    reading([{**job, "jobId": 0}], [{**done, "stageId": 0}], [], tally)
    progress = reading([{**job, "jobId": 1}], [{**done, "stageId": 1}], [], tally).progress
    assert (progress.jobs_done, progress.stages_done, progress.tasks_done) == (2, 2, 8)


def test_with_a_local_master_the_driver_is_the_executor() -> None:
    stages = [{"status": "COMPLETE", "executorRunTime": 2_000, "executorCpuTime": 7}]
    driver = {"id": "driver", "peakMemoryMetrics": {"JVMHeapMemory": 5}}
    found = reading([], stages, [driver], Tally())
    assert found.progress.executor_memory_bytes == 5
    assert found.core_seconds == 2.0
    assert found.cpu_seconds == 0.0


def test_numbers_that_are_none_count_nothing() -> None:
    odd: list[dict[str, Any]] = [{"status": 3, "numTasks": "many", "inputBytes": -4, "spill": None}]
    assert reading(odd, odd, odd, Tally()).progress.tasks == 0


def test_a_driver_says_its_tag_and_which_one_it_is() -> None:
    command = (
        "org.apache.spark.deploy.worker.DriverWrapper spark://Worker@h:1"
        " /srv/spark/driver-20260102030405-0007/job.jar com.x.Job /srv/spark/driver-20991231235959-9999/"
    )
    page = {
        "sparkProperties": [["spark.app.name", "x"], ["spark.orcaflow.attempt", TAG]],
        "systemProperties": [["sun.java.command", command]],
    }
    found = about(lambda _path, _params: page, "app-1")
    assert (found.tag, found.driver) == (TAG, "driver-20260102030405-0007")


def test_a_driver_that_is_a_process_of_ours_has_no_id_of_a_master_s() -> None:
    command = "org.apache.spark.deploy.SparkSubmit --master x /driver-20260102030405-0007/job.py"
    page = {"systemProperties": [["sun.java.command", command]], "sparkProperties": None}
    found = about(lambda _path, _params: page, "app-1")
    assert (found.tag, found.driver) == ("", "")
