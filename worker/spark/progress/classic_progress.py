"""Tells how far a private driver is, while it runs, and at its end what it has taken.

Runs in a classic task's own process, in a thread of its own that asks the driver's status store
through the gateway; neither Spark's UI nor its REST API need be on. An answer that doesn't come
costs what it was to show, never the task.
"""

from __future__ import annotations

import contextlib
import json
import threading
import time
from typing import TYPE_CHECKING, Any

from worker.spark.progress.facts_file import FactsFile
from worker.spark.progress.meter import Meter
from worker.spark.progress.tally import Tally

if TYPE_CHECKING:
    from pyspark import SparkContext

_FIRST_SECONDS = 1.0
"""A start-up has better things to do than to tell of itself."""
_REST_SECONDS = 0.5
_MOST_OF_A_CORE = 0.04
_DRAIN_MS = 3_000


class ClassicProgress:
    """One application from its start to its end."""

    def __init__(self, context: SparkContext, facts: FactsFile, meter: Meter) -> None:
        self._context = context
        self._facts = facts
        self._meter = meter
        self._tally = Tally()
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._mapper: Any = None
        self.is_local = str(context.master).startswith("local")
        facts.update(
            application_ids=(str(context.applicationId),), ui_link=str(context.uiWebUrl or "")
        )
        self._stop_context = context.stop
        # An author's own `spark.stop()` is an end as good as any.
        context.stop = self._take_and_stop  # type: ignore[method-assign]
        self._thread = threading.Thread(target=self._follow, name="progress", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Say how it was in the end. The context may be stopped, or its JVM gone."""
        self._over.set()
        self._thread.join()
        self._take_last()

    def report_usage(self) -> None:
        """Say what it has taken, as far as that is known now."""
        self._facts.update(
            usage=self._meter.usage(
                spark_cpu_seconds=0.0 if self.is_local else self._tally.cpu_seconds,
                core_seconds=self._tally.core_seconds,
            )
        )

    def _follow(self) -> None:
        rest = _FIRST_SECONDS
        while not self._over.wait(rest):
            before = time.monotonic()
            try:
                self._take()
            except Exception:  # noqa: BLE001  # The JVM is gone, or the context stopped.
                return
            cost = time.monotonic() - before
            rest = max(_REST_SECONDS, cost / _MOST_OF_A_CORE)

    def _take_and_stop(self) -> None:
        self._over.set()
        self._take_last()
        self._stop_context()

    def _take_last(self) -> None:
        if self._context._jsc is not None:  # noqa: SLF001
            with contextlib.suppress(Exception):
                # What has ended just now is still on its way into the store.
                self._context._jsc.sc().listenerBus().waitUntilEmpty(_DRAIN_MS)  # noqa: SLF001
            with contextlib.suppress(Exception):
                self._take()
        self.report_usage()

    def _take(self) -> None:
        with self._lock:
            store = self._context._jsc.sc().statusStore()  # noqa: SLF001
            jvm: Any = self._context._jvm  # noqa: SLF001
            if self._mapper is None:
                self._mapper = _mapper(jvm)
            for job in json.loads(self._mapper.writeValueAsString(store.jobsList(None))):
                self._tally.see_job(job)
            none = self._context._gateway.new_array(jvm.double, 0)  # type: ignore[union-attr]  # noqa: SLF001
            stages = store.stageList(None, False, False, none, jvm.java.util.ArrayList())
            for stage in json.loads(self._mapper.writeValueAsString(stages)):
                self._tally.see_stage(stage)
            if self.is_local:
                runtime = jvm.java.lang.Runtime.getRuntime()
                self._tally.see_heap(runtime.totalMemory() - runtime.freeMemory())
            self._meter.sample()
            self._facts.update(progress=self._tally.progress)


def _mapper(jvm: Any) -> Any:
    """Return the converter of Spark's descriptions to JSON, in the JVM and in one call."""
    mapper = jvm.com.fasterxml.jackson.databind.ObjectMapper()
    module = getattr(jvm, "com.fasterxml.jackson.module.scala.DefaultScalaModule$")
    return mapper.registerModule(getattr(module, "MODULE$"))
