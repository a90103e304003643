"""Commands about topologies, on a real database; the test is the worker that runs them."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, func, insert, select, update

from common.config import load
from common.errors import NotAllowedError, NotFoundError
from common.model.rights import Action, Principal
from common.model.states import ProcessState, TaskState
from common.model.topologies import Report
from common.store import tables as t
from common.store.connect import engine
from common.store.people import topologies as store
from operations import topologies
from operations.errors import ForbiddenError
from operations.members import registry
from operations.reviewing import ReviewNeededError
from operations.session import Session, opened
from operations.topology_packing import packed
from operations.topology_submission import submit_topology
from tests.conftest import ZookeeperRoot
from tests.integration.cli_rows import a_definition, an_attempt, an_instance, parsed
from tests.integration.conftest import Cli
from tests.integration.reviewing import a_person, with_review
from tests.integration.spark_host import until
from tests.integration.store_races.racing import until_blocked
from tests.topology_files import MAIN, PARTS, REPORT, YAML, written
from worker.datasets.topologies import beat_of


class Stage:
    """A folder with a topology's files, and a worker that runs what was submitted."""

    def __init__(self, cli: Cli, db: Engine, folder: Path) -> None:
        self.cli = cli
        self.db = db
        self.folder = written(folder)

    def submit(self, *options: str, main: str = "words.py:topology") -> dict[str, Any]:
        files = ("--files", str(self.folder / "parts.py"), "-o", "json")
        found: dict[str, Any] = parsed(
            self.cli("topology", "submit", f"{self.folder}/{main}", *files, *options)
        )
        return found

    def order(self, *words: str) -> tuple[int, str, str]:
        return self.cli("topology", *words)

    def ordered(self, *words: str) -> dict[str, Any]:
        found: dict[str, Any] = parsed(self.cli("topology", *words, "-o", "json"))
        return found

    def wanted(self) -> dict[str, Any]:
        with self.db.connect() as db:
            found: dict[str, Any] = db.scalar(select(t.topology.c.wanted))
        return found

    def run(self, state: TaskState = TaskState.RUNNING) -> int:
        """Have a worker run it: the command is gone, and an attempt has this state."""
        with self.db.begin() as db:
            db.execute(t.command.delete())
            definition = db.scalar(select(t.topology.c.process_definition_id))
        run = an_instance(self.db, ProcessState.RUNNING, process_definition_id=definition)
        an_attempt(self.db, run, state, name="run", task_type="TOPOLOGY", host="w:1")
        return run

    def report(self, report: Report = REPORT) -> None:
        """Have the newest attempt report."""
        with self.db.begin() as db:
            attempt = db.scalar(select(func.max(t.task_instance.c.id)))
            db.execute(
                update(t.task_instance)
                .where(t.task_instance.c.id == attempt)
                .values(start_time=func.now())
            )
            db.execute(
                update(t.topology).values(
                    report=report.document(), report_time=func.now(), task_instance_id=attempt
                )
            )

    def end(self, run: int, state: ProcessState, of_attempt: TaskState) -> None:
        with self.db.begin() as db:
            db.execute(
                update(t.task_instance)
                .where(t.task_instance.c.process_instance_id == run)
                .values(state=of_attempt, reason="the checkpoint is gone", end_time=func.now())
            )
            db.execute(
                update(t.process_instance)
                .where(t.process_instance.c.id == run)
                .values(state=state, end_time=func.now())
            )

    def commands(self) -> list[int]:
        with self.db.connect() as db:
            return list(db.scalars(select(t.command.c.command_type).order_by(t.command.c.id)))


@pytest.fixture
def stage(cli: Cli, db: Engine, tmp_path: Path) -> Stage:
    return Stage(cli, db, tmp_path)


def test_a_topology_is_submitted_changed_and_not_twice_the_same(stage: Stage) -> None:
    made = stage.submit("--cores", "3")
    assert (made["name"], made["version"], made["outcome"]) == ("words", 1, "created")
    assert made["notes"] == []
    assert stage.commands() == [0]
    again = stage.submit()
    assert (again["outcome"], again["command_id"]) == ("unchanged", None)
    with stage.db.connect() as db:
        name, text, release = db.execute(
            select(
                t.process_definition.c.name,
                t.process_definition.c.process_definition_json,
                t.process_definition.c.release_state,
            )
        ).one()
    assert (name, release) == ("topology words", 1)
    (node,) = json.loads(text)["tasks"]
    assert (node["type"], node["params"]) == ("TOPOLOGY", {"topology": "words", "cores": 3})
    assert (node["maxRetryTimes"], node["retryInterval"]) == ("100", "1")
    stage.run()
    written(stage.folder, parts=PARTS + "\n# another\n")
    changed = stage.submit()
    assert (changed["version"], changed["outcome"], changed["command_id"]) == (2, "changed", None)
    # The running task sees by the number that there is something new.
    assert stage.wanted()["number"] == 2
    (newest, first) = stage.ordered("history", "words")
    assert (newest["version"], first["version"], newest["components"]) == (2, 1, 3)


