"""The memory of a SPARK task: as its keys say, or more after an attempt with too little.

Pure but for reading the task's keys. What neither the task nor its settings say, the defaults of
the Spark installation may say, which the runner reads; it is told what to raise there.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from common.model.retry_policy import MemoryRetry, megabytes_in, memory_retry_of
from common.model.spark_keys import Option
from common.model.task_type import ValueFaultError, read_size
from worker.launching.base import TaskContext, TaskParameterError, fault_at

MEMORY_KEYS: Final[Mapping[str, str]] = {
    "driverMemory": "spark.driver.memory",
    "executorMemory": "spark.executor.memory",
    "driverMemoryOverhead": "spark.driver.memoryOverhead",
    "executorMemoryOverhead": "spark.executor.memoryOverhead",
    "": "spark.executor.pyspark.memory",
}
"""Keys that memory-raising retries multiply, and the settings that they are."""
_HEAPS: Final = ("spark.driver.memory", "spark.executor.memory")
_SMALLEST_HEAP_MB: Final = 450
"""One and a half times what Spark keeps for itself (its `UnifiedMemoryManager`)."""


def check_heap(value: Any) -> None:
    """Refuse a heap with which Spark never starts; 0 stands for none."""
    megabytes = megabytes_in(value)
    if megabytes and megabytes < _SMALLEST_HEAP_MB:
        raise ValueFaultError(
            f"must be {_SMALLEST_HEAP_MB}M or more, below which Spark starts nothing,"
            f" not {str(value)[:40]!r}"
        )


class Memory:
    """The memory of each key: as it says, or more after an attempt that had too little."""

    def __init__(self, context: TaskContext) -> None:
        self._context = context
        self._factor = context.task.memory_factor
        self._policy: MemoryRetry | None = None
        self._raised: dict[str, str] = {}
        if self._factor > 1:
            node = json.loads(context.task.task_json)
            self._policy = memory_retry_of(node) if isinstance(node, dict) else None

    def of_key(self, key: str) -> str:
        """Return the memory that a key of the task's asks for; "" if it is absent."""
        with fault_at(key):
            text = read_size(self._context.params.get(key))
            if MEMORY_KEYS[key] in _HEAPS:
                check_heap(text)
        if not megabytes_in(text):
            return ""
        # Spark counts megabytes if there is no unit; the heap of a driver would be so many bytes.
        with_unit = f"{text}m" if text.isdecimal() else text
        return self._size(MEMORY_KEYS[key], with_unit)

    def raised_settings(self, conf: Mapping[str, str]) -> dict[str, str]:
        return {
            key: self._size(key, text) if key in MEMORY_KEYS.values() else text
            for key, text in conf.items()
        }

    def raised_options(self, options: list[Option]) -> list[Option]:
        found = []
        for option in options:
            key, _, text = (option.value or "").partition("=")
            if option.name == "--conf" and key in MEMORY_KEYS.values():
                option = replace(option, value=f"{key}={self._size(key, text)}")
            found.append(option)
        return found

    def of_defaults(self, said: Mapping[str, str], *, is_local: bool) -> dict[str, Any] | None:
        """Return the settings that the runner has to raise, as only the installation knows them.

        Each with True if Spark has a default for it.
        """
        if self._policy is None:
            return None
        own = {MEMORY_KEYS[key] for key in MEMORY_KEYS if key and self._context.text(key).strip()}
        keys = {
            setting: setting in _HEAPS
            for setting in MEMORY_KEYS.values()
            if setting not in own
            and setting not in said
            and not (is_local and setting != "spark.driver.memory")
        }
        return {"factor": self._factor, "ceiling_mb": self._policy.ceiling_mb, "keys": keys}

    def overheads(self, said: Mapping[str, str]) -> dict[str, str]:
        """Return the settings of the keys that spark-submit has no options for."""
        found = {}
        for key, setting in MEMORY_KEYS.items():
            if key.endswith("Overhead") and (size := self.of_key(key)):
                if setting in said:
                    raise TaskParameterError(
                        f"params.{key} and the setting {setting} are both given; which one is"
                        " meant?"
                    )
                found[setting] = size
        return found

    def notes(self) -> list[str]:
        """Lines for the log; to be asked for last."""
        if self._policy is None:
            return []
        told = ", ".join(f"{key} {size}" for key, size in self._raised.items())
        return [
            f"has {self._factor:g} times the memory of the first attempt, up to"
            f" {self._policy.ceiling_mb}m" + (f": {told}" if told else "")
        ]

    def _size(self, setting: str, text: str) -> str:
        megabytes = megabytes_in(text)
        if self._policy is None or megabytes is None:
            return text
        more = self._policy.megabytes(megabytes, self._factor)
        if more <= megabytes:
            return text
        self._raised[setting] = f"{more}m"
        return f"{more}m"
