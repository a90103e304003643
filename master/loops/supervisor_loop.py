"""The keeper: looks after the supervisors of streams whose leases this master holds.

A thin shell around `master.supervisors.deciding.decide`. It loads the view, carries the decisions
out in transactions that are fenced by lease and epoch, and keeps the memory until the next notice.
A large step is written in parts, and supervisors get their turns by project: a turn handles one
notice, or writes one part. If a master can't know whether a step was written, or if only some parts
were, it releases the supervisor, and the next epoch starts with an empty memory. The loop never
queries a broker: `Streams` does.
"""

from __future__ import annotations

import json
import logging
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any, Final, Protocol, assert_never

from common.clock import Clock
from common.errors import InvalidSpecError, ServiceUnreachableError
from common.model.cluster import Node
from common.model.streams.reading import read_spec
from common.model.streams.requests import Request, RequestKind
from common.model.streams.sequences import work_of
from common.model.streams.spec import SupervisorSpec
from common.sealed_tokens import key_of
from common.store.master.supervisor_ports import (
    BadRequest,
    Lease,
    LeaseLostError,
    OutdatedStepError,
    Pulse,
    Standing,
    SupervisorRows,
    SupervisorStep,
    SupervisorStore,
    TellPeople,
)
from master.identity import Identity
from master.loops.supervisor_figures import count_step
from master.loops.supervisor_parts import MOST_CHANGES, parts_of
from master.loops.supervisor_steps import changes_of, closed_tasks, view_of
from master.loops.supervisor_turns import Turns
from master.supervisors.alarms import Alarms, watched
from master.supervisors.deciding import decide
from master.supervisors.decisions import Decision, EndSupervisor, Remember, ScheduleRun
from master.supervisors.draft import Draft
from master.supervisors.failing import RECOVERED, Failing, after_error
from master.supervisors.health import Health, State
from master.supervisors.notices import (
    Checkpoint,
    GracefulShutdown,
    HandOver,
    Notice,
    NoticeQueue,
    Reset,
    ResetOffsets,
    Run,
    Scale,
)
from master.supervisors.running import lag_of
from master.supervisors.scaling import wanted_task_count
from master.supervisors.status import errors_of, status_of
from master.supervisors.view import Memory, StreamFailure, StreamSnapshot, SupervisorView

log = logging.getLogger(__name__)

_MOST_NOTICES: Final = 8
"""The notices of one supervisor that are handled before the leases are renewed again."""


class Streams(Protocol):
    """The partitions and offsets of streams, which others ask for; never waits."""

    def look(
        self, spec: SupervisorSpec, *, project_id: int
    ) -> StreamSnapshot | StreamFailure | None:
        """Return what is known of a supervisor's stream; None while the first answer is awaited."""
        ...

    def forget(self, supervisor: str) -> None:
        """Ask no more for this supervisor."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisorConfig:
    """`interval`: between looks at the tables; `lease`: after which another master takes over."""

    interval: timedelta = timedelta(seconds=1)
    claim_interval: timedelta = timedelta(seconds=2)
    lease: timedelta = timedelta(seconds=15)
    claimed_at_once: int = 10
    parked: timedelta = timedelta(seconds=10)
    """The rest of a supervisor that an unexpected error has stopped."""
    changes_at_once: int = MOST_CHANGES
    """The changes of tasks that one turn writes."""


@dataclass(slots=True, kw_only=True)
class _Unwritten:
    """The parts of a step that are not written yet, and what follows when all of them are."""

    parts: deque[SupervisorStep]
    now: datetime
    then: Callable[[], None]
    has_begun: bool = False


@dataclass(slots=True, kw_only=True)
class _Kept:
    """A supervisor that this master looks after."""

    lease: Lease
    memory: Memory = field(default_factory=Memory)
    notices: NoticeQueue = field(default_factory=NoticeQueue)
    pulse: Pulse | None = None
    unwritten: _Unwritten | None = None
    due: datetime | None = None
    parked_until: datetime | None = None
    version: int = 0
    suspended: bool = False
    spec: SupervisorSpec | None = None
    work: str = ""
    full: set[tuple[str, int, str]] = field(default_factory=set)
    """Checkpoints that were asked for: the task, the orders it had obeyed, the start."""
    lags: list[tuple[datetime, int]] = field(default_factory=list)
    since: datetime | None = None
    scaled_at: datetime | None = None
    lag: int | None = None
    """Records that no task had read at the last step; None while the stream is away."""
    alarms: Alarms = field(default_factory=Alarms)
    unreadable: int = 0
    """The version of which people know that it can't be read."""


