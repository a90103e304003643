"""Explains why an instance, a task or a command is not done: reads the facts, derives the causes.

The living daemons come from ZooKeeper, everything else from the tables, as of one moment.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from datetime import date, timedelta

from common.clock import SystemClock
from common.config import Config
from common.errors import NotFoundError, ServiceUnreachableError
from common.model.cluster import Node, NodeKind
from common.model.date_rules import DateRule, rule_of
from common.model.rights import Action
from common.model.slot_share import SharePercents
from common.store.people.ledger import find_command
from common.store.people.reasons import facts_of, facts_of_command, moment
from common.store.people.rights import Thing
from common.task_types import known_task_types
from common.tls import worker_client_context
from common.why import (
    Cause,
    CauseKind,
    Facts,
    PendingCommand,
    task_names,
    why_command,
    why_instance,
    why_task,
)
from operations.business_dates import business_date_of
from operations.health import NOT_READY, WAITING, health
from operations.lookup import no_instance, task_with_id
from operations.rights import seen
from operations.session import Session, operation

PATIENCE = timedelta(seconds=3)
HEALTH_PATIENCE = timedelta(seconds=1)
MOST_PROBED = 32


def living(session: Session) -> tuple[frozenset[Node], frozenset[Node]] | None:
    """The masters and the workers; None if ZooKeeper does not answer."""
    try:
        with session.registry(patience=PATIENCE) as opened:
            masters = opened.membership.nodes(NodeKind.MASTER)
            return masters, opened.membership.nodes(NodeKind.WORKER)
    except ServiceUnreachableError:
        return None


@operation
def has_master(session: Session) -> bool | None:
    """True if a master is alive; None if ZooKeeper does not answer."""
    members = living(session)
    return None if members is None else bool(members[0])


def facts_of_instance(session: Session, process_instance_id: int) -> Facts:
    """Everything that may hold the instance back, as of one moment."""
    members = living(session)
    with moment(session.engine) as db:
        seen(db, session.principal, Action.VIEW, Thing.INSTANCE, process_instance_id)
        facts = facts_of(
            db,
            process_instance_id,
            members=members,
            now=SystemClock().now(),
            task_types=known_task_types(),
            exec_threads=session.config.master.exec_threads,
            shares=_shares(session),
            principal=session.principal,
        )
    if facts is None:
        raise no_instance(process_instance_id)
    if facts.queue and facts.alive is not None:
        # After the look at the tables: a silent worker must not keep a transaction open.
        found = unfit(facts.alive.workers, session.config)
        facts = replace(facts, alive=replace(facts.alive, unfit=found))
    return facts


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """A process instance with its state, and the causes why it, or a task of it, is not done."""

    name: str
    state: int
    causes: tuple[Cause, ...]
    business_date: date | None = None
    date_rule: DateRule | None = None


@operation
def explain_instance(
    session: Session, process_instance_id: int, *, task: str | None = None
) -> Explained:
    """Explain why the instance is not done, or a task of it."""
    facts = facts_of_instance(session, process_instance_id)
    run = facts.runs[process_instance_id]
    causes = causes_of_instance(facts, process_instance_id, task=task)
    moment = run.business_time or run.schedule_time or run.start_time
    return Explained(
        name=run.name,
        state=run.state,
        causes=causes,
        business_date=None
        if moment is None
        else business_date_of(moment, run.timezone_id, session.config),
        date_rule=rule_of(run.schedule_time, run.business_time),
    )


def unfit(workers: Collection[Node], config: Config) -> dict[str, str]:
    """The reasons for which workers take nothing, by address; one that is silent gives none."""
    tls = worker_client_context(config)
    addresses = sorted(node.address for node in workers)[:MOST_PROBED]

    def reason(address: str) -> str | None:
        host, _, port = address.rpartition(":")
        if not port.isdecimal():
            return None
        state, why = health(host.strip("[]"), int(port), within=HEALTH_PATIENCE, tls=tls)
        return why if state in (NOT_READY, WAITING) else None

    with ThreadPoolExecutor(max_workers=max(1, len(addresses))) as pool:
        said = dict(zip(addresses, pool.map(reason, addresses), strict=True))
    return {address: why for address, why in said.items() if why is not None}


def causes_of_instance(
    facts: Facts, process_instance_id: int, *, task: str | None = None
) -> tuple[Cause, ...]:
    """The causes why the instance is not done, or the task of it; `NotFoundError` for no task."""
    if task is None:
        return why_instance(facts, process_instance_id)
    run = facts.runs[process_instance_id]
    names = task_names(run, facts.task_types)
    if task not in names and task not in {each.name for each in run.attempts}:
        near = difflib.get_close_matches(task, names, n=1)
        perhaps = f"; did you mean {near[0]!r}?" if near else ""
        raise NotFoundError(
            f"process instance {process_instance_id} has no task {task!r:.200}{perhaps}"
        )
    return why_task(facts, process_instance_id, task)


@operation
def causes_of_command(session: Session, command_id: int) -> tuple[Cause, ...]:
    """The causes why the command still waits; `NotFoundError` with its outcome if it does not."""
    facts, command = _facts_of_command(session, command_id)
    return why_command(facts, command)


@operation
def causes_of_task_instance(session: Session, task_instance_id: int) -> tuple[Cause, ...]:
    """The causes why the attempt is not done, or that another has taken its place."""
    with session.engine.connect() as db:
        task = task_with_id(db, session.principal, task_instance_id)
    facts = facts_of_instance(session, task.process_instance_id)
    causes = why_task(facts, task.process_instance_id, task.name)
    current = {each.id for each in facts.runs[task.process_instance_id].attempts}
    if task_instance_id in current:
        return causes
    return (
        Cause(
            cause=CauseKind.SUPERSEDED,
            subject=f"task instance {task_instance_id}",
            text=f"attempt {task.attempt} at {task.name!r} is over: another has taken its"
            " place, or a recovery starts the task afresh",
            since=task.end_time,
            because=causes,
        ),
    )


def _shares(session: Session) -> SharePercents:
    return SharePercents(
        master=session.config.master.project_share_percent,
        worker=session.config.worker.project_share_percent,
    )


def _facts_of_command(session: Session, command_id: int) -> tuple[Facts, PendingCommand]:
    members = living(session)
    with moment(session.engine) as db:
        seen(db, session.principal, Action.VIEW, Thing.COMMAND, command_id)
        found = facts_of_command(
            db,
            command_id,
            members=members,
            now=SystemClock().now(),
            exec_threads=session.config.master.exec_threads,
            shares=_shares(session),
            principal=session.principal,
        )
        if found is not None:
            return found
        gone = find_command(db, command_id)
    if gone is None or gone.outcome is None:
        # It was taken between two looks, or there is none of this id.
        raise NotFoundError(f"there is no command {command_id}; see `orcaflow command list`")
    about = "" if gone.process_instance_id is None else f" (instance {gone.process_instance_id})"
    because = "" if gone.reason is None else f": {gone.reason}"
    raise NotFoundError(
        f"command {command_id} does not wait; it was {gone.outcome.name.lower()}{because}{about}"
    )
