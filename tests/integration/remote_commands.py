"""Rows and commands by which a server and the database are compared."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final, TypeAlias

from sqlalchemy import Engine, Table, insert, select, update
from sqlalchemy.dialects.postgresql import Range

from common.model.complement_states import ComplementState
from common.model.states import ProcessState, TaskState
from common.model.topologies import Wanted
from common.store import tables as t
from tests.builders import a_definition_json
from tests.integration.cli_rows import NOW, a_definition, an_attempt, an_instance
from tests.integration.conftest import Cli
from tests.integration.proposal_commands import (
    PROPOSAL_CODES,
    PROPOSALS,
    a_proposal,
    proposal_journey,
)
from tests.topology_files import GRAPH, REPORT, written
from tests.unit.later_definitions import a_later_export, a_later_task
from tests.unit.stream_specs import SMALL


def numbered(answer: tuple[int, str, str]) -> tuple[int, str, str]:
    code, out, err = answer
    return code, re.sub(r"\d+", "N", out), re.sub(r"\d+", "N", err)


def commands_of(group: Any, path: tuple[str, ...] = ()) -> Iterator[str]:
    if not hasattr(group, "commands"):
        yield " ".join(path)
        return
    for name in group.list_commands(None):
        yield from commands_of(group.commands[name], (*path, name))


def a_cluster(db: Engine) -> None:
    """Rows for each command to find: an ended run, a live one, a sub process, and commands."""
    number = a_definition(db, process_definition_json=a_definition_json("a >> b"), name="nightly")
    former = json.loads(a_definition_json("a >> b >> c", a={"maxRetryTimes": 2}))
    with db.begin() as connection:
        connection.execute(update(t.process_definition).values(version=2))
        connection.execute(
            insert(t.process_definition_log).values(
                process_definition_id=number,
                version=1,
                document=json.dumps({"name": "nightly", "processDefinitionJson": former}),
                user_name="ada",
                note="of \x1b[31m",
                create_time=NOW,
            )
        )
    ended = an_instance(
        db,
        ProcessState.FAILURE,
        process_definition_id=number,
        name="日报 \x1b[31m",
        state_reason="a failed",
        start_time=NOW - timedelta(seconds=90),
        schedule_time=NOW,
    )
    an_attempt(db, ended, TaskState.FAILURE, flag=0)
    an_attempt(
        db,
        ended,
        TaskState.FAILURE,
        attempt=2,
        progress='{"stages": 3, "tasks_done": 1}',
        usage='{"cpu_seconds": 1.5}',
        branch='["b"]',
        memory_factor=1.5,
        app_link="app-1",
        pid=4711,
    )
    live = an_instance(
        db,
        ProcessState.READY_PAUSE,
        process_definition_id=number,
        wanted_state=3,
        # By a clock that is ahead, so that it has run for no time at each look.
        start_time=NOW + timedelta(days=1),
    )
    rendered = '{"name": "a", "params": {"rawScript": "echo ${day} $[yyyy]", "localParams": []}}'
    an_attempt(db, live, TaskState.SUBMITTED, task_json=rendered)
    with db.begin() as connection:
        lock = connection.scalar(
            insert(t.task_lock)
            .values(
                dataset="flights",
                group_id="g",
                version="v",
                type="SHARED",
                granularity="TIME_CHUNK",
                interval=Range(NOW, NOW + timedelta(days=1)),
            )
            .returning(t.task_lock.c.id)
        )
        connection.execute(insert(t.task_lock_holder).values(lock_id=lock, task_id=3))
        connection.execute(
            insert(t.task_lock_request).values(
                task_id=3, dataset="other", interval="$[yyyy]/P1D", type="APPEND"
            )
        )
    child = an_instance(
        db,
        ProcessState.STOP,
        process_definition_id=number,
        root_id=ended,
        parent_task_instance_id=2,
        start_time=NOW - timedelta(seconds=90),
    )
    with db.begin() as connection:
        connection.execute(
            insert(t.relation_process_instance).values(
                parent_process_instance_id=ended,
                parent_task_instance_id=2,
                process_instance_id=child,
            )
        )
        secret = '{"StartParams": {"db_password": "hunter2", "day": "hunter2 1"}}'
        connection.execute(
            update(t.process_instance)
            .where(t.process_instance.c.id == ended)
            .values(command_param=secret, global_params='[{"prop": "day", "value": "1"}]')
        )
    an_instance(db, ProcessState.SUCCESS, process_definition_id=999, start_time=NOW)
    an_instance(db, ProcessState.PAUSE, process_definition_id=number, start_time=NOW)
    a_proposal(db, number)
    schedules: list[dict[str, Any]] = [
        {"release_state": 1, "next_fire_time": datetime(2013, 1, 1, 3, tzinfo=UTC), "deadline": 90},
        {"timezone_id": "America/New_York", "start_params": '{"day": "1", "db_password": "x"}'},
        {"release_state": 1, "fault": "crontab: spoilt", "execution_type": 2},
    ]
    ended_at = {"create_time": NOW - timedelta(seconds=50), "end_time": NOW}
    complements: list[dict[str, Any]] = [
        {"state": int(ComplementState.FAILURE), "state_reason": "dates failed", **ended_at},
        {"state": int(ComplementState.FAILURE), "after_id": 1, "start_node_names": "a", **ended_at},
        {
            "state": int(ComplementState.SUCCESS),
            "start_params": '{"day": "1", "db_password": "x"}',
            **ended_at,
        },
        {"state": int(ComplementState.PAUSE), **ended_at},
    ]
    with db.begin() as connection:
        for each in complements:
            connection.execute(
                insert(t.complement).values(
                    process_definition_id=number, timezone_id="America/New_York", **each
                )
            )
        for place, state in enumerate(("success", "failure", "failure", "pending")):
            connection.execute(
                insert(t.complement_date).values(
                    complement_id=1,
                    position=place,
                    schedule_time=datetime(2013, 1, 1 + place, 5, tzinfo=UTC),
                    state=state,
                    process_instance_id=ended if state == "failure" else 0,
                    reason="a failed" if state == "failure" else None,
                )
            )
        connection.execute(
            insert(t.datasource).values(
                name="dw",
                type=1,
                connection_params='{"address": "jdbc:postgresql://127.0.0.1:1", "database": "d",'
                ' "user": "u", "password": "hunter2"}',
                note="of \x1b[31m",
                create_time=NOW,
                update_time=NOW,
            )
        )
        for each in schedules:
            connection.execute(
                insert(t.schedule).values(
                    **{
                        "process_definition_id": number,
                        "crontab": "0 0 3 * * ? *",
                        "start_time": datetime(2013, 1, 1, tzinfo=UTC),
                        **each,
                    }
                )
            )
        for day in range(1, 4):
            connection.execute(
                insert(t.schedule_fire).values(
                    schedule_id=1 + day % 2,
                    process_definition_id=number,
                    fire_time=datetime(2013, 1, day, 3, tzinfo=UTC),
                    outcome="fired" if day == 1 else "missed",
                    reason=None if day == 1 else "late",
                    process_instance_id=ended if day == 1 else 0,
                    create_time=NOW,
                )
            )
        connection.execute(insert(t.command).values(command_type=0, process_definition_id=number))
        connection.execute(
            insert(t.command_ledger).values(
                command_id=70, outcome=2, reason="too late", process_definition_id=number,
                command_type=77, process_instance_id=child,
            )
        )  # fmt: skip


def some_streams(db: Engine) -> None:
    """A supervisor with tasks, one that was terminated, and a dataset with a stream's offsets.

    And topologies, one of which was killed.
    """
    some_topologies(db)
    payload = {
        "stream": "events",
        "partitions": 2,
        "aggregateLag": 5,
        "latestOffsets": {"0": 9, "1": 3},
        "minimumLag": {"0": 5},
    }
    error = {"timestamp": "2026-01-01", "message": "no broker answers", "streamException": True}
    fixed = {"project_id": 1, "process_definition_id": 1, "update_time": NOW}
    report = {"state": "READING", "current": {"0": 4}, "lag": {"0": 5}, "errors": {"processed": 4}}
    task = {"supervisor": "flights", "version": 1, "epoch": 1, "base_sequence": "s"}
    document = {"spec": {"ioConfig": {"consumerProperties": {"sasl.password": "hunter2"}}}}
    with db.begin() as connection:
        connection.execute(
            insert(t.supervisor_runtime).values(
                id="flights", version=2, status=payload, recent_errors=[error], **fixed
            )
        )
        connection.execute(
            insert(t.supervisor_runtime).values(id="gone", version=1, active=False, **fixed)
        )
        for values in (
            {"id": "flights", "version": 1, "spec": document, "suspended": True},
            {"id": "flights", "version": 2, "spec": document},
            {"id": "gone", "version": 1, "tombstone": True},
        ):
            connection.execute(insert(t.supervisor).values(create_time=NOW, **values))
        for number, status in ((1, None), (2, report)):
            connection.execute(
                insert(t.stream_task).values(
                    name=f"s_{number}",
                    group_id=number,
                    command_id=900 + number,
                    assignment={"starts": {"0": 0}},
                    status=status,
                    status_time=NOW,
                    **task,
                )
            )
        day = Range(NOW, NOW + timedelta(days=1))
        names = {"version": "v", "partition_num": 0, "origin_version": "v", "origin_num": 0}
        connection.execute(
            insert(t.segment).values(
                dataset="flights", interval=day, files=["a.parquet"], rows=7, bytes=70,
                created=NOW, **names,
            )
        )  # fmt: skip
        connection.execute(
            insert(t.dataset_offsets).values(
                dataset="flights", stream="events", partition=0, offset=4, max_event_time=NOW
            )
        )
        # It belongs to a project, and is empty.
        connection.execute(insert(t.dataset).values(name="arrivals", project_id=1))


def stream_journey(run: Cli, place: Path) -> Iterator[tuple[int, str, str]]:
    """Submit a supervisor and give it orders, by commands."""
    spec, wrong = place / "spec.json", place / "wrong.json"
    spec.write_text(json.dumps(SMALL), encoding="utf-8")
    wrong.write_text('{"type": "kafka", "spec": {"ioConfig": {"topic": ""}}}', encoding="utf-8")
    submit = ("stream", "submit", str(spec))
    yield run(*submit, "--project", "nowhere")
    yield run(*submit, "--worker-group", "nowhere")
    yield run(*submit, "--project", "default")
    yield run(*submit, "-o", "json")
    yield run("stream", "submit", str(wrong))
    for words in (
        "suspend flights", "suspend flights", "resume flights", "history flights",
        "reset flights --offset 0=15 --offset 2=0", "reset flights --partition 3",
        "reset flights --all", "reset flights --offset 99999999999=1", "handoff flights 1 0",
        "terminate flights", "terminate flights", "reset flights --all",
    ):  # fmt: skip
        yield run("stream", *words.split())


def some_topologies(db: Engine) -> None:
    """A topology that runs and has reported, and one that was killed and never ran."""
    with db.begin() as connection:
        for name, wanted in (("words", Wanted(number=1)), ("dead", Wanted(number=2, killed=True))):
            connection.execute(
                insert(t.topology).values(
                    name=name, version=1, project_id=1, process_definition_id=777 + len(name),
                    wanted=wanted.document(), report=REPORT.document() if name == "words" else None,
                    report_time=NOW, update_time=NOW, create_time=NOW,
                )
            )  # fmt: skip
            connection.execute(
                insert(t.topology_version).values(
                    topology=name, version=1, code={"main": "a.yaml", "files": {"a.yaml": ""}},
                    graph=GRAPH.document(), create_time=NOW,
                )
            )  # fmt: skip
    ahead = NOW + timedelta(days=1)
    run = an_instance(db, ProcessState.RUNNING, process_definition_id=782, start_time=ahead)
    an_attempt(db, run, TaskState.RUNNING, name="run", host="w:1", flag=1, start_time=ahead)


def topology_journey(run: Cli, place: Path) -> Iterator[tuple[int, str, str]]:
    """Submit a topology and give it orders, by commands."""
    written(place)
    submit = ("topology", "submit", f"{place}/words.py:topology", "--files", f"{place}/parts.py")
    yield run(*submit, "--project", "nowhere")
    yield run(*submit, "--worker-group", "nowhere")
    yield run(*submit, "--project", "default", "--cores", "3", "--memory", "2G", "--inactive")
    yield run(*submit, "-o", "json")
    yield run("topology", "submit", f"{place}/words.yaml", "--files", f"{place}/parts.py")
    for words in (
        "history words", "activate words", "activate words", "deactivate words -o json",
        "rebalance words -w 3 -n 4 -e split=3 --tasks count=8", "rebalance words -e split=4",
        "rebalance words -e spilt=1", "rebalance words", "logs words", "graph words",
        "kill words -w 7", "kill words", "kill words --now -o json", "activate words",
    ):  # fmt: skip
        yield run("topology", *words.split())


Journey: TypeAlias = Callable[[Cli, Path], Iterator[tuple[int, str, str]]]
JOURNEYS: Final[tuple[tuple[Journey, tuple[Table, ...], list[int]], ...]] = (
    (
        stream_journey,
        (t.supervisor_runtime, t.supervisor, t.process_definition),
        [3, 3, 0, 0, 1, 0, 4, 0, 0, 0, 0, 0, 2, 0, 0, 4, 0],
    ),
    (
        topology_journey,
        (t.topology, t.command, t.process_definition),
        [3, 3, 0, 0, 0, 0, 0, 4, 0, 0, 2, 2, 2, 4, 0, 0, 4, 0, 4],
    ),
    (proposal_journey, (t.definition_proposal, t.process_definition), PROPOSAL_CODES),
)
"""Orders by commands, the tables that they write, and their exit codes."""


def a_definition_that_waits_for(db: Engine, number: int) -> None:
    """A definition with a DEPENDENT task that looks at the other one's run of the day."""
    item = {"definitionId": number, "depTasks": "ALL", "cycle": "day", "dateValue": "today"}
    waits = {"relation": "AND", "dependTaskList": [{"relation": "AND", "dependItemList": [item]}]}
    task = {"name": "d", "type": "DEPENDENT", "params": {}, "dependence": waits}
    a_definition(db, process_definition_json=json.dumps({"tasks": [task]}), name="later")


