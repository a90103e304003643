"""Lists workers with their room, and takes some out of service for a while or for good.

A worker that is *disabled* or *lazy* takes no tasks, and those that run there go on. It obeys
within moments, and tells so in its heartbeat; the tables keep the mode, so that it outlives it.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from common.errors import NotAllowedError, NotFoundError
from common.model.cluster import Heartbeat, Node, NodeKind
from common.model.workers import WorkerMode, WorkerStatus, host_of, is_worker_name, mode_of
from common.store.people.offers import offers
from common.store.people.worker_groups import worker_group_names
from common.store.people.worker_modes import (
    GivenMode,
    forget_modes,
    give_mode,
    given_modes,
    known_workers,
    lock_modes,
)
from common.store.transaction import transaction
from operations.errors import UsageError
from operations.grants import sees_all
from operations.references import DEFAULT_WORKER_GROUP
from operations.rights import administered
from operations.session import Session, operation

if TYPE_CHECKING:
    from common.model.offers import Offer

_PATIENCE: Final = timedelta(seconds=3)
_MAX_REASON: Final = 255
_ACTIONS: Final = {
    WorkerMode.ENABLED: "worker.enable",
    WorkerMode.LAZY: "worker.lazy",
    WorkerMode.DISABLED: "worker.disable",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerView:
    """A living worker, or one that has a mode.

    `mode` is the one that it was given, by itself or by its host; `status` is its own account as of
    its last heartbeat, None if it is not alive or tells none.
    """

    address: str
    is_alive: bool
    mode: WorkerMode
    status: WorkerStatus | None
    offer: Offer | None
    given: GivenMode | None


@operation
def list_workers(session: Session, *, patience: timedelta = _PATIENCE) -> list[WorkerView]:
    """List the living workers, and other workers and hosts with a given mode, by address.

    Each worker has only the groups that the principal sees.
    """
    with session.registry(patience=patience) as opened:
        alive = opened.membership.heartbeats(NodeKind.WORKER)
    with session.engine.connect() as db:
        told = offers(db, alive)
        if not sees_all(db, session.principal):
            # Grants need a row, so only administrators see the name of a group without one.
            seen = {DEFAULT_WORKER_GROUP, *worker_group_names(db, seen_by=session.principal)}
            told = {
                node: replace(each, groups=tuple(name for name in each.groups if name in seen))
                for node, each in told.items()
            }
        return _views(alive, told, given_modes(db))


def _views(
    alive: Mapping[Node, str], told: Mapping[Node, Offer], given: Mapping[str, GivenMode]
) -> list[WorkerView]:
    modes = {name: each.mode for name, each in given.items()}
    views = []
    for node, text in alive.items():
        beat = Heartbeat.parse(text, zone=UTC)
        views.append(
            WorkerView(
                address=node.address,
                is_alive=True,
                mode=mode_of(node.address, modes),
                status=None if beat is None else beat.status,
                offer=told.get(node),
                given=given.get(node.address) or given.get(host_of(node.address)),
            )
        )
    living = {view.address for view in views}
    views += [
        WorkerView(
            address=name, is_alive=False, mode=each.mode, status=None, offer=None, given=each
        )
        for name, each in given.items()
        if name not in living
    ]
    return sorted(views, key=lambda view: view.address)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModeChange:
    """The mode that a worker, or a host, has by now."""

    worker: str
    mode: WorkerMode
    reason: str | None
    since: datetime | None


@operation
def set_mode(
    session: Session, worker: str, mode: WorkerMode, *, reason: str | None = None
) -> ModeChange:
    """Give a worker, `host:port`, or all workers of a host a mode.

    What was given to single workers of a host is forgotten with a mode for the host.
    """
    if not is_worker_name(worker):
        raise UsageError("worker", f"{worker!r:.200} is no worker: give HOST or HOST:PORT")
    if reason is not None and not (0 < len(reason) <= _MAX_REASON and reason.isprintable()):
        raise UsageError("reason", f"a reason is one line of {_MAX_REASON} characters at most")
    with administered(session, _ACTIONS[mode], worker, opened=transaction) as made:
        db = made.db
        lock_modes(db)
        given = given_modes(db)
        _check_known(worker, given, known_workers(db))
        modes = {name: each.mode for name, each in given.items()}
        parts = [name for name in given if host_of(name) == worker != name]
        if mode is mode_of(worker, modes) and not parts and given.get(worker) is None:
            raise NotAllowedError(f"{worker} is {mode.value} already: orcaflow worker list")
        forget_modes(db, [*parts, worker])
        inherited = mode_of(worker, {name: each for name, each in modes.items() if name != worker})
        if mode is not (WorkerMode.ENABLED if host_of(worker) == worker else inherited):
            give_mode(db, worker, mode, reason=reason, user_name=session.principal.user_name)
        made.detail = reason
        now = given_modes(db).get(worker)
        return ModeChange(
            worker=worker, mode=mode, reason=reason, since=None if now is None else now.since
        )


def _check_known(worker: str, given: Collection[str], told: Collection[str]) -> None:
    """Refuse a worker that never was: it is misspelt."""
    known = sorted({*given, *told})
    names = sorted({*known, *(host_of(each) for each in known)})
    if worker not in names:
        near = difflib.get_close_matches(worker, names, n=1)
        perhaps = f"; did you mean {near[0]}?" if near else "; see `orcaflow server list`"
        raise NotFoundError(f"there has never been a worker {worker}{perhaps}")
