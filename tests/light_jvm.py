"""Settings for JVMs of Spark that live for one test: they compile lightly and start from the archive.

A JVM that loads Spark's classes from their jars, and compiles for a long life, takes four times as
much of the processor before it begins to work. Without an archive (`worker.spark.jvm.cds_building`
makes it) they start all the same.
"""

from __future__ import annotations

import json
import os
import shlex
from typing import Final

from worker.spark.jvm import cds_archive
from worker.spark.jvm.installation import home_of_spark
from worker.spark.jvm.java_command import NoSparkError, java_of

LIGHT: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
"""The options of a JVM that a worker starts, which adds the archive itself."""
PROFILE: Final = {
    "SPARK__PROFILES__DEFAULT__CONF": json.dumps(
        {"spark.sql.shuffle.partitions": "2", "spark.driver.extraJavaOptions": LIGHT}
    ),
    # A JVM starts slowly beside others.
    "SPARK__PROFILES__DEFAULT__START_TIMEOUT_SECONDS": "240",
}
"""Settings of a private cluster whose servers and drivers live for a few tests."""


def flags() -> str:
    """The options of `java`; the archive fits only beside `class_path`."""
    found = _archive()
    return " ".join((LIGHT, *(() if found is None else found.flags())))


def class_path() -> str:
    """The jars that have to come before Spark's own; "" without an archive."""
    found = _archive()
    return "" if found is None else os.pathsep.join(found.first_jars)


def conf(*kinds: str) -> dict[str, str]:
    """Settings of `spark-submit` for a `driver`, an `executor`, or both; the driver's if none is named."""
    settings: dict[str, str] = {}
    for kind in kinds or ("driver",):
        settings[f"spark.{kind}.extraJavaOptions"] = flags()
        if class_path():
            settings[f"spark.{kind}.extraClassPath"] = class_path()
    return settings


def arguments(settings: dict[str, str]) -> str:
    """Settings as arguments of `spark-submit`, quoted as a shell would have them."""
    return shlex.join(word for pair in settings.items() for word in ("--conf", "=".join(pair)))


def _archive() -> cds_archive.Archive | None:
    try:
        return cds_archive.find(home_of_spark("", os.environ), java_of(os.environ))
    except NoSparkError:
        return None  # The tests that need Java say so.
