"""Topologies in the shape of Storm's UI REST API, for what reads that already.

The id of a topology is its name. A worker is the attempt that runs it: there is one, or none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from common.model.topologies import (
    WINDOWS,
    ComponentError,
    ComponentReport,
    Figures,
    status_of,
)
from common.model.topology_graphs import GraphPart
from common.model.topology_verdicts import shape_of
from common.store.people.topologies import TopologyView
from operations.topology_views import is_running, uptime_of

_PRETTY: Final[Mapping[str, str]] = {
    "600": "10m 0s",
    "10800": "3h 0m 0s",
    "86400": "1d 0h 0m 0s",
    ":all-time": "All time",
}


def summary_row(view: TopologyView) -> dict[str, object]:
    """A topology in Storm's `topology/summary`."""
    shape = shape_of(view.wanted, view.graph).values()
    uptime = uptime_of(view)
    return {
        "id": view.name,
        "encodedId": view.name,
        "name": view.name,
        "status": status_of(view.wanted, view.report).value,
        "uptime": _pretty(uptime),
        "uptimeSeconds": int(uptime or 0),
        "workersTotal": int(is_running(view)),
        "executorsTotal": sum(executors for executors, _ in shape),
        "tasksTotal": sum(tasks for _, tasks in shape),
    }


def page_row(view: TopologyView, window: str) -> dict[str, object]:
    """A topology's page; the figures of its components are those of a window."""
    parts = [_Shown.of(view, part) for part in view.graph.parts]
    return {
        **summary_row(view),
        "window": window,
        "windowHint": _PRETTY[window],
        "topologyStats": [_whole(parts, each) for each in WINDOWS],
        "spouts": [_spout(each, window) for each in parts if each.part.kind == "spout"],
        "bolts": [_bolt(each, window) for each in parts if each.part.kind != "spout"],
        "configuration": list(view.graph.config),
    }


def component_page(view: TopologyView, part: GraphPart, window: str) -> dict[str, object]:
    """A component's page."""
    shown = _Shown.of(view, part)
    is_spout = part.kind == "spout"
    figures = shown.figures(window)
    return {
        "id": part.id,
        "encodedId": part.id,
        "name": view.name,
        "topologyId": view.name,
        "topologyStatus": status_of(view.wanted, view.report).value,
        "componentType": "spout" if is_spout else "bolt",
        "windowHint": _PRETTY[window],
        "executors": shown.executors,
        "tasks": shown.tasks,
        "spoutSummary": [_of_window(shown, each) for each in WINDOWS] if is_spout else [],
        "boltStats": [] if is_spout else [_of_window(shown, each) for each in WINDOWS],
        "inputStats": [_input(figures, each) for each in figures.executed],
        "outputStats": [
            {
                "stream": stream,
                "emitted": figures.emitted.get(stream, 0),
                "transferred": figures.transferred.get(stream, 0),
            }
            for stream in sorted({*figures.emitted, *figures.transferred})
        ],
        "executorStats": [
            {"id": f"[{task}-{task}]", "executed": executed}
            for task, executed in enumerate(() if shown.report is None else shown.report.by_task)
        ],
        "componentErrors": [
            {
                "time": int(each.time.timestamp()),
                "error": each.error,
                "errorTask": each.task,
                "errorHost": "" if view.attempt is None else view.attempt.host or "",
                "errorLapsedSecs": _lapsed(view, each),
            }
            for each in shown.errors
        ],
    }


def visualization(view: TopologyView) -> dict[str, dict[str, object]]:
    """The graph as Storm's pages draw it: by component, with the streams that it takes."""
    drawn: dict[str, dict[str, object]] = {}
    for part in view.graph.parts:
        figures = _Shown.of(view, part).figures(":all-time")
        drawn[part.id] = {
            ":type": "spout" if part.kind == "spout" else "bolt",
            ":capacity": figures.capacity,
            ":latency": figures.latency_ms,
            ":transferred": _sum(figures.transferred),
            ":inputs": [
                {
                    ":component": taken.component,
                    ":stream": taken.stream,
                    ":grouping": taken.grouping,
                }
                for taken in part.inputs
            ],
        }
    return drawn


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shown:
    """A component with what its task has reported of it."""

    part: GraphPart
    executors: int
    tasks: int
    report: ComponentReport | None
    errors: tuple[ComponentError, ...]

    @classmethod
    def of(cls, view: TopologyView, part: GraphPart) -> _Shown:
        reported = () if view.report is None else view.report.components
        found = next((each for each in reported if each.id == part.id), None)
        executors, tasks = shape_of(view.wanted, view.graph)[part.id]
        return cls(
            part=part,
            executors=found.executors if found else executors,
            tasks=found.tasks if found else tasks,
            report=found,
            errors=tuple(
                each
                for each in (() if view.report is None else view.report.errors)
                if each.component == part.id
            ),
        )

    def figures(self, window: str) -> Figures:
        return (self.report.windows.get(window) if self.report else None) or Figures()