class SupervisorLoop:
    """Claims supervisors, renews their leases, and has each decide when something has changed."""

    name = "supervisor"

    def __init__(
        self,
        store: SupervisorStore,
        *,
        streams: Streams,
        identity: Identity,
        clock: Clock,
        config: SupervisorConfig | None = None,
    ) -> None:
        self._store = store
        self._streams = streams
        self._identity = identity
        self._clock = clock
        self._config = config or SupervisorConfig()
        self._node: Node | None = None
        self._kept: dict[str, _Kept] = {}
        self._given_up: list[Lease] = []
        self._failing: dict[str, Failing] = {}
        """Supervisors with failed steps, also while they are parked or released."""
        self._turns = Turns()
        self._next_claim = clock.monotonic()

    @property
    def kept(self) -> frozenset[str]:
        """The supervisors that this master looks after."""
        return frozenset(self._kept)

    @property
    def figures(self) -> tuple[tuple[str, int], ...]:
        """The state and the known lag of each, for the metrics; may be asked by any thread."""
        kept = tuple(self._kept.values())
        return tuple((each.memory.health.state.basic.value, each.lag or 0) for each in kept)

    def run_once(self) -> timedelta:
        """Renew the leases, and give turns for a while; return how long to rest."""
        node = self._identity.trusted()
        if node is None or node != self._node:
            # Another incarnation owns nothing of the former: its leases run out.
            for name in tuple(self._kept):
                self._forget(name)
            self._given_up.clear()
            self._failing.clear()
            self._node = node
        if node is None:
            return self._config.interval
        if self._given_up:
            self._store.release(node, self._given_up)
            self._given_up.clear()
        self._claim(node)
        leases = [self._kept[name].lease for name in sorted(self._kept)]
        pulses = self._store.renew(node, leases, lease=self._config.lease)
        ready: dict[str, int] = {}
        for lease in leases:
            pulse = pulses.get(lease)
            if pulse is None:
                log.warning("supervisor lost", extra={"supervisor": lease.supervisor})
                self._forget(lease.supervisor)
            elif self._has_work(self._kept[lease.supervisor], pulse):
                ready[lease.supervisor] = pulse.project_id
        return self._give_turns(node, ready)

    def stop(self) -> None:
        """Release all leases; to be called after the last pass."""
        leases = [*self._given_up, *(kept.lease for kept in self._kept.values())]
        for name in tuple(self._kept):
            self._forget(name)
        if self._node is not None and leases:
            try:
                self._store.release(self._node, leases)
            except ServiceUnreachableError:
                log.warning("leases of supervisors were left to run out")

    def _claim(self, node: Node) -> None:
        if self._clock.monotonic() < self._next_claim:
            return
        self._next_claim = self._clock.monotonic() + self._config.claim_interval.total_seconds()
        claimed = self._store.claim(
            node, lease=self._config.lease, limit=self._config.claimed_at_once
        )
        for lease in claimed:
            self._kept[lease.supervisor] = _Kept(lease=lease)
            log.info(
                "supervisor taken over",
                extra={"supervisor": lease.supervisor, "epoch": lease.epoch},
            )

    def _forget(self, name: str) -> None:
        del self._kept[name]
        self._turns.forget(name)
        self._streams.forget(name)

    def _abandon(self, kept: _Kept) -> None:
        """Release a supervisor after only some parts of its step were written."""
        if kept.lease.supervisor in self._kept:
            self._give_up(kept)

    def _give_up(self, kept: _Kept) -> None:
        """Have the supervisor taken over anew: memory and tables may differ."""
        self._given_up.append(kept.lease)
        self._forget(kept.lease.supervisor)

    def _has_work(self, kept: _Kept, pulse: Pulse) -> bool:
        """Note what the tables show; True if the supervisor wants a turn."""
        now = self._clock.now()
        if kept.parked_until is not None:
            if now >= kept.parked_until:
                self._give_up(kept)
            return False
        if pulse != kept.pulse or (kept.due is not None and now >= kept.due):
            kept.notices.put(Run())
        kept.pulse = pulse
        return kept.unwritten is not None or len(kept.notices) > 0

    def _give_turns(self, node: Node, ready: Mapping[str, int]) -> timedelta:
        """Give turns until no supervisor has work or a renewal is due; return the time to rest."""
        until = self._clock.monotonic() + self._config.interval.total_seconds()
        self._turns.begin(ready)
        notices = dict.fromkeys(ready, _MOST_NOTICES)
        while (name := self._turns.take()) is not None:
            kept = self._kept[name]
            if kept.unwritten is None:
                notices[name] -= 1
            has_more = self._serve(node, kept)
            if has_more and (kept.unwritten is not None or notices[name] > 0):
                self._turns.again(name, ready[name])
            if self._clock.monotonic() >= until and self._turns.are_awaited:
                return timedelta()
        return self._config.interval

    def _serve(self, node: Node, kept: _Kept) -> bool:
        """Give a supervisor its turn; True if it may need another one now."""
        now = self._clock.now()
        try:
            if kept.unwritten is not None:
                self._write_part(node, kept, kept.unwritten)
                has_more = True
            else:
                has_more = self._handle(node, kept)
            return has_more and kept.lease.supervisor in self._kept
        except LeaseLostError:
            log.warning("supervisor lost", extra={"supervisor": kept.lease.supervisor})
            self._forget(kept.lease.supervisor)
        except OutdatedStepError as error:
            log.info(str(error), extra={"supervisor": kept.lease.supervisor})
            kept.notices.put(Run())
            self._note_failure(node, kept, error, now)
            if kept.unwritten is not None and kept.unwritten.has_begun:
                self._abandon(kept)
            kept.unwritten = None
        except ServiceUnreachableError:
            self._give_up(kept)
            raise
        except Exception as error:
            # The others must not suffer for one. This one is kept from all masters for a while.
            log.exception("supervisor failed", extra={"supervisor": kept.lease.supervisor})
            kept.parked_until = now + self._config.parked
            kept.unwritten = None
            self._note_failure(node, kept, error, now)
        return False

    def _note_failure(self, node: Node, kept: _Kept, error: Exception, now: datetime) -> None:
        """Count a failed step; write the state and an alert once several have failed in a row."""
        name = kept.lease.supervisor
        failing = after_error(
            self._failing.get(name),
            error,
            master=node.address,
            now=now,
        )
        self._failing[name] = failing
        if not failing.is_due:
            return
        kept.memory = replace(kept.memory, health=failing.health)
        wants_alert = kept.spec is None or kept.spec.io.alerts.unhealthy
        is_news = wants_alert and not failing.is_known
        step = SupervisorStep(
            version=kept.version,
            stream="",
            changes=(TellPeople(text=failing.alert),) if is_news else (),
            standing=_standing_of(failing.health, status=None),
        )
        try:
            self._store.apply(node, kept.lease, step, now=now)
        except LeaseLostError:
            self._forget(name)
        except ServiceUnreachableError:
            self._give_up(kept)
            raise
        except Exception:
            log.exception(
                "state of a failing supervisor was not written", extra={"supervisor": name}
            )
        else:
            self._failing[name] = replace(failing, is_known=failing.is_known or is_news)

    def _look(self, kept: _Kept, spec: SupervisorSpec) -> StreamSnapshot | StreamFailure | None:
        project_id = 0 if kept.pulse is None else kept.pulse.project_id
        return self._streams.look(spec, project_id=project_id)

    def _handle(self, node: Node, kept: _Kept) -> bool:
        """Handle one notice; False if there is none, or the stream has not answered yet."""
        if not kept.notices:
            return False
        if kept.spec is not None and self._look(kept, kept.spec) is None:
            return False
        rows = self._store.load(kept.lease)
        is_first = kept.spec is None
        if rows is None or not self._understands(node, kept, rows):
            kept.notices = NoticeQueue()
            return False
        spec = kept.spec
        assert spec is not None, "it was just read"
        if kept.memory.stopping_since is not None and not rows.is_tombstone:
            # Submitted anew while it stopped: stopping is final for this one.
            self._give_up(kept)
            return False
        stream = self._look(kept, spec)
        now = self._clock.now()
        if is_first and kept.lease.epoch == 1 and spec.io.start_delay:
            kept.notices, kept.due = NoticeQueue(), now + spec.io.start_delay
            return False
        if stream is None:
            return False
        view = view_of(
            rows,
            spec=spec,
            work=kept.work,
            epoch=kept.lease.epoch,
            memory=kept.memory,
            stream=stream,
        )
        request = next(iter(rows.requests), None)
        if isinstance(request, BadRequest):
            step = SupervisorStep(
                version=rows.version,
                stream=spec.io.topic,
                changes=(TellPeople(text=request.problem),),
                requests=(request.id,),
            )
            self._store.apply(node, kept.lease, step, now=now)
            return True
        notice = self._notice(kept, rows, request)
        if isinstance(notice, Run):
            self._scale(kept, view, now)
        decisions = decide(view, notice, now=now)
        self._carry_out(node, kept, rows, view, decisions, notice=notice, request=request, now=now)
        return True

    def _understands(self, node: Node, kept: _Kept, rows: SupervisorRows) -> bool:
        """Read the specification, if it is new; False if it can't be read."""
        if kept.spec is not None and (kept.version, kept.suspended) == (
            rows.spec_version,
            rows.suspended,
        ):
            return True
        try:
            spec = read_spec(rows.document).spec
        except InvalidSpecError as error:
            spec = None
            problem = "; ".join(error.mistakes)
        else:
            problem = "it is a tombstone"
        if (key := key_of(json.dumps(rows.document))) is not None:
            # The brokers would refuse the encrypted text without a useful reason.
            spec = None
            problem = f"a secret is encrypted with the key {key}: copy the key file to this master"
        if not isinstance(spec, SupervisorSpec):
            # Another version has accepted it, or a person has changed the row.
            now = self._clock.now()
            is_news = kept.unreadable != rows.spec_version
            step = _unreadable(rows, problem, now, is_news=is_news)
            self._store.apply(node, kept.lease, step, now=now)
            kept.unreadable = rows.spec_version
            return False
        kept.spec = replace(spec, suspended=rows.suspended)
        kept.work = work_of(kept.spec)
        kept.version, kept.suspended = rows.spec_version, rows.suspended
        kept.since = kept.since or self._clock.now()
        return True

    def _notice(self, kept: _Kept, rows: SupervisorRows, request: Request | None) -> Notice:
        if request is not None:
            return notice_of(request)
        if rows.is_tombstone and kept.memory.stopping_since is None:
            return GracefulShutdown()
        taken = kept.notices.take()
        return Run() if taken is None else taken

    def _ask_checkpoints(self, kept: _Kept, rows: SupervisorRows) -> None:
        """Give notice of tasks that want their sequences closed, once for each time they ask."""
        asked: set[tuple[str, int, str]] = set()
        for task in rows.tasks:
            full = task.report.full
            if full is None or task.succeeded is not None:
                continue
            group = kept.memory.reading.get(task.assignment.group_id)
            if group is not None and group.agrees:
                # The notice would have no effect now. A later run sends it.
                continue
            key = (task.assignment.name, task.report.obeyed, str(sorted(full.items())))
            asked.add(key)
            if key not in kept.full:
                kept.notices.put(
                    Checkpoint(
                        group_id=task.assignment.group_id,
                        base_sequence=task.assignment.base_sequence,
                        previous=full,
                    )
                )
        kept.full = asked

    def _scale(self, kept: _Kept, view: SupervisorView, now: datetime) -> None:
        """Note the lag, and give notice of another number of groups if it calls for one."""
        rule = view.spec.io.scaling
        if rule is None or not rule.enabled or not isinstance(view.stream, StreamSnapshot):
            return
        if not kept.lags or now >= kept.lags[-1][0] + rule.collect_every:
            kept.lags.append((now, sum(lag_of(Draft(view, now)).values())))
        kept.lags = [each for each in kept.lags if each[0] > now - rule.collect_for]
        begun = kept.since or now
        last = kept.scaled_at or begun + rule.start_delay - rule.act_every
        if now < last + rule.act_every:
            return
        kept.scaled_at = now
        wanted = wanted_task_count(
            rule,
            [lag for _, lag in kept.lags],
            task_count=view.spec.io.task_count,
            partitions=len(kept.memory.partitions),
        )
        if wanted != view.spec.io.task_count:
            kept.notices.put(Scale(task_count=wanted))

    def _carry_out(
        self,
        node: Node,
        kept: _Kept,
        rows: SupervisorRows,
        view: SupervisorView,
        decisions: tuple[Decision, ...],
        *,
        notice: Notice,
        request: Request | None,
        now: datetime,
    ) -> None:
        memory = next(
            (each.memory for each in decisions if isinstance(each, Remember)), kept.memory
        )
        ends = any(isinstance(each, EndSupervisor) for each in decisions)
        standing = None
        if memory != kept.memory:
            status = status_of(view, memory, now=now)
            standing = _standing_of(memory.health, status=status)
            kept.lag = status["aggregateLag"]
        if isinstance(view.stream, StreamFailure):
            kept.lag = None
        lag = None if view.spec.suspended else kept.lag
        alarms = watched(kept.alarms, view.spec.io.alerts, memory.health, lag, now=now)
        failing = self._failing.get(kept.lease.supervisor)
        has_recovered = failing is not None and failing.is_known and not failing.is_forgotten(now)
        step = SupervisorStep(
            version=rows.version,
            stream=view.spec.io.topic,
            changes=tuple(
                TellPeople(text=text) for text in (*[RECOVERED] * has_recovered, *alarms.texts)
            ),
            requests=() if request is None else (request.id,),
            closed=closed_tasks(rows, memory),
            standing=standing,
            ends=ends,
        )
        changes = changes_of(decisions, view, rows)

        def remember() -> None:
            self._failing.pop(kept.lease.supervisor, None)
            count_step(kept.memory, memory, decisions, rows, step)
            kept.memory, kept.alarms = memory, alarms
            moments = [each.at for each in decisions if isinstance(each, ScheduleRun)]
            if kept.due is not None and kept.due > now:
                moments.append(kept.due)
            kept.due = min((*moments, now + view.spec.io.period))
            if ends:
                log.info("supervisor ended", extra={"supervisor": kept.lease.supervisor})
                # If it was submitted again in this moment, this master can still take it over.
                self._give_up(kept)
            elif isinstance(notice, Run):
                # Now, since the run may have ended the conversation that a request waits for.
                self._ask_checkpoints(kept, rows)

        if changes or step.changes or step.requests or step.closed or step.standing or ends:
            kept.unwritten = _Unwritten(
                parts=deque(parts_of(step, changes, most=self._config.changes_at_once)),
                now=now,
                then=remember,
            )
            self._write_part(node, kept, kept.unwritten)
        else:
            remember()

    def _write_part(self, node: Node, kept: _Kept, unwritten: _Unwritten) -> None:
        """Write the next part of a step; remember the step after its last one."""
        self._store.apply(node, kept.lease, unwritten.parts[0], now=unwritten.now)
        unwritten.parts.popleft()
        unwritten.has_begun = True
        if not unwritten.parts:
            kept.unwritten = None
            unwritten.then()


