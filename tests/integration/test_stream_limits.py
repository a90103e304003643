"""Limits of the supervisors of a project: their number, and the number of their tasks."""

from __future__ import annotations

import copy
import json
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import Engine, func, insert, select

from common.config import Config, StreamsConfig
from common.errors import NotAllowedError
from common.model.rights import DATABASE
from common.model.streams.requests import RequestKind
from common.store import tables as t
from operations.streams import (
    MOST_REQUESTS,
    reset_stream_to,
    submit_stream,
    suspend_stream,
    terminate_stream,
)
from tests.integration.reviewing import PersonsSession
from tests.unit.stream_specs import SMALL

Submit = Callable[..., str]
LIMITS = StreamsConfig(
    max_supervisors_per_project=2, max_tasks_per_supervisor=10, max_tasks_per_project=15
)


@pytest.fixture
def session(db: Engine) -> PersonsSession:
    return PersonsSession(Config(streams=LIMITS), db, DATABASE)


@pytest.fixture
def project(db: Engine) -> int:
    with db.begin() as made:
        row = insert(t.project).values(name=f"p-{uuid.uuid4().hex}").returning(t.project.c.id)
        return made.execute(row).scalar_one()


@pytest.fixture
def submit(session: PersonsSession, project: int) -> Submit:
    """Submit a supervisor of this name with these values of its ioConfig."""

    def make(name: str, *, suspended: bool = False, **io: Any) -> str:
        document = copy.deepcopy(SMALL)
        document["suspended"] = suspended
        document["spec"]["dataSchema"]["dataSource"] = f"{name}-{project}"
        document["spec"]["ioConfig"] |= io
        return submit_stream(session, json.dumps(document), project=project).outcome

    return make


def test_x107_a_project_has_a_limited_number_of_supervisors(
    session: PersonsSession, project: int, submit: Submit
) -> None:
    submit("a")
    submit("b", suspended=True)
    for suspended in (False, True):
        with pytest.raises(NotAllowedError, match=r"limit is 2 \(streams.max_supervisors_per_proj"):
            submit("c", suspended=suspended)
    # A supervisor that exists is changed, and one that has ended makes room.
    assert submit("a", replicas=2) == "changed"
    terminate_stream(session, f"a-{project}")
    with session.engine.begin() as made:
        table = t.supervisor_runtime
        made.execute(table.update().where(table.c.id == f"a-{project}").values(active=False))
    submit("c")
    with pytest.raises(NotAllowedError, match="already has 2 supervisors"):
        submit("a")


def test_x107_supervisors_that_are_submitted_at_the_same_time_do_not_exceed_the_limit(
    submit: Submit,
) -> None:
    def is_refused(name: str) -> bool:
        try:
            submit(name)
        except NotAllowedError:
            return True
        return False

    with ThreadPoolExecutor(4) as pool:
        assert sorted(pool.map(is_refused, "abcd")) == [False, False, True, True]


def test_x107_the_tasks_of_a_supervisor_and_of_a_project_are_limited(
    session: PersonsSession, project: int, submit: Submit
) -> None:
    scaling = {"enableTaskAutoScaler": True, "taskCountMin": 1, "taskCountMax": 11}
    for io in ({"taskCount": 4, "replicas": 3}, {"autoScalerConfig": scaling}):
        with pytest.raises(NotAllowedError, match=r"limit is 10 \(streams.max_tasks_per_superv"):
            submit("a", **io)
    submit("a", taskCount=5, replicas=2)
    with pytest.raises(NotAllowedError, match="would have 16 tasks at a time"):
        submit("b", taskCount=6)
    submit("b", taskCount=6, suspended=True)
    with pytest.raises(NotAllowedError, match=r"limit is 15 \(streams.max_tasks_per_project\)"):
        suspend_stream(session, f"b-{project}", suspended=False)
    with pytest.raises(NotAllowedError, match="lower taskCount"):
        submit("b", taskCount=6)
    submit("a", taskCount=9)
    suspend_stream(session, f"b-{project}", suspended=False)


def test_x107_the_requests_that_wait_for_a_supervisor_are_limited(
    session: PersonsSession, project: int, submit: Submit
) -> None:
    submit("a")
    name = f"a-{project}"
    with session.engine.begin() as made:
        table = t.supervisor_command
        rows = [
            {"supervisor": name, "kind": RequestKind.RESET.value, "body": {}}
            for _ in range(MOST_REQUESTS)
        ]
        made.execute(insert(table), rows)
    with pytest.raises(NotAllowedError, match=r"100 requests .* already wait for a master"):
        reset_stream_to(session, name, offsets={0: 5})
    with session.engine.begin() as made:
        newest = select(func.max(table.c.id)).where(table.c.supervisor == name).scalar_subquery()
        made.execute(table.delete().where(table.c.id == newest))
    assert reset_stream_to(session, name, offsets={0: 5})


def test_x107_a_supervisor_above_a_limit_that_was_lowered_may_get_fewer_tasks(
    db: Engine, project: int, submit: Submit, session: PersonsSession
) -> None:
    submit("a", taskCount=10)
    lowered = Config(streams=StreamsConfig(max_tasks_per_supervisor=5, max_tasks_per_project=5))
    document = copy.deepcopy(SMALL)
    document["spec"]["dataSchema"]["dataSource"] = f"a-{project}"
    for count, is_allowed in ((11, False), (8, True), (9, False)):
        document["spec"]["ioConfig"]["taskCount"] = count
        again = PersonsSession(lowered, db, DATABASE)
        if is_allowed:
            assert submit_stream(again, json.dumps(document)).outcome == "changed"
            continue
        with pytest.raises(NotAllowedError, match="limit is 5"):
            submit_stream(again, json.dumps(document))
