"""Commands about supervisors of streams, on a real database; no master looks after them."""

from __future__ import annotations

import copy
import json
import zlib
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, func, insert, select, update

from common.errors import NotFoundError
from common.model.rights import Action, Principal
from common.model.states import ProcessState, TaskState
from common.store import tables as t
from operations import streams
from operations.errors import ForbiddenError
from operations.session import Session, opened
from tests.integration.cli_rows import an_attempt, an_instance, parsed
from tests.integration.conftest import Cli
from tests.reference.java_consumer import HOSTILE
from tests.unit.stream_specs import SECRET, SMALL


def a_file(folder: Path, *, suspended: bool = False, **io: Any) -> str:
    document = copy.deepcopy(SMALL)
    document["suspended"] = suspended
    document["spec"]["ioConfig"] |= io
    document["spec"]["ioConfig"]["consumerProperties"] |= {"sasl.password": SECRET}
    file = folder / "spec.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    return str(file)


def test_a_supervisor_is_submitted_changed_and_not_twice_the_same(
    cli: Cli, db: Engine, tmp_path: Path
) -> None:
    file = a_file(tmp_path, emitTimeLagMetrics=True)
    made = parsed(cli("stream", "submit", file, "-o", "json"))
    assert (made["id"], made["version"], made["outcome"]) == ("flights", 1, "created")
    assert made["ignored"] == ["spec.ioConfig.emitTimeLagMetrics"]
    assert parsed(cli("stream", "submit", file, "-o", "json"))["outcome"] == "unchanged"
    _, _, listed = cli("stream", "submit", file)
    assert listed.splitlines()[-1].strip() == "spec.ioConfig.emitTimeLagMetrics"
    changed = parsed(cli("stream", "submit", a_file(tmp_path, replicas=2), "-o", "json"))
    assert (changed["version"], changed["outcome"]) == (2, "changed")
    (row,) = parsed(cli("stream", "list", "-o", "json"))
    assert (row["id"], row["state"], row["active"]) == ("flights", "PENDING", True)
    with db.connect() as connection:
        name, text, release = connection.execute(
            select(
                t.process_definition.c.name,
                t.process_definition.c.process_definition_json,
                t.process_definition.c.release_state,
            )
        ).one()
    assert (name, release) == ("stream flights", 1)
    (node,) = json.loads(text)["tasks"]
    # A master chooses the workers of its tasks.
    assert (node["type"], node["workerSelect"]) == ("STREAM", {"dataset": "flights"})
    newest = parsed(cli("stream", "history", "flights", "-o", "json"))[0]
    assert newest["spec"]["spec"]["ioConfig"]["consumerProperties"] == {
        "bootstrap.servers": "broker:9092",
        "sasl.password": "******",
    }


def test_the_place_of_tasks_is_changed_alone_and_what_people_set_is_left(
    cli: Cli, db: Engine, tmp_path: Path
) -> None:
    def node() -> Any:
        with db.connect() as connection:
            text = connection.execute(select(t.process_definition.c.process_definition_json))
            return json.loads(text.scalar_one())["tasks"][0]

    file = a_file(tmp_path)
    submit = ("stream", "submit", file, "-o", "json")
    cli(*submit, "--profile", "small")
    assert node()["params"] == {"supervisor": "flights", "profile": "small"}
    text = json.dumps({"tasks": [{**node(), "params": {**node()["params"], "cores": 1}}]})
    with db.begin() as connection:
        connection.execute(update(t.process_definition).values(process_definition_json=text))
    assert parsed(cli(*submit))["outcome"] == "unchanged"
    assert parsed(cli(*submit, "--profile", "small"))["outcome"] == "unchanged"
    # The specification is the same, so there is no other version of it.
    changed = parsed(cli(*submit, "--profile", "classic"))
    assert (changed["outcome"], changed["version"]) == ("changed", 1)
    assert node()["params"] == {"supervisor": "flights", "profile": "classic", "cores": 1}
    with db.begin() as connection:
        connection.execute(update(t.process_definition).values(process_definition_json="[]"))
    assert parsed(cli(*submit))["outcome"] == "changed"
    assert node()["params"] == {"supervisor": "flights"}
    code, _, err = cli(*submit, "--profile", "a\tb")
    assert (code, "must be a Spark profile" in err) == (2, True)


def test_every_mistake_of_a_specification_is_told_and_no_secret(cli: Cli, tmp_path: Path) -> None:
    file = a_file(tmp_path, replicas=-1, taskDuration="soon")
    code, out, err = cli("stream", "submit", file)
    assert code == 1
    assert out == ""
    assert "2 mistakes" in err
    assert SECRET not in err
    for name, value in HOSTILE.items():
        hostile = a_file(tmp_path, consumerProperties={"bootstrap.servers": "b:1", name: value})
        code, out, err = cli("stream", "submit", hostile)
        assert (code, out) == (1, ""), name
        assert "consumerProperties" in err
    assert cli("stream", "submit", str(tmp_path / "none.json"))[0] == 2
    assert cli("stream", "list")[1] == ""