def _whole(parts: Iterable[_Shown], window: str) -> dict[str, object]:
    """The topology's own figures: acks, failures and latency are those of its spouts."""
    figures = [(each.part.kind == "spout", each.figures(window)) for each in parts]
    spouts = [each for is_spout, each in figures if is_spout]
    acked = sum(_sum(each.acked) for each in spouts)
    latency = sum(each.latency_ms * _sum(each.acked) for each in spouts) / acked if acked else 0.0
    return {
        "window": window,
        "windowPretty": _PRETTY[window],
        "emitted": sum(_sum(each.emitted) for _, each in figures),
        "transferred": sum(_sum(each.transferred) for _, each in figures),
        "completeLatency": _latency(latency),
        "acked": acked,
        "failed": sum(_sum(each.failed) for each in spouts),
    }


def _spout(shown: _Shown, window: str) -> dict[str, object]:
    figures = shown.figures(window)
    return {
        "spoutId": shown.part.id,
        "encodedSpoutId": shown.part.id,
        "executors": shown.executors,
        "tasks": shown.tasks,
        "emitted": _sum(figures.emitted),
        "transferred": _sum(figures.transferred),
        "completeLatency": _latency(figures.latency_ms),
        "acked": _sum(figures.acked),
        "failed": _sum(figures.failed),
        "lastError": _last(shown),
    }


def _bolt(shown: _Shown, window: str) -> dict[str, object]:
    figures = shown.figures(window)
    return {
        "boltId": shown.part.id,
        "encodedBoltId": shown.part.id,
        "executors": shown.executors,
        "tasks": shown.tasks,
        "emitted": _sum(figures.emitted),
        "transferred": _sum(figures.transferred),
        "executed": _sum(figures.executed),
        # Records are taken and acked at once: Storm's two latencies are one here.
        "executeLatency": _latency(figures.latency_ms),
        "processLatency": _latency(figures.latency_ms),
        "capacity": _latency(figures.capacity),
        "acked": _sum(figures.acked),
        "failed": _sum(figures.failed),
        "lastError": _last(shown),
    }


def _of_window(shown: _Shown, window: str) -> dict[str, object]:
    row = _spout(shown, window) if shown.part.kind == "spout" else _bolt(shown, window)
    kept = {name: value for name, value in row.items() if name in _FIGURES}
    return {"window": window, "windowPretty": _PRETTY[window], **kept}


_FIGURES: Final = frozenset(
    {
        *("emitted", "transferred", "executed", "acked", "failed", "capacity"),
        *("completeLatency", "executeLatency", "processLatency"),
    }
)


def _input(figures: Figures, source: str) -> dict[str, object]:
    component, _, stream = source.partition(":")
    return {
        "component": component,
        "encodedComponent": component,
        "stream": stream or "default",
        "executed": figures.executed[source],
        "acked": figures.acked.get(source, 0),
        "failed": figures.failed.get(source, 0),
    }


def _last(shown: _Shown) -> str:
    return max(shown.errors, key=lambda each: each.time).error if shown.errors else ""


def _lapsed(view: TopologyView, error: ComponentError) -> int:
    return int(max(timedelta(), view.looked_at - error.time).total_seconds())


def _latency(number: float) -> str:
    return f"{number:.3f}"


def _sum(counts: Mapping[str, int]) -> int:
    return sum(counts.values())


def _pretty(seconds: float | None) -> str:
    """Return a span of time as Storm writes it: 1d 2h 3m 4s, from the first unit that is not 0."""
    whole = int(seconds or 0)
    parts = (
        (whole // 86_400, "d"),
        (whole // 3_600 % 24, "h"),
        (whole // 60 % 60, "m"),
        (whole % 60, "s"),
    )
    first = next((at for at, (number, _) in enumerate(parts) if number), len(parts) - 1)
    return " ".join(f"{number}{unit}" for number, unit in parts[first:])
