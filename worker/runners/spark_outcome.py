"""The outcome of a submission, from spark-submit's exit code and the manager's verdict.

Pure; the tables are the whole of it, one cell for each place, exit and verdict. Where the driver is
spark-submit's own process its exit code counts, unless the manager knows better that the
application failed or was killed. Where the driver runs in the cluster only the manager's verdict
counts: spark-submit ends with 0 even if the driver fails, and no answer is never a success.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final, TypeAlias

from common.model.failures import FailureReason
from worker.spark.managers.base import AppState
from worker.spark.managers.tags import Ruler


class Place(StrEnum):
    """The host of a driver, and the manager of its application."""

    LOCAL = "local"
    STANDALONE_CLIENT = "standalone, client"
    STANDALONE_CLUSTER = "standalone, cluster"
    YARN_CLIENT = "YARN, client"
    YARN_CLUSTER = "YARN, cluster"
    KUBERNETES_CLIENT = "Kubernetes, client"
    KUBERNETES_CLUSTER = "Kubernetes, cluster"

    @property
    def in_cluster(self) -> bool:
        """True if the driver is not a process of the attempt."""
        return self.value.endswith(", cluster")


class Exit(StrEnum):
    """The end of spark-submit."""

    ZERO = "exit code 0"
    OTHER = "other exit code or signal"
    NONE = "not started, or not waited for"


class Verdict(StrEnum):
    """The manager's last answer about the application, or about a driver in the cluster."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    KILLED = "killed"
    LIVE = "waiting or running"
    GONE = "known before, and no longer"
    NEVER_SEEN = "never seen"
    UNKNOWN = "no answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome; `failure` is None if it went well."""

    failure: FailureReason | None
    sentence: str


_Row: TypeAlias = Mapping[Verdict, Outcome]


def _failed(failure: FailureReason, sentence: str) -> Outcome:
    return Outcome(failure=failure, sentence=sentence)


_WELL: Final = Outcome(failure=None, sentence="")
_FAILED: Final = _failed(FailureReason.EXIT_CODE, "the application failed, says {manager}")
_KILLED: Final = _failed(FailureReason.KILLED, "the application was killed, says {manager}")
_GONE: Final = _failed(
    FailureReason.KILLED, "{manager} no longer knows the application, which had not ended before"
)
_UNKNOWN: Final = _failed(
    FailureReason.EXIT_CODE,
    "spark-submit ended with {code}, and {manager} does not report how the driver ended",
)
_NEVER_SEEN: Final = _failed(
    FailureReason.SUBMIT_FAILED,
    "spark-submit ended with {code}, and {manager} knows no application of it",
)
_BEFORE_ANY: Final = _failed(
    FailureReason.SUBMIT_FAILED, "spark-submit ended with {code} before there was an application"
)
_FAILED_AT_0: Final = _failed(
    FailureReason.EXIT_CODE,
    "the driver ended with {code}, but the application failed, says {manager}",
)
_DRIVER_FAILED: Final = _failed(FailureReason.EXIT_CODE, "the driver ended with {code}")
_DRIVER_KILLED: Final = _failed(
    FailureReason.KILLED,
    "the application was killed, says {manager}; its driver ended with {code}",
)

_OWN_ZERO: Final[_Row] = {
    Verdict.SUCCEEDED: _WELL,
    Verdict.FAILED: _FAILED_AT_0,
    Verdict.KILLED: _DRIVER_KILLED,
    # An application without its driver is about to end.
    Verdict.LIVE: _WELL,
    Verdict.GONE: _WELL,
    # A program need not make an application.
    Verdict.NEVER_SEEN: _WELL,
    # The exit code of the driver is an answer.
    Verdict.UNKNOWN: _WELL,
}
_OWN_OTHER: Final[_Row] = {
    Verdict.SUCCEEDED: _DRIVER_FAILED,
    Verdict.FAILED: _DRIVER_FAILED,
    Verdict.KILLED: _DRIVER_KILLED,
    Verdict.LIVE: _DRIVER_FAILED,
    Verdict.GONE: _DRIVER_FAILED,
    Verdict.NEVER_SEEN: _BEFORE_ANY,
    Verdict.UNKNOWN: _DRIVER_FAILED,
}
_CLUSTER: Final[_Row] = {
    Verdict.SUCCEEDED: _WELL,
    Verdict.FAILED: _FAILED,
    Verdict.KILLED: _KILLED,
    Verdict.LIVE: _UNKNOWN,
    Verdict.GONE: _GONE,
    Verdict.NEVER_SEEN: _NEVER_SEEN,
    Verdict.UNKNOWN: _UNKNOWN,
}
# A Master has reported an end to a spark-submit that ends with 0, so there was a driver.
_STANDALONE_ZERO: Final[_Row] = {**_CLUSTER, Verdict.NEVER_SEEN: _UNKNOWN}

