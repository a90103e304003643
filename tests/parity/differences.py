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
    "accumulators/counts": Difference(Kind.REFUSED, DRIVER),
    "accumulators/in_udf": Difference(Kind.REFUSED, DRIVER),
    "accumulators/own_type": Difference(Kind.REFUSED, DRIVER),
    "aggregates/word_count": Difference(Kind.FAILS, PATHS),
    "broadcast/destroyed": Difference(Kind.REFUSED, DRIVER),
    "broadcast/in_udf": Difference(Kind.REFUSED, DRIVER),
    "broadcast/lookup": Difference(Kind.REFUSED, DRIVER),
    "caching/checkpoint": Difference(Kind.REFUSED, DRIVER),
    "caching/source_rewritten": Difference(Kind.FAILS, PATHS),
    "caching/udf_runs_once": Difference(Kind.REFUSED, DRIVER),
    "catalogs/current_database": Difference(Kind.OTHER_ROWS, SETTINGS),
    "catalogs/missing_table": Difference(Kind.FAILS, LATE),
    "closures/map_in_pandas": Difference(Kind.OTHER_ROWS, CLOSURES),
    "closures/mutated_list": Difference(Kind.OTHER_ROWS, CLOSURES),
    "closures/rdd_lambda_late": Difference(Kind.REFUSED, DRIVER),
    "contexts/context_of_conf": Difference(Kind.REFUSED, DRIVER),
    "contexts/default_parallelism": Difference(Kind.REFUSED, DRIVER),
    "contexts/get_or_create": Difference(Kind.REFUSED, DRIVER),
    "contexts/hadoop_file_system": Difference(Kind.REFUSED, DRIVER),
    "contexts/job_group": Difference(Kind.REFUSED, DRIVER),
    "contexts/jvm_access": Difference(Kind.REFUSED, DRIVER),
    "contexts/local_master": Difference(Kind.REFUSED, DRIVER),
    "contexts/second_context": Difference(Kind.REFUSED, DRIVER),
    "contexts/sql_context": Difference(Kind.REFUSED, DRIVER),
    "errors/has_column": Difference(Kind.OTHER_ROWS, LATE),
    "errors/lazy_where": Difference(Kind.FAILS, LATE),
    "errors/missing_column": Difference(Kind.OTHER_ROWS, LATE),
    "errors/py4j_error": Difference(Kind.REFUSED, DRIVER),
    "errors/union_mismatch": Difference(Kind.OTHER_ROWS, LATE),
    "files/explicit_schema": Difference(Kind.FAILS, PATHS),
    "files/file_names": Difference(Kind.FAILS, PATHS),
    "files/missing_path": Difference(Kind.OTHER_ROWS, LATE),
    "files/parquet_partitions": Difference(Kind.OTHER_FILES, PATHS),
    "files/path_exists": Difference(Kind.OTHER_FILES, PATHS),
    "files/read_or_empty": Difference(Kind.FAILS, LATE),
    "files/write_modes": Difference(Kind.OTHER_FILES, PATHS),
    "hive/catalog_implementation": Difference(Kind.OTHER_ROWS, HIVE),
    "hive/hive_table": Difference(Kind.FAILS, HIVE),
    "hive/partitions": Difference(Kind.FAILS, HIVE),
    "jdbc/no_driver": Difference(Kind.OTHER_ROWS, LATE),
    "joins/ambiguous_column": Difference(Kind.OTHER_ROWS, COLUMNS),
    "joins/broadcast_hint": Difference(Kind.REFUSED, DRIVER),
    "ml/rdd_based": Difference(Kind.REFUSED, DRIVER),
    "ml/save_and_load": Difference(Kind.OTHER_FILES, PATHS),
    "modules/add_file": Difference(Kind.REFUSED, DRIVER),
    "modules/add_py_file": Difference(Kind.REFUSED, DRIVER),
    "modules/py_files": Difference(Kind.OTHER_FILES, LINKED),
    "modules/zipped_package": Difference(Kind.REFUSED, DRIVER),
    "pandas_api/read_csv": Difference(Kind.FAILS, PATHS),
    "program/log4j_messages": Difference(Kind.REFUSED, DRIVER),
    "program/relative_read": Difference(Kind.FAILS, PATHS),
    "program/relative_round_trip": Difference(Kind.OTHER_ROWS, PATHS),
    "program/relative_write": Difference(Kind.OTHER_FILES, PATHS),
    "program/set_log_level": Difference(Kind.REFUSED, DRIVER),
    "rdds/error_in_task": Difference(Kind.REFUSED, DRIVER),
    "rdds/from_frame": Difference(Kind.REFUSED, DRIVER),
    "rdds/pairs": Difference(Kind.REFUSED, DRIVER),
    "rdds/partitions": Difference(Kind.REFUSED, DRIVER),
    "rdds/pickle_file": Difference(Kind.REFUSED, DRIVER),
    "rdds/task_context": Difference(Kind.REFUSED, DRIVER),
    "rdds/text_files": Difference(Kind.REFUSED, DRIVER),
    "rdds/word_count": Difference(Kind.REFUSED, DRIVER),
    "settings/ansi_after_frame": Difference(Kind.OTHER_ROWS, SETTINGS),
    "settings/case_sensitivity": Difference(Kind.FAILS, SETTINGS),
    "settings/context_conf": Difference(Kind.REFUSED, DRIVER),
    "settings/shuffle_partitions": Difference(Kind.REFUSED, DRIVER),
    "settings/static_on_builder": Difference(Kind.OTHER_ROWS, STATIC),
    "sql/variable_changes": Difference(Kind.OTHER_ROWS, SETTINGS),
    "streaming/console_sink": Difference(Kind.OTHER_ROWS, STREAMS),
    "streaming/failing_query": Difference(Kind.OTHER_FILES, PATHS),
    "streaming/file_sink": Difference(Kind.FAILS, PATHS),
    "streaming/files_to_memory": Difference(Kind.FAILS, PATHS),
    "streaming/foreach_batch": Difference(Kind.OTHER_ROWS, STREAM_PATHS),
    "streaming/foreach_writer": Difference(Kind.FAILS, PATHS),
    "streaming/listener": Difference(Kind.OTHER_FILES, PATHS),
    "streaming/state_by_pandas": Difference(Kind.FAILS, PATHS),
    "udfs/dictionary_lookup": Difference(Kind.OTHER_ROWS, CLOSURES),
    "udfs/global_changed_later": Difference(Kind.OTHER_ROWS, CLOSURES),
    "udfs/in_a_loop": Difference(Kind.OTHER_ROWS, CLOSURES),
    "udfs/java_udf": Difference(Kind.FAILS, HIVE),
    "udfs/method_of_object": Difference(Kind.OTHER_ROWS, CLOSURES),
    "udfs/registered_again": Difference(Kind.OTHER_ROWS, CLOSURES),
    "views/dropped_before_use": Difference(Kind.FAILS, VIEWS),
    "views/loop_over_partitions": Difference(Kind.OTHER_ROWS, VIEWS),
    "views/reused_name": Difference(Kind.OTHER_ROWS, VIEWS),
    "views/schema_of_replaced": Difference(Kind.OTHER_ROWS, VIEWS),
    "views/sql_view_of_view": Difference(Kind.OTHER_ROWS, VIEWS),
    "views/stage_by_stage": Difference(Kind.OTHER_ROWS, VIEWS),
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
