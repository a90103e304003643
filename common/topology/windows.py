"""The figures of a topology's components over windows of time. Pure.

Counts are kept in buckets of a minute for a day, and all together for ever; the latter outlive the
task (`document`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

from common.model.topologies import WINDOWS, ComponentReport, Figures
from common.topology.components import Component, Sink, Spout, StatefulBolt
from common.topology.declaration import Part

Counts: TypeAlias = Mapping[tuple[str, str, str], int]
"""Counts by what is counted, the component, and the stream, input, task or key in question."""

_BUCKET_SECONDS: Final = 60
_MOST_KEYS: Final = 1_000


class Windows:
    """Counts by the time at which they came in, in POSIX seconds."""

    def __init__(self, document: Mapping[str, Any] | None = None, *, begun: float) -> None:
        self._begun = begun
        self._buckets: deque[tuple[int, Counter[tuple[str, str, str]]]] = deque()
        self._all: Counter[tuple[str, str, str]] = Counter()
        self._seconds = 0.0
        if document is not None:
            for what, component, name, count in document.get("counts", []):
                self._all[what, component, name] = count
            self._seconds = float(document.get("seconds", 0))

    def add(self, counts: Counts, now: float) -> None:
        """Count what was done just now."""
        minute = int(now // _BUCKET_SECONDS)
        if not self._buckets or self._buckets[-1][0] != minute:
            self._buckets.append((minute, Counter()))
        for key, count in counts.items():
            if count:
                self._buckets[-1][1][key] += count
                self._all[key] += count
        longest = max(each for each in WINDOWS.values() if each is not None)
        while self._buckets and self._buckets[0][0] < minute - longest // _BUCKET_SECONDS:
            self._buckets.popleft()
        keys = [key for key in self._all if key[0] == "key"]
        if len(keys) > _MOST_KEYS:
            for key in sorted(keys, key=self._all.__getitem__)[: len(keys) - _MOST_KEYS]:
                del self._all[key]

    def document(self, now: float) -> dict[str, Any]:
        """Return what has been counted in all, for another task to go on from."""
        return {
            "counts": [[*key, count] for key, count in sorted(self._all.items())],
            "seconds": self._seconds + now - self._begun,
        }

    def components(self, parts: Iterable[Part], now: float) -> Sequence[ComponentReport]:
        """Return the reports of components."""
        sums = {name: self._sum(seconds, now) for name, seconds in WINDOWS.items()}
        lengths = {
            name: (self._seconds if seconds is None else 0)
            + min(now - self._begun, now if seconds is None else seconds)
            for name, seconds in WINDOWS.items()
        }
        return tuple(
            ComponentReport(
                id=part.id,
                kind=kind_of(part.component),
                executors=part.executors,
                tasks=part.tasks,
                windows={
                    name: _figures(sums[name], part, max(lengths[name], 1.0)) for name in WINDOWS
                },
                by_task=self._by_task(part),
                hot_key=self._hot_key(part),
            )
            for part in parts
        )

    def _sum(self, seconds: int | None, now: float) -> Counter[tuple[str, str, str]]:
        if seconds is None:
            return self._all
        found: Counter[tuple[str, str, str]] = Counter()
        for minute, counts in self._buckets:
            if minute * _BUCKET_SECONDS > now - seconds:
                found.update(counts)
        return found

    def _by_task(self, part: Part) -> tuple[int, ...]:
        return tuple(self._all["task", part.id, str(task)] for task in range(part.tasks))

    def _hot_key(self, part: Part) -> str:
        """Return the key that the busiest task has seen most."""
        counts = self._by_task(part)
        if not any(counts):
            return ""
        busiest = f"{counts.index(max(counts))} "
        keys = {
            name.removeprefix(busiest): count
            for (what, component, name), count in self._all.items()
            if what == "key" and component == part.id and name.startswith(busiest)
        }
        return max(keys, key=lambda key: (keys[key], key), default="")


def kind_of(component: Component) -> str:
    """Return the kind of a component, for people."""
    for kind, name in ((Spout, "spout"), (StatefulBolt, "stateful"), (Sink, "sink")):
        if isinstance(component, kind):
            return name
    return "bolt"


def _figures(counts: Counts, part: Part, seconds: float) -> Figures:
    def of(what: str) -> dict[str, int]:
        return {
            name: count
            for (kind, component, name), count in counts.items()
            if kind == what and component == part.id
        }

    executed = of("executed")
    failed = of("failed")
    micros = counts.get(("micros", part.id, ""), 0)
    total = sum(executed.values())
    acked = of("acked") or {name: count - failed.get(name, 0) for name, count in executed.items()}
    return Figures(
        emitted=of("emitted"),
        transferred=of("transferred"),
        executed=executed,
        acked=acked,
        failed=failed,
        latency_ms=micros / 1_000 / total if total else 0.0,
        capacity=micros / 1_000_000 / seconds / part.executors,
    )
