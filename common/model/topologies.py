"""The documents between people and the task that runs a topology: code, orders, report.

Pure. They stand as JSON in the tables of topologies, where people write orders and the worker that
runs the task writes its reports. A topology is an ordinary run of one task of type `TASK_TYPE`.

    code      the files of a version, which never change    `Code`
    orders    what people want, by their number             `Wanted`
    report    how far the task has come                     `Report`
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

TASK_TYPE: Final = "TOPOLOGY"
"""The type of the task instances that run topologies."""
TASK_NAME: Final = "run"
"""The name of the only task of a topology's process definition."""
WINDOWS: Final[Mapping[str, int | None]] = {
    "600": 600,
    "10800": 10_800,
    "86400": 86_400,
    ":all-time": None,
}
"""The windows that figures are kept for, by Storm's names, in seconds."""
_GREATEST: Final = 1e300


class DocumentError(ValueError):
    """A document is none of these."""


class Status(StrEnum):
    """A topology's status, in Storm's words: derived from what is wanted and what is obeyed."""

    ACTIVE = "ACTIVE"
    INACTIVE = "INACTIVE"
    REBALANCING = "REBALANCING"
    KILLED = "KILLED"


class RunState(StrEnum):
    """A task's own report of what it does; `state` in a report."""

    STARTING = "STARTING"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    """Inactive: its spouts emit nothing."""
    DRAINING = "DRAINING"
    """Its spouts emit nothing any more, for it is to end or to be rebalanced."""
    WAITING = "WAITING"
    """A batch has failed; it is tried again after a while."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Code:
    """The files of a version by their names, and the one that declares the topology.

    `main` is a YAML file, or a Python file with the name of the variable or function in it that
    is the topology, as in `words.py:topology`.
    """

    main: str
    files: Mapping[str, str]

    def document(self) -> dict[str, Any]:
        return {"main": self.main, "files": dict(self.files)}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Code:
        """Read what `document` has written."""
        return cls(main=document["main"], files=dict(document["files"]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The wishes of people for a topology. `number` grows with each change of any part.

    `cores`, `executors` and `tasks` (by component) are what rebalances have set, the last of which
    was the change `rebalanced`. Before it acts on one, and before it ends if `killed`, the task
    lets `wait_seconds` go by with its spouts off.
    """

    number: int = 0
    rebalanced: int = 0
    active: bool = True
    killed: bool = False
    wait_seconds: int = 0
    cores: int | None = None
    executors: Mapping[str, int] = field(default_factory=dict)
    tasks: Mapping[str, int] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        return {
            "number": self.number,
            "rebalanced": self.rebalanced,
            "active": self.active,
            "killed": self.killed,
            "waitSeconds": self.wait_seconds,
            "cores": self.cores,
            "executors": dict(self.executors),
            "tasks": dict(self.tasks),
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Wanted:
        """Read what `document` has written."""
        return cls(
            number=int(document.get("number", 0)),
            rebalanced=int(document.get("rebalanced", 0)),
            active=bool(document.get("active", True)),
            killed=bool(document.get("killed", False)),
            wait_seconds=int(document.get("waitSeconds", 0)),
            cores=document.get("cores"),
            executors=dict(document.get("executors", {})),
            tasks=dict(document.get("tasks", {})),
        )

    def shaped_as(self, former: Wanted) -> Wanted:
        """Return this in the shape of former orders; a rebalance since then is not obeyed by it."""
        return replace(
            self,
            number=self.number if self.rebalanced == former.rebalanced else former.number,
            rebalanced=former.rebalanced,
            cores=former.cores,
            executors=former.executors,
            tasks=former.tasks,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Counts of records of one component in a window; `latency_ms` of one record, in the mean.

    `emitted` and `transferred` are by stream, `executed`, `acked` and `failed` by the input, as
    `component:stream`; of a spout, `acked` and `failed` are by its own stream.
    """

    emitted: Mapping[str, int] = field(default_factory=dict)
    transferred: Mapping[str, int] = field(default_factory=dict)
    executed: Mapping[str, int] = field(default_factory=dict)
    acked: Mapping[str, int] = field(default_factory=dict)
    failed: Mapping[str, int] = field(default_factory=dict)
    latency_ms: float = 0.0
    capacity: float = 0.0
    """The part of the window that its executors were at work."""

    def document(self) -> dict[str, Any]:
        return {
            "emitted": dict(self.emitted),
            "transferred": dict(self.transferred),
            "executed": dict(self.executed),
            "acked": dict(self.acked),
            "failed": dict(self.failed),
            "latencyMs": self.latency_ms,
            "capacity": self.capacity,
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Figures:
        """Read what `document` has written; `ValueError` if it is none."""
        return cls(
            emitted=_counts(document, "emitted"),
            transferred=_counts(document, "transferred"),
            executed=_counts(document, "executed"),
            acked=_counts(document, "acked"),
            failed=_counts(document, "failed"),
            latency_ms=_number(document.get("latencyMs", 0)),
            capacity=_number(document.get("capacity", 0)),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentReport:
    """A component as it runs: `windows` by the names of `WINDOWS`, `by_task` what each executed.

    `hot_key`: of the task that has executed the most, the key it has seen most, as text; empty if
    the component is not grouped by fields.
    """

    id: str
    kind: str
    """spout, bolt, stateful or sink."""
    executors: int
    tasks: int
    windows: Mapping[str, Figures] = field(default_factory=dict)
    by_task: tuple[int, ...] = ()
    hot_key: str = ""

    def document(self) -> dict[str, Any]:
        return {
            "id": self.id,
            "kind": self.kind,
            "executors": self.executors,
            "tasks": self.tasks,
            "windows": {name: each.document() for name, each in self.windows.items()},
            "byTask": list(self.by_task),
            "hotKey": self.hot_key,
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> ComponentReport:
        """Read what `document` has written; `ValueError` if it is none."""
        return cls(
            id=_text(document.get("id")),
            kind=_text(document.get("kind")),
            executors=_count(document.get("executors")),
            tasks=_count(document.get("tasks")),
            windows={
                name: Figures.of(_object(each))
                for name, each in _object(document.get("windows", {})).items()
                if name in WINDOWS
            },
            by_task=tuple(_count(each) for each in _list(document.get("byTask", []))),
            hot_key=_text(document.get("hotKey", "")),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ComponentError:
    """An error of a component's code, or the loss of one of its rows, for people."""

    component: str
    task: int
    time: datetime
    error: str

    def document(self) -> dict[str, Any]:
        return {
            "component": self.component,
            "task": self.task,
            "time": self.time.isoformat(),
            "error": self.error,
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> ComponentError:
        """Read what `document` has written; `ValueError` if it is none."""
        return cls(
            component=_text(document.get("component")),
            task=_count(document.get("task")),
            time=_moment(document.get("time")),
            error=_text(document.get("error")),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """A task's report. `obeyed` is the number of the last orders that it has carried out.

    `batch`: the last batch that is committed, -1 before the first. `lag`: the records that each
    spout has not emitted yet. `trouble`: why nothing goes on just now, for people. `failures`:
    batches that failed in a row.
    """

    state: RunState = RunState.STARTING
    obeyed: int = -1
    version: int = 0
    began: datetime | None = None
    batch: int = -1
    cores: int = 0
    lag: Mapping[str, int] = field(default_factory=dict)
    components: Sequence[ComponentReport] = ()
    errors: Sequence[ComponentError] = ()
    trouble: str = ""
    failures: int = 0

    def document(self) -> dict[str, Any]:
        return {
            "state": self.state.value,
            "obeyed": self.obeyed,
            "version": self.version,
            "began": None if self.began is None else self.began.isoformat(),
            "batch": self.batch,
            "cores": self.cores,
            "lag": dict(self.lag),
            "components": [each.document() for each in self.components],
            "errors": [each.document() for each in self.errors],
            "trouble": self.trouble,
            "failures": self.failures,
        }

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Report:
        """Read what `document` has written; `ValueError` says what of it is none."""
        began = document.get("began")
        return cls(
            state=RunState(document.get("state", RunState.STARTING)),
            obeyed=_count(document.get("obeyed", -1), least=-1),
            version=_count(document.get("version", 0)),
            began=None if began is None else _moment(began),
            batch=_count(document.get("batch", -1), least=-1),
            cores=_count(document.get("cores", 0)),
            lag=_counts(document, "lag"),
            components=tuple(
                ComponentReport.of(_object(each)) for each in _list(document.get("components", []))
            ),
            errors=tuple(
                ComponentError.of(_object(each)) for each in _list(document.get("errors", []))
            ),
            trouble=_text(document.get("trouble", "")),
            failures=_count(document.get("failures", 0)),
        )


def status_of(wanted: Wanted, report: Report | None) -> Status:
    """Return what a topology is; one that no task has reported yet is what is wanted of it."""
    if wanted.killed:
        return Status.KILLED
    if report is not None and report.obeyed < wanted.rebalanced:
        return Status.REBALANCING
    return Status.ACTIVE if wanted.active else Status.INACTIVE


def _object(given: object) -> Mapping[str, Any]:
    if not isinstance(given, dict):
        raise DocumentError("an object is missing")
    return given


def _list(given: object) -> list[Any]:
    if not isinstance(given, list):
        raise DocumentError("a list is missing")
    return given


def _text(given: object) -> str:
    if not isinstance(given, str):
        raise DocumentError(f"{given!r:.50} is no text")
    return given


def _count(given: object, *, least: int = 0) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not least <= given < 1 << 63:
        raise DocumentError(f"{given!r:.50} is no count")
    return given


def _number(given: object) -> float:
    if isinstance(given, bool) or not isinstance(given, int | float):
        raise DocumentError(f"{given!r:.50} is no number")
    # Neither NaN nor infinity, which no document of JSON holds, nor what no float does.
    if not -_GREATEST < given < _GREATEST:
        raise DocumentError(f"{given!r:.50} is no number that can be kept")
    return float(given)


def _moment(given: object) -> datetime:
    found = datetime.fromisoformat(_text(given))
    if found.tzinfo is None:
        raise DocumentError(f"{given!r:.50} is a time without its zone")
    return found


def _counts(document: Mapping[str, Any], key: str) -> dict[str, int]:
    return {_text(name): _count(each) for name, each in _object(document.get(key, {})).items()}
