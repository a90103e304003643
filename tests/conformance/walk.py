"""A random history of deeds on both stores at once, which compares all that it sees of them."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from functools import partial
from random import Random
from typing import Any

from sqlalchemy import Table

from common.model.cluster import Node
from common.model.commands import INTENT_COMMANDS, RESTARTING_COMMANDS, CommandType
from common.model.complement_states import ComplementState, OnFailure, Reprocess
from common.model.decisions import (
    AbandonTask,
    DecideTask,
    Decision,
    FinishProcess,
    PauseProcess,
    RetryTask,
    StopProcess,
    SubmitTask,
)
from common.model.definitions import PoolShare, TaskTimeout
from common.model.instances import Ownership
from common.model.plans import Drop
from common.model.schedules import Fire, FireOutcome, FirePlan, Schedule
from common.model.states import ExecutionType, Priority, ProcessState, TaskState, TimeoutStrategy
from common.model.upstream import Question
from common.store import tables as t
from common.store.master.ports import DependentDecision, Released, Saved, Step
from common.store.transaction import StoreConflictError
from master.logic.complement import step
from tests.builders import NOON
from tests.conformance.plain_plans import is_of_new_run, plain_plan
from tests.conformance.store_tables import (
    FOLDERS,
    LATER,
    MASTER,
    MINUTE,
    OTHER_MASTER,
    OTHER_WORKER,
    REFUSED,
    RESTARTED,
    STOPPING,
    WORKER,
    MemoryTables,
    PostgresTables,
    Tables,
    a_command,
    a_definition,
    a_submit,
    about,
    an_end,
    fail_over,
    finish,
    kill,
    pause,
    take,
)

COMPARED = (
    t.command,
    t.error_command,
    t.process_instance,
    t.task_instance,
    t.task_group_queue,
    t.relation_process_instance,
    t.alert,
    t.schedule,
    t.schedule_fire,
    t.complement,
    t.complement_date,
)


TYPES = tuple(ExecutionType)
FAR = NOON + timedelta(days=9)
"""Later than any time that a test uses: such a value comes from PostgreSQL's own clock."""


