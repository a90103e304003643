"""Prints the tables of `common.model.spark_settings` from the Spark that is installed.

Each setting that Spark registers knows how to read its value: it is given a text that no typed one
takes, and says of which type that should be. By hand, after another version of PySpark was pinned:
`python -m tests.reference.spark_settings`.
"""

from __future__ import annotations

import re
import textwrap
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.java_gateway import launch_gateway

_HOLDERS: Final = (
    *(f"org.apache.spark.internal.config.{name}" for name in ("package", "UI", "History")),
    *(f"org.apache.spark.internal.config.{name}" for name in ("Worker", "Deploy", "Network")),
    *(f"org.apache.spark.internal.config.{name}" for name in ("Kryo", "Python", "R", "Status")),
    "org.apache.spark.internal.config.Streaming",
    "org.apache.spark.sql.internal.SQLConf",
    "org.apache.spark.sql.internal.StaticSQLConf",
    "org.apache.spark.sql.connect.config.Connect",
    "org.apache.spark.sql.hive.HiveUtils",
    "org.apache.spark.streaming.StreamingConf",
    "org.apache.spark.deploy.k8s.Config",
    "org.apache.spark.deploy.yarn.config.package",
)
"""The objects whose initialization registers settings."""
_REGISTRY: Final = "org.apache.spark.internal.config.ConfigEntry$"
_SHOULD_BE: Final = re.compile("should be a/an '(boolean|int|long|double|bytes|time)")
_TABLES: Final = {
    "boolean": "BOOLEANS",
    "int": "INTEGERS",
    "long": "INTEGERS",
    "double": "NUMBERS",
    "bytes": "SIZES",
    "time": "TIMES",
}


def main() -> None:
    """Print the tables."""
    jvm: Any = launch_gateway().jvm
    for holder in _HOLDERS:
        jvm.java.lang.Class.forName(f"{holder}$")
    registry = jvm.java.lang.Class.forName(_REGISTRY).getField("MODULE$").get(None)
    tables: dict[str, list[str]] = {}
    for entry in registry.listAllEntries().toArray():
        key, table = entry.key(), _table_of(entry.valueConverter())
        if table is not None and key.startswith("spark."):
            tables.setdefault(table, []).append(key.removeprefix("spark."))
    for table, names in sorted(tables.items()):
        print(f'_{table}: Final = frozenset(\n    """')
        print(
            textwrap.fill(
                " ".join(sorted(names)), 100, break_long_words=False, break_on_hyphens=False
            )
        )
        print('""".split()\n)')


def _table_of(reader: Any) -> str | None:
    try:
        reader.apply("x")
    except Py4JJavaError as error:
        told = _SHOULD_BE.search(str(error.java_exception.getMessage()))
        return None if told is None else _TABLES[told[1]]
    except ValueError:
        return None  # An answer of a type that Python lacks.
    return None


if __name__ == "__main__":
    main()
