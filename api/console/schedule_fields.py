"""The fields of the form of a schedule: as texts, and read into settings with every mistake.

It reads no table. A field whose text is that of the stored schedule is left out of the settings, so
that what its text can't show (a secret, a moment to the microsecond) stays as it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final
from zoneinfo import ZoneInfo

from api.marking import marked
from common.cron import MissingTime, RepeatedTime
from common.model.command_param import unmarked
from common.model.schedules import MisfirePolicy
from common.model.states import ExecutionType, FailureStrategy, Priority, WarningType
from common.store.people.schedule_views import ScheduleView
from operations.documents.schedules import schedule_row
from operations.errors import UsageError
from operations.schedule_settings import (
    NO_ENVIRONMENT,
    ScheduleSettings,
    read_cron,
    read_deadline,
)
from operations.start_params import params_of
from operations.stored_schedules import zone_of_schedule
from operations.times import local_text, read_zone

_DEFINITIONS: Final = "definition"
_NEVER: Final = "never"
_NONE: Final = "none"
_MOST_MISFIRES: Final = 10_000
_LONGEST_DEADLINE: Final = 31_536_000
_UNITS: Final = (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1))

DEFAULTS: Final[Mapping[str, str]] = {
    "cron": "",
    "from": "now",
    "to": _NEVER,
    "misfire_policy": MisfirePolicy.FIRE_ONCE.value,
    "misfire_limit": "10",
    "deadline": _NONE,
    "missing_time": MissingTime.SHIFT.value,
    "repeated_time": RepeatedTime.FIRST.value,
    "execution_type": _DEFINITIONS,
    "failure_strategy": FailureStrategy.CONTINUE.name,
    "priority": Priority.MEDIUM.name,
    "worker_group": "default",
    "environment": NO_ENVIRONMENT,
    "warning_type": WarningType.NONE.name,
    "params": "",
}
"""Those of the command line; the zone is the cluster's."""

CHOICES: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "execution_type": (
        (_DEFINITIONS, marked("as the definition says")),
        ("PARALLEL", marked("both run: parallel")),
        ("SERIAL_WAIT", marked("it waits for its turn: serial wait")),
        ("SERIAL_DISCARD", marked("it is dropped: serial discard")),
        ("SERIAL_PRIORITY", marked("the other is stopped: serial priority")),
    ),
    "failure_strategy": (("CONTINUE", marked("go on")), ("END", marked("are ended"))),
    "misfire_policy": (
        ("fire_once", marked("the newest one stands for all")),
        ("fire_all", marked("the newest ones happen, up to the limit")),
        ("skip", marked("none happens")),
    ),
    "missing_time": (
        ("shift", marked("fires as much later as the clock jumps")),
        ("skip", marked("does not fire on that day")),
    ),
    "repeated_time": (
        ("first", marked("fires the first time")),
        ("second", marked("fires the second time")),
        ("both", marked("fires both times")),
    ),
    "warning_type": (
        ("NONE", marked("of nothing")),
        ("FAILURE", marked("of runs that fail")),
        ("SUCCESS", marked("of runs that succeed")),
        ("ALL", marked("of every end")),
    ),
    "priority": tuple((each.name, each.name.lower()) for each in Priority),
}
"""The words of each field that takes one of a few, with their texts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mistake:
    """A text about a field with values in its places; `is_told` for one of operations."""

    text: str
    values: Mapping[str, object]
    is_told: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """A form that was read: the settings that it changes, and its mistakes by field."""

    settings: ScheduleSettings
    mistakes: Mapping[str, Mistake]


def new_texts(zone: ZoneInfo) -> dict[str, str]:
    """The texts of the form of a new schedule."""
    return {**DEFAULTS, "zone": zone.key}


def texts_of(view: ScheduleView, *, zone: ZoneInfo) -> dict[str, str]:
    """The texts of a stored schedule; `zone` is the cluster's. No secret is in them."""
    row = schedule_row(view, zone=zone)
    own = zone_of_schedule(view, zone)
    params: Any = row["params"]
    end: Any = row["end_time"]
    return {
        "cron": view.crontab,
        "zone": str(row["timezone_id"]),
        "from": local_text(view.start_time, own) or "",
        "to": local_text(end, own) or _NEVER,
        "misfire_policy": view.misfire_policy,
        "misfire_limit": str(view.misfire_limit),
        "deadline": _NONE if view.deadline is None else _span(int(view.deadline.total_seconds())),
        "missing_time": view.missing_time,
        "repeated_time": view.repeated_time,
        "execution_type": str(row["execution_type"] or _DEFINITIONS),
        "failure_strategy": str(row["failure_strategy"]),
        "priority": str(row["priority"]),
        "worker_group": str(row["worker_group"]),
        "environment": str(row["environment"] or NO_ENVIRONMENT),
        "warning_type": str(row["warning_type"]),
        "params": "\n".join(f"{name}={_shown(value)}" for name, value in params.items()),
    }


