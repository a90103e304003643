"""Shows, activates, deactivates, rebalances and kills topologies.

A topology belongs to the project of its process definition, which its submission makes
(`operations.topology_submission`): authors submit and kill, operators activate, deactivate and
rebalance. The task that runs it carries the orders out, and says in its report how far it has come.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from common.clock import SystemClock
from common.errors import NotAllowedError, NotFoundError, ServiceUnreachableError
from common.model.command_param import CommandParam
from common.model.rights import Action
from common.model.states import (
    LIVE_PROCESS_STATES,
    ProcessState,
    ReleaseState,
)
from common.model.topologies import Wanted
from common.model.topology_graphs import MOST_TASKS, TopologyGraph
from common.model.topology_verdicts import shape_of
from common.store.connect import Connection
from common.store.people import topologies as store
from common.store.people.commands import put_start, put_stop
from common.store.people.definitions import (
    set_release_state,
)
from common.store.people.rights import Thing
from common.store.people.topologies import TopologyVersion, TopologyView
from operations.errors import UsageError
from operations.rights import Change, change, seen
from operations.session import Session, operation
from operations.topology_views import TopologyLine, is_live, is_running, line_of

WAIT_SECONDS: Final = 30
"""The spouts are off for so long before a kill or a rebalance, as in Storm."""
MOST_CORES: Final = 64
MOST_WAIT_SECONDS: Final = 86_400
_PATIENCE: Final = timedelta(seconds=3)
_RETRIES: Final = 100
_RETRY_MINUTES: Final = 1
_RESERVED: Final = frozenset({"summary", "submit"})
"""Names that are paths of the HTTP API."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedTopology:
    """An order that was given: the number of what is wanted now, and a command that was put."""

    name: str
    number: int
    command_id: int | None = None


@operation
def list_topologies(
    session: Session, *, after: str = "", limit: int | None = None
) -> list[TopologyLine]:
    """The topologies that the principal sees, by name, behind one; killed ones too."""
    with session.engine.connect() as db:
        found = store.topologies(db, session.principal, after=after, limit=limit)
    return [line_of(view) for view in found]


@operation
def topology_given(session: Session, topology: str) -> TopologyView:
    """One topology, with its run, its last report and its graph."""
    with session.engine.connect() as db:
        return _found(db, session, topology, Action.VIEW)


def worker_beats(session: Session, topology: str) -> dict[str, dict[str, object]] | None:
    """The heartbeats of the workers that run a topology, by address; None if nobody answers.

    They are in ZooKeeper, which only a session of this place can ask.
    """
    if session.elsewhere is not None:
        return None
    try:
        with session.registry(patience=_PATIENCE) as opened:
            texts = opened.worker_beats.beats(topology)
    except ServiceUnreachableError:
        return None
    found = {}
    for address, text in texts.items():
        with suppress(ValueError):  # Another program's.
            document = json.loads(text)
            if isinstance(document, dict):
                found[address] = document
    return found


def topologies_in_full(session: Session) -> list[TopologyView]:
    """All topologies that the principal sees, with their reports."""
    with session.engine.connect() as db:
        return store.topologies(db, session.principal)


@operation
def topology_history(session: Session, topology: str) -> list[TopologyVersion]:
    """The versions of a topology, the newest first."""
    with session.engine.connect() as db:
        return store.versions(db, _found(db, session, topology, Action.VIEW).name)


@operation
def activate_topology(session: Session, topology: str) -> OrderedTopology:
    """Have the spouts emit; a run begins if none is live. Refused if it is so already."""
    with _ordered(session, "activate", topology) as (made, found):
        _check_alive(found)
        if found.wanted.active and is_live(found):
            raise NotAllowedError(f"topology {found.name!r} is active already")
        wanted = replace(found.wanted, number=found.wanted.number + 1, active=True)
        put_wanted(made, found, wanted)
        return _ordered_with(found, wanted, begin_unless_live(session, made, found))


@operation
def deactivate_topology(session: Session, topology: str) -> OrderedTopology:
    """Have the spouts emit nothing, while the run goes on. Refused if it is so already."""
    with _ordered(session, "deactivate", topology) as (made, found):
        _check_alive(found)
        if not found.wanted.active:
            raise NotAllowedError(f"topology {found.name!r} is inactive already")
        wanted = replace(found.wanted, number=found.wanted.number + 1, active=False)
        put_wanted(made, found, wanted)
        return _ordered_with(found, wanted)


@operation
def rebalance_topology(
    session: Session,
    topology: str,
    *,
    wait_seconds: int = WAIT_SECONDS,
    cores: int | None = None,
    executors: Mapping[str, int] | None = None,
    tasks: Mapping[str, int] | None = None,
) -> OrderedTopology:
    """Have it run with other numbers of cores, executors and tasks, after its spouts were off.

    Whatever is not named stays as it is. `UsageError` names every number that can't be.
    """
    _check_wait(wait_seconds)
    executors, tasks = dict(executors or {}), dict(tasks or {})
    if cores is None and not executors and not tasks:
        raise UsageError("cores", "name what is to change: cores, executors or tasks")
    if cores is not None and not 1 <= cores <= MOST_CORES:
        raise UsageError("cores", f"must be a number from 1 to {MOST_CORES}")
    with _ordered(session, "rebalance", topology) as (made, found):
        _check_alive(found)
        number = found.wanted.number + 1
        wanted = replace(
            found.wanted,
            number=number,
            rebalanced=number,
            wait_seconds=wait_seconds,
            cores=found.wanted.cores if cores is None else cores,
            executors={**found.wanted.executors, **executors},
            tasks={**found.wanted.tasks, **tasks},
        )
        for field, given in (("executors", executors), ("tasks", tasks)):
            mistakes = [*_numbers_that_can_not_be(found.graph, given)]
            if mistakes:
                raise UsageError(field, "; ".join(mistakes))
        _check_shape(found.graph, wanted)
        put_wanted(made, found, wanted)
        made.detail = json.dumps(wanted.document())
        return _ordered_with(found, wanted)


