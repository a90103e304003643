"""The data sources of a task, in its own process: as options of Spark's `jdbc` and as catalogs.

    spark.read.format("jdbc").options(**datasource("sales")).option("dbtable", "orders").load()
    SELECT * FROM sales.public.orders

Standard library only; a session is given. A password is in the options alone, whose printed form
hides it, and in settings of the session whose values Spark itself hides in plans and in `SET`. On
its page about Connect, Spark would show the options of readers and writers: there `HIDDEN` counts,
which finds passwords in the text of a statement as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

from common.masking import mask_value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CATALOG: Final = "org.apache.spark.sql.execution.datasources.v2.jdbc.JDBCTableCatalog"

# The common ones of `common.masking`: Spark looks through every plan with this, so each one costs.
_NAMES: Final = (
    "(?:pass(?:word|wd|phrase)|pwd|secret|token|credential|(?:access|api|private)[._-]?key)"
)
HIDDEN: Final = (
    rf"""(?i)key: "[^"]*{_NAMES}[^"]*"\s*value: "(?:[^"\\]|\\.)*\""""
    r"""|p(?:ass(?:word|wd|phrase)|wd)\\?["'`]?\s*=?\s*\\?'[^'\\]*"""
)
"""The regular expression by which Spark hides parts of a session's statements and plans."""
_HIDING: Final = "spark.sql.redaction.string.regex"


class Options(dict[str, str]):
    """Options of a data source, to be given to a reader or writer as they are."""

    def __repr__(self) -> str:
        return repr(mask_value(dict(self)))

    __str__ = __repr__


def finder(sources: Mapping[str, Mapping[str, str]]) -> Callable[[str], Options]:
    """The function `datasource` of a script."""

    def datasource(name: str) -> Options:
        """The options of a data source that the task names; `KeyError` if it names none such."""
        if name not in sources:
            known = ", ".join(sorted(sources)) or "none"
            raise KeyError(
                f"this task names no data source {name!r} (it names {known}): put it into its"
                " params.datasources"
            )
        return Options(sources[name])

    return datasource


def register(spark: SparkSession, sources: Mapping[str, Mapping[str, str]]) -> None:
    """Make each a catalog of the session, by its name."""
    if sources:
        before = spark.conf.get(_HIDING, None)
        spark.conf.set(_HIDING, f"{before}|{HIDDEN}" if before else HIDDEN)
    for name, options in sources.items():
        key = f"spark.sql.catalog.{name}"
        spark.conf.set(key, _CATALOG)
        for option, value in options.items():
            spark.conf.set(f"{key}.{option}", value)
