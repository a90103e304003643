"""Finds the installation of Spark that a worker uses, and what its site has set there."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path


def home_of_spark(configured: str, environment: Mapping[str, str], version: str = "") -> str:
    """The configured one, the environment's, or the pyspark package's; "" if there is none.

    `version`: `SPARK1` or `SPARK2`, as a task may ask for one.
    """
    return (
        configured
        or environment.get({"SPARK1": "SPARK_HOME1", "SPARK2": "SPARK_HOME2"}.get(version, ""), "")
        or environment.get("SPARK_HOME", "")
        or _home_of_pyspark()
    )


def _home_of_pyspark() -> str:
    # Finds the package without importing it, which would take a second.
    spec = find_spec("pyspark")
    locations = None if spec is None else spec.submodule_search_locations
    return str(locations[0]) if locations else ""


def defaults_of(home: str, environment: Mapping[str, str]) -> str:
    """Return the text of the site's spark-defaults.conf, "" if there is none to read."""
    folder = environment.get("SPARK_CONF_DIR") or f"{home}/conf"
    try:
        return Path(folder, "spark-defaults.conf").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def scratch_option(scratch: Path) -> str:
    """Return the option for the folder of a JVM's temporary files: artefacts, unpacked libraries.

    Without it they are in the system's folder, and stay there if the JVM is killed.
    """
    return f"-Djava.io.tmpdir={scratch}"
