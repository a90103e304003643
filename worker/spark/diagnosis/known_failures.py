"""The known errors of Spark: patterns of texts, conditions and SQLSTATEs.

Pure: tables for `worker/spark/diagnosis/failures.py`, which says in what order they are asked. Of
several rules of one table that fit a text the first counts. The texts are those of Spark 4, and of
what runs it: Java, Py4J, gRPC, YARN, Kubernetes, Kerberos.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from common.model.failures import FailureReason


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A pattern, and what it means if a text has it."""

    pattern: re.Pattern[str]
    reason: FailureReason
    sentence: str = ""
    """With {0} for the whole line that has it, {1}… for its groups; "" is the headline."""
    hint: str = ""


def _rule(pattern: str, reason: FailureReason, sentence: str = "", hint: str = "") -> Rule:
    return Rule(pattern=re.compile(pattern), reason=reason, sentence=sentence, hint=hint)


_OOM, _LOST = FailureReason.OUT_OF_MEMORY, FailureReason.EXECUTOR_LOST
_SUBMIT, _CONF = FailureReason.SUBMIT_FAILED, FailureReason.CONFIGURATION
_DATA, _GONE = FailureReason.DATA_ERROR, FailureReason.SERVER_LOST

CHECKED_IN_PYTHON: Final = "pyspark.errors.exceptions.base.PySpark"
"""Errors that PySpark raises before it asks anybody."""
CLASSES_OF_VALUES: Final = frozenset(
    {"ArithmeticException", "DateTimeException", "NumberFormatException"}
    | {"ArrayIndexOutOfBoundsException"}
)
CLASSES_OF_PYTHON: Final = frozenset(
    {"PythonException", "PickleException", "IllegalArgumentException"}
)
_CLASSIC: Final = "it needs a driver of its own: set `profile: classic` for this task"
_DRIVER_MEMORY: Final = (
    "give the driver more memory: spark.driver.memory of a classic task, driver_memory of a profile"
)
_EXECUTOR_MEMORY: Final = (
    "give the executors more: spark.executor.memory for Java,"
    " spark.executor.memoryOverhead for all else"
)
_KUBERNETES: Final = "Kubernetes refused, or could not be reached"
JARS: Final = (
    "add {} to the `packages` of the profile, or to spark.jars.packages in the task's `conf`"
)
"""The hint for a missing class; its place is for the package, or for words about it."""
ANY_PACKAGE: Final = "the package that has it"
PACKAGES: Final[tuple[tuple[str, str], ...]] = (
    (r"\bkafka\b", "org.apache.spark:spark-sql-kafka-0-10_2.13 of Spark's own version"),
    (r"source: avro\b|\bAVRO_", "org.apache.spark:spark-avro_2.13 of Spark's own version"),
    (r"\bdelta\b|io\.delta\.", "io.delta:delta-spark for Spark's version"),
    (r"\biceberg\b", "org.apache.iceberg:iceberg-spark-runtime for Spark's version"),
    (r"\bhudi\b", "org.apache.hudi:hudi-spark-bundle for Spark's version"),
    (r"org\.postgresql\.|jdbc:postgresql:", "org.postgresql:postgresql"),
    (r"com\.mysql\.|jdbc:mysql:", "com.mysql:mysql-connector-j"),
    (r"org\.mariadb\.|jdbc:mariadb:", "org.mariadb.jdbc:mariadb-java-client"),
    (r"com\.microsoft\.sqlserver\.|jdbc:sqlserver:", "com.microsoft.sqlserver:mssql-jdbc"),
    (r"oracle\.jdbc\.|jdbc:oracle:", "com.oracle.database.jdbc:ojdbc11"),
    (r"\bs3a\b|S3AFileSystem", "org.apache.hadoop:hadoop-aws of Hadoop's own version"),
    (r"GoogleHadoopFileSystem", "com.google.cloud.bigdataoss:gcs-connector"),
    (r"\babfss?\b|AzureBlobFileSystem", "org.apache.hadoop:hadoop-azure of Hadoop's own version"),
)
"""Packages by what the text of an error says of the missing class."""