@operation
def kill_topology(
    session: Session, topology: str, *, wait_seconds: int = WAIT_SECONDS, now: bool = False
) -> OrderedTopology:
    """Have it end for good, after its spouts were off for a while; at once with `now`.

    A run of which nothing runs just now is stopped at once too. One that is being killed can only
    be hurried.
    """
    _check_wait(wait_seconds)
    with _ordered(session, "kill", topology, action=Action.AUTHOR) as (made, found):
        if found.wanted.killed and not (now and is_live(found)):
            cure = "; hurry it with --now" if is_live(found) else ""
            raise NotAllowedError(f"topology {found.name!r} is killed already{cure}")
        wanted = replace(
            found.wanted,
            number=found.wanted.number + 1,
            killed=True,
            wait_seconds=0 if now else wait_seconds,
        )
        put_wanted(made, found, wanted)
        stopped = None
        if (
            found.run is not None
            and found.run.state in _STOPPABLE
            and (now or not is_running(found))
        ):
            stopped = put_stop(
                made.db,
                process_definition_id=found.process_definition_id,
                process_instance_id=found.run.id,
                executor_id=session.principal.user_id,
            )
        made.detail = "at once" if now else f"after {wait_seconds} s"
        return _ordered_with(found, wanted, stopped)


def attempt_of(session: Session, topology: str) -> int:
    """The attempt that runs a topology, or the last one; `NotAllowedError` before the first."""
    found = topology_given(session, topology)
    if found.attempt is None:
        raise NotAllowedError(
            f"topology {found.name!r} has no attempt yet, and so no log; see `orcaflow topology"
            f" status {found.name}`"
        )
    return found.attempt.id


_STOPPABLE: Final = frozenset(LIVE_PROCESS_STATES) - {ProcessState.READY_STOP}


def put_wanted(made: Change, found: TopologyView, wanted: Wanted) -> None:
    """Replace what is wanted, within the lock of the topology."""
    if not store.want(made.db, found.name, wanted, before=found.wanted.number):
        raise changed_meanwhile(found)


def changed_meanwhile(found: TopologyView) -> NotAllowedError:
    """Return the refusal of an order that others were quicker than."""
    return NotAllowedError(f"somebody else has just steered {found.name!r}; look, and repeat")


def begin_unless_live(session: Session, made: Change, found: TopologyView) -> int | None:
    """Put the command that begins a run, if none is live; return its id."""
    if is_live(found):
        return None
    set_release_state(
        made.db,
        found.process_definition_id,
        wanted=ReleaseState.ONLINE,
        at=SystemClock().now(),
    )
    return begin(session, made, found.process_definition_id)


def begin(session: Session, made: Change, definition_id: int) -> int:
    """Put the command that begins a run; return its id."""
    return put_start(
        made.db,
        process_definition_id=definition_id,
        param=CommandParam(),
        executor_id=session.principal.user_id,
    )


def _ordered_with(
    found: TopologyView, wanted: Wanted, command_id: int | None = None
) -> OrderedTopology:
    return OrderedTopology(name=found.name, number=wanted.number, command_id=command_id)


def _check_alive(found: TopologyView) -> None:
    if found.wanted.killed:
        raise NotAllowedError(
            f"topology {found.name!r} is killed; submit it anew: orcaflow topology submit FILE"
        )


def _check_wait(wait_seconds: int) -> None:
    if not 0 <= wait_seconds <= MOST_WAIT_SECONDS:
        raise UsageError("wait_seconds", f"must be a number from 0 to {MOST_WAIT_SECONDS:,}")


def _numbers_that_can_not_be(graph: TopologyGraph, given: Mapping[str, int]) -> Iterator[str]:
    known = [part.id for part in graph.parts]
    for name, number in given.items():
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            perhaps = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            yield f"there is no component {name!r:.120}; {perhaps}"
        elif not 1 <= number <= MOST_TASKS:
            yield f"{name}: must be a number from 1 to {MOST_TASKS:,}, not {number}"


def _check_shape(graph: TopologyGraph, wanted: Wanted) -> None:
    mistakes = [
        f"{name}: {executors} executors are more than its {tasks} tasks"
        for name, (executors, tasks) in shape_of(wanted, graph).items()
        if executors > tasks
    ]
    if mistakes:
        raise UsageError("executors", "; ".join(mistakes))


@contextmanager
def _ordered(
    session: Session, order: str, topology: str, *, action: Action = Action.OPERATE
) -> Iterator[tuple[Change, TopologyView]]:
    with change(session, f"topology.{order}", "topology", object_name=topology) as made:
        found = _found(made.db, session, topology, action, lock=True)
        made.project_id = found.project_id
        yield made, found


def _found(
    db: Connection, session: Session, topology: str, action: Action, *, lock: bool = False
) -> TopologyView:
    found = None if "\0" in topology else store.topology_named(db, topology, lock=lock)
    if found is not None:
        try:
            seen(db, session.principal, action, Thing.PROJECT, found.project_id)
        except NotFoundError:
            # A foreign topology and a missing one are the same.
            found = None
    if found is None:
        known = [each.name for each in store.topologies(db, session.principal)]
        near = difflib.get_close_matches(topology, known, n=1)
        perhaps = f"did you mean {near[0]!r}?" if near else "see `orcaflow topology list`"
        raise NotFoundError(f"there is no topology {topology!r:.200}; {perhaps}")
    return found
