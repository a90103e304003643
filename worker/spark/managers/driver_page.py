"""Reads a driver's own page by its REST API: its tag and its progress.

Pure: it is given the means to ask. The page is the application's own, and so the word of whoever
wrote that; it is shown, and nothing more.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from common.model.spark import Progress
from worker.spark.managers.base import Ask
from worker.spark.managers.shapes import an_object, needed_text, objects, text
from worker.spark.managers.tags import SETTING
from worker.spark.progress.tally import Tally

_MILLISECONDS = 1000.0
_DRIVER = re.compile(
    r"org\.apache\.spark\.deploy\.worker\.DriverWrapper \S+ \S*/(driver-[0-9]{14}-[0-9]{4,})/"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One look at a driver's page."""

    progress: Progress = field(default_factory=Progress)
    core_seconds: float = 0.0
    """Time that its tasks have held cores."""
    cpu_seconds: float = 0.0
    """Time that its tasks have computed, outside of the driver."""
    failed_stage: str = ""
    """The cause of the last failure of a stage; "" if none failed."""


def application_ids(ask: Ask) -> list[str]:
    """The applications that a page is about: one, for a driver."""
    return [needed_text(each, "id") for each in objects(ask("applications", {}), "applications")]


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """The part of a driver's page that does not change."""

    tag: str = ""
    """The tag among its settings; "" if there is none."""
    driver: str = ""
    """The id that a standalone Master gave it, if it runs in the cluster."""


def about(ask: Ask, app_id: str) -> About:
    """Return the unchanging facts on the page of a driver."""
    environment = an_object(ask(f"applications/{app_id}/environment", {}), "environment")
    # A Worker keeps the program in a folder that is named after the driver.
    command = _property(environment, "systemProperties", "sun.java.command")
    found = _DRIVER.match(command)
    return About(
        tag=_property(environment, "sparkProperties", SETTING),
        driver="" if found is None else found[1],
    )


def read(ask: Ask, app_id: str, tally: Tally) -> Reading:
    """Read its progress. `tally` is the application's, and holds everything read before."""
    place = f"applications/{app_id}"
    return reading(
        objects(ask(f"{place}/jobs", {}), "jobs"),
        objects(ask(f"{place}/stages", {}), "stages"),
        objects(ask(f"{place}/allexecutors", {}), "executors"),
        tally,
    )


def reading(
    jobs: Sequence[Mapping[str, Any]],
    stages: Sequence[Mapping[str, Any]],
    executors: Sequence[Mapping[str, Any]],
    tally: Tally,
) -> Reading:
    """Add the three lists to the tally, and return the sum."""
    for job in jobs:
        tally.see_job(job)
    for stage in stages:
        tally.see_stage(stage)
    workers = [each for each in executors if text(each, "id") != "driver"]
    # With a local master the driver is the executor.
    tally.see_heap(max((_heap(each) for each in workers or executors), default=0))
    held = sum(_count(each, "totalDuration") for each in workers) / _MILLISECONDS
    failed = [each for each in stages if text(each, "status") == "FAILED"]
    last = max(failed, key=lambda each: _count(each, "stageId"), default={})
    return Reading(
        progress=tally.progress,
        core_seconds=held if workers else tally.core_seconds,
        cpu_seconds=tally.cpu_seconds if workers else 0.0,
        failed_stage=text(last, "failureReason"),
    )


def _property(environment: Mapping[str, Any], kind: str, name: str) -> str:
    for pair in environment.get(kind) or []:
        if isinstance(pair, list) and len(pair) == 2 and pair[0] == name:
            return str(pair[1])
    return ""


def _heap(executor: Mapping[str, Any]) -> int:
    peak = executor.get("peakMemoryMetrics")
    return _count(peak, "JVMHeapMemory") if isinstance(peak, Mapping) else 0


def _count(document: Mapping[str, Any], key: str) -> int:
    value = document.get(key)
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    return max(0, value)