def read_fields(
    form: Mapping[str, str], texts: Mapping[str, str], stored: ScheduleView | None
) -> Read:
    """Read a form. `texts` are what it was shown with; a field that is missing is as there."""
    given = {key: _said(form.get(key, text)) or _blank(key) for key, text in texts.items()}
    changed = {
        key: text
        for key, text in given.items()
        if stored is None or text != texts[key].replace("\r\n", "\n").strip()
    }
    values: dict[str, Any] = {}
    mistakes: dict[str, Mistake] = {}
    for key, text in changed.items():
        try:
            values[key] = _params(text, texts, stored) if key == "params" else _READERS[key](text)
        except _WordError as error:
            mistakes[key] = error.mistake
        except UsageError as error:
            mistakes[key] = Mistake(text=error.message, values={}, is_told=True)
    return Read(settings=_settings(values), mistakes=mistakes)


def _said(text: str) -> str:
    return text.replace("\r\n", "\n").strip()


def _blank(key: str) -> str:
    """The word that takes the setting of a field away: what it means to empty the field."""
    return DEFAULTS[key] if key in ("from", "to", "deadline") else ""


def _settings(values: Mapping[str, Any]) -> ScheduleSettings:
    names = {"from": "first", "to": "last", "params": "start_params"}
    return ScheduleSettings(**{names.get(key, key): value for key, value in values.items()})


class _WordError(Exception):
    def __init__(self, text: str, /, **values: object) -> None:
        super().__init__(text)
        self.mistake = Mistake(text=text, values=values)


def _cron(text: str) -> str:
    if not text:
        raise _WordError(marked("is missing"))
    return read_cron(text)


def _zone(text: str) -> ZoneInfo:
    if not text:
        raise _WordError(marked("is missing"))
    return read_zone(text)


def _limit(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text[:9]) <= _MOST_MISFIRES):
        raise _WordError(marked("is a whole number from 1 to %(most)s"), most=f"{_MOST_MISFIRES:,}")
    return int(text)


def _deadline(text: str) -> int:
    seconds = read_deadline(text)
    if seconds > _LONGEST_DEADLINE:
        raise _WordError(marked("is %(longest)s at most"), longest=_span(_LONGEST_DEADLINE))
    return seconds


def _word(kind: Callable[[str], Any], known: tuple[str, ...]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        if text not in known:
            words = ", ".join(known)
            raise _WordError(
                marked("%(text)s is none; known are %(words)s"), text=f"{text!r:.50}", words=words
            )
        return kind(text)

    return read


def _member(kind: type[IntEnum]) -> Callable[[str], Any]:
    return _word(lambda text: kind[text], tuple(each.name for each in kind))


def _name(text: str) -> str:
    if not text:
        raise _WordError(marked("is missing"))
    return text


def _params(text: str, texts: Mapping[str, str], stored: ScheduleView | None) -> dict[str, str]:
    """Read NAME=VALUE lines; a value that is as it was shown is what is stored, masked or not."""
    given = params_of([each for each in text.splitlines() if each.strip()])
    if stored is None:
        return given
    lines = (each.partition("=") for each in texts["params"].splitlines())
    shown = {name: value for name, _, value in lines}
    try:
        found = json.loads(stored.start_params or "{}")
    except ValueError:
        found = {}
    known = unmarked(found) if isinstance(found, dict) else {}
    return {
        name: _shown(known[name]) if name in known and shown.get(name) == value else value
        for name, value in given.items()
    }


def _shown(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _span(seconds: int) -> str:
    """Return a span as people type it: in the largest unit that tells it exactly."""
    unit, length = next(each for each in _UNITS if seconds % each[1] == 0)
    return f"{seconds // length}{unit}" if seconds else _NONE


_READERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "cron": _cron,
    "zone": _zone,
    "from": _name,
    "to": _name,
    "misfire_policy": _word(MisfirePolicy, tuple(each.value for each in MisfirePolicy)),
    "misfire_limit": _limit,
    "deadline": _deadline,
    "missing_time": _word(MissingTime, tuple(each.value for each in MissingTime)),
    "repeated_time": _word(RepeatedTime, tuple(each.value for each in RepeatedTime)),
    "execution_type": lambda text: text if text == _DEFINITIONS else _member(ExecutionType)(text),
    "failure_strategy": _member(FailureStrategy),
    "priority": _member(Priority),
    "worker_group": _name,
    "environment": _name,
    "warning_type": _member(WarningType),
}
