"""Runs an attempt's work in a Spark session that is already open, and tells how it ended.

Runs in the task's own process, warm or classic: standard library, pyspark and `worker.spark` only.
It neither makes a session nor ends one. The *job* is what the worker daemon wrote down for this
process; a *kind* of work is the name of a module with `run(spark, job) -> int`: SQL statements, or
rules on data, or of the module for an author's script. A task type names its own (`session_work`).

A process does `Job.read`, `compiled` (before it has a session: an author need not wait for one to
hear of a syntax error) and `run`. Whatever fails on the way goes to `failed`, which prints what a
person has to know, leaves the reason beside the job, and returns the exit code.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Final

from common.model.failures import FailureReason
from worker.spark.diagnosis.failures import Explained, WorkFailedError, explain
from worker.spark.diagnosis.tracebacks import shown
from worker.spark.progress.facts_file import FactsFile
from worker.spark.session import datasources, script
from worker.spark.session.job import Job

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

OK: Final = 0
FAILED: Final = 1
_FACTS = "ORCAFLOW_SPARK_FACTS"
_REASON_CHARS = 1_500


@functools.cache
def facts() -> FactsFile:
    """The facts of this attempt. Without a file to put them into they are only remembered."""
    path = os.environ.get(_FACTS)
    return FactsFile(Path(path) if path else None)


def compiled(job: Job) -> CodeType | None:
    """The author's script, ready to run; None for kinds without one.

    Raises `SyntaxError` or `ValueError` as Python does, `OSError` if it can't be read.
    """
    return script.compiled(job.script) if job.kind == script.__name__ else None


def run(
    spark: SparkSession,
    job: Job,
    code: CodeType | None = None,
    *,
    explain: Callable[[BaseException], Explained] = explain,
) -> int:
    """Do the work; the exit code. Never raises: what went wrong is told here.

    `explain` says what an error comes to, for those who know more of the session's end.
    """
    sources = job.document.get("datasources", {})
    _silence_reports()
    try:
        datasources.register(spark, sources)
        if job.kind == script.__name__:
            script.run(
                code or script.compiled(job.script),
                path=job.script,
                arguments=job.arguments,
                names={
                    "spark": spark,
                    "params": dict(job.params),
                    "datasource": datasources.finder(sources),
                },
            )
            result = OK
        else:
            result = int(_module(job.kind).run(spark, job))
    except BaseException as error:  # noqa: BLE001  # It is told to people, and ends the process.
        return failed(job, error, explain=explain)
    _flush()
    if result != OK:
        text = f"it ended with exit code {result}"
        _leave(job, Explained(reason=FailureReason.EXIT_CODE, sentence=text))
    facts().flush()
    return result


def _module(kind: str) -> ModuleType:
    # Imported here: most tasks need no such module.
    try:
        return importlib.import_module(kind)
    except (ModuleNotFoundError, ValueError) as error:
        if isinstance(error, ModuleNotFoundError) and not kind.startswith(str(error.name)):
            raise
        text = f"this worker knows no work of kind {kind!r}"
        raise WorkFailedError(text, FailureReason.CONFIGURATION) from error


def failed(
    job: Job, error: BaseException, *, explain: Callable[[BaseException], Explained] = explain
) -> int:
    """Say why the work failed: in the log, beside the job, and in the facts. The exit code."""
    _flush()
    explained = explain(error)
    # A refusal is about a line of the script, which only the traceback names.
    is_refusal = explained.reason is FailureReason.UNSUPPORTED
    if is_refusal or not isinstance(error, WorkFailedError):
        _print(job, shown(error, script=job.script))
    _print(job, f"{explained.reason}: {explained.sentence}")
    if explained.hint:
        _print(job, f"Hint: {explained.hint}")
    _leave(job, explained)
    facts().flush()
    return error.exit_code if isinstance(error, WorkFailedError) else FAILED


def _silence_reports() -> None:
    """Have PySpark not print each error of SQL as a document of JSON too, caught or not."""
    from pyspark.logger import PySparkLogger

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def _flush() -> None:
    """Have what the script has printed in the log; it may have closed the file, or removed it."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stdout.flush()


def _print(job: Job, text: str) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):
        sys.stderr.write(f"{job.shown(text)}\n")
        sys.stderr.flush()


def _leave(job: Job, explained: Explained) -> None:
    """The reason for the row. A kind that has left one itself knows it better."""
    if facts().current.failure is None:
        facts().update(failure=explained.reason)
    if not job.reason_file.exists():
        line = job.shown(" ".join(explained.one_line.split()))[:_REASON_CHARS]
        job.reason_file.write_text(f"{line}\n", encoding="utf-8", errors="replace")
