"""The order of the tests' modules in a run of several lanes, and the modules that keep together.

A lane is a process of pytest-xdist. A module's tests stay in one lane anyway, so that they share its
servers. Modules that share more than that stay in one lane too: a Spark host, a JVM, a cluster, or the
parsed files of the repository.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from xdist.scheduler.protocol import Scheduling

TOGETHER: Final = {
    **dict.fromkeys(
        (
            "tests/integration/test_spark_tasks.py",
            "tests/integration/test_worker_conformance.py",
            "tests/integration/test_spark_progress.py",
            "tests/integration/test_spark_isolation.py",
            "tests/integration/test_spark_host.py",
        ),
        "a warm Spark host",
    ),
    **dict.fromkeys(
        (
            "tests/integration/test_dataset_frames.py",
            "tests/integration/test_spark_quality.py",
            "tests/integration/test_spark_sql.py",
            "tests/integration/test_stream_rows.py",
            "tests/integration/test_kafka_source.py",
            "tests/integration/test_compaction.py",
            "tests/system/test_flights_figures.py",
        ),
        "a driver in the tests' own process",
    ),
    **dict.fromkeys(
        (
            "tests/integration/test_topology_task.py",
            "tests/integration/test_topology_queries.py",
            "tests/integration/test_topology_spouts.py",
            "tests/integration/test_topology_faults.py",
        ),
        "a driver of topologies in the tests' own process",
    ),
}
"""The modules that share something, with its name."""

_ALSO_TOGETHER: Final = ("tests/house/", "tests/system/pairs/")
"""The folders whose modules share something."""

LONGEST: Final = (
    *TOGETHER,
    "tests/integration/test_spark_submit_standalone.py",
    "tests/integration/test_spark_profiles.py",
    "tests/simulation/test_simulation.py",
)
"""The modules that are begun first, in this order."""


class Lanes:
    """A pytest plug-in: sorts what has been collected, and distributes it."""

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """Begin with the modules that take longest, so that no processor is idle at the end."""
        slow = {item.path for item in items if item.get_closest_marker("slow") is not None}
        # Tests of a module stay in their order, and so beside each other.
        items.sort(key=lambda item: _place_in_line(item, is_slow=item.path in slow))

    @pytest.hookimpl(tryfirst=True, optionalhook=True)
    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> Scheduling | None:
        """Distribute whole units instead of whole files, if whole files are asked for."""
        if config.getvalue("dist") != "loadfile":
            return None
        from xdist.scheduler import LoadFileScheduling

        class Units(LoadFileScheduling):
            def _split_scope(self, nodeid: str) -> str:
                return unit(nodeid)

        return Units(config, log)


def unit(nodeid: str) -> str:
    """Name the part of a run that one lane takes as a whole: a module, or several."""
    file = nodeid.partition("::")[0]
    folder = next((each for each in _ALSO_TOGETHER if file.startswith(each)), None)
    return folder or TOGETHER.get(file, file)


def _place_in_line(item: pytest.Item, *, is_slow: bool) -> int:
    place = item.path.relative_to(item.config.rootpath).as_posix()
    if place in LONGEST:
        return LONGEST.index(place)
    return len(LONGEST) + (not is_slow and not place.startswith("tests/system/"))
