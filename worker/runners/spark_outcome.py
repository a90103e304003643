"""The outcome of a submission, from spark-submit's exit code and the manager's last word.

Pure; the tables are the whole of it. In cluster mode the application says how it went, and the exit
code only whether it could be submitted. Elsewhere the driver is spark-submit's own process and its
exit code counts, unless the manager knows better that the application failed or was killed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from common.model.failures import FailureReason
from worker.spark.managers.base import AppState


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The outcome; `failure` is None if it went well."""

    failure: FailureReason | None
    sentence: str


_WELL: Final = Outcome(failure=None, sentence="")

_IN_CLUSTER: Final = {
    AppState.SUCCEEDED: _WELL,
    AppState.FAILED: Outcome(
        failure=FailureReason.EXIT_CODE, sentence="the application failed, says {manager}"
    ),
    AppState.KILLED: Outcome(
        failure=FailureReason.KILLED, sentence="the application was killed, says {manager}"
    ),
}

_WAS_KILLED: Final = Outcome(
    failure=FailureReason.KILLED,
    sentence="the application was killed, says {manager}; its driver ended with {code}",
)
_DRIVER_FAILED: Final = Outcome(
    failure=FailureReason.EXIT_CODE, sentence="the driver ended with {code}"
)
_CODE_0: Final = {
    # A program need not make an application; and one whose driver is gone is about to end.
    None: _WELL,
    AppState.WAITING: _WELL,
    AppState.RUNNING: _WELL,
    AppState.SUCCEEDED: _WELL,
    AppState.FAILED: Outcome(
        failure=FailureReason.EXIT_CODE,
        sentence="the driver ended with {code}, but the application failed, says {manager}",
    ),
    AppState.KILLED: _WAS_KILLED,
}
_OTHER_CODE: Final = {
    None: Outcome(
        failure=FailureReason.SUBMIT_FAILED,
        sentence="spark-submit ended with {code} before there was an application",
    ),
    AppState.WAITING: _DRIVER_FAILED,
    AppState.RUNNING: _DRIVER_FAILED,
    AppState.SUCCEEDED: _DRIVER_FAILED,
    AppState.FAILED: _DRIVER_FAILED,
    AppState.KILLED: _WAS_KILLED,
}
_NEVER_SEEN: Final = Outcome(
    failure=FailureReason.SUBMIT_FAILED,
    sentence="spark-submit ended with {code}, and {manager} knows no application of it",
)


def outcome(code: int | None, state: AppState | None, *, in_cluster: bool, manager: str) -> Outcome:
    """Return the outcome.

    `code` is spark-submit's, None if it was not needed; `state` is the application's last one, None
    if none was ever seen. `in_cluster` says whose process the driver is. In cluster mode a state
    has to be final.
    """
    if in_cluster:
        found = _NEVER_SEEN if state is None else _IN_CLUSTER[state]
    else:
        found = (_OTHER_CODE if code else _CODE_0)[state]
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
        return "nothing"
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