LATE_CLASS: Final = "pyspark.errors.exceptions.connect.AnalysisException"
LATE: Final = (
    "a Spark Connect session checks a frame when it is used,"
    " so the mistake can be in an earlier line"
)
"""The hint for a mistake in a frame that Spark Connect has reported."""
_PATH: Final = (
    "check that the task that writes it has run, and use an absolute path:"
    " relative ones are not shared between tasks"
)
_CATALOG: Final = (
    "the first part of such a name is a catalog: set spark.sql.catalog.NAME in the `conf` of the"
    " profile or the task"
)
_LOCATION: Final = (
    "an earlier run has left these files, and the catalog does not know the table: remove them,"
    " choose another name, or use a lasting metastore"
)

TROUBLE: Final = (
    _rule(
        r"is running (?:\d+B )?beyond (?:the )?'?(?i:physical|virtual)'? memory limits?[^\n]*"
        r"|exitCode: -10[34]\b",
        _OOM,
        "YARN ended a container that took too much memory",
        "give the driver more (spark.driver.memory, spark.driver.memoryOverhead), or the executors",
    ),
    _rule(
        r"Container killed by YARN for exceeding (?:physical |virtual )?memory limits\.?[^\n]*",
        _OOM,
        "{0}",
        _EXECUTOR_MEMORY,
    ),
    _rule(
        r"OOMKilled",
        _OOM,
        "Kubernetes ended a container that took too much memory",
        _EXECUTOR_MEMORY,
    ),
    _rule(
        r"executor driver\): java\.lang\.OutOfMemoryError: ([^\n]+)",
        _OOM,
        "Java ran out of memory in the driver: {1}",
        _DRIVER_MEMORY,
    ),
    _rule(
        r"executor \d+\): java\.lang\.OutOfMemoryError: ([^\n]+)",
        _OOM,
        "Java ran out of memory in an executor: {1}",
        _EXECUTOR_MEMORY,
    ),
    _rule(
        r"java\.lang\.OutOfMemoryError(?:: ([^\n]+))?",
        _OOM,
        "Java ran out of memory: {1}",
        _DRIVER_MEMORY,
    ),
    _rule(
        r"Not enough memory to build and broadcast",
        _OOM,
        "",
        "set spark.sql.autoBroadcastJoinThreshold to -1, or give the driver more memory",
    ),
    _rule(
        r"ExecutorLostFailure \(executor \S+ exited[^)]*\) Reason: [^\n]*"
        r"(?:[Ee]xit (?:status|code)|exited with code|Exit code is)[: ]+(137|52)\b[^\n]*",
        _OOM,
        "an executor ended with exit code {1}: it was killed or ended for want of memory",
        _EXECUTOR_MEMORY,
    ),
    _rule(
        r"bigger than spark\.driver\.maxResultSize",
        _CONF,
        "",
        "have Spark write the rows, or raise spark.driver.maxResultSize",
    ),
    _rule(
        r"FetchFailedException|MetadataFetchFailed|FetchFailed\(",
        FailureReason.FETCH_FAILED,
        "shuffle data could not be fetched: the executor that had it is gone, or its disk",
    ),
    _rule(
        r"ExecutorLostFailure|Max number of executor failures|Executor heartbeat timed out",
        _LOST,
        "",
        "what ended it stands in the executor's own log",
    ),
    _rule(
        r"Python worker exited unexpectedly \(crashed\)",
        FailureReason.PYTHON_ERROR,
        "the Python process of a UDF crashed: it called for its end, a library of its own made it,"
        " or the system killed it for want of memory",
        "spark.python.worker.faulthandler.enabled = true shows where",
    ),
    _rule(
        r"\nMemoryError\b|: MemoryError\b",
        _OOM,
        "Python ran out of memory in a UDF",
        "spark.executor.memoryOverhead is for Python too, or make its batches smaller",
    ),
    _rule(
        r"\nModuleNotFoundError: No module named '([^']+)'",
        FailureReason.PYTHON_ERROR,
        "the Python of a UDF has no module {1}",
        "ship it with the task (`pyFiles`, `archives`), or install it where the UDF runs",
    ),
    _rule(
        r"No such file or directory[^\n]*python|Cannot run program \"([^\"]*python[^\"]*)\"",
        _CONF,
        "there is no Python for UDFs: {1}",
        "set spark.pyspark.python or PYSPARK_PYTHON",
    ),
    _rule(
        r"StatusCode\.UNAUTHENTICATED",
        _GONE,
        "the Spark server does not know this task's token: another one has its port",
    ),
    _rule(r"StatusCode\.UNAVAILABLE|RETRIES_EXCEEDED", _GONE, "the Spark server is gone"),
    _rule(
        r"All masters are unresponsive",
        _SUBMIT,
        "no Spark master answers",
        "see whether the address in `master` is right and the master runs",
    ),
    _rule(
        r"Cannot call methods on a stopped SparkContext",
        _GONE,
        "the Spark context was stopped while it was needed",
    ),
    _rule(
        r"Answer from Java side is empty|Error while sending or receiving"
        r"|An error occurred while trying to connect to the Java server",
        _GONE,
        "the JVM of the driver is gone",
    ),
    _rule(
        r"GSSException[^\n]*|KrbException[^\n]*|Can't get Master Kerberos principal[^\n]*"
        r"|javax\.security\.auth\.login\.LoginException[^\n]*",
        _SUBMIT,
        "Kerberos: {0}",
        "give the task a `principal` and a `keytab` that this worker can read",
    ),
)

