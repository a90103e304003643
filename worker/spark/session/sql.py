"""Runs the statements of a SPARK_SQL task, in order, in a session that is already open.

Runs in the task's own process: standard library, pyspark and modules of the worker's that need
nothing more. Each statement is told before it runs, and how long it took. Of a query that is not
the last one every row is computed and none is kept; of the last one, rows are fetched up to a limit
and become a table in the log, a CSV file, and the values that the task puts out.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from common.model.failures import FailureReason
from orcaflow.frames import TIME, dataset
from worker.result_table import Result, ResultTooLargeError, write_csv
from worker.spark.diagnosis.failures import WorkFailedError, explain, message
from worker.spark.session.statements import MAX_CHARS, Statement, StatementError, split

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from worker.spark.session.job import Job

_OUTPUT_VARIABLE: Final = "ORCAFLOW_OUTPUT"
_SHOWN_CHARS = 160
# fmt: off
_COMMANDS: Final = frozenset({
    "ADD", "ALTER", "ANALYZE", "CACHE", "CLEAR", "COMMENT", "CREATE", "DECLARE", "DELETE", "DROP",
    "INSERT", "LOAD", "MERGE", "MSCK", "REFRESH", "REPAIR", "REPLACE", "RESET", "SET", "TRUNCATE",
    "UNCACHE", "UPDATE", "USE",
})
# fmt: on
"""Commands: they have no result worth keeping, though some return rows. All else may be a query."""


def run(spark: SparkSession, job: Job) -> int:
    """Run them all; 0, or raises what the first that fails comes to."""
    place = str(job.document["place"])
    statements = _statements(job, place)
    _use_zone(spark)
    _make_views(spark, job)
    queries = [n for n, each in enumerate(statements) if each.word not in _COMMANDS]
    result: _Fetched | None = None
    for index, statement in enumerate(statements):
        where = f"statement {index + 1} of {len(statements)}, line {statement.line}"
        _say(job, f"{where}: {_cut(statement.first_line)}")
        started = time.monotonic()
        try:
            frame = spark.sql(statement.text, args=_arguments(statement, job.params))
            fetched = _finish(job, frame, wants_rows=not queries or index == queries[-1])
        except WorkFailedError:
            raise
        except Exception as error:
            raise _failed(job, where, error) from error
        result = fetched or result
        rows = "" if fetched is None else f", {_rows(fetched)}"
        _say(job, f"  done in {time.monotonic() - started:.2f} s{rows}")
    if result is not None:
        _report(job, result)
    return 0


def _make_views(spark: SparkSession, job: Job) -> None:
    """Make the datasets views, of the segments that are used now."""
    for index, entry in enumerate(job.document.get("datasets", ())):
        name, interval = entry["dataset"], entry.get("interval")
        try:
            view = dataset(name).view(
                spark, interval, name=entry["view"], time=entry.get("time", TIME)
            )
        except Exception as error:
            raise _failed(job, f"params.datasets[{index}]", error) from error
        _say(job, f"view {view}: dataset {name}, {interval or 'all of it'}")


class _Fetched:
    """The rows of a query that were fetched."""

    def __init__(self, result: Result, *, has_more: bool) -> None:
        self.result = result
        self.has_more = has_more


def _statements(job: Job, place: str) -> tuple[Statement, ...]:
    try:
        text = job.document["text"] or _text(Path(job.script))
        statements = split(text.replace("\r\n", "\n"))
    except StatementError as error:
        raise WorkFailedError(f"{place}, {error}", FailureReason.CONFIGURATION) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = f"{job.script} can't be read: {getattr(error, 'strerror', None) or error}"
        raise WorkFailedError(f"{place}: {reason}", FailureReason.CONFIGURATION) from None
    if not statements:
        raise WorkFailedError(f"{place}: it has no statement", FailureReason.CONFIGURATION)
    return statements


def _text(path: Path) -> str:
    with path.open(encoding="utf-8-sig", newline="") as file:
        # One more than is allowed, so that too long a file is told as such and never read whole.
        return file.read(MAX_CHARS + 1)


def _arguments(statement: Statement, values: Mapping[str, object]) -> dict[str, object] | None:
    """The parameters that occur; the rest is Spark's to tell."""
    return {name: values[name] for name in statement.names if name in values} or None


def _use_zone(spark: SparkSession) -> None:
    """Read and show times as the session does, which may have another zone than this process."""
    zone = spark.conf.get("spark.sql.session.timeZone") or ""
    if "/" in zone or zone == "UTC":
        os.environ["TZ"] = zone
        time.tzset()


def _finish(job: Job, frame: DataFrame, *, wants_rows: bool) -> _Fetched | None:
    """Have a query computed; a command was carried out when it was given."""
    columns = list(frame.columns)
    if not columns:
        return None
    if not wants_rows:
        frame.write.format("noop").mode("overwrite").save()
        return None
    limit = int(job.document["limit"])
    rows = frame.limit(limit + 1).collect()
    result = Result(
        columns, rows_shown=int(job.document["rows_shown"]), outputs=job.document["outputs"]
    )
    path = Path(str(job.document["result_file"]))
    # Of a former command, where there are only such.
    os.truncate(path, 0)
    try:
        write_csv(path, result, _plain_rows(rows[:limit]))
    except ResultTooLargeError as error:
        raise WorkFailedError(str(error), FailureReason.CONFIGURATION) from None
    return _Fetched(result, has_more=len(rows) > limit)


def _plain_rows(rows: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for row in rows:
        yield [_plain(value) for value in row]


def _plain(value: object) -> object:
    """Values of nested types as JSON knows them; all others as they are."""
    as_dict = getattr(value, "asDict", None)
    if as_dict is not None:
        value = as_dict()
    if isinstance(value, dict):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return bytes(value) if isinstance(value, bytearray) else value


def _report(job: Job, fetched: _Fetched) -> None:
    result = fetched.result
    _say(job, result.table())
    shown = min(result.count, int(job.document["rows_shown"]))
    first = f", the first {shown:,} above" if shown < result.count or fetched.has_more else ""
    _say(job, f"{_rows(fetched)}{first}; as CSV in {job.document['result_file']}")
    if fetched.has_more:
        _say(job, f"only the first {result.count:,} rows were fetched (params.limit)")
    outputs = result.outputs()
    if outputs:
        with Path(os.environ[_OUTPUT_VARIABLE]).open("a", encoding="utf-8") as file:
            file.write(json.dumps(outputs) + "\n")


def _failed(job: Job, where: str, error: Exception) -> WorkFailedError:
    """Print Spark's own words, and explain them: the place in this program is nobody's business."""
    explained = explain(error)
    sys.stdout.flush()
    sys.stderr.write(f"{job.shown(message(error) or type(error).__name__)}\n")
    return WorkFailedError(f"{where}: {explained.sentence}", explained.reason, hint=explained.hint)


def _rows(fetched: _Fetched) -> str:
    count = fetched.result.count
    return f"{count:,} row{'' if count == 1 else 's'}{' and more' if fetched.has_more else ''}"


def _cut(text: str) -> str:
    return text if len(text) <= _SHOWN_CHARS else f"{text[:_SHOWN_CHARS]}…"


def _say(job: Job, text: str) -> None:
    sys.stdout.write(f"{job.shown(text)}\n")
    sys.stdout.flush()