def test_settings_of_storm_without_effect_are_listed_with_the_cure(stage: Stage) -> None:
    text = YAML.replace("name: words", "name: ${name}\nconfig: {topology.acker.executors: 1}")
    text = text.replace("id: split,", "id: split, config: {topology.debug: true},")
    (stage.folder / "flux.yaml").write_text(text)
    (stage.folder / "dev.properties").write_text("name=words")
    submit = ("submit", f"{stage.folder}/flux.yaml", "--files", f"{stage.folder}/parts.py")
    code, out, err = stage.order(*submit, "--filter", f"{stage.folder}/dev.properties")
    assert (code, out) == (0, "topology words: created, version 1; command 1 begins its run\n")
    assert "config: 'topology.acker.executors' has no effect here: a committed batch" in err
    assert "split: config: 'topology.debug' has no effect here" in err
    assert "--env NAME" not in err
    code, _, err = stage.order(*submit)
    assert (code, "line 1: ${name} has no value" in err) == (1, True)


def test_mistakes_are_told_all_at_once_and_nothing_is_stored(stage: Stage) -> None:
    wrong = MAIN.replace("tasks=3", "tasks=1").replace('("split", "word")', '("split", "wrod")')
    written(stage.folder, main=wrong)
    code, out, err = stage.order(
        "submit", f"{stage.folder}/words.py:topology", "--files", f"{stage.folder}/parts.py"
    )
    assert (code, out) == (1, "")
    assert "2 mistakes" in err
    assert stage.order("list", "-o", "json")[1] == "[]\n"
    assert stage.order("submit", f"{stage.folder}/words.py")[0] == 2
    assert stage.order("status", "words")[0] == 3


def test_the_code_of_an_author_prints_nothing_into_a_document(stage: Stage) -> None:
    code, out, err = stage.order(
        "submit", f"{stage.folder}/words.py:topology",
        "--files", f"{stage.folder}/parts.py", "-o", "json",
    )  # fmt: skip
    assert (code, json.loads(out)["outcome"]) == (0, "created")
    assert "declared" in err


def test_activation_and_deactivation_are_orders_and_refused_twice(stage: Stage) -> None:
    stage.submit("--inactive")
    stage.run()
    assert stage.wanted()["active"] is False
    assert stage.order("deactivate", "words")[0] == 4
    assert stage.ordered("activate", "words") == {
        "name": "words",
        "number": 2,
        "command_id": None,
    }
    code, _, err = stage.order("activate", "words")
    assert (code, "active already" in err) == (4, True)
    assert stage.ordered("deactivate", "words")["number"] == 3
    (row,) = stage.ordered("list")
    assert (row["status"], row["executors"], row["tasks"]) == ("INACTIVE", 4, 9)


def test_a_rebalance_is_checked_against_the_graph(stage: Stage) -> None:
    stage.submit()
    stage.run()
    done = stage.ordered("rebalance", "words", "-w", "5", "-n", "4", "-e", "split=3")
    assert done["number"] == 2
    wanted = stage.wanted()
    assert (wanted["rebalanced"], wanted["waitSeconds"], wanted["cores"]) == (2, 5, 4)
    assert wanted["executors"] == {"split": 3}
    stage.report()
    assert stage.ordered("status", "words")["status"] == "REBALANCING"
    stage.ordered("rebalance", "words", "--tasks", "count=8", "-e", "count=8")
    assert stage.wanted()["tasks"] == {"count": 8}
    for options, told in (
        (("-e", "split=4"), "split: 4 executors are more than its 3 tasks"),
        (("--tasks", "split=2"), "split: 3 executors are more than its 2 tasks"),
        (("-e", "spilt=1", "-e", "none=2"), "did you mean 'split'?"),
        (("-e", "split=0"), "must be a number from 1 to 1,000"),
        ((), "name what is to change"),
        (("-e", "split"), "takes COMPONENT=N"),
        (("-n", "65"), "65"),
    ):
        code, _, err = stage.order("rebalance", "words", *options)
        assert code == 2, options
        assert told in " ".join(err.split()), err
    assert stage.wanted()["number"] == 3