def schedule_journey(run: Cli, db: Engine) -> Iterator[tuple[int, str, str]]:
    """Make two schedules, change, release and delete them, by commands."""
    create = ("schedule", "create", "nightly", "--cron", "0 0 3 * * ? *", "--zone", "UTC")
    options = ("--param", "day=1", "--deadline", "2h", "--missing", "skip", "--priority", "low")
    yield run(*create, *options, "--execution-type", "serial-wait", "--online")
    yield run(*create, "--from", "2026-01-01", "--to", "2026-02-01", "-o", "json")
    with db.connect() as connection:
        first, second = connection.scalars(select(t.schedule.c.id).order_by(t.schedule.c.id))
    yield run("schedule", "edit", str(first), "--cron", "0 0 4 * * ? *")
    yield run("schedule", "offline", str(first), "-o", "json")
    yield run("schedule", "edit", str(first), "--cron", "0 0 4 * * ? *", "--no-params")
    yield run("schedule", "edit", str(first), "--deadline", "none", "--zone", "Europe/Oslo")
    yield run("schedule", "show", str(first))
    yield run("schedule", "online", "--definition", "nightly")
    yield run("schedule", "offline", "--all")
    yield run("schedule", "delete", str(first), str(second), "-o", "json")
    yield run("schedule", "offline", "--all")
    yield run("schedule", "online", "--definition", "other")


