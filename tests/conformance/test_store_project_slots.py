"""The projects that runs and attempts are charged to, for the shares of slots."""

from __future__ import annotations

from common.store import tables as t
from tests.conformance.store_tables import Tables, a_definition, a_run, submit


def test_an_attempt_is_charged_to_the_project_at_the_top_of_its_tree(db: Tables) -> None:
    own, shared = a_definition(db, project_id=2), a_definition(db, project_id=3)
    root = a_run(db, process_definition_id=own)
    child = a_run(db, process_definition_id=shared)
    db.update(t.process_instance, child.process_instance_id, root_id=root.process_instance_id)
    orphan = a_run(db, process_definition_id=999)
    (a,), (b,), (c,) = (submit(db, each, "a") for each in (root, child, orphan))
    unknown = (1_999_999_999, 2**70, -1)
    assert db.tasks.projects([a, b, c, *unknown]) == {a: 2, b: 2, c: 0} | dict.fromkeys(unknown, 0)
    assert db.tasks.projects([]) == {}


def test_a_project_without_definitions_is_not_one_of_several(db: Tables) -> None:
    assert not db.tasks.several_projects()
    a_definition(db)
    a_definition(db)
    assert not db.tasks.several_projects()
    a_definition(db, project_id=2)
    assert db.tasks.several_projects()


def test_groups_of_one_project_are_not_used_by_several(db: Tables) -> None:
    a_definition(db)
    group = db.insert(t.worker_group, name="etl")
    assert not db.tasks.several_projects([group])
    assert not db.tasks.several_projects([])