def test_a_version_keeps_what_rebalances_have_set_as_far_as_it_suits(stage: Stage) -> None:
    stage.submit()
    stage.run()
    stage.ordered("rebalance", "words", "-e", "split=3", "-e", "count=4", "-n", "7")
    written(stage.folder, main=MAIN.replace("2, tasks=3", "2, tasks=2"))
    stage.submit()
    wanted = stage.wanted()
    assert (wanted["executors"], wanted["cores"]) == ({"count": 4}, 7)


def test_a_kill_waits_for_the_task_and_with_now_its_run_is_stopped(stage: Stage) -> None:
    stage.submit()
    stage.run()
    killed = stage.ordered("kill", "words", "-w", "7")
    assert killed["command_id"] is None
    assert (stage.wanted()["killed"], stage.wanted()["waitSeconds"]) == (True, 7)
    assert stage.order("kill", "words")[0] == 4
    assert stage.order("activate", "words")[0] == 4
    assert stage.order("rebalance", "words", "-n", "3")[0] == 4
    assert stage.commands() == []
    code, _, err = stage.order(
        "submit", f"{stage.folder}/words.py:topology", "--files", f"{stage.folder}/parts.py"
    )
    assert (code, "is being killed" in err) == (4, True)
    assert stage.ordered("kill", "words", "--now")["command_id"] is not None
    assert stage.wanted()["waitSeconds"] == 0
    assert len(stage.commands()) == 1


def test_a_run_of_which_nothing_runs_is_stopped_by_a_kill_at_once(stage: Stage) -> None:
    stage.submit()
    stage.run(TaskState.FAILURE)
    assert stage.ordered("kill", "words")["command_id"] is not None


def test_a_killed_topology_begins_anew_with_its_next_generation(stage: Stage) -> None:
    stage.submit()
    run = stage.run()
    stage.report()
    stage.ordered("kill", "words")
    stage.end(run, ProcessState.SUCCESS, TaskState.SUCCESS)
    assert stage.ordered("status", "words")["status"] == "KILLED"
    anew = stage.submit()
    assert (anew["generation"], anew["version"], anew["outcome"]) == (2, 1, "restarted")
    assert anew["command_id"] is not None
    shown = stage.ordered("status", "words")
    assert (shown["status"], shown["batch"], shown["obeyed"]) == ("ACTIVE", None, None)
    assert stage.wanted()["number"] == 3


def test_a_run_that_has_failed_for_good_is_told_and_begins_again_by_activation(
    stage: Stage,
) -> None:
    stage.submit()
    run = stage.run()
    stage.end(run, ProcessState.FAILURE, TaskState.FAILURE)
    shown = stage.ordered("status", "words")
    assert shown["reason"] == f"run {run} is FAILURE: the checkpoint is gone"
    assert stage.ordered("activate", "words")["command_id"] is not None
    assert stage.ordered("status", "words")["reason"] == "no master has begun its run yet"
    assert stage.commands() == [0]
    # While that command waits, no other is put.
    assert stage.order("activate", "words")[0] == 4


def test_a_run_that_has_failed_for_good_begins_again_by_the_same_submission(stage: Stage) -> None:
    stage.submit()
    stage.end(stage.run(), ProcessState.FAILURE, TaskState.FAILURE)
    again = stage.submit()
    assert (again["outcome"], again["version"], again["generation"]) == ("restarted", 1, 1)
    assert again["command_id"] is not None


def test_a_topology_whose_definition_is_gone_is_given_another_by_its_next_submission(
    stage: Stage,
) -> None:
    stage.submit()
    run = stage.run()
    with stage.db.begin() as db:
        former = db.scalar(select(t.topology.c.process_definition_id))
        db.execute(update(t.process_definition).values(name="renamed"))
    arguments = (f"{stage.folder}/words.py:topology", "--files", f"{stage.folder}/parts.py")
    code, _, err = stage.order("submit", *arguments)
    assert (code, "rename it to 'topology words'" in err) == (4, True)
    stage.end(run, ProcessState.FAILURE, TaskState.FAILURE)
    assert stage.submit()["command_id"] is not None
    with stage.db.connect() as db:
        assert db.scalar(select(t.topology.c.process_definition_id)) != former
        assert db.scalar(select(t.command.c.process_definition_id)) != former