def datasource_journey(run: Cli) -> Iterator[tuple[int, str, str]]:
    """Make two data sources, try and remove them, by commands."""
    address = ("--address", "127.0.0.1:1", "--database", "d", "--user", "u")
    yield run("datasource", "create", "dw", *address, "--password-env", "PW", "--note", "n")
    yield run("datasource", "create", "dw", *address)
    yield run("datasource", "create", "dw", *address, "--replace", "-o", "json")
    yield run("datasource", "test", "dw")
    yield run("datasource", "create", "file", "--url", "sqlite:///some.db")
    yield run("datasource", "test", "file")
    yield run("datasource", "remove", "dw")
    yield run("datasource", "remove", "file", "-o", "json")


def files_to_import() -> dict[str, object]:
    """Files of all forms by their names, those among them that can't be imported."""
    script = {"name": "a", "type": "PYSPARK", "params": {"file": "job.py"}}
    child = {"name": "c", "type": "SUB_PROCESS", "params": {"processDefinitionId": 42}}
    tasks, fewer = json.loads(a_definition_json("a >> b")), json.loads(a_definition_json("a"))
    secret = [{"prop": "db_password", "value": "$ENV{ORCAFLOW_SECRET_DB_PASSWORD}"}]
    schedules = [{"crontab": "0 0 3 * * ? *", "timezoneId": "UTC"}]
    return {
        "own.json": {
            "name": "own",
            "description": "d",
            "globalParams": secret,
            "processDefinitionJson": tasks,
            "schedules": schedules,
            "executionType": "SERIAL_WAIT",
        },
        "own-2.json": {"name": "own", "globalParams": secret, "processDefinitionJson": fewer},
        "own-3.json": {"name": "own", "processDefinitionJson": fewer},
        "script.json": [{"name": "script", "processDefinitionJson": {"tasks": [script]}}],
        "plain.yaml": {"name": "plain", "processDefinitionJson": tasks},
        "bare.json": {**tasks, "unknown": 1},
        "old.json": {
            "projectName": "etl",
            "processDefinitionName": "old",
            "processDefinitionJson": json.dumps({"tasks": [child]}),
            "scheduleCrontab": "0 0 3 * *",
        },
        "later.json": [
            a_later_export(a_later_task(1, "a"), a_later_task(2, "b", "SAGEMAKER"), name="later")
        ],
        "lost.json": {
            "name": "lost",
            "processDefinitionJson": {
                "tasks": [{**child, "params": {"processDefinitionName": "nobody"}}]
            },
        },
        "wrong.json": {"name": "wrong", "processDefinitionJson": {"tasks": []}},
    }


