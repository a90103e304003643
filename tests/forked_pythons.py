"""Python processes for sessions of tests, forked from one that has imported their modules.

Spark's own `pyspark.daemon` imports these modules in each process that it forks, which takes a second
of the processor each time. The parts of a topology need several such processes at each start.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Final

CONF: Final = {"spark.python.daemon.module": __name__}
"""The setting of a session whose Python processes come from here; `PYTHONPATH` names the repository."""

_NEEDED: Final = (
    "pandas",
    "pyarrow.compute",
    "pyarrow.pandas_compat",
    "pyspark.worker",
    "pyspark.sql.pandas.serializers",
    "pyspark.sql.streaming.stateful_processor_api_client",
    "worker.spark.topology.keyed",
)


def _begin() -> None:
    """Import the modules without a second thread, as forks require, and serve as a daemon."""
    from worker.spark.host.preload import ENVIRONMENT

    os.environ.update(ENVIRONMENT)
    # Other kinds of workers are one process each.
    for name in _NEEDED if sys.argv[1:] == ["pyspark.worker"] else ():
        importlib.import_module(name)
    from pyspark import daemon

    daemon.manager()


if __name__ == "__main__":
    _begin()
