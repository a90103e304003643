"""Causes for runs that are not under way: ended, in a serial wait, without room or owner. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from common.model.cluster import Node
from common.model.states import ProcessState
from common.why.attempts import finished_cause
from common.why.causes import Cause, CauseKind
from common.why.cluster import no_master_cause, no_zookeeper_cause
from common.why.commands import command_cause
from common.why.facts import Facts, Run
from common.why.phrases import MAX_LISTED, state_name
from common.why.shape import BAD_ENDS, Shapes


def ended_run_cause(
    facts: Facts, shapes: Shapes, run: Run, state: ProcessState, subject: str
) -> Cause:
    """Build the cause for a run that has ended, with its failed tasks."""
    recovery = facts.recoveries.get(run.id)
    because: list[Cause] = []
    if recovery is not None:
        because.append(command_cause(facts, recovery))
    failed = [each for each in run.attempts if each.state in BAD_ENDS]
    because += [finished_cause(shapes, run, each) for each in failed[:MAX_LISTED]]
    reason = f": {run.state_reason}" if run.state_reason else ""
    if recovery is not None:
        later = None
    elif state is ProcessState.SUCCESS:
        later = "nothing: it is done"
    else:
        later = f"nothing before somebody asks: orcaflow instance recover {run.id}{_newer(run)}"
    return Cause(
        cause=CauseKind.ENDED,
        subject=subject,
        text=f"{subject} has ended: {state.name}{reason}",
        since=run.end_time,
        next=later,
        because=tuple(because),
    )


def _newer(run: Run) -> str:
    """Name the later version of the definition, which may contain the correction."""
    if not (run.latest_version or 0) > (run.version or 0) > 0:
        return ""
    return (
        f"; it has version {run.version} of its definition, and with --with-version latest it takes"
        f" version {run.latest_version}"
    )


def serial_wait_cause(facts: Facts, run: Run, subject: str) -> Cause:
    """Build the cause for a run in a serial wait, with the runs before it."""
    others = tuple(
        Cause(
            cause=CauseKind.RUNNING
            if other.state != ProcessState.SERIAL_WAIT
            else CauseKind.SERIAL,
            subject=f"process instance {other.id}",
            text=f"process instance {other.id} is {state_name(ProcessState, other.state)}",
            since=other.start_time,
            next=f"orcaflow instance why {other.id} tells more",
        )
        for other in run.before[:MAX_LISTED]
    )
    more = len(run.before) - len(others)
    count = f" ({more} more go before it)" if more > 0 else ""
    alive = facts.alive
    because = others if alive is None or alive.masters else (*others, no_master_cause())
    if others:
        text = f"{subject} waits for its turn behind {others[0].subject}{count}"
        later = "it begins when those before it have ended"
    else:
        text = f"{subject} waits for its turn, and no other run goes before it any more"
        later = "a master lets it go within a few seconds"
    return Cause(
        cause=CauseKind.SERIAL,
        subject=subject,
        text=text,
        since=run.start_time,
        next=later,
        because=because,
    )


def waiting_thread_cause(facts: Facts, run: Run, subject: str) -> Cause:
    """Build the cause for a run that waits for room on a master."""
    recovery = facts.recoveries.get(run.id)
    return Cause(
        cause=CauseKind.THREAD,
        subject=subject,
        text=f"{subject} waits for room on a master (WAITTING_THREAD)",
        since=run.start_time,
        next=None
        if recovery
        else "nothing: a command RECOVER_WAITTING_THREAD for it is missing; put one",
        because=() if recovery is None else (command_cause(facts, recovery),),
    )


def owner_causes(facts: Facts, run: Run, subject: str) -> Iterator[Cause]:
    """Yield a cause if the run's owner is gone, so that nothing is decided for it."""
    alive = facts.alive
    recovery = facts.recoveries.get(run.id)
    if alive is None:
        yield no_zookeeper_cause()
        return
    owned = run.host is not None and run.owner_incarnation is not None
    owner = Node(address=run.host or "", incarnation=run.owner_incarnation or 0)
    if owned and owner in alive.masters:
        return
    because: list[Cause] = []
    if not alive.masters:
        because.append(no_master_cause())
    elif recovery is not None:
        because.append(command_cause(facts, recovery))
    what = f"its owner, the master {run.host}, is gone" if owned else "it has no owner"
    yield Cause(
        cause=CauseKind.OWNER_GONE,
        subject=subject,
        text=f"{subject}: {what}, so nothing is decided for it",
        next=None if because else "a living master takes it over within a few seconds",
        because=tuple(because),
    )
