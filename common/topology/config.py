"""The configuration of a topology and of its components: keys, defaults, checks. Pure.

The names are Storm's where Storm has the setting.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final


class OnError(StrEnum):
    """The fate of a record whose bolt raises an error, after the last try."""

    FAIL = "fail"
    """The batch fails, and is tried again with all of its records."""
    SKIP = "skip"
    """It is left out, and counted as failed."""
    DEAD_LETTER = "dead_letter"
    """As `SKIP`, and it is kept in a file of the topology's folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A setting: whole numbers from `least` to `most`, one of `choices`, or yes and no."""

    about: str
    default: int | str | bool
    least: int = 0
    most: int = 0
    choices: tuple[str, ...] = ()
    of_components: bool = False


PENDING: Final = "topology.max.spout.pending"
TIMEOUT: Final = "topology.message.timeout.secs"
INTERVAL: Final = "topology.batch.interval.millis"
FAILURES: Final = "topology.max.batch.failures"
ON_ERROR: Final = "topology.on.error"
TRIES: Final = "topology.max.record.tries"
NOT_LOAD_AWARE: Final = "topology.disable.loadaware.messaging"

WITHOUT_EFFECT: Final = frozenset(
    {
        "topology.acker.executors",
        "topology.acker.tasks",
        "topology.backpressure.enable",
        "topology.debug",
        "topology.enable.message.timeouts",
        "topology.kryo.register",
        "topology.max.task.parallelism",
        "topology.metrics.consumer.register",
        "topology.receiver.buffer.size",
        "topology.stats.sample.rate",
        "topology.transfer.buffer.size",
        "topology.worker.childopts",
        "topology.workers",
    }
)
"""Settings of Storm's that mean nothing here, and are let pass."""

SETTINGS: Final[Mapping[str, Setting]] = {
    PENDING: Setting(
        about="records of each spout in a batch, at most",
        default=100_000,
        least=1,
        most=100_000_000,
        of_components=True,
    ),
    TIMEOUT: Setting(
        about="seconds after which a batch counts as failed",
        default=600,
        least=1,
        most=86_400,
    ),
    INTERVAL: Setting(
        about="milliseconds between the begins of batches; 0: at once if there are records",
        default=0,
        least=0,
        most=3_600_000,
    ),
    FAILURES: Setting(
        about="failures of a batch in a row after which the task fails",
        default=10,
        least=1,
        most=1_000_000,
    ),
    ON_ERROR: Setting(
        about="what becomes of a record whose bolt raises an error",
        default=OnError.FAIL.value,
        choices=tuple(each.value for each in OnError),
        of_components=True,
    ),
    TRIES: Setting(
        about="tries of a record before that",
        default=1,
        least=1,
        most=100,
        of_components=True,
    ),
    NOT_LOAD_AWARE: Setting(
        about="false: a shuffle gives less to tasks that take longer",
        default=True,
        of_components=True,
    ),
}


def setting(key: str, *configs: Mapping[str, Any]) -> Any:
    """Return a setting from the first of these that has it, or its default."""
    for config in configs:
        if key in config:
            return config[key]
    return SETTINGS[key].default


def mistakes_of_config(
    place: str, config: Mapping[str, Any], *, of_component: bool
) -> Iterator[str]:
    """Yield what is wrong with a configuration; keys that are nobody's here are the author's."""
    for key, value in config.items():
        if not isinstance(key, str):
            yield f"{place}: {key!r:.50} is no name of a setting"
            continue
        found = SETTINGS.get(key)
        if found is None:
            if key.startswith("topology.") and key not in WITHOUT_EFFECT:
                yield f"{place}: {key!r:.100} is unknown; there are {', '.join(SETTINGS)}"
        elif of_component and not found.of_components:
            yield f"{place}: {key} is a setting of the topology, and not of a component"
        elif isinstance(found.default, bool):
            if not isinstance(value, bool):
                yield f"{place}: {key} must be true or false, not {value!r:.50}"
        elif found.choices and value not in found.choices:
            yield f"{place}: {key} must be {', '.join(found.choices)}, not {value!r:.50}"
        elif not found.choices and (
            isinstance(value, bool)
            or not isinstance(value, int)
            or not found.least <= value <= found.most
        ):
            yield (
                f"{place}: {key} must be a whole number from {found.least:,} to {found.most:,},"
                f" not {value!r:.50}"
            )