def test_a_definition_of_the_name_that_is_not_the_topology_s_is_left_alone(stage: Stage) -> None:
    a_definition(stage.db, name="topology words", process_definition_json="{}")
    arguments = (f"{stage.folder}/words.py:topology", "--files", f"{stage.folder}/parts.py")
    code, _, err = stage.order("submit", *arguments)
    assert (code, "the topology needs one of that name" in " ".join(err.split())) == (4, True)


def test_of_two_orders_at_once_the_second_sees_what_the_first_has_wanted(
    stage: Stage, emptied_url: str
) -> None:
    stage.submit()
    stage.run()
    other = engine(emptied_url, application_name="other")
    with ThreadPoolExecutor(1) as pool:
        with stage.db.begin() as db:
            found = store.topology_named(db, "words", lock=True)
            assert found is not None
            session = Session()
            session.__dict__.update(engine=other)
            waiting = pool.submit(topologies.deactivate_topology, session, "words")
            until_blocked(stage.db, "other")
            assert store.want(db, "words", replace(found.wanted, number=2, cores=7), before=1)
        assert waiting.result().number == 3
    other.dispose()
    assert (stage.wanted()["cores"], stage.wanted()["active"]) == (7, False)


def test_a_project_is_deleted_with_the_topologies_that_were_killed_and_not_with_others(
    stage: Stage,
) -> None:
    with stage.db.begin() as db:
        db.execute(insert(t.project).values(id=5, name="team"))
    stage.submit("--project", "team")
    with stage.db.begin() as db:
        db.execute(t.command.delete())
        db.execute(t.process_definition.delete())
    code, _, err = stage.cli("project", "delete", "team")
    assert (code, "orcaflow topology kill words" in " ".join(err.split())) == (4, True)
    stage.ordered("kill", "words")
    assert stage.cli("project", "delete", "team")[0] == 0
    assert stage.order("list", "-o", "json")[1] == "[]\n"


