"""Takes commands off `t_ds_command` under the cluster's mutex, and hands the runs on.

The mutex spreads work fairly and spares the database; exactness comes from the transaction in which
the store deletes a command and writes its effect. So a master that is alone goes without, and at
the moment at which another joins both may take at once. The mutex is never held while the loop
rests.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from datetime import timedelta

from common.clock import Clock
from common.errors import ServiceUnreachableError
from common.model.cluster import Node, NodeKind
from common.model.commands import Command, CommandType
from common.model.plans import (
    Begin,
    Complement,
    Drop,
    Plan,
    Reject,
    Restart,
    Resume,
    SetIntent,
    Snapshot,
)
from common.model.slot_share import RoomShare
from common.registry.protocol import Membership, Mutex
from common.runtime import metrics
from common.store.master.ports import CommandStore, Taken
from master.commands import plan
from master.commands.origin import Origin
from master.identity import Identity
from master.loops.run_shares import RunShares
from master.loops.run_worker import RunWorker

log = logging.getLogger(__name__)

MUTEX = "masters"

_FAILOVER = CommandType.RECOVER_TOLERANCE_FAULT_PROCESS


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandConfig:
    """`exec_threads`: the process instances that this master runs at the same time.

    Runs that only wait for other runs are not counted. `project_percent`: the share of them that
    one project may hold while others exist. `kept`: the age at which lines of the ledger are
    forgotten.
    """

    exec_threads: int = 100
    project_percent: int = 80
    fetch_size: int = 50
    poll_interval: timedelta = timedelta(seconds=1)
    mutex_timeout: timedelta = timedelta(seconds=5)
    kept: timedelta = timedelta(days=30)
    forget_interval: timedelta = timedelta(hours=1)


class CommandLoop:
    """Turns commands into runs of this master, while the host's load allows (contract §5.0).

    Callbacks: `waits` after an instance was created in a serial wait; `taken_over` after a
    take-over, as tasks of the run may wait already; `dates_changed` after a command without effect,
    which a complement may have put; `recovered` after ended instances became live again.
    """

    name = "command"

    def __init__(
        self,
        store: CommandStore,
        *,
        mutex: Mutex,
        membership: Membership,
        identity: Identity,
        runs: RunWorker,
        origin: Origin,
        clock: Clock,
        admitted: Callable[[], bool] = lambda: True,
        waits: Callable[[], None] = lambda: None,
        taken_over: Callable[[], None] = lambda: None,
        dates_changed: Callable[[], None] = lambda: None,
        recovered: Callable[[], None] = lambda: None,
        wake: Callable[[], None] = lambda: None,
        config: CommandConfig | None = None,
    ) -> None:
        self._wake = wake
        self._heard = False
        self._waits = waits
        self._taken_over = taken_over
        self._dates_changed = dates_changed
        self._recovered = recovered
        self._store = store
        self._mutex = mutex
        self._membership = membership
        self._identity = identity
        self._runs = runs
        self._origin = origin
        self._clock = clock
        self._admitted = admitted
        self._config = config or CommandConfig()
        self._shares = RunShares(
            store,
            clock=clock,
            percent=self._config.project_percent,
            slots=self._config.exec_threads,
        )
        self._forget_at = clock.monotonic()
        # This incarnation, while no other master was found when the masters had changed last.
        self._alone: Node | None = None
        self._masters_changed = True
        membership.watch(NodeKind.MASTER, self._note_masters)

    def heard(self) -> None:
        """Look for commands now, since one was put; from any thread."""
        self._heard = True
        self._wake()

    def run_once(self) -> timedelta:
        """Take the commands that there is room for; return the time to rest."""
        node = self._identity.trusted()
        if node is None:
            return self._config.poll_interval
        self._forget()
        # News spares the question. News that comes between the two halves is lost, and asked for.
        is_known, self._heard = self._heard, False
        if not (is_known or self._store.waiting()):
            return self._config.poll_interval
        # Some commands need no room: pauses and stops, which a loaded host needs most, and sub
        # processes, for which its own runs wait already.
        admitted = self._admitted()
        exec_threads = self._config.exec_threads if admitted else 0
        with self._turn(node) as held:
            if not held:
                return timedelta()
            room, spare, share = self._room(exec_threads)
            now = self._clock.now()
            first_steps = self._runs.first_steps(now=now)
            taken = self._store.take(
                node=node,
                limit=self._config.fetch_size,
                room=max(0, room),
                spare=max(0, spare),
                live_masters=lambda: self._membership.nodes(NodeKind.MASTER),
                planner=self._plan,
                now=now,
                first_step=first_steps.decide,
                share=share,
            )
        if taken.begun:
            # Sorted, since the order of a set is chance.
            begun = [first_steps.runs[ownership] for ownership in sorted(taken.begun)]
            self._runs.begun(begun, taken.saved)
        self._publish(taken)
        if self._masters_changed:
            self._look_for_others(node)
        return timedelta() if taken.handled else self._config.poll_interval

    def _room(self, exec_threads: int) -> tuple[int, int, RoomShare | None]:
        """Return the room for live runs and for dates, and the shares if they matter."""
        active, live = self._runs.active, self._runs.active_live
        room, spare = exec_threads - live, exec_threads - active
        if exec_threads <= 0:
            return room, spare, None
        left = self._shares.headroom(active, most=self._config.fetch_size)
        if left is None:
            return room, spare, None
        if left > 0:
            return min(room, left), min(spare, left), None
        share = self._shares.of(self._runs.occupants())
        return share.live.free, share.dates.free, share

    def _turn(self, node: Node) -> AbstractContextManager[bool]:
        """Take the mutex, unless there is nobody to take turns with."""
        if self._alone == node and not self._masters_changed:
            return nullcontext(True)
        return self._mutex.hold(MUTEX, timeout=self._config.mutex_timeout)

    def _look_for_others(self, node: Node) -> None:
        # Before the look: what changes during it is looked at once more.
        self._masters_changed = False
        try:
            masters = self._membership.nodes(NodeKind.MASTER)
        except ServiceUnreachableError:
            self._masters_changed = True
            return
        self._alone = node if masters == {node} else None

    def _note_masters(self) -> None:
        """Called on the registry's thread."""
        self._masters_changed = True

    def _forget(self) -> None:
        """Delete old lines of the ledger now and then, a limited number at a time."""
        now = self._clock.monotonic()
        if now < self._forget_at:
            return
        if not self._store.forget(before=self._clock.now() - self._config.kept):
            self._forget_at = now + self._config.forget_interval.total_seconds()

    def _plan(self, command: Command, snapshot: Snapshot) -> Plan:
        return plan(command, snapshot, now=self._clock.now(), origin=self._origin)

    def _publish(self, taken: Taken) -> None:
        handled = taken.handled
        # First of all: whatever is logged, a worker would wait for.
        to_open = [
            one.ownership
            for one in handled
            if one.ownership is not None and one.ownership not in taken.begun
        ]
        if to_open:
            self._runs.open(to_open)
        for one in handled:
            extra = {"command_id": one.command_id, "plan": type(one.plan).__name__}
            if one.ownership is not None:
                extra["process_instance_id"] = str(one.ownership.process_instance_id)
            if isinstance(one.plan, Resume) and one.plan.command_type is _FAILOVER:
                metrics.takeovers.inc()
            if isinstance(one.plan, Reject):
                log.warning("command was rejected", extra=extra | {"reason": one.plan.reason})
            elif isinstance(one.plan, Drop):
                log.info("command was dropped", extra=extra | {"reason": one.plan.reason})
            else:
                log.info("command was handled", extra=extra)
        if any(isinstance(one.plan, Resume) and one.ownership for one in handled):
            self._taken_over()
        if any(isinstance(one.plan, Complement | Drop | Reject) for one in handled):
            self._dates_changed()
        if any(isinstance(one.plan, Restart) for one in handled):
            self._recovered()
        if any(isinstance(one.plan, SetIntent) for one in handled):
            self._runs.check_tables()
        if any(isinstance(one.plan, Begin | Restart) and not one.ownership for one in handled):
            self._waits()