class Walk:
    """A random history, applied to both stores; after each step their rows must be equal."""

    def __init__(
        self,
        seed: int,
        memory: MemoryTables,
        postgresql: PostgresTables,
        *,
        of_dates: bool = False,
    ) -> None:
        """Start a history; `of_dates` limits it to schedules and complements."""
        self._random = Random(seed)
        self._memory = memory
        self._postgresql = postgresql
        self.outcomes: Counter[str] = Counter()
        memory.database.now = lambda: FAR
        for execution_type in TYPES:
            name = execution_type.name
            self._both(partial(a_definition, name=name, execution_type=int(execution_type)))
        self._both(lambda db: db.insert(t.task_group, name="db", group_size=2))
        self._both(lambda db: db.insert(t.task_group, name="api", group_size=1))
        self._both(_a_schedule)
        self._deeds: tuple[tuple[Callable[[], Callable[[Tables], Any]], float], ...] = (
            (self._start, 2),
            (self._intent, 2),
            (self._restart, 3),
            (self._take, 6),
            (self._save, 8),
            (self._release, 3),
            (self._claim, 3),
            (self._report, 4),
            (self._adopt, 1),
            (self._time_out, 0.5),
            (self._propagate_intents, 2),
            (self._decide_dependents, 2),
            (self._look_up, 1),
            (self._fail_over, 0.5),
            (self._recover, 1),
        )
        if of_dates:
            self._deeds = (
                (self._fire, 1),
                (self._complement, 1.5),
                (self._advance, 6),
                (self._request_for_complement, 1),
                (self._take, 6),
                (self._end_run, 4),
                (self._restart, 0.7),
                (self._release, 1),
            )

    def step(self) -> None:
        deeds = [deed for deed, _ in self._deeds]
        (deed,) = self._random.choices(deeds, weights=[weight for _, weight in self._deeds])
        outcome = self._both(deed())
        self.outcomes[f"{deed.__name__}: {outcome if isinstance(outcome, str) else 'done'}"] += 1
        for table, there in zip(COMPARED, self._postgresql.rows_of(COMPARED), strict=True):
            self._compare_rows(table, there)
            # A transaction that was rolled back may have drawn ids, and not as many in both stores.
            rows = self._memory.rows(table)
            self._memory._rows(table)._last_id = max((row["id"] for row in rows), default=0)
        self._postgresql.draw_ids_from_the_highest(COMPARED)
        for master in (MASTER, OTHER_MASTER):
            self._both(partial(_view_of, master))
        self._both(
            lambda db: (
                db.failover.run_owners(),
                db.failover.task_owners(),
                [db.tasks.running(worker) for worker in (WORKER, RESTARTED, OTHER_WORKER)],
            )
        )

    def _both(self, deed: Callable[[Tables], Any]) -> Any:
        here, there = (_outcome(deed, db) for db in (self._memory, self._postgresql))
        assert here == there
        return here

    def _compare_rows(self, table: Table, there: list[dict[str, Any]]) -> None:
        here = self._memory.rows(table)
        if table in (t.error_command, t.alert):
            # Rows of one transaction are written together, in any order.
            here, there = (sorted(rows, key=_without_id) for rows in (here, there))
            there = [row | {"id": ours["id"]} for ours, row in zip(here, there, strict=True)]
        # The memory leaves out columns that no loop reads.
        names = list(here[0]) if here else ["id"]
        assert [row["id"] for row in here] == [row["id"] for row in there]
        for ours, theirs in zip(here, there, strict=True):
            differing = [name for name in names if ours[name] != _without_server_time(theirs[name])]
            assert not differing, (
                f"{table.name}: {_described(ours, differing)}, {_described(theirs, names)}"
            )

    # Commands

    def _start(self) -> Callable[[Tables], Any]:
        columns = {
            "process_definition_id": self._random.randrange(1, len(TYPES) + 1),
            "process_instance_priority": self._random.randrange(5),
            "warning_type": self._random.randrange(4),
            "update_time": NOON + self._random.randrange(3) * MINUTE,
            "start_time": NOON,
        }
        return lambda db: a_command(db, **columns)

    def _about_some_run(
        self, command_type: CommandType, *, terminal: bool
    ) -> Callable[[Tables], Any]:
        runs = self._memory.rows(t.process_instance)
        fit = [row["id"] for row in runs if ProcessState(row["state"]).is_terminal is terminal]
        any_run = self._random.randrange(1, len(runs) + 2)
        run_id = self._random.choice(fit) if fit and self._random.random() < 0.8 else any_run
        return lambda db: a_command(
            db,
            command_type=int(command_type),
            process_definition_id=0,
            command_param=about(run_id),
            start_time=NOON,
            update_time=NOON,
        )

    def _intent(self) -> Callable[[Tables], Any]:
        return self._about_some_run(self._random.choice(INTENT_COMMANDS), terminal=False)

    def _restart(self) -> Callable[[Tables], Any]:
        if self._random.random() < 0.8:
            return self._about_some_run(self._random.choice(RESTARTING_COMMANDS), terminal=True)
        others = (
            CommandType.RECOVER_TOLERANCE_FAULT_PROCESS,
            CommandType.RECOVER_SERIAL_WAIT,
            CommandType.RECOVER_WAITTING_THREAD,
        )
        return self._about_some_run(self._random.choice(others), terminal=False)

    def _take(self) -> Callable[[Tables], Any]:
        node = self._random.choice((MASTER, OTHER_MASTER))
        limit, room = self._random.randrange(1, 6), self._random.randrange(4)
        spare = self._random.randrange(5)
        # A store may take new runs of a batch first, and those that nothing blocks before others.
        kinds = {is_of_new_run(row) for row in self._memory.rows(t.command)}
        limit = limit if len(kinds) == 1 else 1
        planner = partial(plain_plan, all_serial=limit > 1)

        def take_some(db: Tables) -> Any:
            handled = take(db, planner, node=node, limit=limit, room=room, spare=spare)
            # The reason of a dropped plan is for people, and each store words it its own way.
            return [
                (
                    one.command_id,
                    "dropped" if isinstance(one.plan, Drop) else one.plan,
                    one.ownership,
                )
                for one in handled
            ]

        return take_some

    # Decisions

    def _save(self) -> Callable[[Tables], Any]:
        runs = [row for row in self._memory.rows(t.process_instance) if row["host"] is not None]
        if self._random.random() < 0.85:
            runs = [row for row in runs if not ProcessState(row["state"]).is_terminal]
        steps = []
        branches = self._random.random() < 0.2
        for run in self._random.sample(runs, k=min(len(runs), self._random.randrange(1, 4))):
            # Sometimes a former or a future owner saves.
            epoch = run["owner_epoch"] + self._random.choice((0,) * 9 + (-1, 1))
            owned = Ownership(process_instance_id=run["id"], host=run["host"], epoch=epoch)
            decisions = tuple(self._decisions(run, branches=branches))
            steps.append(Step(ownership=owned, decisions=decisions, at=NOON))
        return lambda db: _in_order(db.runs.save(steps))

    def _decisions(self, run: dict[str, Any], *, branches: bool) -> Iterator[Decision]:
        rows = [
            row
            for row in self._memory.rows(t.task_instance)
            if row["process_instance_id"] == run["id"]
        ]
        for n in range(self._random.randrange(3)):
            name = f"t{len(rows) + n}"
            yield self._a_branch(name) if branches else self._a_submission(name)
        valid = [row for row in rows if row["flag"] == 1]
        for row in self._random.sample(valid, k=self._random.randrange(len(valid) + 1)):
            name, attempt, state = row["name"], row["attempt"], TaskState(row["state"])
            if not state.is_finished:
                if self._random.random() < 0.2:
                    stop = self._random.choice((kill, pause, _abandon))
                    yield stop(name, attempt)
            elif not row["settled"]:
                if self._random.random() < 0.3:
                    yield RetryTask(name=name, attempt=attempt, state=state, at=LATER)
                else:
                    yield finish(name, state, attempt)
                if self._random.random() < 0.5 and not branches:
                    yield self._a_submission(name, attempt + 1)
            elif row["retry_at"] is None and self._random.random() < 0.1:
                # Settled twice, which is a conflict.
                yield finish(name, state, attempt)
        if self._random.random() < 0.1:
            yield self._random.choice(
                (STOPPING, StopProcess(deadline=LATER, failing=True), PauseProcess())
            )
        if self._random.random() < (0.25 if run["is_sub_process"] else 0.15):
            ends = [state for state in ProcessState if state.is_terminal]
            yield FinishProcess(
                state=self._random.choice(ends),
                reason=self._random.choice((None, "so it was drawn")),
                var_pool=self._random.choice((None, "[]")),
            )

    def _a_submission(self, name: str, attempt: int = 1) -> SubmitTask:
        timeout = self._random.choice(
            (None, *(TaskTimeout(after=MINUTE, strategy=one) for one in TimeoutStrategy))
        )
        pools = self._random.choice(
            (
                (),
                (PoolShare(pool_name="db"),),
                (PoolShare(pool_name="db", slots=2), PoolShare(pool_id=2)),
                (PoolShare(pool_id=1, slots=self._random.choice((1, 1, 3))),),
                (PoolShare(pool_name="nope"), PoolShare(pool_id=7)),
            )
        )
        task_type = self._random.choice(("SHELL", "SHELL", "SHELL", "SUB_PROCESS", "DEPENDENT"))
        child = self._random.choice((None, 1, "SERIAL_WAIT", "nobody"))
        return a_submit(
            name,
            attempt,
            task_type=task_type,
            timeout=timeout,
            due_at=self._random.choice((None, None, None, LATER)),
            pools=pools,
            pool_priority=self._random.randrange(3),
            child_definition=child if task_type == "SUB_PROCESS" else None,
        )

    def _a_branch(self, name: str) -> DecideTask:
        return DecideTask(
            name=name,
            attempt=1,
            task_type="SWITCH",
            task_json="{}",
            priority=Priority.MEDIUM,
            state=TaskState.SUCCESS,
            branch=("a", "ä"),
        )

    def _release(self) -> Callable[[Tables], Any]:
        now = self._random.choice((NOON, LATER))
        return lambda db: _in_order(db.holds.release(now=now))

    def _time_out(self) -> Callable[[Tables], Any]:
        now = self._random.choice((NOON, LATER, LATER + 5 * MINUTE))
        return lambda db: db.timeouts.time_out(now=now)

    def _propagate_intents(self) -> Callable[[Tables], Any]:
        master = self._random.choice((MASTER, OTHER_MASTER))
        return lambda db: db.runs.propagate_intents(master)

    # Dependents

    def _decide_dependents(self) -> Callable[[Tables], Any]:
        master = self._random.choice((MASTER, OTHER_MASTER))
        state = self._random.choice((None, TaskState.SUCCESS, TaskState.FAILURE))

        def decide(db: Tables) -> Any:
            decisions = [
                DependentDecision(waiting=waiting, state=state, evidence="[]")
                for waiting in db.dependents.waiting(master)[:2]
            ]
            return db.dependents.decide(decisions, now=LATER)

        return decide

    def _look_up(self) -> Callable[[Tables], Any]:
        runs = [row["id"] for row in self._memory.rows(t.process_instance)]
        questions = [
            Question(
                definition_id=definition_id,
                definition_name="SERIAL_WAIT",
                task=self._random.choice((None, "t0", "t1")),
                start=NOON,
                end=LATER,
                apart_from=self._random.choice((0, *runs)),
            )
            for definition_id in (None, *range(1, len(TYPES) + 2))
        ]
        return lambda db: db.dependents.look_up(questions)

    def _end_run(self) -> Callable[[Tables], Any]:
        live = [
            row["id"]
            for row in self._memory.rows(t.process_instance)
            if not ProcessState(row["state"]).is_terminal and row["host"] is not None
        ]
        if not live:
            return lambda _: "nothing"
        ends = (ProcessState.SUCCESS,) * 4 + (ProcessState.FAILURE, ProcessState.PAUSE)
        run_id, end = self._random.choice(live), self._random.choice(ends)
        row = self._memory.database.processes.the(run_id)
        decision = FinishProcess(state=end, reason=self._random.choice((None, "so it is")))
        ended = Step(ownership=row.ownership, decisions=(decision,), at=LATER)
        return lambda db: _in_order(db.runs.save([ended]))

    # Schedules and complements

    def _fire(self) -> Callable[[Tables], Any]:
        fires = self._random.randrange(3)
        now = NOON + self._random.randrange(9) * MINUTE

        def planner(schedule: Schedule) -> FirePlan:
            first = schedule.next_fire_time or NOON
            outcomes = (FireOutcome.COALESCED, FireOutcome.FIRED)
            return FirePlan(
                fires=tuple(
                    Fire(fire_time=first + number * MINUTE, outcome=outcomes[number % 2])
                    for number in range(fires)
                ),
                # Sometimes the schedule returns to fires that are in the ledger already.
                next_fire_time=first + (fires - 1) * MINUTE,
                command_param="{}",
            )

        return lambda db: db.schedules.fire(planner=planner, now=now, limit=9)

    def _complement(self) -> Callable[[Tables], Any]:
        param = {
            "dates": self._random.sample(range(9), k=self._random.randrange(1, 6)),
            "parallelism": self._random.randrange(1, 4),
            "on_failure": self._random.choice(tuple(OnFailure)).value,
            "reprocess": self._random.choice(tuple(Reprocess)).value,
            "followers": self._random.choice((0, 0, 1)),
        }
        columns = {
            "command_type": int(CommandType.COMPLEMENT_DATA),
            "process_definition_id": self._random.randrange(1, len(TYPES) + 1),
            "command_param": json.dumps(param),
            "start_time": NOON,
            "update_time": NOON,
        }
        return lambda db: a_command(db, **columns)

    def _advance(self) -> Callable[[Tables], Any]:
        thorough = self._random.random() < 0.5
        return lambda db: db.complements.advance(decide=step, now=LATER, thorough=thorough).begun

    def _request_for_complement(self) -> Callable[[Tables], Any]:
        rows = self._memory.rows(t.complement)
        if not rows:
            return lambda _: "nothing"
        row = self._random.choice(rows)
        asked = (
            (ComplementState.RUNNING,)
            if ComplementState(row["state"]).is_ended
            else (ComplementState.READY_PAUSE, ComplementState.READY_STOP, ComplementState.RUNNING)
        )
        state = int(self._random.choice(asked))
        again = [
            date["id"]
            for date in self._memory.rows(t.complement_date)
            if (date["complement_id"], date["state"]) == (row["id"], "failure")
        ]
        pending = {"state": "pending", "command_id": 0, "process_instance_id": 0}

        def request(db: Tables) -> str:
            db.update(t.complement, row["id"], state=state, end_time=None)
            for date_id in again if state == ComplementState.RUNNING else ():
                db.update(t.complement_date, date_id, **pending)
            return ComplementState(state).name

        return request

    # Workers, and lost daemons

    def _some_tasks(self) -> list[int]:
        ids = [row["id"] for row in self._memory.rows(t.task_instance)]
        return self._random.sample(ids, k=self._random.randrange(len(ids) // 2, len(ids) + 1))

    def _worker(self) -> Node:
        return self._random.choice((*(WORKER,) * 5, RESTARTED, OTHER_WORKER))

    def _claim(self) -> Callable[[Tables], Any]:
        worker, ids = self._worker(), self._some_tasks()
        return lambda db: db.tasks.claim(worker, ids, folders=FOLDERS, now=NOON)

    def _report(self) -> Callable[[Tables], Any]:
        worker = self._worker()
        states = (TaskState.SUCCESS, TaskState.FAILURE, TaskState.KILL)
        ends = [
            an_end(
                task,
                self._random.choice(states),
                pid=task,
                var_pool=self._random.choice((None, "[]")),
            )
            for task in self._some_tasks()
        ]
        return lambda db: db.tasks.report(worker, ends)

    def _adopt(self) -> Callable[[Tables], Any]:
        worker, ids = self._worker(), self._some_tasks()
        return lambda db: db.tasks.adopt(worker, ids)

    def _fail_over(self) -> Callable[[Tables], Any]:
        worker = self._worker()
        return lambda db: fail_over(db, worker, now=LATER)

    def _recover(self) -> Callable[[Tables], Any]:
        master = self._random.choice((MASTER, OTHER_MASTER))
        return lambda db: db.failover.recover_runs(master, now=LATER)


def _a_schedule(db: Tables) -> int:
    return db.insert(
        t.schedule,
        process_definition_id=1,
        crontab="0 * * * * ?",
        release_state=1,
        start_time=NOON,
        end_time=NOON + timedelta(days=1),
        counted_from=None,
        next_fire_time=NOON,
    )


def _abandon(name: str, attempt: int) -> AbandonTask:
    return AbandonTask(name=name, attempt=attempt)


def _without_id(row: dict[str, Any]) -> str:
    names = ("command_id", "message", "title", "content", "create_time")
    return repr([row.get(name) for name in names])


def _described(row: dict[str, Any], names: list[str]) -> str:
    return f"row {row['id']} has " + ", ".join(f"{name}={row[name]!r}" for name in names)


def _without_server_time(value: Any) -> Any:
    return FAR if isinstance(value, datetime) and value > FAR else value


def _in_order(news: Saved | Released) -> Any:
    """The result of a save or a release, regardless of its order."""
    offers = sorted(news.offers, key=lambda entry: entry.sort_key)
    if isinstance(news, Released):
        return offers, news.instances, news.next_due
    kills = sorted(news.kills, key=lambda entry: entry.name)
    withdrawn = sorted(news.withdrawn, key=lambda entry: entry.sort_key)
    told = (news.holds, news.intents, news.dependents)
    return news.lost, news.overtaken, offers, kills, withdrawn, told


def _view_of(master: Node, db: Tables) -> Any:
    wanted = db.runs.wanted(master).items()
    return (
        db.runs.load(sorted(db.runs.owned(master))),
        db.runs.reports(master),
        {owned: (intent.state, _without_server_time(intent.at)) for owned, intent in wanted},
        db.runs.unclaimed(master, submitted_before=LATER),
        db.dependents.undecided(master),
        db.dependents.waiting(master),
    )


def _outcome(deed: Callable[[Tables], Any], db: Tables) -> Any:
    try:
        return deed(db)
    except StoreConflictError:
        return "conflict"
    except REFUSED:
        return "refused"