# What counts only if Spark has no condition for it.
CAUSES: Final = (
    _rule(r"KubernetesClientException", _SUBMIT, _KUBERNETES),
    _rule(
        # Spark Connect puts the class of an error into brackets.
        r"(?:java\.lang\.(?:ClassNotFoundException|NoClassDefFoundError))(?::|\))"
        r" (?:Class )?([\w.$/]+)",
        _CONF,
        "there is no class {1}",
        JARS,
    ),
    _rule(
        r"java\.sql\.SQLException\)?:? No suitable driver",
        _CONF,
        "there is no JDBC driver for this URL",
        JARS,
    ),
    _rule(
        r"(?:AccessControlException|AccessDeniedException|Permission denied)[^\n]*",
        _DATA,
        "access was denied: {0}",
    ),
)

SUBMISSION: Final = (
    _rule(
        r"unresolved dependency: ([^\]\n]+)",
        _SUBMIT,
        "a package can't be had: {1}",
        "see whether its coordinates are right and a repository can be reached",
    ),
    _rule(
        r"Error: Failed to load class ([\w.$]+)",
        _CONF,
        "the program has no class {1}",
        "see `mainClass`, and the jar in `mainJar`",
    ),
    _rule(r"Error: Unrecognized option: (\S+)", _CONF, "spark-submit knows no option {1}"),
    _rule(r"can't open file '([^'\n]+)'", _CONF, "there is no file {1}"),
    _rule(
        r"Error: Could not create the Java Virtual Machine",
        _CONF,
        "Java did not start: {before}",
        "see the memory and the Java options of the driver",
    ),
    _rule(
        r"HADOOP_CONF_DIR or YARN_CONF_DIR must be set",
        _CONF,
        "YARN is not configured on this worker: HADOOP_CONF_DIR or YARN_CONF_DIR must be set",
    ),
    _rule(r"Master must either be [^\n]+", _CONF, "{0}", "see `master`"),
    _rule(
        r"All masters are unresponsive",
        _SUBMIT,
        "no Spark master answers",
        "see whether the address in `master` is right and the master runs",
    ),
    _rule(
        # Elsewhere in a log it may be a watch that was begun anew.
        r'Exception in thread "main"[^\n]*KubernetesClientException',
        _SUBMIT,
        _KUBERNETES,
    ),
    _rule(
        r"Required (?:executor|AM|driver) memory [^\n]*is above the max threshold[^\n]*"
        r"|InvalidResourceRequestException[^\n]*"
        r"|requested resource[^\n]* greater than maximum[^\n]*",
        _SUBMIT,
        "YARN refused the size of a container: {0}",
        "ask for less memory, or raise yarn.scheduler.maximum-allocation-mb",
    ),
    _rule(
        r"(?:submitted by user \S+ to unknown queue|to non-leaf queue)[^\n]*",
        _SUBMIT,
        "YARN refused the queue: {0}",
    ),
)

