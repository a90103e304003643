"""Definitions with numbers that no task, time-out or run may have."""

from __future__ import annotations

import json

from tests.system.cluster import a_task


def absurd_numbers() -> tuple[dict[str, object], dict[str, tuple[int | None, tuple[str, ...]]]]:
    """Definitions by name, and for each the place that its refusal has to name."""
    bad: tuple[object, ...] = (-5, 1e300, "NaN", 2**63, 1.5, True, [], "1_0", "٣", "9" * 1_000)
    documents: dict[str, object] = {}
    wanted: dict[str, tuple[int | None, tuple[str, ...]]] = {}

    def add(key: str, document: object) -> None:
        name = f"number {len(documents)}"
        documents[name] = document
        wanted[name] = None, (key,)

    for key in ("maxRetryTimes", "retryInterval", "delayTime", "workerGroupId"):
        for value in bad:
            add(f"task 't', {key}: must be ", a_task("t", "true", **{key: value}))
    for number in (0, -1, 10**12, "1e3"):
        limit = {"enable": True, "interval": number, "strategy": "WARN"}
        add("task 't', timeout.interval: ", a_task("t", "true", timeout=limit))
    for strategy in ("EXPLODE", 7, ""):
        limit = {"enable": True, "interval": 5, "strategy": strategy}
        add("task 't', timeout.strategy: ", a_task("t", "true", timeout=limit))
    backoffs: dict[str, tuple[object, ...]] = {
        "factor": (1e308, "nan", 0, -1),
        "jitter": (2, -0.1),
        "maxInterval": (-1, 10**15),
        "speed": (1,),
    }
    for key, values in backoffs.items():
        for value in values:
            add(f"task 't', retryBackoff.{key}: ", a_task("t", "true", retryBackoff={key: value}))
    for priority in ("EXTREME", -1, 5):
        add("taskInstancePriority: ", a_task("t", "true", taskInstancePriority=priority))
    whole: dict[str, tuple[object, ...]] = {
        "timeout": (-1, 10**20, "soon"),
        "timeoutStrategy": ("BOOM",),
        "tenantId": (-7, 10**20),
        "globalParams": ({"a": 1}, [{"value": "1"}], "[{"),
    }
    for key, values in whole.items():
        for value in values:
            add(key, json.dumps({"tasks": [a_task("t", "true")], key: value}))
    return documents, wanted
