"""Asks ZooKeeper who is alive and the tables for the facts, and prints the chain of causes."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta, tzinfo

from common.clock import SystemClock
from common.config import Config
from common.errors import NotFoundError, ServiceUnreachableError
from common.model.cluster import Node, NodeKind
from common.store.people.commands import refusal_of
from common.store.people.reasons import facts_of, facts_of_command, moment
from common.task_types import known_task_types
from common.why import Cause, Facts, PendingCommand
from operations.session import Session
from orcaflow.cli.output import Format, escaped, print_json, shown, write

PATIENCE = timedelta(seconds=3)


def living(config: Config) -> tuple[frozenset[Node], frozenset[Node]] | None:
    """The masters and the workers; None if ZooKeeper does not answer."""
    from operations.members import registry

    try:
        with registry(config, patience=PATIENCE) as opened:
            masters = opened.membership.nodes(NodeKind.MASTER)
            return masters, opened.membership.nodes(NodeKind.WORKER)
    except ServiceUnreachableError:
        return None


def facts_of_instance(session: Session, process_instance_id: int) -> Facts:
    """All that may hold the instance back, as of one moment."""
    members = living(session.config)
    with moment(session.engine) as db:
        facts = facts_of(
            db,
            process_instance_id,
            members=members,
            now=SystemClock().now(),
            task_types=known_task_types(),
            exec_threads=session.config.master.exec_threads,
        )
    if facts is None:
        raise NotFoundError(
            f"there is no process instance {process_instance_id}; see `orcaflow instance list`"
        )
    return facts


def facts_of_waiting(session: Session, command_id: int) -> tuple[Facts, PendingCommand] | str:
    """What may hold the command back, or what became of it."""
    members = living(session.config)
    with moment(session.engine) as db:
        found = facts_of_command(
            db,
            command_id,
            members=members,
            now=SystemClock().now(),
            exec_threads=session.config.master.exec_threads,
        )
        if found is not None:
            return found
        refusal = refusal_of(db, command_id)
    if refusal is not None:
        return f"command {command_id} was refused: {refusal}"
    return f"command {command_id} does not wait: a master has taken it, or it never was"


def print_causes(causes: Sequence[Cause], *, form: Format, zone: tzinfo | None) -> None:
    """A tree for people; as JSON a list, each cause before those behind it."""
    if form is Format.JSON:
        print_json(
            [
                {
                    "cause": cause.cause.value,
                    "subject": cause.subject,
                    "since": cause.since,
                    "next": cause.next,
                    "next_at": cause.next_at,
                    "text": cause.text,
                    "depth": depth,
                }
                for top in causes
                for depth, cause in top.flat()
            ]
        )
        return
    for cause in causes:
        _write_tree(cause, "", "", zone)


def _write_tree(cause: Cause, lead: str, below: str, zone: tzinfo | None) -> None:
    since = f" (since {shown(cause.since, zone)})" if cause.since else ""
    write(f"{lead}{escaped(cause.text)}{since}")
    at = shown(cause.next_at, zone) if cause.next_at else None
    bar = "│ " if cause.because else "  "
    if cause.next is not None:
        when = f", at {at}" if at else ""
        write(f"{below}{bar}next: {escaped(cause.next)}{when}")
    elif at:
        write(f"{below}{bar}next: {at}")
    for index, each in enumerate(cause.because):
        last = index == len(cause.because) - 1
        _write_tree(
            each, f"{below}{'└─ ' if last else '├─ '}", f"{below}{'   ' if last else '│  '}", zone
        )
