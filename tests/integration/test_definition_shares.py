"""References between projects: names, shares, lasting bindings, and data that stays hidden."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import Engine, select, text, update

from api.policy import BASE
from common.clock import SystemClock
from common.errors import NotAllowedError, NotFoundError
from common.store import tables as t
from operations.definition_files import InvalidFilesError
from operations.definition_versions import compare, restore
from operations.definitions import export_definition, import_definitions
from operations.deleting import delete_definitions
from operations.drafts import draft, publish_draft, save_draft
from operations.errors import ForbiddenError
from operations.importing import Imported
from operations.linting import read_content
from operations.projects import edit_project
from operations.proposals import approve, proposal_detail, propose
from operations.session import Session
from operations.shares import share, shares, unshare
from operations.users import grant
from tests.integration.api_worlds import headers_of_known
from tests.integration.shared_definitions import (
    SHELL,
    a_member,
    child,
    document,
    imported,
    made,
    three_projects,
    waits,
)


@pytest.fixture
def projects(owner: Session) -> dict[str, int]:
    """Create three projects; `dev` is the oldest, so that its definitions have the lowest ids."""
    return three_projects(owner)


@pytest.fixture
def ada(owner: Session, projects: dict[str, int]) -> Session:
    """Return an author of `prod` without a role elsewhere."""
    assert projects
    return a_member(owner, "ada", prod="author")


@pytest.fixture
def dan(owner: Session, projects: dict[str, int]) -> Session:
    """Return an admin of `dev` who sees `prod`."""
    assert projects
    return a_member(owner, "dan", dev="admin", prod="viewer")


def refusal(session: Session, project: int, *documents: dict[str, Any]) -> str:
    with pytest.raises(InvalidFilesError) as refused:
        imported(session, project, *documents)
    return "\n".join(each.text for each in refused.value.found)


def bound(db: Engine, number: int) -> list[tuple[int, int | None]]:
    """Return the ids that the tasks of a definition refer to, each with its project."""
    row = t.process_definition.c
    with db.connect() as connection:
        stored = connection.scalar(select(row.process_definition_json).where(row.id == number))
    holders = []
    for node in json.loads(stored or "{}")["tasks"]:
        if node["type"] == "SUB_PROCESS":
            holders.append(node["params"])
        if node["type"] == "DEPENDENT":
            (group,) = node["dependence"]["dependTaskList"]
            holders += group["dependItemList"]
    assert not [each for each in holders if "projectName" in each or "definitionName" in each]
    return [
        (each.get("processDefinitionId") or each["definitionId"], each.get("projectId"))
        for each in holders
    ]


def test_x41_a_name_means_the_definition_of_the_own_project_first(
    owner: Session, ada: Session, projects: dict[str, int], db: Engine
) -> None:
    dev, prod = projects["dev"], projects["prod"]
    foreign = made(owner, dev, document("load"))
    own = made(owner, prod, document("load"))
    assert foreign < own
    number = made(
        ada,
        prod,
        document("night", child(processDefinitionName="load"), waits(definitionName="load")),
    )
    assert bound(db, number) == [(own, None), (own, prod)]
    # A share does not change the meaning of a name that the project defines itself.
    share(owner, foreign, prod)
    assert imported(ada, prod, document("other", child(processDefinitionName="load")))
    again = document("night", child(processDefinitionName="load"), waits(definitionName="load"))
    assert not imported(ada, prod, again)[0].changed


def test_x42_a_foreign_definition_is_missing_until_it_is_shared_and_its_project_is_named(
    owner: Session, ada: Session, dan: Session, projects: dict[str, int], db: Engine
) -> None:
    dev, prod = projects["dev"], projects["prod"]
    foreign = made(owner, dev, document("load"))
    by_name = document("night", child(processDefinitionName="load"))
    by_id = document("night", child(processDefinitionId=foreign))
    by_project = document("night", waits(definitionName="load", projectName="dev"))
    missing = refusal(ada, prod, document("night", child(processDefinitionId=foreign + 100)))
    for each in (by_name, by_id, by_project, document("night", waits(definitionId=foreign))):
        told = refusal(ada, prod, each)
        assert "there is no process definition" in told
        # The owner of the database gets the same message as an author.
        assert refusal(owner, prod, each) == told
    told = refusal(ada, prod, by_id)
    assert told.replace(str(foreign), "N") == missing.replace(str(foreign + 100), "N")
    with pytest.raises(NotFoundError):
        share(ada, foreign, prod)
    assert share(dan, foreign, "prod").changed
    assert not share(dan, foreign, prod).changed
    for each in (by_name, by_id, by_project):
        assert bound(db, made(ada, prod, each))[0][0] == foreign
    named = document("night", child(processDefinitionName="load", projectName="dev"))
    assert bound(db, made(ada, prod, named)) == [(foreign, None)]
    by_number = document("night", child(processDefinitionName="load", projectId=dev))
    assert bound(db, made(ada, prod, by_number)) == [(foreign, None)]
    for wrong in ({"projectName": "lab"}, {"projectName": "prod"}, {"projectId": prod}):
        assert "there is no process definition" in refusal(
            ada, prod, document("night", child(processDefinitionName="load", **wrong))
        )
    assert "there is no" in refusal(
        ada, prod, document("night", waits(definitionId=foreign, projectId=prod))
    )
    # After the share has ended, new references are refused.
    assert unshare(dan, foreign, prod).changed
    assert refusal(ada, prod, by_id) == told


def test_x42_an_ambiguous_name_is_refused_with_the_candidates_that_the_author_may_see(
    owner: Session, ada: Session, projects: dict[str, int], db: Engine
) -> None:
    dev, prod, lab = projects["dev"], projects["prod"], projects["lab"]
    ours = made(owner, dev, document("load"))
    share(owner, ours, prod)
    theirs = made(owner, lab, document("load"))
    share(owner, theirs, prod)
    night = document("night", child(processDefinitionName="load"))
    told = refusal(ada, prod, night)
    assert "ambiguous" in told
    assert "dev" not in told
    assert "lab" not in told
    grant(owner, "ada", project="lab", role="viewer")
    told = refusal(ada, prod, night)
    assert "'lab'" in told
    assert "dev" not in told
    assert "'dev', 'lab'" in refusal(owner, prod, night)
    chosen = document("night", child(processDefinitionName="load", projectName="lab"))
    assert bound(db, made(ada, prod, chosen)) == [(theirs, None)]


def test_x43_what_is_bound_stays_bound_until_somebody_names_another_project(
    owner: Session, ada: Session, projects: dict[str, int], db: Engine
) -> None:
    dev, prod = projects["dev"], projects["prod"]
    foreign = made(owner, dev, document("load"))
    share(owner, foreign, prod)
    night = document("night", child(processDefinitionName="load"), waits(definitionName="load"))
    number = made(ada, prod, night)
    assert bound(db, number) == [(foreign, None), (foreign, dev)]
    exported = export_definition(ada, number).document
    # The project gets a definition of the same name.
    own = made(owner, prod, document("load"))
    for each in (night, exported):
        (again,) = imported(ada, prod, dict(each))
        assert not again.changed
        assert bound(db, number) == [(foreign, None), (foreign, dev)]
    (warned,) = imported(ada, prod, night)
    assert any("stays bound" in str(each) for each in warned.findings)
    content = draft(ada, number).content
    save_draft(
        ada,
        json.dumps({**json.loads(content), "description": "new words"}).encode(),
        number,
        expected="*",
    )
    assert publish_draft(ada, number).rebound == ()
    assert bound(db, number) == [(foreign, None), (foreign, dev)]
    # Naming the project changes the binding. The result, the diff and the audit log show it.
    moved = document(
        "night",
        child(processDefinitionName="load", projectName="prod"),
        waits(definitionName="load"),
    )
    (changed,) = imported(ada, prod, moved)
    assert bound(db, number) == [(own, None), (foreign, dev)]
    sentence = "'child' refers to another definition: dev/load → load"
    assert changed.rebound == (sentence,)
    assert sentence in compare(ada, number).difference.risks
    assert sentence in str(details(db, "definition.import")[-1])
    back = restore(ada, number, 1)
    assert back.rebound == ("'child' refers to another definition: load → dev/load",)
    assert back.rebound[0] in str(details(db, "definition.restore")[-1])
    assert bound(db, number) == [(foreign, None), (foreign, dev)]


def details(db: Engine, action: str) -> list[str | None]:
    line = t.audit_log.c
    with db.connect() as connection:
        return list(
            connection.scalars(select(line.detail).where(line.action == action).order_by(line.id))
        )


def test_x43_a_proposal_shows_the_definitions_of_other_projects_and_is_approved_as_it_was_shown(
    owner: Session, ada: Session, projects: dict[str, int], db: Engine
) -> None:
    dev, prod = projects["dev"], projects["prod"]
    eve = a_member(owner, "eve", prod="admin")
    foreign = made(owner, dev, document("load"))
    own = made(owner, prod, document("load"))
    number = made(ada, prod, document("night", child(processDefinitionName="load")))
    assert bound(db, number) == [(own, None)]
    edit_project(owner, "prod", name=None, description=None, review=True, at=SystemClock().now())
    share(owner, foreign, prod)
    other = document("night", child(processDefinitionName="load", projectName="dev"))
    made_ = propose(ada, number, document=other)
    shown = proposal_detail(eve, made_.id, number)
    sentence = "'child' refers to another definition: load → dev/load"
    assert sentence in shown.difference.risks
    (reference,) = shown.references
    assert (reference.task, reference.starts) == ("child", True)
    assert (reference.project, reference.definition, reference.version) == ("dev", "load", 1)
    # The proposal shows the version that is in force now.
    imported(owner, dev, document("load", {**SHELL, "name": "b"}))
    assert proposal_detail(eve, made_.id, number).references[0].version == 2
    approve(eve, made_.id, number)
    assert bound(db, number) == [(foreign, None)]
    assert sentence in str(details(db, "definition.approve")[-1])
    # A proposal includes the meaning of its names. It is refused after a meaning has changed.
    new = propose(ada, project=prod, document=document("new", child(processDefinitionName="load")))
    with db.begin() as connection:
        connection.execute(
            update(t.process_definition).where(t.process_definition.c.id == own).values(name="gone")
        )
    with pytest.raises(NotAllowedError, match="now mean other definitions"):
        approve(eve, new.id, project=prod)


def test_a_share_is_made_by_admins_with_projects_that_they_see_and_ends_with_its_definition(
    owner: Session, dan: Session, projects: dict[str, int], db: Engine
) -> None:
    dev, prod, lab = projects["dev"], projects["prod"], projects["lab"]
    number = made(owner, dev, document("load"))
    eve = a_member(owner, "eve", dev="author", prod="admin", lab="viewer")
    with pytest.raises(ForbiddenError):
        share(eve, number, prod)
    with pytest.raises(ForbiddenError):
        unshare(eve, number, prod)
    for missing in ("lab", lab, "nowhere", 2**31 - 1):
        with pytest.raises(NotFoundError):
            share(dan, number, missing)
    with pytest.raises(NotFoundError):
        unshare(dan, number, "lab")
    with pytest.raises(NotAllowedError):
        share(dan, number, dev)
    share(dan, number, "prod")
    share(owner, number, "lab")
    assert [(each.project_id, each.project_name) for each in shares(dan, number)] == [
        (prod, "prod"),
        (lab, None),
    ]
    assert [each.user_name for each in shares(eve, number)] == ["dan", None]
    with pytest.raises(NotFoundError):
        shares(a_member(owner, "pam", prod="admin"), number)
    # An admin ends a share with a project that he may not see by the id in the list.
    assert unshare(dan, number, lab).changed
    assert not unshare(dan, number, lab).changed
    assert "with project 'prod'" in str(details(db, "definition.share"))
    delete_definitions(owner, [number], with_instances=False, force=False)
    with db.connect() as connection:
        assert connection.execute(select(t.share)).all() == []


def test_a_definition_is_deleted_unless_its_project_or_a_shared_one_refers_to_it(
    owner: Session, dan: Session, projects: dict[str, int]
) -> None:
    dev, prod = projects["dev"], projects["prod"]
    number = made(owner, dev, document("load"))
    made(owner, prod, document("load"))
    made(owner, prod, document("night", child(processDefinitionName="load")))
    share(owner, number, prod)
    made(owner, prod, document("late", child(processDefinitionName="load", projectName="dev")))
    pam = a_member(owner, "pam", dev="admin")
    with pytest.raises(NotAllowedError, match="of another project") as refused:
        delete_definitions(pam, [number], with_instances=False, force=False)
    assert "late" not in str(refused.value)
    with pytest.raises(NotAllowedError, match="'late'"):
        delete_definitions(dan, [number], with_instances=False, force=False)
    unshare(dan, number, prod)
    delete_definitions(pam, [number], with_instances=False, force=False)


def without(answer: dict[str, Any], number: int, name: str) -> str:
    """Return an answer as text, without the request's values and values that differ each time."""
    for key in ("request_id", "update_time", "revision"):
        answer.pop(key, None)
    return json.dumps(answer).replace(str(number), "N").replace(name, "NAME")


