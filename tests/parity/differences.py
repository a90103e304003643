"""The scripts for which a PYSPARK task differs from `spark-submit`, each with its kind and reason.

The check of the suite fails for a script that differs without an entry here. It also fails for an entry
that no longer differs, or that differs in another way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tests.parity.outcomes import Kind


@dataclass(frozen=True, slots=True)
class Difference:
    """A recorded difference."""

    kind: Kind
    reason: str


VIEWS: Final = "Spark Connect resolves a view when a frame is used, not when it is created"
SETTINGS: Final = (
    "Spark Connect reads settings, variables and the current database when a frame is used"
)
CLOSURES: Final = "Spark Connect pickles a function when a frame is used, not when it is created"
LATE: Final = "Spark Connect analyzes a frame when it is used, so errors are raised later"
PATHS: Final = "Spark resolves a relative path in the server's directory, not in the attempt's"
DRIVER: Final = "a Spark Connect session lacks SparkContext, RDDs and access to the JVM"
HIVE: Final = "the server's catalog is in memory, and `enableHiveSupport` of a script is ignored"
STATIC: Final = "a static setting on the builder is ignored in a session of a server"
STREAMS: Final = "what a streaming query prints is in the log of its server"
STREAM_PATHS: Final = (
    "a streaming query resolves a relative path in the server's directory, and prints to its log"
)
COLUMNS: Final = "Spark Connect resolves columns by the plan of their frame, not by their id"
LINKED: Final = "a module of `pyFiles` is linked into the attempt's directory"

DIFFERENCES: Final[Mapping[str, Difference]] = {
    "hive/catalog_implementation": Difference(Kind.OTHER_ROWS, HIVE),
    "hive/hive_table": Difference(Kind.FAILS, HIVE),
    "hive/partitions": Difference(Kind.FAILS, HIVE),
    "modules/py_files": Difference(Kind.OTHER_FILES, LINKED),
    "pandas_api/read_csv": Difference(Kind.FAILS, PATHS),
    "settings/context_conf": Difference(Kind.REFUSED, DRIVER),
    "streaming/console_sink": Difference(Kind.OTHER_ROWS, STREAMS),
    "streaming/file_sink": Difference(Kind.FAILS, PATHS),
    "streaming/listener": Difference(Kind.OTHER_FILES, PATHS),
    "udfs/java_udf": Difference(Kind.FAILS, HIVE),
    "views/sql_view_of_view": Difference(Kind.OTHER_ROWS, VIEWS),
    "views/table_before_replacement": Difference(Kind.OTHER_ROWS, VIEWS),
}


def verdict(name: str, kind: Kind | None) -> str:
    """Return the fault of a script that differs in this way; "" if that is recorded."""
    recorded = DIFFERENCES.get(name)
    if recorded is None:
        return "" if kind is None else f"{kind}, which is not recorded"
    if kind is None:
        return f"no difference: delete its entry ({recorded.kind}) in differences.py"
    return "" if kind is recorded.kind else f"{kind}, but recorded is: {recorded.kind}"
