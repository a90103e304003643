"""Shares of datasets: the right to create and end them, and their deletion."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, insert, select, text
from sqlalchemy.exc import OperationalError

from api.policy import BASE
from common.clock import SystemClock
from common.errors import NotAllowedError, NotFoundError
from common.model.reach import ShareKind
from common.model.rights import DATABASE
from common.store import tables as t
from common.store.people import projects as project_store
from common.store.people.shares import Share, add_share
from operations import shares as operations
from operations.errors import ForbiddenError
from operations.projects import delete_project
from operations.session import Session
from operations.shares import Shared
from operations.streams import submit_stream
from tests.integration.api_worlds import add_segment, headers_of_known
from tests.integration.shared_definitions import a_member, three_projects
from tests.unit.stream_specs import SMALL


def share(session: Session, name: str, project: str | int) -> Shared:
    return operations.share(session, name, project, kind=ShareKind.DATASET)


def unshare(session: Session, name: str, project: str | int) -> Shared:
    return operations.unshare(session, name, project, kind=ShareKind.DATASET)


def shares(session: Session, name: str) -> list[Share]:
    return operations.shares(session, name, kind=ShareKind.DATASET)


@pytest.fixture
def projects(owner: Session) -> dict[str, int]:
    return three_projects(owner)


@pytest.fixture
def dan(owner: Session, projects: dict[str, int]) -> Session:
    """An admin of `dev`, who sees `prod` and not `lab`."""
    return a_member(owner, "dan", dev="admin", prod="viewer")


def a_dataset(db: Engine, project: int | None, name: str = "flights") -> None:
    """Insert a dataset with rows; None: it does not belong to a project."""
    with db.begin() as connection:
        add_segment(connection, name)
        if project is not None:
            connection.execute(insert(t.dataset).values(name=name, project_id=project))


def stored(db: Engine) -> list[tuple[str, int]]:
    with db.connect() as connection:
        rows = connection.execute(select(t.share.c.object_type, t.share.c.project_id))
        return [(row.object_type, row.project_id) for row in rows]


def a_submission(session: Session, name: str, project: str) -> None:
    spec = copy.deepcopy(SMALL)
    spec["spec"]["dataSchema"]["dataSource"] = name
    submit_stream(session, json.dumps(spec), project=project)


def test_a_dataset_is_shared_by_admins_with_projects_that_they_see(
    owner: Session, dan: Session, projects: dict[str, int], db: Engine
) -> None:
    dev, prod, lab = projects["dev"], projects["prod"], projects["lab"]
    a_dataset(db, dev)
    eve = a_member(owner, "eve", dev="author", prod="admin", lab="viewer")
    for refused in (share, unshare):
        with pytest.raises(ForbiddenError, match="dataset flights is in a project"):
            refused(eve, "flights", prod)
    for missing in ("lab", lab, "nowhere", 2**31 - 1):
        with pytest.raises(NotFoundError, match="project"):
            share(dan, "flights", missing)
    with pytest.raises(NotFoundError, match="project"):
        share(owner, "flights", 2**31 - 1)
    with pytest.raises(NotFoundError, match="project"):
        unshare(dan, "flights", "lab")
    with pytest.raises(NotAllowedError, match="needs no share"):
        share(dan, "flights", dev)
    assert stored(db) == []
    done = share(dan, "flights", "prod")
    assert (done.name, done.id, done.project, done.changed) == ("flights", None, "prod", True)
    assert not share(dan, "flights", prod).changed
    share(owner, "flights", "lab")
    listed = shares(dan, "flights")
    assert [(each.project_id, each.project_name, each.user_name) for each in listed] == [
        (prod, "prod", "dan"),
        (lab, None, None),
    ]
    assert shares(eve, "flights")[1].project_name == "lab"
    # The list has the id of a project that an admin may not see, by which it is ended.
    assert unshare(dan, "flights", lab).changed
    assert not unshare(dan, "flights", lab).changed
    assert stored(db) == [("dataset", prod)]


def test_a_change_of_a_share_is_in_the_audit_and_so_is_a_refusal(
    owner: Session, dan: Session, projects: dict[str, int], db: Engine
) -> None:
    a_dataset(db, projects["dev"])
    share(dan, "flights", "prod")
    unshare(dan, "flights", "prod")
    with pytest.raises(NotFoundError):
        share(dan, "nothing", "prod")
    line = t.audit_log.c
    with db.connect() as connection:
        number = connection.scalar(select(t.dataset.c.id))
        rows = connection.execute(
            select(
                line.action, line.object_type, line.object_id, line.object_name,
                line.project_id, line.outcome,
            )
            .where(line.action.startswith("dataset."))
            .order_by(line.id)
        ).all()  # fmt: skip
    flights = ("dataset", number, "flights", projects["dev"], "done")
    assert [tuple(row) for row in rows] == [
        ("dataset.share", *flights),
        ("dataset.unshare", *flights),
        ("dataset.share", "dataset", None, "nothing", None, "refused"),
    ]


def test_a_foreign_a_missing_and_an_unowned_dataset_give_the_same_answer(
    client: TestClient, owner: Session, dan: Session, projects: dict[str, int], db: Engine
) -> None:
    a_dataset(db, projects["lab"], "foreign")
    a_dataset(db, None, "unowned")
    prod = projects["prod"]

    def answers(name: str) -> list[tuple[int, Any]]:
        place = f"{BASE}/datasets/{name}/shares"
        headers = headers_of_known(owner, "dan")
        found = [
            client.get(place, headers=headers),
            client.post(place, json={"project": prod}, headers=headers),
            client.post(place, json={"project": "nowhere"}, headers=headers),
            client.delete(f"{place}/{prod}", headers={**headers, "If-Match": "*"}),
        ]
        return [(each.status_code, each.json()["detail"].replace(name, "NAME")) for each in found]

    missing = answers("missing")
    assert {status for status, _ in missing} == {404}
    assert "its first publication creates it" in missing[0][1]
    assert answers("foreign") == missing
    assert answers("unowned") == missing
    for order in (share, unshare):
        with pytest.raises(NotFoundError):
            order(dan, "unowned", "prod")
        with pytest.raises(NotAllowedError, match="does not belong to a project"):
            order(owner, "unowned", "prod")
    assert shares(owner, "unowned") == []
    admin = headers_of_known(owner, "admin")
    refused = client.post(f"{BASE}/datasets/unowned/shares", json={"project": prod}, headers=admin)
    assert (refused.status_code, "does not belong to a project" in refused.text) == (409, True)
    assert stored(db) == []


def test_a_dataset_is_shared_before_its_first_rows_once_it_has_a_supervisor(
    owner: Session, dan: Session, projects: dict[str, int], db: Engine
) -> None:
    with pytest.raises(NotFoundError, match="submission of its supervisor"):
        share(dan, "arrivals", "prod")
    a_submission(dan, "arrivals", "dev")
    assert share(dan, "arrivals", "prod").changed
    assert stored(db) == [("dataset", projects["prod"])]


def test_the_shares_of_a_dataset_end_with_its_project(
    owner: Session, dan: Session, projects: dict[str, int], db: Engine
) -> None:
    a_dataset(db, projects["dev"])
    a_dataset(db, projects["lab"], "others")
    share(dan, "flights", "prod")
    share(owner, "others", "prod")
    delete_project(owner, "dev")
    assert stored(db) == [("dataset", projects["prod"])]
    # The next project that has the dataset starts without shares.
    a_submission(owner, "flights", "lab")
    assert shares(owner, "flights") == []
    assert len(shares(owner, "others")) == 1
    delete_project(owner, "prod")
    assert stored(db) == []


def test_a_project_is_not_deleted_beside_a_share_that_is_being_made(
    owner: Session, dan: Session, projects: dict[str, int], db: Engine
) -> None:
    a_dataset(db, projects["dev"])
    with db.begin() as sharing:
        number = sharing.execute(select(t.dataset.c.id)).scalar_one()
        add_share(
            sharing, DATABASE, ShareKind.DATASET, number, projects["prod"], at=SystemClock().now()
        )
        with db.connect() as deleting:
            deleting.execute(text("SET lock_timeout = '1ms'"))
            with pytest.raises(OperationalError, match="lock timeout"):
                project_store.delete_project(deleting, projects["dev"])
    delete_project(owner, "dev")
    assert stored(db) == []
    with db.begin() as late:
        assert (
            add_share(
                late, DATABASE, ShareKind.DATASET, number, projects["prod"], at=SystemClock().now()
            )
            is None
        )