def test_x44_a_missing_and_a_foreign_definition_give_the_same_answer_over_http(
    client: TestClient, owner: Session, ada: Session, projects: dict[str, int], db: Engine
) -> None:
    dev, prod = projects["dev"], projects["prod"]
    with db.begin() as connection:
        # A large id cannot be confused with another number in an answer.
        connection.execute(
            text("SELECT setval(pg_get_serial_sequence('t_ds_process_definition', 'id'), 7654320)")
        )
    foreign = made(owner, dev, document("secret-load"))
    headers = headers_of_known(owner, "ada")
    own = made(ada, prod, document("night"))
    nobody = foreign + 1000

    def answers(number: int, name: str) -> list[tuple[int, str]]:
        found = []
        for task in (
            child(processDefinitionId=number),
            waits(definitionId=number),
            child(processDefinitionName=name),
            waits(definitionName=name),
            waits(definitionName=name, projectName="dev"),
        ):
            body = document("night", task)
            for method, path, given, params in (
                ("POST", "definitions", {**body, "name": "new"}, {"project_id": prod}),
                ("PUT", f"definitions/{own}", body, {}),
                ("POST", f"definitions/{own}/proposals", {"document": body}, {}),
                ("PUT", f"definitions/{own}/draft", body, {}),
                ("POST", f"definitions/{own}/draft/publish", {}, {}),
            ):
                answer = client.request(
                    method,
                    f"{BASE}/{path}",
                    json=given,
                    params=params,
                    headers={**headers, "If-Match": "*"},
                )
                found.append((answer.status_code, without(answer.json(), number, name)))
        for path in ("", "/export", "/versions", "/shares", "/draft", "/proposals"):
            answer = client.get(f"{BASE}/definitions/{number}{path}", headers=headers)
            found.append((answer.status_code, without(answer.json(), number, name)))
        return found

    there, absent = answers(foreign, "secret-load"), answers(nobody, "secret-none")
    assert there == absent
    assert {status for status, _ in there} <= {404, 422, 200}
    assert "secret-load" not in str(there)


