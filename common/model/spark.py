"""The *facts* of a Spark application, as its attempt reports them.

A process of the task's writes them into a file, which the task itself can write too; so nothing
here is believed further than to be shown. In particular no application is killed by an id that
stands here: that takes a tag that its manager shows. Sizes are in bytes, times in seconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final

from common.model.failures import FailureReason

LIMIT_BYTES = 64_000
_TEXT_CHARS = 500
_APPLICATIONS = 20
_LARGEST = 1 << 62


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The progress of an application, and the data that it has moved so far."""

    jobs_running: int = 0
    jobs_done: int = 0
    jobs_failed: int = 0
    stages_running: int = 0
    stages_done: int = 0
    stages_failed: int = 0
    tasks: int = 0
    """Of the stages known so far; a query may add more."""
    tasks_running: int = 0
    tasks_done: int = 0
    tasks_failed: int = 0
    rows_in: int = 0
    bytes_in: int = 0
    rows_out: int = 0
    bytes_out: int = 0
    spill_bytes: int = 0
    shuffle_read_bytes: int = 0
    shuffle_write_bytes: int = 0
    executor_memory_bytes: int = 0
    """The largest heap that one executor was seen to use."""
    waiting: str = ""
    """The cause for which an accepted application waits, in its manager's words."""

    @property
    def share(self) -> float | None:
        """The part of the tasks that is done, from 0 to 1; None before there are any."""
        return min(1.0, self.tasks_done / self.tasks) if self.tasks else None

    def ended(self, *, well: bool) -> Progress:
        """Return the final progress, from the last report before the application's end.

        Nothing runs any more. All tasks that were known are done if the application succeeded.
        """
        still = replace(self, jobs_running=0, stages_running=0, tasks_running=0, waiting="")
        if not well:
            return still
        return replace(
            still,
            jobs_done=self.jobs_done + self.jobs_running,
            stages_done=self.stages_done + self.stages_running,
            tasks_done=max(self.tasks, self.tasks_done),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """The cost of an ended attempt."""

    run_seconds: float = 0.0
    cpu_seconds: float = 0.0
    """Of the task's own processes, and of Spark's tasks where these are known."""
    peak_memory_bytes: int = 0
    """Of the task's own processes."""
    core_seconds: float = 0.0
    """Time in which Spark's tasks held a core: 3,600 are a core-hour."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkFacts:
    """All that an attempt has said of its application so far."""

    application_ids: tuple[str, ...] = ()
    ui_link: str = ""
    history_link: str = ""
    progress: Progress = field(default_factory=Progress)
    usage: Usage = field(default_factory=Usage)
    failure: FailureReason | None = None
    waited: bool = False
    """True once `progress` has had a cause of waiting."""

    @property
    def app_link(self) -> str:
        """The ids as `t_ds_task_instance.app_link` holds them."""
        return ",".join(self.application_ids)

    def to_json(self) -> str:
        """The document, in one line."""
        document = asdict(self)
        document["failure"] = None if self.failure is None else self.failure.value
        return json.dumps(document)

    @classmethod
    def from_json(cls, document: bytes | str) -> SparkFacts:
        """The facts in a document that anybody may have written.

        What isn't as it should be counts as not said; a document that is none says nothing.
        """
        try:
            found = json.loads(document) if len(document) <= LIMIT_BYTES else None
        except (ValueError, RecursionError):
            found = None
        if not isinstance(found, Mapping):
            return cls()
        ids = found.get("application_ids")
        known = (_text(each) for each in (ids if isinstance(ids, list) else [])[:_APPLICATIONS])
        return cls(
            application_ids=tuple(each for each in known if each and "," not in each),
            ui_link=web_link(found.get("ui_link")),
            history_link=web_link(found.get("history_link")),
            progress=progress_from(found.get("progress")),
            usage=usage_from(found.get("usage")),
            failure=_failure(found.get("failure")),
            waited=found.get("waited") is True,
        )


def progress_from(value: object) -> Progress:
    """Progress from an object, or from text that holds one as JSON."""
    given = _object(value)
    counts = {each: _count(given.get(each)) for each in _COUNTS}
    return Progress(**counts, waiting=_text(given.get("waiting")))


def usage_from(value: object) -> Usage:
    """Usage from an object, or from text that holds one as JSON."""
    given = _object(value)
    return Usage(
        run_seconds=_seconds(given.get("run_seconds")),
        cpu_seconds=_seconds(given.get("cpu_seconds")),
        peak_memory_bytes=_count(given.get("peak_memory_bytes")),
        core_seconds=_seconds(given.get("core_seconds")),
    )


_COUNTS: Final = tuple(each.name for each in fields(Progress) if each.name != "waiting")


def to_text(value: Progress | Usage) -> str:
    """As a column holds it: JSON of what isn't 0 or empty."""
    return json.dumps({name: each for name, each in asdict(value).items() if each})


def _object(value: object) -> Mapping[str, Any]:
    if isinstance(value, str):
        try:
            value = json.loads(value) if len(value) <= LIMIT_BYTES else None
        except (ValueError, RecursionError):
            return {}
    return value if isinstance(value, Mapping) else {}


def _text(value: object) -> str:
    if isinstance(value, str) and len(value) <= _TEXT_CHARS and value.isprintable():
        return value.strip()
    return ""


def ids_in(app_link: str | None) -> list[str]:
    """The ids in a row's `app_link`; there may be several, one after the other."""
    return [each for each in (app_link or "").split(",") if each]


def web_link(value: object) -> str:
    """The address if people may be sent to it, else "": they click on it."""
    text = _text(value)
    return text if text.startswith(("http://", "https://")) and " " not in text else ""


def _count(value: object) -> int:
    if isinstance(value, int) and not isinstance(value, bool):
        return min(max(0, value), _LARGEST)
    return 0


def _seconds(value: object) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 1e12:
        return float(value)
    return 0.0


def _failure(value: object) -> FailureReason | None:
    try:
        return FailureReason(value) if isinstance(value, str) else None
    except ValueError:
        return None
