"""Decides the next state of a complement, and the number of its dates that begin now. Pure.

Every step is computed anew from the counted dates alone, so a master that dies between two steps
leaves nothing that the next step would miss.
"""

from __future__ import annotations

from common.model.complement_states import ComplementState, OnFailure
from common.model.complements import ComplementSnapshot, ComplementStep


def step(found: ComplementSnapshot) -> ComplementStep:
    """Decide a complement's next step; an unchanged state without new dates means none."""
    match found.state:
        case ComplementState.SUBMITTED:
            return _follow(found)
        case ComplementState.RUNNING:
            return _run(found)
        case ComplementState.FAILURE:
            return _resume(found)
        case ComplementState.READY_PAUSE if not found.live:
            if not found.pending:
                return _run(found)
            return ComplementStep(state=ComplementState.PAUSE)
        case ComplementState.READY_STOP if not found.live:
            if not (found.pending or found.failed or found.cancelled):
                return _run(found)  # It had ended before the cancellation took effect (T32b).
            return ComplementStep(state=ComplementState.STOP, reason="cancelled")
        case _:
            return ComplementStep(state=found.state)


def free_chains(found: ComplementSnapshot) -> int:
    """Return the number of further dates that may run at the same time."""
    ended = found.failed if found.on_failure is OnFailure.STOP else 0
    return max(0, found.parallelism - ended - found.live)


def _run(found: ComplementSnapshot) -> ComplementStep:
    begin = min(found.pending, free_chains(found))
    if begin or found.live:
        return ComplementStep(state=ComplementState.RUNNING, begin=begin)
    if not found.failed:
        return ComplementStep(state=ComplementState.SUCCESS)
    reason = f"{found.failed} of its dates failed"
    if found.pending:
        reason += f", so that {found.pending} did not begin"
    return ComplementStep(state=ComplementState.FAILURE, reason=reason)


def _resume(found: ComplementSnapshot) -> ComplementStep:
    """Resume a failed one once its failed dates were recovered, or its predecessor succeeded."""
    if found.after_id and found.after_state is not ComplementState.SUCCESS:
        return ComplementStep(state=ComplementState.FAILURE)
    after = _run(found)
    if after.state is ComplementState.FAILURE:
        return ComplementStep(state=ComplementState.FAILURE)
    return after


def _follow(found: ComplementSnapshot) -> ComplementStep:
    above = found.after_state
    if found.after_id and above is None:
        return ComplementStep(
            state=ComplementState.FAILURE,
            reason=f"complement {found.after_id}, which it waits for, is gone",
        )
    if above is None or above is ComplementState.SUCCESS:
        return _run(found)
    if above in (ComplementState.STOP, ComplementState.FAILURE):
        return ComplementStep(
            state=ComplementState.FAILURE,
            reason=f"complement {found.after_id}, which it waits for, ended as {above.name}",
        )
    return ComplementStep(state=ComplementState.SUBMITTED)
