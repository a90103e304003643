"""A worker's loops, wired to each other and to nothing that runs them.

The daemon gives each loop a thread; the simulator steps the same loops itself. Whatever touches the
computer (processes, load, the pid in the heartbeat) is handed in.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import TypeAlias

from common.clock import Clock
from common.config import WorkerConfig
from common.model.leases import Lease
from common.model.offers import offer_of
from common.model.workers import WorkerMode, WorkerStatus
from common.registry.protocol import Registry
from common.runtime.wakes import Wakes
from common.store.worker.ports import AttemptEnd, AttemptFolders, TaskStore
from worker.attempts import Ended, LocalAttempts, Started
from worker.identity import Identity
from worker.loops.claim_loop import ClaimLoop
from worker.loops.heartbeat import HeartbeatLoop
from worker.loops.kill_loop import KillLoop
from worker.loops.lease_loop import LeaseLoop
from worker.loops.look_loop import LookLoop
from worker.loops.reporter import Reporter
from worker.loops.task_shares import TaskShares
from worker.loops.track_loop import TrackLoop

MakeAttempts: TypeAlias = Callable[[Ended, Started], LocalAttempts]


class Worker:
    """One worker. The first pass of its heartbeat makes it somebody; before that it rests."""

    def __init__(
        self,
        config: WorkerConfig,
        *,
        clock: Clock,
        registry: Registry,
        store: TaskStore,
        make_attempts: MakeAttempts,
        folders: AttemptFolders,
        heartbeat_text: Callable[[Callable[[], WorkerStatus]], Callable[[], str]],
        group_ids: Callable[[], Collection[int]] = lambda: (),
        version: str = "",
        ip: int | None = None,
        admitted: Callable[[], bool] = lambda: True,
        reported: Callable[[Sequence[AttemptEnd]], None] = lambda _: None,
    ) -> None:
        """`reported` is called with ends that the tables have; by the reporter's thread.

        `heartbeat_text` is given what tells the status of this worker, and returns what writes the
        text of a heartbeat.
        """
        address = f"{config.host}:{config.port}"
        self._tell_reported = reported
        self.wakes = Wakes()
        self.identity = Identity()
        self.reporter = Reporter(
            store=store,
            node=lambda: self.identity.node,
            clock=clock,
            running=lambda: len(self.attempts.running()),
            waiting=lambda: self.attempts.waiting(),  # noqa: PLW0108  # They are made below.
            wake=lambda: self.wakes.wake(Reporter.name),
            reported=self._reported,
        )
        self.attempts = make_attempts(self._ended, self.reporter.started)
        self.claims = ClaimLoop(
            store=store,
            queue=registry.task_queue,
            membership=registry.membership,
            attempts=self.attempts,
            ended=self.reporter.ended,
            node=lambda: self.identity.node,
            slots=config.exec_threads,
            complement_slots=config.complement_threads or config.exec_threads,
            shares=TaskShares(
                store=store,
                attempts=self.attempts,
                clock=clock,
                percent=config.project_share_percent,
                slots=config.exec_threads,
                complement_slots=config.complement_threads or config.exec_threads,
                group_ids=group_ids,
                is_reserved=config.reserved,
            ),
            group_ids=group_ids,
            ip=ip,
            address=address,
            is_reserved=config.reserved,
            folders=folders,
            clock=clock,
            batch=config.fetch_task_num,
            admits=lambda: self.heartbeat.mode is WorkerMode.ENABLED and admitted(),
            wake=lambda: self.wakes.wake(ClaimLoop.name),
        )
        self.kills = KillLoop(
            store=store,
            kills=registry.kill_queue,
            membership=registry.membership,
            attempts=self.attempts,
            ended=self.reporter.ended,
            node=lambda: self.identity.node,
            clock=clock,
            in_hand=lambda: self.claims.claiming() | self.reporter.unreported(),
            wake=lambda: self.wakes.wake(KillLoop.name),
        )
        self.tracks = TrackLoop(
            store=store, node=lambda: self.identity.node, live=self.attempts.facts_files
        )
        lease = Lease()
        self.looks = LookLoop(
            lease=lease,
            store=store,
            membership=registry.membership,
            attempts=self.attempts,
            node=lambda: self.identity.node,
            address=address,
            clock=clock,
        )
        self.leases = LeaseLoop(
            lease=lease,
            membership=registry.membership,
            attempts=self.attempts,
            node=lambda: self.identity.node,
            clock=clock,
        )
        self.heartbeat = HeartbeatLoop(
            membership=registry.membership,
            identity=self.identity,
            store=store,
            attempts=self.attempts,
            address=address,
            text=heartbeat_text(self.status),
            offer=lambda: offer_of(
                config.groups,
                group_ids(),
                slots=config.exec_threads,
                version=version,
                is_reserved=config.reserved,
            ),
            clock=clock,
            interval=timedelta(seconds=config.heartbeat_interval_seconds),
            taken_over=lambda: self.wakes.wake(Reporter.name, KillLoop.name, ClaimLoop.name),
            mode_changed=lambda: self.wakes.wake(ClaimLoop.name),
        )
        self._offers = WorkerStatus(
            capacity=config.exec_threads,
            used=0,
            version=version,
            category=config.category,
            is_reserved=config.reserved,
            share_percent=config.project_share_percent,
        )
        self._group_ids = group_ids

    def status(self) -> WorkerStatus:
        """Return this worker's account of itself."""
        return replace(
            self._offers,
            used=len(self.attempts.running()),
            mode=self.heartbeat.mode,
            group_ids=frozenset(self._group_ids()),
        )

    def modes_changed(self) -> None:
        """Have the mode read again soon; from any thread."""
        self.heartbeat.read_mode_again()
        self.wakes.wake(HeartbeatLoop.name)

    @property
    def loops(
        self,
    ) -> tuple[HeartbeatLoop, LeaseLoop, LookLoop, Reporter, TrackLoop, KillLoop, ClaimLoop]:
        """In the order of their start; what takes new work comes last."""
        return (
            self.heartbeat,
            self.leases,
            self.looks,
            self.reporter,
            self.tracks,
            self.kills,
            self.claims,
        )

    def _reported(self, ends: Sequence[AttemptEnd]) -> None:
        # First, since what is to be done for them must be known while their records are there.
        self._tell_reported(ends)
        self.attempts.forget(ends)

    def _ended(self, end: AttemptEnd) -> None:
        self.reporter.ended(end)
        self.claims.room_made()