def test_suspension_resumption_and_termination_are_versions_and_refused_twice(
    cli: Cli, tmp_path: Path
) -> None:
    file = a_file(tmp_path)
    cli("stream", "submit", file)
    assert cli("stream", "resume", "flights")[0] == 4
    assert cli("stream", "suspend", "flights")[0] == 0
    code, _, err = cli("stream", "suspend", "flights")
    assert (code, "suspended already" in err) == (4, True)
    assert cli("stream", "resume", "flights")[0] == 0
    assert cli("stream", "terminate", "flights")[0] == 0
    assert cli("stream", "terminate", "flights")[0] == 4
    code, _, err = cli("stream", "suspend", "flights")
    assert (code, "orcaflow stream submit" in err) == (4, True)
    versions = parsed(cli("stream", "history", "flights", "-o", "json"))
    assert [(each["version"], each["suspended"], each["terminated"]) for each in versions] == [
        (4, False, True),
        (3, False, False),
        (2, True, False),
        (1, False, False),
    ]
    again = parsed(cli("stream", "submit", file, "-o", "json"))
    assert again["version"] == 5
    code, _, err = cli("stream", "status", "flihgts")
    assert (code, "did you mean 'flights'" in err) == (3, True)


def test_resets_and_hand_overs_wait_for_the_keeper(cli: Cli, db: Engine, tmp_path: Path) -> None:
    cli("stream", "submit", a_file(tmp_path))
    assert cli("stream", "reset", "flights", "--offset", "0=15", "--offset", "2=0")[0] == 0
    assert cli("stream", "reset", "flights", "--partition", "3")[0] == 0
    with db.begin() as connection:
        values = {"dataset": "flights", "stream": "events", "partition": 3, "offset": 7}
        connection.execute(insert(t.dataset_offsets).values(values))
    both = ("--partition", "3", "--partition", "4")
    assert cli("stream", "reset", "flights", *both)[0] == 0
    assert cli("stream", "reset", "flights", "--all")[0] == 0
    assert cli("stream", "handoff", "flights", "1", "0")[0] == 0
    for wrong in ((), ("--all", "--partition", "1"), ("--offset", "0"), ("--offset", "0=-1")):
        assert cli("stream", "reset", "flights", *wrong)[0] == 2
    with db.connect() as connection:
        rows = connection.execute(
            select(t.supervisor_command.c.kind, t.supervisor_command.c.body).order_by(
                t.supervisor_command.c.id
            )
        ).all()
    assert [tuple(row) for row in rows] == [
        ("RESET_OFFSETS", {"offsets": {"0": 15, "2": 0}}),
        ("RESET", {"offsets": {"3": 0}}),
        ("RESET", {"offsets": {"3": 0, "4": 0}, "seen": {"3": 7}}),
        ("RESET", {}),
        ("HAND_OVER", {"groups": [0, 1]}),
    ]
    with db.connect() as connection:
        lines = connection.scalar(select(func.count()).where(t.audit_log.c.object_type == "stream"))
    assert lines == 6


def test_a_dataset_of_another_stream_is_read_by_nobody_until_its_offsets_are_forgotten(
    cli: Cli, db: Engine, tmp_path: Path
) -> None:
    file = a_file(tmp_path)
    with db.begin() as connection:
        connection.execute(
            insert(t.dataset_offsets).values(
                dataset="flights", stream="others", partition=0, offset=5
            )
        )
    code, _, err = cli("stream", "submit", file)
    assert (code, "orcaflow stream reset flights" in err) == (4, True)
    with db.begin() as connection:
        connection.execute(update(t.dataset_offsets).values(stream="events"))
    assert cli("stream", "submit", file)[0] == 0
    with db.begin() as connection:
        connection.execute(update(t.supervisor_runtime).values(active=False))
    assert cli("stream", "reset", "flights", "--all")[0] == 0
    with db.connect() as connection:
        assert connection.scalar(select(func.count()).select_from(t.dataset_offsets)) == 0


def test_status_and_lag_are_those_of_the_last_run(cli: Cli, db: Engine, tmp_path: Path) -> None:
    cli("stream", "submit", a_file(tmp_path))
    assert "Nothing is known" in cli("stream", "lag", "flights")[2]
    status = {"latestOffsets": {"0": 9, "10": 3, "2": 4}, "minimumLag": {"0": 2, "2": 0}}
    error = {"timestamp": "2026-01-01", "message": "no broker answers", "streamException": True}
    with db.begin() as connection:
        connection.execute(
            update(t.supervisor_runtime).values(status=status, recent_errors=[error])
        )
    assert parsed(cli("stream", "lag", "flights", "-o", "json")) == [
        {"partition": 0, "latest": 9, "lag": 2},
        {"partition": 2, "latest": 4, "lag": 0},
        {"partition": 10, "latest": 3, "lag": None},
    ]
    assert "no broker answers" in cli("stream", "status", "flights")[1]
    shown = parsed(cli("stream", "status", "flights", "-o", "json"))
    assert (shown["errors"], shown["tasks"]) == ([error], [])


