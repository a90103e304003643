"""Reports the progress of a task in its session of a Connect server, and its usage at the end.

Runs in a warm task's own process. The server's progress messages come with every query and say how
many of its tasks are done. The rest (rows out, shuffle, spill) comes from the server's REST API,
for this session's own jobs alone, by a thread that begins after a while, so a short task asks
nothing. Without an answer those figures are missing.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from common.own_http import OPENER
from worker.spark.progress.facts_file import FactsFile
from worker.spark.progress.meter import Meter
from worker.spark.progress.tally import Tally

if TYPE_CHECKING:
    from pyspark.sql.connect.session import SparkSession
    from pyspark.sql.connect.shell.progress import StageInfo

_FIRST_SECONDS = 1.0
_REST_SECONDS = 0.5
_MOST_OF_A_CORE = 0.02
"""So much of the time may go into asking; the more there is to ask, the rarer it is."""
_LONGEST_REST_SECONDS = 5.0
_HTTP_SECONDS = 5.0


NO_HEADERS: Final[Mapping[str, str]] = MappingProxyType({})


def rest_after(cost: float) -> float:
    """Return the seconds until the next request, after one that took this long.

    On a busy machine the time says little, so there is a limit.
    """
    return min(max(_REST_SECONDS, cost / _MOST_OF_A_CORE), _LONGEST_REST_SECONDS)


class ServerProgress:
    """A session's part of its server's work, by the server's REST API."""

    def __init__(
        self,
        mark: str,
        facts: FactsFile,
        meter: Meter,
        *,
        ui_link: str,
        headers: Mapping[str, str] = NO_HEADERS,
        before_last: Callable[[], None] | None = None,
    ) -> None:
        """`mark` is a part of the tags of the session's jobs, `headers` what the pages require.

        With `before_last` the API is also requested at the end of a task that was short, after
        a call of it.
        """
        application = ",".join(facts.current.application_ids)
        self._api = f"{ui_link}/api/v1/applications/{application}" if ui_link else ""
        self._headers = dict(headers)
        self._mark = mark
        self._facts = facts
        self._meter = meter
        self._before_last = before_last
        self._tally = Tally()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="progress", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Say how it was in the end; the session may be closed, or its server gone."""
        asked = self._before_last is not None or self._over.is_set() or not self._is_young()
        self._over.set()
        self._thread.join()
        if asked:
            with contextlib.suppress(Exception):
                if self._before_last is not None:
                    self._before_last()
            with contextlib.suppress(Exception):
                self._ask()
        self._facts.update(
            progress=self._tally.progress,
            usage=self._meter.usage(
                spark_cpu_seconds=self._tally.cpu_seconds, core_seconds=self._tally.core_seconds
            ),
        )

    def _is_young(self) -> bool:
        return self._meter.seconds < _FIRST_SECONDS

    def _follow(self) -> None:
        rest = _FIRST_SECONDS
        while not self._over.wait(rest):
            before = time.monotonic()
            with contextlib.suppress(Exception):
                self._ask()
            rest = rest_after(time.monotonic() - before)

    def _ask(self) -> None:
        if self._api:
            jobs = [job for job in self._get("jobs") if self._is_ours(job)]
            known = {stage for job in jobs for stage in job.get("stageIds", ())}
            fresh = sorted(stage for stage in known if not self._tally.is_settled(stage))
            told = [each for stage in fresh for each in self._get(f"stages/{stage}?details=false")]
            with self._lock:
                for job in jobs:
                    self._tally.see_job(job)
                for stage in told:
                    self._tally.see_stage(stage)
        self._meter.sample()
        self._facts.update(progress=self._tally.progress)

    def _is_ours(self, job: dict[str, Any]) -> bool:
        return any(self._mark in tag for tag in job.get("jobTags", ()))

    def _get(self, path: str) -> list[dict[str, Any]]:
        # An address that the host has made, on this computer.
        request = urllib.request.Request(f"{self._api}/{path}", headers=self._headers)  # noqa: S310
        with OPENER.open(request, timeout=_HTTP_SECONDS) as answer:
            found: list[dict[str, Any]] = json.load(answer)
        return found


class ConnectProgress(ServerProgress):
    """The same for a session of Connect, whose queries report progress themselves."""

    def __init__(
        self,
        spark: SparkSession,
        facts: FactsFile,
        meter: Meter,
        ui_link: str,
        headers: Mapping[str, str] = NO_HEADERS,
    ) -> None:
        super().__init__(
            f"_Session_{spark.session_id}_", facts, meter, ui_link=ui_link, headers=headers
        )
        # A plain function, as its protocol is one with an abstract `__call__`.
        spark.registerProgressHandler(self._hear)  # type: ignore[arg-type]

    def _hear(
        self,
        stages: Iterable[StageInfo] | None,
        inflight_tasks: int,
        operation_id: str | None,
        done: bool,
    ) -> None:
        """A message about one query; on the thread that waits for its result."""
        with self._lock:
            running = 0 if done else inflight_tasks
            for stage in stages or ():
                # What a query has left undone was skipped, or ended behind its last message.
                tasks = stage.num_completed_tasks if done else stage.num_tasks
                left = tasks - stage.num_completed_tasks
                active = 0 if stage.done else min(running, left)
                running -= active
                self._tally.see_stage(
                    {
                        "stageId": stage.stage_id,
                        # Open until the REST API has told the rest of it.
                        "status": "ACTIVE" if active or not (stage.done or done) else "",
                        "numTasks": tasks,
                        "numActiveTasks": active,
                        "numCompleteTasks": stage.num_completed_tasks,
                        "inputBytes": stage.num_bytes_read,
                    }
                )
            self._facts.update(progress=self._tally.progress)


def register(
    spark: SparkSession,
    facts: FactsFile,
    *,
    ui_link: str,
    headers: Mapping[str, str] = NO_HEADERS,
) -> ConnectProgress:
    """Tell of this session from now on; `close` it before the session is closed."""
    return ConnectProgress(spark, facts, Meter(), ui_link, headers)