def import_journey(run: Cli, place: Path) -> Iterator[tuple[int, str, str]]:
    """Import those files of a folder, and go through the versions of one of them."""

    def load(*names: str) -> tuple[int, str, str]:
        paths = [str(place / each) if "." in each else each for each in names]
        return run("definition", "import", *paths)

    yield load("own.json", "plain.yaml")
    yield load("own.json", "-o", "json")
    yield load("script.json")
    yield load("bare.json", "--name", "bare", "--offline")
    yield load("old.json", "--map", "definition:42=own")
    yield load("old.json")
    yield load("later.json", "--online")
    yield load("lost.json", "own.json")
    yield load("wrong.json")
    yield run("definition", "show", "own")
    yield run("definition", "show", "script", "-o", "json")
    yield run("definition", "export", "own", "--as", "yaml")
    yield load("own-2.json")
    yield run("definition", "diff", "own")
    yield run("definition", "restore", "own", "1")
    yield run("definition", "restore", "own", "1")
    yield run("definition", "restore", "own", "2", "-o", "json")
    yield load("own-3.json")
    # Its secret is gone.
    yield run("definition", "restore", "own", "1")
    code, out, err = run("definition", "versions", "own", "-o", "json")
    yield code, out.replace('"admin"', '"database"'), err
    yield load("own.json")