def test_a_supervisor_of_several_topics_names_them_in_all_answers_and_orders(
    cli: Cli, db: Engine, tmp_path: Path
) -> None:
    document = json.loads(Path(a_file(tmp_path)).read_text(encoding="utf-8"))
    del document["spec"]["ioConfig"]["topic"]
    document["spec"]["ioConfig"]["topicPattern"] = "clicks-.*"
    file = tmp_path / "clicks.json"
    file.write_text(json.dumps(document), encoding="utf-8")
    assert cli("stream", "submit", str(file))[0] == 0
    status = {
        "stream": "clicks-.*",
        "latestOffsets": {"clicks-eu:0": 9, "clicks-eu:10": 3, "clicks-us:0": 4},
        "minimumLag": {"clicks-eu:0": 2},
    }
    with db.begin() as connection:
        connection.execute(update(t.supervisor_runtime).values(status=status))
        for topic in ("clicks-eu", "clicks-old"):
            values = {"dataset": "flights", "stream": topic, "partition": 0, "offset": 7}
            connection.execute(insert(t.dataset_topic_offsets).values(values))
    assert parsed(cli("stream", "lag", "flights", "-o", "json")) == [
        {"partition": "clicks-eu:0", "latest": 9, "lag": 2},
        {"partition": "clicks-eu:10", "latest": 3, "lag": None},
        {"partition": "clicks-us:0", "latest": 4, "lag": None},
    ]
    reset = ("stream", "reset", "flights")
    for good in (
        ("--offset", "clicks-eu:0=15"),
        ("--partition", "clicks-us:0"),
        ("--partition", "clicks-eu:*", "--partition", "clicks-old:*"),
    ):
        assert cli(*reset, *good)[0] == 0, good
    for wrong, said in (
        (("--partition", "0"), "as clicks:0"),
        (("--offset", "0=1"), "as clicks:0"),
        (("--partition", "clicks-asia:*"), "does not read a topic"),
        (("--partition", "c l:0"), "is not a partition"),
        (("--offset", "clicks-eu:0"), "PARTITION=OFFSET"),
    ):
        code, _, err = cli(*reset, *wrong)
        assert (code, said in " ".join(err.split())) == (2, True), (wrong, err)
    with db.connect() as connection:
        row = t.supervisor_command.c
        found = connection.execute(select(row.kind, row.body).order_by(row.id)).all()
    assert [tuple(each) for each in found] == [
        ("RESET_OFFSETS", {"offsets": {"clicks-eu:0": 15}}),
        ("RESET", {"offsets": {"clicks-us:0": 0}}),
        (
            "RESET",
            {
                "offsets": {"clicks-eu:0": 0, "clicks-eu:10": 0, "clicks-old:0": 0},
                "seen": {"clicks-eu:0": 7, "clicks-old:0": 7},
            },
        ),
    ]
    # One topic has other offsets, and another pattern the same.
    code, _, err = cli("stream", "submit", a_file(tmp_path))
    assert (code, "has offsets of the stream 'clicks-eu'" in err) == (4, True)
    document["spec"]["ioConfig"]["topicPattern"] = "clicks.*"
    file.write_text(json.dumps(document), encoding="utf-8")
    assert parsed(cli("stream", "submit", str(file), "-o", "json"))["outcome"] == "changed"
    with db.begin() as connection:
        connection.execute(update(t.supervisor_runtime).values(active=False))
    assert cli(*reset, "--partition", "clicks-eu:0")[0] == 0
    assert cli(*reset, "--all")[0] == 0
    with db.connect() as connection:
        left = select(func.count()).select_from(t.dataset_topic_offsets)
        assert connection.scalar(left) == 0