def notice_of(request: Request) -> Notice:
    """Return the notice that a person's request is."""
    match request.kind:
        case RequestKind.RESET:
            return Reset(offsets=request.offsets, stream=request.stream, seen=request.seen)
        case RequestKind.RESET_OFFSETS:
            return ResetOffsets(offsets=request.offsets or {})
        case RequestKind.HAND_OVER:
            return HandOver(group_ids=request.groups)
        case _:
            assert_never(request.kind)


def _standing_of(health: Health, *, status: Mapping[str, Any] | None) -> Standing:
    return Standing(
        state=health.state.basic.value,
        detailed_state=health.state.value,
        healthy=health.state.is_healthy,
        recent_errors=errors_of(health),
        status=status,
    )


def _unreadable(
    rows: SupervisorRows, problem: str, now: datetime, *, is_news: bool
) -> SupervisorStep:
    message = f"the specification of version {rows.spec_version} can't be read: {problem}"
    error: dict[str, Any] = {
        "timestamp": now.isoformat(),
        "message": message,
        "streamException": False,
    }
    return SupervisorStep(
        version=rows.version,
        stream="",
        changes=(TellPeople(text=message),) if is_news else (),
        standing=Standing(
            state=State.UNHEALTHY_SUPERVISOR.value,
            detailed_state=State.UNHEALTHY_SUPERVISOR.value,
            healthy=False,
            recent_errors=(error,),
            status={},
        ),
    )
