"""Tasks of one project try to use a dataset of another project, with and without a share."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, insert, select

from common.config import Config
from common.model.failures import FailureReason
from common.model.intervals import read_interval
from common.model.lock_needs import LockNeed
from common.model.locks import LockType
from common.model.reach import ShareKind
from common.model.rights import DATABASE
from common.model.states import TaskState
from common.model.streams.progress import DatasetProgress
from common.model.upstream import Absence, DatasetQuestion
from common.store import tables as t
from common.store.master.dependents import PostgresDependentStore
from common.store.master.holds import PostgresHoldStore
from common.store.people.datasets import own_dataset
from common.store.streams.segments import used_segments
from common.store.worker.datasets import Part, PostgresDatasetStore
from operations import shares
from orcaflow.datasets import DatasetConflictError, allocate, ask_lock, publish, segments
from tests.builders import NOON
from tests.integration.dataset_desk import Desk, an_attempt, desk, lock, some_files
from tests.integration.reviewing import PersonsSession
from tests.integration.store_races.dataset_stage import held
from tests.integration.store_races.racing import a_run, a_submit, attempt, save

DAY = "2026-11-20/P1D"
PROD = {"definition_id": 1, "project_id": 1}


@pytest.fixture
def ds() -> str:
    return f"ds-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def server(tmp_path: Path, here: Engine, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    with desk(tmp_path, here, monkeypatch) as made:
        yield made


@pytest.fixture
def dev(here: Engine) -> dict[str, int]:
    """Create another project; return its id, and an id for a definition of it."""
    with here.begin() as db:
        project = db.execute(
            insert(t.project).values(name=f"dev-{uuid.uuid4().hex}").returning(t.project.c.id)
        ).scalar_one()
    return {"definition_id": 1_000 + project, "project_id": project}


@pytest.fixture
def owner(here: Engine) -> PersonsSession:
    """A session of the owner of the database."""
    return PersonsSession(Config(), here, DATABASE)


@pytest.fixture
def share(owner: PersonsSession, ds: str, dev: dict[str, int]) -> Callable[[], None]:
    """Share the dataset with the other project."""

    def make() -> None:
        made = shares.share(owner, ds, dev["project_id"], kind=ShareKind.DATASET)
        assert made.changed

    return make


@pytest.fixture
def unshare(owner: PersonsSession, ds: str, dev: dict[str, int]) -> Callable[[], None]:
    """End the share of the dataset with the other project."""

    def end() -> None:
        ended = shares.unshare(owner, ds, dev["project_id"], kind=ShareKind.DATASET)
        assert ended.changed

    return end


def publish_as(made: Engine, server: Desk, ds: str, task_id: int, **how: Any) -> None:
    server.enter(task_id)
    place = allocate(ds)
    publish(place, [some_files(place, DAY)], **how)


def a_dataset_of_prod(made: Engine, server: Desk, ds: str) -> None:
    task_id = an_attempt(made, **PROD)
    lock(made, task_id, ds, LockType.REPLACE)
    publish_as(made, server, ds, task_id, replaces=DAY)
    with made.begin() as db:
        # Prod's lock would block the rest of the test.
        db.execute(t.task_lock.delete().where(t.task_lock.c.dataset == ds))


def files_of(made: Engine, ds: str) -> list[str]:
    with made.connect() as db:
        return [name for each in used_segments(db, ds) for name in each.files]


def submitted(made: Engine, need: LockNeed, project: dict[str, int]) -> int:
    """Submit a task with a lock in its definition; return its attempt, which waits for the lock."""
    saved = save(made, a_run(made, **project), a_submit("load", locks=(need,)))
    assert saved.offers == ()
    with made.connect() as db:
        newest = select(t.task_instance.c.id).order_by(t.task_instance.c.id.desc()).limit(1)
        return db.execute(newest).scalar_one()


def after_a_pass(made: Engine, task_id: int) -> Any:
    """Return the row of an attempt after a pass of the master."""
    PostgresHoldStore(made).release(now=NOON)
    return attempt(made, task_id)


def released(made: Engine, ds: str, kind: LockType, project: dict[str, int]) -> Any:
    need = LockNeed(dataset=ds, interval=DAY, type=kind, priority=100)
    return after_a_pass(made, submitted(made, need, project))


def test_a_foreign_dataset_reads_as_a_missing_one_until_it_is_shared(
    here: Engine, server: Desk, ds: str, dev: dict[str, int], share: Callable[[], None]
) -> None:
    a_dataset_of_prod(here, server, ds)
    server.enter(an_attempt(here, **dev))
    assert segments(ds).segments == segments("missing").segments == ()
    assert segments(ds, DAY).segments == segments("missing", DAY).segments == ()
    share()
    assert len(segments(ds).segments) == len(segments(ds, DAY).segments) == 1


def test_an_attempt_whose_definition_locks_a_foreign_dataset_fails(
    here: Engine, server: Desk, ds: str, dev: dict[str, int], share: Callable[[], None]
) -> None:
    a_dataset_of_prod(here, server, ds)
    text_of_refusal = (
        f"locks: the project of this task has no dataset {ds}: another project has one of this"
        " name and has not shared it"
    )
    for kind in LockType:
        refused = released(here, ds, kind, dev)
        assert (refused.state, refused.failure_reason, refused.reason) == (
            TaskState.FAILURE,
            FailureReason.NOT_GRANTED,
            text_of_refusal,
        )
    share()
    assert released(here, ds, LockType.EXCLUSIVE, dev).state == TaskState.SUBMITTED


def test_a_running_task_may_not_lock_a_foreign_dataset(
    here: Engine, server: Desk, ds: str, dev: dict[str, int], share: Callable[[], None]
) -> None:
    # Compaction, frames and spouts request their locks in this way.
    a_dataset_of_prod(here, server, ds)
    server.enter(an_attempt(here, **dev))
    for kind in ("EXCLUSIVE", "SHARED", "APPEND", "REPLACE"):
        with pytest.raises(DatasetConflictError, match="has not shared it"):
            ask_lock(ds, DAY, kind=kind)
    share()
    assert ask_lock(ds, DAY, kind="REPLACE")


def test_a_lock_from_before_the_dataset_was_foreign_changes_nothing(
    here: Engine, server: Desk, ds: str, dev: dict[str, int], share: Callable[[], None]
) -> None:
    early = an_attempt(here, **dev)
    lock(here, early, ds, LockType.APPEND)
    owner = an_attempt(here, **PROD)
    lock(here, owner, ds, LockType.REPLACE, interval="2026-11-21/P1D")
    server.enter(owner)
    place = allocate(ds)
    publish(place, [some_files(place, "2026-11-21/P1D")], replaces="2026-11-21/P1D")
    before = files_of(here, ds)
    with pytest.raises(DatasetConflictError, match="has not shared it"):
        publish_as(here, server, ds, early, key="main")
    assert files_of(here, ds) == before
    share()
    publish_as(here, server, ds, early, key="main")
    assert len(files_of(here, ds)) == 2


def test_a_foreign_task_that_guesses_a_sequence_does_not_learn_of_its_publication(
    here: Engine, ds: str, dev: dict[str, int]
) -> None:
    owner = an_attempt(here, **PROD)
    lock(here, owner, ds, LockType.APPEND)
    store = PostgresDatasetStore(here)
    part = Part(interval=read_interval(DAY), files=(f"{ds}/a",), rows=1, bytes=1)
    assert "Published" in repr(store.publish(owner, ds, (part,), sequence="guessed"))
    found = store.publish(an_attempt(here, **dev), ds, (part,), sequence="guessed")
    assert "has not shared it" in repr(found)


def test_a_dataset_that_no_project_has_is_closed_to_tasks(
    here: Engine, server: Desk, ds: str, dev: dict[str, int]
) -> None:
    a_dataset_of_prod(here, server, ds)
    with here.begin() as db:
        db.execute(t.dataset.delete().where(t.dataset.c.name == ds))
    server.enter(an_attempt(here, **dev))
    assert segments(ds).segments == ()
    assert released(here, ds, LockType.EXCLUSIVE, dev).failure_reason == FailureReason.NOT_GRANTED


def test_a_dependent_task_is_answered_about_a_foreign_dataset_as_about_a_missing_one(
    here: Engine, ds: str, dev: dict[str, int], share: Callable[[], None]
) -> None:
    with here.begin() as db:
        db.execute(insert(t.dataset).values(name=ds, project_id=1))
        db.execute(
            insert(t.dataset_offsets).values(dataset=ds, stream="events", partition=0, offset=7)
        )
    store = PostgresDependentStore(here)
    asking = dev["project_id"]

    def answer(name: str, project: int) -> Any:
        return store.look_up([DatasetQuestion(dataset=name, asking_project=project)])[0]

    assert answer(ds, asking) is answer("missing", asking) is Absence.NO_STREAM
    assert isinstance(answer(ds, 1), DatasetProgress)
    share()
    assert isinstance(answer(ds, asking), DatasetProgress)


def test_a_share_names_one_dataset_and_one_project(
    here: Engine, server: Desk, ds: str, dev: dict[str, int], share: Callable[[], None]
) -> None:
    other = f"{ds}-other"
    for name in (ds, other):
        a_dataset_of_prod(here, server, name)
    share()
    with here.begin() as db:
        db.execute(t.share.update().values(object_type="definition"))
    server.enter(an_attempt(here, **dev))
    assert segments(ds).segments == ()
    with here.begin() as db:
        db.execute(t.share.update().values(object_type="dataset"))
    assert (len(segments(ds).segments), segments(other).segments) == (1, ())
    server.enter(an_attempt(here, definition_id=999, project_id=999))
    assert json.dumps(segments(ds).segments) == "[]"


def test_after_a_share_has_ended_a_task_reads_nothing_and_publishes_nothing_with_its_lock(
    *,
    here: Engine,
    server: Desk,
    ds: str,
    dev: dict[str, int],
    share: Callable[[], None],
    unshare: Callable[[], None],
) -> None:
    a_dataset_of_prod(here, server, ds)
    share()
    task_id = an_attempt(here, **dev)
    lock(here, task_id, ds, LockType.APPEND)
    server.enter(task_id)
    assert len(segments(ds).segments) == 1
    before = files_of(here, ds)
    unshare()
    assert segments(ds).segments == ()
    with pytest.raises(DatasetConflictError, match="has not shared it"):
        publish_as(here, server, ds, task_id, key="main")
    assert files_of(here, ds) == before
    # Tasks of the owner do not wait for this lock. Their first request revokes it.
    waiting = submitted(here, LockNeed(dataset=ds, interval=DAY), PROD)
    assert after_a_pass(here, waiting).state == TaskState.SUBMITTED
    (held_lock,) = held(here, task_id)
    assert held_lock.revoked
    with pytest.raises(DatasetConflictError, match="has not shared it"):
        ask_lock(ds, "2026-11-21/P1D", kind="APPEND")


def test_x103_a_lock_from_before_the_dataset_was_foreign_holds_nothing_up(
    here: Engine, server: Desk, ds: str, dev: dict[str, int], owner: PersonsSession
) -> None:
    early = an_attempt(here, **dev)
    lock(here, early, ds, LockType.EXCLUSIVE, priority=100)
    with here.begin() as db:
        # A submitted supervisor does the same.
        assert own_dataset(db, ds, 1, anyway=False) == 1
    assert released(here, ds, LockType.REPLACE, PROD).state == TaskState.SUBMITTED
    (early_lock,) = held(here, early)
    assert early_lock.revoked
    # The group of the dataset's stream is open to the stream of the new owner.
    server.enter(an_attempt(here, **PROD))
    assert ask_lock(ds, "2026-11-22/P1D", kind="APPEND", stream=True)


def test_x103_a_lock_on_a_name_that_no_project_has_holds_up_only_its_own_project(
    here: Engine, server: Desk, ds: str, dev: dict[str, int]
) -> None:
    early = an_attempt(here, **dev)
    lock(here, early, ds, LockType.EXCLUSIVE, priority=100)
    same_project = submitted(here, LockNeed(dataset=ds, interval=DAY), dev)
    assert after_a_pass(here, same_project).state == TaskState.WAITING_DEPEND
    first = an_attempt(here, **PROD)
    lock(here, first, ds, LockType.REPLACE)
    (early_lock,) = held(here, early)
    assert not early_lock.revoked
    # The first publication claims the name for its project.
    publish_as(here, server, ds, first, replaces=DAY)
    with pytest.raises(DatasetConflictError, match="has not shared it"):
        publish_as(here, server, ds, early, replaces=DAY)
    assert after_a_pass(here, same_project).failure_reason == FailureReason.NOT_GRANTED


def test_x103_rows_that_are_added_are_not_bound_to_a_lock_of_another_project(
    here: Engine, server: Desk, ds: str, dev: dict[str, int]
) -> None:
    replacing, adding, early = (an_attempt(here, **each) for each in (PROD, PROD, dev))
    for task_id, kind in (
        (replacing, LockType.REPLACE),
        (adding, LockType.APPEND),
        (early, LockType.REPLACE),
    ):
        lock(here, task_id, ds, kind)
    publish_as(here, server, ds, adding, key="main")
    publish_as(here, server, ds, replacing, replaces=DAY)
    # The replacement keeps the rows that were added during it.
    assert len(files_of(here, ds)) == 2


def test_a_lock_request_that_waits_fails_once_the_share_has_ended(
    *,
    here: Engine,
    server: Desk,
    ds: str,
    dev: dict[str, int],
    share: Callable[[], None],
    unshare: Callable[[], None],
) -> None:
    a_dataset_of_prod(here, server, ds)
    lock(here, an_attempt(here, **PROD), ds, LockType.EXCLUSIVE)
    share()
    waiting = submitted(here, LockNeed(dataset=ds, interval=DAY), dev)
    assert after_a_pass(here, waiting).state == TaskState.WAITING_DEPEND
    unshare()
    assert after_a_pass(here, waiting).failure_reason == FailureReason.NOT_GRANTED