# What may also have passed, if it is not the last that was said.
LAST_WORDS: Final = (
    _rule(r"Retrying connect to server: (\S+)", _SUBMIT, "YARN's ResourceManager does not answer"),
    _rule(
        r"(?:final status: KILLED|Application (?:\S+ )?(?:was|has been) killed)[^\n]*",
        FailureReason.KILLED,
        "{0}",
    ),
    _rule(
        r"(?:exit code:?|Exit code is|exitCode:|Exit status:) (?:137|143|52)\b[^\n]*",
        _OOM,
        "YARN ended a container, mostly for want of memory: {0}",
        _EXECUTOR_MEMORY,
    ),
)

CONDITIONS: Final[tuple[tuple[str, FailureReason, str], ...]] = (
    (
        r"JVM_ATTRIBUTE_NOT_SUPPORTED|NOT_IMPLEMENTED|CONTEXT_UNAVAILABLE_FOR_REMOTE_CLIENT",
        FailureReason.UNSUPPORTED,
        _CLASSIC,
    ),
    (
        r"CANNOT_MODIFY_\w*CONFIG\w*|CANNOT_CONFIGURE_\w+",
        _CONF,
        "what Spark reads at its start belongs into the profile, or take `profile: classic`",
    ),
    (r"INVALID_CONF_VALUE\S*", _CONF, ""),
    (r"INVALID_(DRIVER|EXECUTOR)_MEMORY\S*", _CONF, _DRIVER_MEMORY),
    (r"UNABLE_TO_ACQUIRE_MEMORY|\w*OUT_OF_MEMORY\w*", _OOM, _EXECUTOR_MEMORY),
    (r"DATA_SOURCE_NOT_FOUND|\w+_DATA_SOURCE_NOT_ENABLED", _CONF, JARS),
    (r"CANNOT_LOAD_CATALOG\.PLUGIN_CLASS_NOT_FOUND", _CONF, JARS),
    (r"REQUIRES_SINGLE_PART_NAMESPACE", FailureReason.ANALYSIS_ERROR, _CATALOG),
    (r"CANNOT_LOAD_FUNCTION_CLASS|CLASS_NOT_FOUND\S*", _CONF, JARS),
    (
        r"NOT_SUPPORTED_COMMAND_WITHOUT_HIVE_SUPPORT",
        _CONF,
        "set spark.sql.catalogImplementation = hive in the profile, or for a classic task",
    ),
    (r"PATH_NOT_FOUND", _DATA, _PATH),
    (
        r"FAILED_READ_FILE\S*|MALFORMED_\S+|UNABLE_TO_INFER_SCHEMA|\S*OVERFLOW\S*",
        _DATA,
        "",
    ),
    (
        r"INVALID_HANDLE\.OPERATION_\w+|OPERATION_CANCELED|SPARK_JOB_CANCELLED",
        FailureReason.KILLED,
        "",
    ),
    (
        r"NO_ACTIVE_SESSION|NO_ACTIVE_OR_DEFAULT_SESSION",
        FailureReason.PYTHON_ERROR,
        "the session was stopped before: leave `spark.stop()` out, it is done for you",
    ),
    (r"INVALID_HANDLE\S*|SESSION_CHANGED|SESSION_NOT_SAME", _GONE, ""),
    (r"PATH_ALREADY_EXISTS", _DATA, ""),
    (r"LOCATION_ALREADY_EXISTS", _DATA, _LOCATION),
    (r"PYTHON_EXCEPTION", FailureReason.PYTHON_ERROR, ""),
)

# By the first two characters of an SQLSTATE, which say what kind of thing is wrong.
STATES: Final = {
    "07": FailureReason.ANALYSIS_ERROR,
    "08": _GONE,
    "0A": FailureReason.ANALYSIS_ERROR,
    "21": _DATA,
    "22": _DATA,
    "23": _DATA,
    "38": FailureReason.PYTHON_ERROR,
    "42": FailureReason.ANALYSIS_ERROR,
    "46": _CONF,
    "53": _OOM,
    "54": FailureReason.ANALYSIS_ERROR,
    "56": FailureReason.ANALYSIS_ERROR,
    "F0": _CONF,
    "KD": _DATA,
    "P0": _DATA,
}
