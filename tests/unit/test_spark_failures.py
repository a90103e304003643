"""Failure reasons of real PySpark errors in both kinds of session, and of real driver logs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from common.model.failures import FailureReason
from worker.spark.diagnosis.failures import WorkFailedError, explain, explain_log, explain_text

GOLDEN = Path(__file__).resolve().parents[1] / "golden" / "spark"
ERRORS: dict[str, dict[str, dict[str, Any]]] = json.loads((GOLDEN / "errors.json").read_text())
LOGS: dict[str, dict[str, str] | None] = json.loads((GOLDEN / "logs.json").read_text())


@pytest.mark.parametrize(
    ("piece", "kind"), [(piece, kind) for piece, kinds in ERRORS.items() for kind in kinds]
)
def test_an_error_that_spark_has_really_raised_has_its_reason(piece: str, kind: str) -> None:
    error = ERRORS[piece][kind]
    found = explain_text(
        error["text"],
        condition=error["condition"],
        state=error["state"],
        classes=error["classes"],
    )
    assert (found.reason.value, found.sentence) == (error["reason"], error["sentence"])
    assert found.sentence
    assert "\n" not in found.sentence


@pytest.mark.parametrize(
    ("piece", "kind"),
    [(p, kind) for p, kinds in ERRORS.items() for kind in kinds if "hint" in kinds[kind]],
)
def test_an_error_with_a_known_remedy_has_it_as_its_hint(piece: str, kind: str) -> None:
    error = ERRORS[piece][kind]
    found = explain_text(
        error["text"],
        condition=error["condition"],
        state=error["state"],
        classes=error["classes"],
    )
    assert found.hint == error["hint"]


@pytest.mark.parametrize(
    ("piece", "named"),
    [
        ("kafka_missing", "spark-sql-kafka-0-10_2.13"),
        ("iceberg_catalog_missing", "iceberg-spark-runtime"),
        ("iceberg_format_missing", "iceberg-spark-runtime"),
        ("delta_catalog_missing", "io.delta:delta-spark"),
        ("format_missing", "io.delta:delta-spark"),
        ("jdbc_driver_class_missing", "org.postgresql:postgresql"),
        ("jdbc_no_suitable_driver", "spark.jars.packages"),
        ("no_file_system", "hadoop-aws"),
        ("catalog_missing", "spark.sql.catalog.NAME"),
        ("location_exists", "an earlier run has left these files"),
        ("path_missing", "use an absolute path"),
    ],
)
def test_a_hint_names_what_to_add_or_to_change(piece: str, named: str) -> None:
    for error in ERRORS[piece].values():
        found = explain_text(
            error["text"],
            condition=error["condition"],
            state=error["state"],
            classes=error["classes"],
        )
        assert named in found.hint


def raised_in(names: dict[str, Any], error: dict[str, Any]) -> BaseException:
    """Return an error with this text and class, raised by code that has these global names."""
    module, _, name = error["classes"][0].rpartition(".")
    kind = type(name, (Exception,), {"__module__": module, "getCondition": lambda _: ""})
    with pytest.raises(kind) as caught:
        exec("raise error", {**names, "error": kind(error["text"])})
    return caught.value


@pytest.mark.parametrize(
    ("kind", "names", "is_late"),
    [
        ("connect", {"__orcaflow__": {}}, True),
        ("connect", {}, False),
        ("classic", {"__orcaflow__": {}}, False),
    ],
)
def test_a_mistake_that_spark_connect_reports_late_to_a_script_says_so(
    kind: str, names: dict[str, Any], is_late: bool
) -> None:
    found = explain(raised_in(names, ERRORS["late_column"][kind]))
    assert ("the mistake can be in an earlier line" in found.hint) is is_late


# Errors that one kind of session words differently, or can't raise.
DIFFERENT = {"arg_type", "create_df_type", "not_null", "rdd_task_raises", "table_exists"}


@pytest.mark.parametrize("piece", [p for p, kinds in ERRORS.items() if len(kinds) == 2])
def test_both_kinds_of_session_give_the_same_reason(piece: str) -> None:
    reasons = {error["reason"] for error in ERRORS[piece].values()}
    assert len(reasons) == 1 or piece in DIFFERENT


@pytest.mark.parametrize("name", LOGS)
def test_the_log_of_a_real_driver_says_why_it_failed(name: str) -> None:
    found = explain_log((GOLDEN / "logs" / f"{name}.log").read_text(encoding="utf-8"))
    told = None if found is None else {"reason": found.reason.value, "sentence": found.sentence}
    assert told == LOGS[name]


# Logs of managers that no test can start.
OTHER_LOGS = [
    (
        (
            "26/01/02 03:04:05 ERROR YarnScheduler: Lost executor 3 on n1: Container killed by YARN for"
            " exceeding physical memory limits. 5.5 GB of 5.5 GB used"
        ),
        FailureReason.OUT_OF_MEMORY,
    ),
    (
        (
            'Exception in thread "main" org.apache.spark.SparkException: Job aborted due to stage'
            " failure: Task 3 in stage 1.0 failed 4 times, most recent failure: Lost task 3.3 in stage"
            " 1.0 (TID 9) (n1 executor 7): ExecutorLostFailure (executor 7 exited caused by one of the"
            " running tasks) Reason: Container killed by YARN for exceeding virtual memory limits."
        ),
        FailureReason.OUT_OF_MEMORY,
    ),
    (
        (
            'Exception in thread "main" org.apache.spark.SparkException: Job aborted due to stage'
            " failure: ExecutorLostFailure (executor 7 exited unrelated to the running tasks) Reason:"
            " Executor heartbeat timed out after 125000 ms"
        ),
        FailureReason.EXECUTOR_LOST,
    ),
    ("Container exited with a non-zero exit code 143.", FailureReason.OUT_OF_MEMORY),
    (
        "26/01/02 03:04:05 ERROR X: org.apache.spark.shuffle.FetchFailedException: Connection reset",
        FailureReason.FETCH_FAILED,
    ),
    (
        (
            'Exception in thread "main" org.apache.hadoop.security.AccessControlException: SIMPLE'
            " authentication is not enabled.  Available:[TOKEN, KERBEROS]"
        ),
        FailureReason.DATA_ERROR,
    ),
    (
        (
            'Exception in thread "main" java.io.IOException: DestHost:destPort n1:8020: Caused by:'
            " javax.security.sasl.SaslException: GSS initiate failed [Caused by GSSException: No valid"
            " credentials provided (Mechanism level: Failed to find any Kerberos tgt)]"
        ),
        FailureReason.SUBMIT_FAILED,
    ),
    (
        (
            "26/01/02 03:04:05 INFO Client: Retrying connect to server: rm/10.0.0.1:8032. Already"
            " tried 9 time(s); retry policy is RetryUpToMaximumCountWithFixedSleep"
        ),
        FailureReason.SUBMIT_FAILED,
    ),
    (
        'Exception in thread "main" io.fabric8.kubernetes.client.KubernetesClientException: Forbidden',
        FailureReason.SUBMIT_FAILED,
    ),
    (
        (
            'Exception in thread "main" java.lang.IllegalArgumentException: Required executor memory'
            " (20480 MB), offHeap memory (0) MB, overhead (2048 MB), and PySpark memory (0 MB) is"
            " above the max threshold (8192 MB) of this cluster! Please check the values of"
            " 'yarn.scheduler.maximum-allocation-mb'."
        ),
        FailureReason.SUBMIT_FAILED,
    ),
    (
        (
            "Traceback (most recent call last):\n"
            '  File "/x/job.py", line 3, in <module>\n'
            "py4j.protocol.Py4JJavaError: An error occurred while calling"
            " None.org.apache.spark.api.java.JavaSparkContext.\n"
            ": java.lang.IllegalArgumentException: Required AM memory (9000+900 MB) is above the max"
            " threshold (8192 MB) of this cluster!"
        ),
        FailureReason.SUBMIT_FAILED,
    ),
    (
        (
            'Exception in thread "main" org.apache.hadoop.yarn.exceptions.YarnException:'
            " org.apache.hadoop.yarn.exceptions.InvalidResourceRequestException: Invalid resource"
            " request! Cannot allocate containers as requested resource is greater than maximum"
            " allowed allocation."
        ),
        FailureReason.SUBMIT_FAILED,
    ),
    ("Diagnostics: [2026-01-02] Application killed by user bob", None),
    ("26/01/02 03:04:05 INFO Client: Application report: final status: KILLED", "KILLED"),
]


@pytest.mark.parametrize(("log", "reason"), OTHER_LOGS)
def test_what_a_manager_says_has_its_reason(log: str, reason: str | None) -> None:
    found = explain_log(f"26/01/02 03:04:05 INFO SparkContext: Running\n{log}\n")
    assert (None if found is None else found.reason) == reason


def test_the_error_of_a_program_counts_and_not_that_of_the_worker_that_called_it() -> None:
    log = (
        'Exception in thread "main" java.lang.reflect.InvocationTargetException\n'
        "\tat org.apache.spark.deploy.worker.DriverWrapper.main(DriverWrapper.scala)\n"
        'Caused by: java.lang.NumberFormatException: For input string: "many"\n'
        "\tat Job.main(Job.java:9)\n\t... 6 more\n"
    )
    found = explain_log(log)
    assert found is not None
    assert found.sentence == 'java.lang.NumberFormatException: For input string: "many"'


def test_trouble_that_passed_is_not_why_a_driver_failed() -> None:
    log = (
        "26/01/02 03:04:05 WARN TaskSetManager: Lost task 0.0: FetchFailed(BlockManagerId(1))\n"
        "org.apache.spark.shuffle.FetchFailedException: Connection reset\n"
        "26/01/02 03:05:05 INFO DAGScheduler: Job 0 finished\n"
    )
    assert explain_log(log) is None


@pytest.mark.parametrize(
    "diagnostics",
    [
        (
            "AM Container for appattempt_1_1_000001 exited with  exitCode: -104\nDiagnostics: Container"
            " [pid=1,containerID=c] is running 6619136B beyond the 'PHYSICAL' memory limit. Current"
            " usage: 1.0 GB of 1 GB physical memory used. Exit code is 143"
        ),
        (
            "Container [pid=1,containerID=c] is running beyond physical memory limits. Current usage: 1"
            " GB of 1 GB physical memory used; killing container. Exit code is 143"
        ),
    ],
)
def test_a_driver_that_yarn_ended_for_its_memory_has_run_out_of_it(diagnostics: str) -> None:
    found = explain_log(f'Exception in thread "main" {diagnostics}')
    assert found is not None
    assert found.reason is FailureReason.OUT_OF_MEMORY


TRACEBACK = 'Traceback (most recent call last):\n  File "job.py", line 1, in <module>\n'


def test_a_watch_that_was_begun_anew_is_not_why_a_driver_failed() -> None:
    log = (
        "26/01/02 03:04:05 WARN WatchConnectionManager: Exec Failure\n"
        "io.fabric8.kubernetes.client.KubernetesClientException: too old resource version: 1 (2)\n"
        f"{TRACEBACK}ZeroDivisionError: division by zero\n"
    )
    found = explain_log(log)
    assert found is not None
    assert found.reason is FailureReason.PYTHON_ERROR


@pytest.mark.parametrize(
    "last",
    [
        "py4j.protocol.Py4JError: An error occurred while calling o45.collectToPython",
        "py4j.protocol.Py4JNetworkError: Answer from Java side is empty",
        "ConnectionRefusedError: [Errno 111] Connection refused",
    ],
)
def test_a_jvm_that_ran_out_of_memory_says_so_before_python_misses_it(last: str) -> None:
    log = (
        "26/01/02 03:04:05 ERROR SparkUncaughtExceptionHandler: Uncaught exception in thread\n"
        "java.lang.OutOfMemoryError: Java heap space\n"
        f"26/01/02 03:04:05 INFO ShutdownHookManager: Shutdown hook called\n{TRACEBACK}{last}\n"
    )
    found = explain_log(log)
    assert found is not None
    assert found.reason is FailureReason.OUT_OF_MEMORY


def test_what_needs_the_jvm_names_the_profile_that_has_it() -> None:
    error = ERRORS["df_rdd"]["connect"]
    found = explain_text(error["text"], condition=error["condition"], classes=error["classes"])
    assert found.reason is FailureReason.UNSUPPORTED
    assert "profile: classic" in found.one_line


def test_a_context_that_a_session_has_not_names_that_profile_too() -> None:
    class PySparkRuntimeError(Exception):
        def getCondition(self) -> str:  # noqa: N802  # Spark's name.
            return "CONTEXT_UNAVAILABLE_FOR_REMOTE_CLIENT"

    PySparkRuntimeError.__module__ = "pyspark.errors.exceptions.base"
    found = explain(PySparkRuntimeError("Remote client cannot create a SparkContext."))
    assert found.reason is FailureReason.UNSUPPORTED
    assert "profile: classic" in found.hint


def test_a_module_that_is_missing_comes_with_the_cure() -> None:
    found = explain(ModuleNotFoundError("No module named 'pandera'"))
    assert found.reason is FailureReason.PYTHON_ERROR
    assert "No module named 'pandera'" in found.sentence
    assert "environment" in found.hint


def test_an_error_that_knows_its_reason_keeps_it() -> None:
    told = WorkFailedError("rule unique id is broken", FailureReason.DATA_QUALITY)
    assert explain(told) == told.explained


def test_an_error_whose_text_can_not_be_had_is_told_by_its_class() -> None:
    class BrokenError(Exception):
        def __str__(self) -> str:
            raise OSError("its JVM is gone")

    assert explain(BrokenError()).sentence == "BrokenError"