def test_a_status_has_the_heartbeats_of_workers_from_zookeeper(
    stage: Stage, zk_root: ZookeeperRoot, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.submit()
    stage.run()
    # Nobody answers there.
    assert stage.ordered("status", "words")["beats"] is None
    monkeypatch.setenv("ORCAFLOW_ZOOKEEPER__HOSTS", zk_root.hosts)
    monkeypatch.setenv("ORCAFLOW_ZOOKEEPER__ROOT", zk_root.root)
    assert stage.ordered("status", "words")["beats"] == {}
    with registry(load()) as opened:
        beat = beat_of("words", REPORT, datetime(2026, 11, 27, 12, tzinfo=UTC))
        opened.worker_beats.put_soon("words", "w:1", json.dumps(beat))
        opened.worker_beats.put_soon("words", "w:2", "no JSON")
        until(lambda: len(opened.worker_beats.beats("words")) == 2)
        found = stage.ordered("status", "words")["beats"]
        assert found.keys() == {"w:1"}
        assert (found["w:1"]["state"], found["w:1"]["lag"]) == (REPORT.state, REPORT.lag)
        code, out, _ = stage.order("status", "words")
        assert code == 0
        assert f"w:1 {REPORT.state} 2026-11-27T12:00:00+00:00" in out


def test_a_status_has_figures_verdict_and_skew(stage: Stage) -> None:
    stage.submit()
    run = stage.run()
    stage.report()
    shown = stage.ordered("status", "words")
    assert (shown["status"], shown["verdict"], shown["batch"]) == ("ACTIVE", "valid", 7)
    assert (shown["process_instance_id"], shown["attempt_state"]) == (run, "RUNNING")
    assert (shown["lag"], shown["host"]) == ({"lines": 40}, "w:1")
    lines, split, count = shown["components"]
    assert (lines["emitted"], lines["acked"], lines["failed"]) == (10, 9, 1)
    assert (split["executed"], split["capacity"], split["executors"]) == (10, 0.25, 2)
    assert (count["skew"], count["hot_key"], count["by_task"]) == (3.0, "the", [30, 0, 10, 0])
    whole = stage.ordered("status", "words", "--window", ":all-time")["components"]
    assert (whole[0]["emitted"], whole[0]["acked"]) == (100, 0)
    code, out, _ = stage.order("status", "words")
    assert (code, "COMPONENT" in out, "ACTIVE" in out) == (0, True, True)
    stage.report(replace(REPORT, trouble="no broker answers"))
    assert stage.ordered("status", "words")["reason"] == "no broker answers"
    with stage.db.begin() as db:
        db.execute(update(t.topology).values(report_time=func.now() - func.make_interval(0, 1)))
    assert stage.ordered("status", "words")["verdict"] != "valid"


def test_errors_are_listed_and_steer_no_terminal(stage: Stage) -> None:
    stage.submit()
    assert "no errors" in stage.order("errors", "words")[2]
    stage.run()
    stage.report()
    (error,) = stage.ordered("errors", "words")
    assert (error["component"], error["task"]) == ("split", 1)
    assert "\x1b" not in stage.order("errors", "words")[1]


def test_a_graph_is_drawn_with_its_groupings(stage: Stage) -> None:
    stage.submit(main="words.yaml")
    lines = stage.order("graph", "words")[1].splitlines()
    assert lines == [
        "spout     lines  1 executor, 2 tasks",
        "        ->  default  line",
        "bolt      split  2 executors, 3 tasks",
        "        <-  lines  shuffle",
        "        ->  default  word",
        "        ->  errors  line, why",
        "stateful  count  1 executor, 4 tasks",
        "        <-  split  fields word",
        "        ->  default  word, count",
    ]
    assert [part["id"] for part in stage.ordered("graph", "words")["parts"]] == [
        "lines",
        "split",
        "count",
    ]


def test_logs_are_those_of_the_newest_attempt(stage: Stage) -> None:
    stage.submit()
    code, _, err = stage.order("logs", "words")
    assert (code, "no attempt yet" in err) == (4, True)
    stage.run()
    # The row names no log; that is told as `task log` tells it.
    assert "no attempt yet" not in stage.order("logs", "words")[2]


def test_an_admin_submits_the_topologies_of_a_project_that_asks_for_a_review(
    stage: Stage,
) -> None:
    submission = packed(f"{stage.folder}/words.py:topology", [stage.folder / "parts.py"])
    with opened() as owner:
        ada, bob = a_person(owner, "ada", "author"), a_person(owner, "bob", "admin")
        with_review(owner)
        for outcome in ("created", "unchanged"):
            with pytest.raises(ReviewNeededError, match="an admin of the project submits it"):
                submit_topology(ada, submission)
            assert submit_topology(bob, submission).outcome == outcome
        assert topologies.deactivate_topology(ada, "words").number == 2
        assert topologies.activate_topology(ada, "words").number == 3


def test_rights_are_those_of_the_topology_s_project(stage: Stage) -> None:
    with stage.db.begin() as db:
        db.execute(insert(t.project).values(id=5, name="team"))
        for number, perm in ((7, Action.VIEW | Action.OPERATE), (8, None), (9, Action.VIEW)):
            db.execute(insert(t.user).values(id=number, user_name=f"u{number}", user_type=1))
            if perm is not None:
                db.execute(
                    insert(t.relation_project_user).values(
                        user_id=number, project_id=5, perm=int(perm)
                    )
                )
    stage.submit("--project", "team")

    def session(number: int) -> Session:
        return Session(principal=Principal(user_id=number, user_name=f"u{number}"))

    submission = packed(f"{stage.folder}/words.py:topology", [stage.folder / "parts.py"])
    operator, outsider, viewer = session(7), session(8), session(9)
    try:
        assert topologies.list_topologies(outsider) == []
        with pytest.raises(NotFoundError):
            topologies.topology_given(outsider, "words")
        # A user learns that a name is taken only with the right to create a topology.
        with pytest.raises(NotFoundError, match="no project"):
            submit_topology(outsider, submission)
        with stage.db.begin() as db:
            db.execute(
                insert(t.relation_project_user).values(
                    user_id=8, project_id=1, perm=int(Action.VIEW | Action.AUTHOR)
                )
            )
        with pytest.raises(NotAllowedError, match="is taken in a project that is not yours"):
            submit_topology(outsider, submission)
        assert topologies.deactivate_topology(operator, "words").number == 2
        for asked in (topologies.kill_topology, topologies.activate_topology):
            with pytest.raises(ForbiddenError):
                asked(viewer, "words")
        with pytest.raises(ForbiddenError):
            topologies.kill_topology(operator, "words")
        with pytest.raises(ForbiddenError):
            submit_topology(operator, submission)
    finally:
        for each in (operator, outsider, viewer):
            each.close()
    with opened() as owner:
        assert topologies.kill_topology(owner, "words").number == 3
    with stage.db.connect() as db:
        refused = db.scalar(
            select(func.count())
            .select_from(t.audit_log)
            .where(t.audit_log.c.action.like("topology.%"))
        )
    assert refused