def exported(name: str, project: str, *tasks: dict[str, Any]) -> dict[str, Any]:
    inner = {"tasks": list(tasks), "globalParams": [], "tenantId": -1, "timeout": 0}
    return {
        "projectName": project,
        "processDefinitionName": name,
        "processDefinitionJson": json.dumps(inner),
    }


def test_x42_a_code_with_the_code_of_another_project_is_like_a_missing_one(
    owner: Session, ada: Session, projects: dict[str, int], db: Engine
) -> None:
    dev, prod = projects["dev"], projects["prod"]
    foreign = made(owner, dev, document("load"))
    own = made(owner, prod, document("load"))
    share(owner, foreign, prod)
    # Codes as clients of DolphinScheduler send them.
    codes = {dev: 10**13 + 1, prod: 10**13 + 2}
    with db.begin() as connection:
        for number, code in codes.items():
            connection.execute(update(t.project).where(t.project.c.id == number).values(code=code))

    def saved(reference: dict[str, Any]) -> Imported:
        read = read_content(
            json.dumps([exported("night", "x", waits(**reference))]).encode(),
            resources=ada.config.data_dir / "resources",
        )
        (found,) = import_definitions(
            ada,
            read,
            online=False,
            environment={},
            project_id=prod,
            only_new=False,
            own_codes=True,
        )
        return found

    def kept_offline(reference: dict[str, Any]) -> list[str]:
        found = [str(each) for each in saved(reference).findings if each.keeps_offline]
        assert found
        return found

    for number, project in ((foreign, dev), (own, prod)):
        code = {"definitionCode": number, "projectCode": codes[project]}
        assert bound(db, saved(code).id) == [(number, project)]
        name = {"definitionName": "load", "projectCode": codes[project]}
        assert bound(db, made(ada, prod, document("late", waits(**name)))) == [(number, project)]
    nobody = kept_offline({"definitionCode": own + 1000, "projectCode": codes[prod]})
    for project in (codes[dev], 10**13 + 9, dev):
        foreign_one = kept_offline({"definitionCode": own, "projectCode": project})
        assert [each.replace(str(own), "N") for each in foreign_one] == [
            each.replace(str(own + 1000), "N") for each in nobody
        ]
    name = {"definitionName": "load", "projectCode": 10**13 + 9}
    assert "there is no" in refusal(ada, prod, document("late", waits(**name)))


def test_an_export_of_a_whole_project_means_the_project_into_which_it_is_imported(
    owner: Session, projects: dict[str, int], db: Engine
) -> None:
    prod = projects["prod"]
    own = made(owner, prod, document("load"))

    night = exported("night", "etl", waits(definitionName="load", projectName="etl"))
    assert bound(db, made(owner, prod, night)) == [(own, prod)]
    late = exported("late", "etl", waits(definitionName="load", projectName="dwh"))
    (found,) = imported(owner, prod, late)
    (kept,) = [each for each in found.findings if each.keeps_offline]
    assert "in the project 'dwh'" in kept.problem
    assert "(--project), or change projectName" in str(kept)
