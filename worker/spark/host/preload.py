"""The imports that the Spark host makes once, so that no task and no UDF has to.

A fork takes over the forking thread alone. So nothing here may start another one or open a channel
of gRPC's: `ready` refuses to go on if something did. `ENVIRONMENT` has to be set before.
"""

from __future__ import annotations

import gc
import importlib
import os
import warnings

ENVIRONMENT = {
    # As Spark sets it for its own Python processes, which have to agree about hashes.
    "PYTHONHASHSEED": "0",
    "PYTHONUNBUFFERED": "1",
    # OpenBLAS starts its threads when it is imported, Arrow's allocator one of its own.
    "OPENBLAS_NUM_THREADS": "1",
    "JE_ARROW_MALLOC_CONF": "background_thread:false",
    "GRPC_VERBOSITY": "ERROR",
}

_MODULES = (
    "numpy",
    "pandas",
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.pandas_compat",
    "encodings.idna",
    "grpc",
    "grpc._auth",
    "grpc._channel",
    "grpc._plugin_wrapping",
    "grpc_status.rpc_status",
    "zstandard",
    "py4j.clientserver",
    "pyspark.accumulators",
    "pyspark.cloudpickle",
    "pyspark.daemon",
    "pyspark.worker",
    "pyspark.sql",
    "pyspark.sql.functions",
    "pyspark.sql.types",
    "pyspark.sql.window",
    "pyspark.sql.pandas.types",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.connect.session",
    "pyspark.sql.connect.client",
    "pyspark.sql.connect.dataframe",
    "pyspark.sql.connect.functions",
    "pyspark.sql.connect.conversion",
    "pyspark.sql.connect.udf",
    "pyspark.sql.connect.readwriter",
    "pyspark.sql.connect.catalog",
    "pyspark.sql.connect.window",
    "pyspark.sql.connect.streaming.worker.foreach_batch_worker",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.errors.exceptions.connect",
    "worker.spark.session.own_drivers",
    "worker.spark.session.warm",
    "worker.spark.streaming.bounded",
)


class NotAloneError(Exception):
    """Something has started a thread; a fork might stand still for ever."""


def ready() -> None:
    """Import everything, and see that this process can be forked. Takes half a second."""
    for name in _MODULES:
        importlib.import_module(name)
    # Of pyspark about pandas, at each UDF: nothing that the author of a task could mend.
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"pyspark\.")
    threads = os.listdir("/proc/self/task")  # noqa: PTH208
    if len(threads) != 1:
        raise NotAloneError(f"{len(threads)} threads run after the imports")
    # What is never collected is never written to, and stays shared with every fork.
    gc.collect()
    gc.freeze()