SAME: Final = (
    *("instance list", "instance list -o json --state failure", "instance list --limit 1"),
    *("instance list --definition nightly --state stop", "instance list --definition nobody"),
    *("instance list --state nonsense", "instance list --limit 0"),
    *("instance why 1", "instance why 1 -o json", "instance why 2", "instance why 2 --task b"),
    *("instance why 2 --task a -o json", "instance why 2 --task nobody", "instance why 99"),
    *("instance why --command 1", "instance why --command 70", "instance why --command 99"),
    *("instance why", "task why 1", "task why 2 -o json", "task why 3", "task why 99"),
    *("command list", "command list -o json", "command list --outcome dropped"),
    *("command list --outcome nonsense", "command list --definition nightly"),
    *("command list --definition nobody", "command show 1", "command show 70 -o json"),
    *("command show 99",),
    *("run nobody", "run nightly --date never", "run nightly --start-nodes zzz"),
    *("run nightly --worker-group nowhere", "run nightly -p day"),
    *("instance stop 1", "instance pause 1", "instance stop 99", "instance resume 1"),
    *("instance rerun 2", "instance recover 2", "instance recover 99", "instance resume 3"),
    *("task list --instance 1", "task list --instance 1 --all -o json", "task list --instance 99"),
    *("task list --instance 2 --state submitted -o json", "task list --instance 1 --state x"),
    *("task list --instance 1 --all --limit 1", "task list --instance 4"),
    *("instance watch 4", "instance watch 3", "instance watch 99"),
    *("run nobody --wait", "definition list", "definition list -o json"),
    *("definition export nightly", "definition export nobody", "definition online nightly"),
    *("definition online nobody", "definition offline nightly nobody", "definition delete nightly"),
    *("definition set nightly --execution-type parallel -o json", "definition delete nobody"),
    *("instance delete 2", "instance delete 99"),
    *("definition show nightly", "definition show nightly -o json", "definition show nobody"),
    *("definition import nothing.json", "definition export nightly --as yaml"),
    *("definition versions nightly", "definition versions nightly -o json --limit 1"),
    *("definition shares nightly", "definition shares nightly -o json", "definition shares nobody"),
    *("definition share nightly --with default", "definition share nobody --with default"),
    *("definition share nightly --with nowhere", "definition unshare nightly --with default"),
    *("definition unshare nightly --with 7 -o json", "definition share nightly --with 7"),
    *("definition versions other", "definition versions nobody", "definition diff nightly"),
    *("definition diff nightly -o json", "definition diff other", "definition diff nobody"),
    *("definition diff nightly --from 2 --to 1", "definition diff nightly --from 3"),
    *("definition export nightly --version 1", "definition export nightly --version 7"),
    *("definition export nightly --version 1 --with-secrets", "definition restore nobody 1"),
    *("definition restore nightly 7", "definition restore nightly 2 -o json"),
    *PROPOSALS,
    "overview",
    *("locks list", "locks list -o json", "locks list --dataset nobody"),
    *("dataset list", "dataset list -o json", "dataset show flights", "dataset show nobody"),
    *("dataset show flights -o json", "dataset show flights --interval 2000-01-01/P1D"),
    *("dataset show flights --interval today", "dataset files flights", "dataset files nobody"),
    *("dataset query flights --interval 2000-01-01/P1D", "dataset query flights --limit 0"),
    *("dataset query nobody", "dataset query flights --interval 2000-01-01/P1D --sql SELECT"),
    *("dataset segments flights", "dataset segments nobody -o json"),
    *("dataset shares arrivals", "dataset shares arrivals -o json", "dataset shares nobody"),
    *("dataset share arrivals --with default", "dataset share nobody --with default"),
    *("dataset share arrivals --with nowhere", "dataset share arrivals --with 7"),
    *("dataset unshare arrivals --with default", "dataset unshare arrivals --with 7 -o json"),
    # These have rows and no project.
    *("dataset shares flights", "dataset share flights --with default"),
    *("stream list", "stream list -o json", "stream status flights", "stream status gone"),
    *("stream status flights -o json", "stream status flihgts", "stream lag flights"),
    *("stream lag gone", "stream lag flights -o json", "stream history flights -o json"),
    *("stream history gone", "stream submit nothing.json", "stream suspend gone"),
    *("stream resume flights", "stream reset flights", "stream reset nobody --all"),
    *("stream reset gone --offset 0=1", "stream handoff gone 0", "stream terminate gone"),
    *("topology list", "topology list -o json", "topology graph words", "topology graph dead"),
    *("topology status wrods", "topology status dead", "topology status words -o json"),
    *("topology errors words", "topology errors words -o json", "topology errors dead"),
    *("topology history words", "topology history dead -o json", "topology history nobody"),
    *("topology activate dead", "topology deactivate dead", "topology kill dead"),
    *("topology rebalance dead -n 3", "topology rebalance words -e split=99"),
    *("topology submit nothing.yaml", "topology logs dead", "topology logs nobody"),
    *("datasource list", "datasource list -o json", "datasource test dw", "datasource test nobody"),
    *("datasource remove nobody", "datasource create dw --url sqlite:///x.db"),
    *("datasource create new --url nonsense", "datasource create new --url sqlite:////etc/passwd"),
    *("task render 1", "task render 1 -o json", "task render 3", "task render 99"),
    *("instance show 1", "instance show 1 -o json", "instance show 3", "instance show 99"),
    *("instance diff 1", "instance diff 1 -o json", "instance diff 3", "instance diff 99"),
    "instance recover 2 --with-version latest",
    *("instance execute 1 --tasks zzz", "instance execute 99 --tasks a"),
    *("instance execute 3 --tasks a", "instance execute 2 --tasks a --pre"),
    *("instance execute 1 --tasks ,", "instance rerun 2 --failed", "instance rerun 4 --failed"),
    *("schedule list", "schedule list -o json", "schedule list nightly", "schedule list nobody"),
    *("schedule show 1", "schedule show 1 -o json", "schedule show 2", "schedule show 3 -o json"),
    *("schedule show 99", "schedule create nobody --cron 0_0_3_*_*_?_*"),
    *("schedule create nightly --cron nonsense", "schedule edit 1 --deadline 2h"),
    "schedule edit 1 --deadline 3h --online",
    *("schedule create nightly --cron 0_0_3_*_*_?_* --worker-group nowhere", "schedule edit 99"),
    *("schedule create nightly --cron 0_0_3_*_*_?_* --environment nowhere",),
    *("schedule create nightly --cron 0_0_3_*_*_?_* --from 2026-01-02 --to 2026-01-01",),
    *("schedule edit 2", "schedule edit 2 --zone nowhere", "schedule online 99 1"),
    *("schedule online 1", "schedule online 1 1 -o json", "schedule offline 2"),
    *("schedule online --definition nobody", "schedule online --definition other"),
    *(
        "schedule delete 2 1",
        "schedule delete 99",
        "schedule preview 99",
        "schedule preview nobody",
    ),
    *("schedule preview 1 --count 3", "schedule preview nightly --count 5 -o json"),
    *("schedule preview 2 --after 2026-03-07 --count 3", "schedule preview 1 --after never"),
    *("schedule fires 1", "schedule fires nightly -o json", "schedule fires 1 --outcome missed"),
    *("schedule fires nightly --limit 1", "schedule fires nobody", "schedule fires 99"),
    *("schedule simulate --from 2026-03-01 --days 20 --all", "schedule simulate --max-fires 1"),
    *("schedule simulate --from 2026-03-01 --definition nightly --slots 2 -o json",),
    *("schedule simulate --definition nobody", "schedule simulate --days 3 --outage x"),
    *("schedule simulate --definition other --all",),
    *("complement list -o json", "complement list", "complement list nightly --state success"),
    *("complement list --limit 1", "complement list nobody", "complement list --state x"),
    *("complement show 1", "complement show 1 -o json", "complement show 1 --state failure"),
    *("complement show 1 --limit 1", "complement show 3", "complement show 99"),
    *("complement show 1 --limit 501", "complement wait 1 2", "complement wait 1 -o json"),
    *("complement wait 99", "complement pause 3", "complement cancel 1", "complement resume 1"),
    *("complement retry 3", "complement retry 99", "complement pause 4 --wait"),
    *("complement nightly", "complement nobody --dates 2013-01-01", "complement nightly --date x"),
    *("complement nightly --dates 2013-01-01,2013-01-01", "complement nightly --dates ,"),
    *("complement nightly --from 2013-01-02 --to 2013-01-01",),
    *("complement nightly --from 2013-01-01 --to 2013-01-02 --zone nowhere",),
    *("complement nightly --dates 2013-01-01 --start-node zzz",),
    *("complement nightly --dates 2013-01-01 --environment nowhere",),
    *("complement nightly --from 1900-01-01 --to 2100-01-01 --zone UTC",),
)
"""Commands that change nothing, refused orders among them."""
LOGS: Final = (
    *("task log 2", "task log 2 -n 1", "task log 2 -n 0", "task log 2 -n 9 --follow"),
    *("task log 1", "task log 99", "task log 3 -n 1"),
    *("task force-success 99", "task force-success 3"),
)
ORDERS: Final = (
    *("run nightly", "run nightly -o json -p day=1 --priority high --depend post"),
    *("instance stop 2", "instance pause 2 -o json", "instance rerun 1", "instance rerun 3"),
    *("instance resume 5", "instance recover 1 -o json", "instance rerun 1 --failed"),
    *("instance execute 1 --tasks a --post -o json", "instance execute 5 --tasks a,b"),
    *("run nightly --wait --timeout 0.000001", "instance stop 2 --wait --timeout 0.000001"),
    "instance rerun 1 --wait --timeout 0.000001",
)
"""Commands that are carried out: what they print differs by the ids and times of what was made."""
