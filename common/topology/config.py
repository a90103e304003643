"""The configuration of a topology and of its components: keys, defaults, checks. Pure.

The names are Storm's where Storm has the setting.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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

_ACKS: Final = "a committed batch is the ack of its records, so nothing acks them one by one"
_BUFFERS: Final = f"Spark moves records in batches; {PENDING} limits them"
_CORES: Final = "a topology runs in one process; submit it with --cores and --memory"
_MEMORY: Final = "the whole topology shares its memory; submit it with --memory"
_WAITS: Final = f"{INTERVAL} is the time between batches"
_FIGURES: Final = "every record is counted: orcaflow topology status"
_PICKLE: Final = "declared types give the format of values, and `object` is pickled"
_RIGHTS: Final = "the roles of the project are the rights: orcaflow project --help"
_PROGRAMS: Final = "components are Python; start other programs in their methods"
_STATES: Final = "states are in the checkpoints of the topology"
_PLACES: Final = "submit it with --worker-group"
_CLUSTER: Final = "it is a setting of a Storm cluster; the settings of Orcaflow are in conf/*.toml"

WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "topology.acker": _ACKS,
    "topology.auto-credentials": _RIGHTS,
    "topology.backpressure": _BUFFERS,
    "topology.batch.flush": _WAITS,
    "topology.blobstore.map": "submit its files with --files",
    "topology.bolt": _WAITS,
    "topology.bolts.outgoing.overflow.buffer": _BUFFERS,
    "topology.builtin.metrics": _FIGURES,
    "topology.classpath": "submit its files with --files",
    "topology.component.cpu.pcore.percent": _CORES,
    "topology.component.resources": _MEMORY,
    "topology.debug": "run it by topology.test(…), or read orcaflow topology logs",
    "topology.disruptor": _BUFFERS,
    "topology.enable.message.timeouts": f"{TIMEOUT} limits a batch",
    "topology.enable.v2.metrics": _FIGURES,
    "topology.error.throttle.interval.secs": "orcaflow topology errors has the last ones",
    "topology.eventlogger": "emit to a sink what has to be kept",
    "topology.executor": _BUFFERS,
    "topology.fall.back.on.java.serialization": _PICKLE,
    "topology.flush.tuple.freq.millis": _WAITS,
    "topology.groups": _RIGHTS,
    "topology.isolate.machines": _PLACES,
    "topology.kryo": _PICKLE,
    "topology.localityaware": f"{NOT_LOAD_AWARE} is for load-aware shuffles",
    "topology.max.error.report.per.interval": "orcaflow topology errors has the last ones",
    "topology.max.replication.wait.time.sec": _CLUSTER,
    "topology.max.task.parallelism": "give the tasks of each component",
    "topology.metrics": _FIGURES,
    "topology.min.replication.count": _CLUSTER,
    "topology.multilang": _PROGRAMS,
    "topology.optimize": "Spark plans the queries",
    "topology.priority": _PLACES,
    "topology.producer.batch.size": _BUFFERS,
    "topology.ras": _PLACES,
    "topology.readonly": _RIGHTS,
    "topology.receiver.buffer.size": _BUFFERS,
    "topology.scheduler": _PLACES,
    "topology.serialized.message.size.metrics": _FIGURES,
    "topology.shellbolt": _PROGRAMS,
    "topology.skip.missing.kryo.registrations": _PICKLE,
    "topology.sleep.spout.wait.strategy": _WAITS,
    "topology.spout": _WAITS,
    "topology.state": _STATES,
    "topology.stats": _FIGURES,
    "topology.submitter": _RIGHTS,
    "topology.subprocess.timeout.secs": _PROGRAMS,
    "topology.testing.always.try.serialize": "create_topology pickles each component",
    "topology.transfer": _BUFFERS,
    "topology.tuple.serializer": _PICKLE,
    "topology.users": _RIGHTS,
    "topology.version": "every submission has a number: orcaflow topology history",
    "topology.worker": _MEMORY,
    "topology.workers": _CORES,
    "drpc": _CLUSTER,
    "nimbus": _CLUSTER,
    "storm.zookeeper": _CLUSTER,
    "supervisor": _CLUSTER,
    "worker.childopts": _MEMORY,
    "worker.heap.memory.mb": _MEMORY,
}
"""Settings of Storm without effect here, each with the advice. `a.b` also covers `a.b.c`."""

REFUSED: Final[Mapping[str, str]] = {
    "topology.bolts": "windows are states of a StatefulBolt, which `due` and `wake` close",
    "topology.environment": "an environment gives variables to the task",
    "topology.tasks": "give the tasks of each component",
    "topology.tick.tuple.freq.secs": "a StatefulBolt says by `due` when its key is woken",
    "topology.trident": "write the topology with spouts and bolts",
}
"""Settings of Storm that are refused, because a topology would give other results without them."""

OTHER_MEANING: Final[Mapping[str, str]] = {
    PENDING: "limits the records of each spout in a batch; in Storm, the unacked ones of a task",
    TIMEOUT: "limits a whole batch; in Storm, a single record",
}
"""Settings of Storm that have a different effect here."""

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
            if _cure(key, WITHOUT_EFFECT) is not None:
                continue
            cure = _cure(key, REFUSED)
            if cure is not None:
                yield f"{place}: {key!r:.100} of Storm is not supported: {cure}"
            elif key.startswith("topology."):
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


def notes_of_config(place: str, keys: Iterable[str]) -> Iterator[str]:
    """Yield a note for each key with a different effect, or no effect, compared to Storm."""
    for key in keys:
        if key in OTHER_MEANING:
            yield f"{place}: {key} {OTHER_MEANING[key]}"
        elif key not in SETTINGS and (cure := _cure(key, WITHOUT_EFFECT)) is not None:
            yield f"{place}: {key!r:.100} has no effect here: {cure}"


def _cure(key: str, settings: Mapping[str, str]) -> str | None:
    """Return the advice of the longest setting that covers a key."""
    while key:
        if key in settings:
            return settings[key]
        key = key.rpartition(".")[0]
    return None