_OWN: Final[Mapping[Exit, _Row]] = {
    Exit.ZERO: _OWN_ZERO,
    Exit.OTHER: _OWN_OTHER,
    # The runner always waits for a driver on the worker.
    Exit.NONE: dict.fromkeys(Verdict, _UNKNOWN),
}
_IN_CLUSTER: Final[Mapping[Exit, _Row]] = dict.fromkeys(Exit, _CLUSTER)

ENDS: Final[Mapping[Place, Mapping[Exit, _Row]]] = MappingProxyType(
    {
        Place.LOCAL: _OWN,
        Place.STANDALONE_CLIENT: _OWN,
        Place.STANDALONE_CLUSTER: {**_IN_CLUSTER, Exit.ZERO: _STANDALONE_ZERO},
        Place.YARN_CLIENT: _OWN,
        Place.YARN_CLUSTER: _IN_CLUSTER,
        Place.KUBERNETES_CLIENT: _OWN,
        Place.KUBERNETES_CLUSTER: _IN_CLUSTER,
    }
)
"""The outcome for each place, exit and verdict; `docs/spark.md` has it as a table."""

_VERDICTS: Final = {
    AppState.WAITING: Verdict.LIVE,
    AppState.RUNNING: Verdict.LIVE,
    AppState.SUCCEEDED: Verdict.SUCCEEDED,
    AppState.FAILED: Verdict.FAILED,
    AppState.KILLED: Verdict.KILLED,
}
_PLACES: Final[Mapping[tuple[Ruler, bool], Place]] = {
    ("local", False): Place.LOCAL,
    ("standalone", False): Place.STANDALONE_CLIENT,
    ("standalone", True): Place.STANDALONE_CLUSTER,
    ("yarn", False): Place.YARN_CLIENT,
    ("yarn", True): Place.YARN_CLUSTER,
    ("kubernetes", False): Place.KUBERNETES_CLIENT,
    ("kubernetes", True): Place.KUBERNETES_CLUSTER,
}


def place_of(ruler: Ruler, *, in_cluster: bool) -> Place:
    """Return the place of a driver."""
    return _PLACES[ruler, in_cluster]


def verdict_of(state: AppState) -> Verdict:
    """Return the verdict in the state that a manager reports."""
    return _VERDICTS[state]


def with_applications(driver: Verdict, applications: Iterable[AppState]) -> Verdict:
    """Return the verdict on a driver that its Master lists apart from its applications.

    A kill of either counts first, then a failure of either: a program may ignore the loss of its
    application.
    """
    verdicts = {driver, *map(verdict_of, applications)}
    return next((each for each in (Verdict.KILLED, Verdict.FAILED) if each in verdicts), driver)


def outcome(place: Place, code: int | None, verdict: Verdict, *, manager: str) -> Outcome:
    """Return the outcome. `code` is spark-submit's, None if it was not waited for."""
    kind = Exit.NONE if code is None else Exit.OTHER if code else Exit.ZERO
    found = ENDS[place][kind][verdict]
    sentence = found.sentence.format(manager=manager, code=_code(code))
    return Outcome(failure=found.failure, sentence=sentence)


def exit_code(code: int | None, ended: Outcome) -> int:
    """Return the exit code of the attempt's process."""
    if ended.failure is None:
        return 0
    return shell_code(code) or 1


def shell_code(code: int | None) -> int:
    """An exit code as a shell has it: 128 and more for a signal."""
    if code is None:
        return 0
    return code if code >= 0 else 128 - code


def _code(code: int | None) -> str:
    if code is None:
        return "no exit code that counts"
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