def test_a_change_between_a_topic_and_a_pattern_keeps_the_offsets_once_no_task_is_left(
    cli: Cli, db: Engine, tmp_path: Path
) -> None:
    one = a_file(tmp_path)
    document = json.loads(Path(one).read_text(encoding="utf-8"))

    def with_pattern(pattern: str) -> str:
        del document["spec"]["ioConfig"][
            "topic" if "topic" in document["spec"]["ioConfig"] else "topicPattern"
        ]
        document["spec"]["ioConfig"]["topicPattern"] = pattern
        file = tmp_path / "pattern.json"
        file.write_text(json.dumps(document), encoding="utf-8")
        return str(file)

    def stored(table: Any) -> list[tuple[Any, ...]]:
        columns = (table.c.stream, table.c.partition, table.c.offset, table.c.version)
        with db.connect() as connection:
            found = connection.execute(select(*columns).order_by(table.c.partition)).all()
        return [tuple(row) for row in found]

    assert cli("stream", "submit", one)[0] == 0
    rows = [("events", 0, 5, 3), ("events", 1, 7, 1)]
    with db.begin() as connection:
        for stream, number, offset, version in rows:
            connection.execute(
                insert(t.dataset_offsets).values(
                    dataset="flights",
                    stream=stream,
                    partition=number,
                    offset=offset,
                    version=version,
                )
            )
    code, _, err = cli("stream", "submit", with_pattern("ev.*"))
    assert (code, "orcaflow stream terminate flights" in err) == (4, True)
    with db.begin() as connection:
        connection.execute(update(t.supervisor_runtime).values(active=False))
    code, _, err = cli("stream", "submit", with_pattern("clicks.*"))
    assert (code, "orcaflow stream reset flights" in err) == (4, True)
    assert stored(t.dataset_offsets) == rows
    assert cli("stream", "submit", with_pattern("ev.*"))[0] == 0
    assert (stored(t.dataset_offsets), stored(t.dataset_topic_offsets)) == ([], rows)
    with db.begin() as connection:
        connection.execute(update(t.supervisor_runtime).values(active=False))
    assert cli("stream", "submit", one)[0] == 0
    assert (stored(t.dataset_offsets), stored(t.dataset_topic_offsets)) == (rows, [])


def a_stream_task(db: Engine, name: str, state: TaskState, **values: Any) -> None:
    """Insert a task of the supervisor `flights` that has ended."""
    is_good = state is TaskState.SUCCESS
    run = an_instance(
        db,
        ProcessState.SUCCESS if is_good else ProcessState.FAILURE,
        name=name,
        command_id=zlib.crc32(name.encode()) >> 2,
    )
    an_attempt(db, run, state, reason=None if is_good else "no broker answers", flag=1)
    with db.begin() as connection:
        connection.execute(
            insert(t.stream_task).values(
                {
                    "name": name,
                    "supervisor": "flights",
                    "version": 1,
                    "epoch": 1,
                    "group_id": 0,
                    "base_sequence": "index",
                    "assignment": {"starts": {"0": 5}},
                    "command_id": zlib.crc32(name.encode()) >> 2,
                }
                | values
            )
        )


def test_a_task_that_fails_after_its_supervisor_ended_is_an_error_of_the_supervisor(
    cli: Cli, db: Engine, tmp_path: Path
) -> None:
    cli("stream", "submit", a_file(tmp_path))
    a_stream_task(db, "lost", TaskState.FAILURE)
    assert parsed(cli("stream", "status", "flights", "-o", "json"))["errors"] == []
    with db.begin() as connection:
        connection.execute(update(t.supervisor_runtime).values(active=False))
    (error,) = parsed(cli("stream", "status", "flights", "-o", "json"))["errors"]
    assert error["message"].startswith(
        "the task lost has failed since the supervisor ended: no broker answers. Its records are"
        " not published"
    )
    assert "the task lost has failed" in cli("stream", "status", "flights")[1]
    # The supervisor stopped the task, or a replica published the same records: nothing is lost.
    a_stream_task(db, "told", TaskState.KILL, ending_reason="terminated", group_id=1)
    a_stream_task(db, "replica", TaskState.SUCCESS)
    assert parsed(cli("stream", "status", "flights", "-o", "json"))["errors"] == []


def test_a_supervisor_is_its_projects_and_orders_take_rights(
    cli: Cli, db: Engine, tmp_path: Path
) -> None:
    cli("stream", "submit", a_file(tmp_path))
    with db.begin() as connection:
        connection.execute(
            insert(t.user).values(id=5, user_name="ann", user_password="", user_type=1)
        )
    ann = Principal(user_id=5, user_name="ann")
    with opened() as owner:
        session = Session(principal=ann)
        session.__dict__["engine"] = owner.engine
        with pytest.raises(NotFoundError, match="there is no supervisor"):
            streams.stream_given(session, "flights")
        assert streams.list_streams(session) == []
        with db.begin() as connection:
            connection.execute(
                insert(t.relation_project_user).values(
                    user_id=5, project_id=1, perm=int(Action.VIEW | Action.OPERATE)
                )
            )
        assert streams.stream_given(session, "flights").view.id == "flights"
        assert streams.suspend_stream(session, "flights", suspended=True) == 2
        with pytest.raises(ForbiddenError):
            streams.terminate_stream(session, "flights")
        with pytest.raises(ForbiddenError):
            streams.submit_stream(session, json.dumps(SMALL))
