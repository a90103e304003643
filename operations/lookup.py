"""Finds rows, nodes and states by the names and ids that people give.

A name that is not there is an error that proposes one that is.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from enum import IntEnum
from typing import TYPE_CHECKING

from common.errors import NotFoundError
from common.model.rights import Action, Principal
from operations.errors import UnownedDatasetError, UsageError
from operations.naming import MOST_CANDIDATES, Candidate, check_one, id_in

if TYPE_CHECKING:
    from common.store.connect import Connection
    from common.store.people.datasets import DatasetRow
    from common.store.people.definitions import DefinitionRow
    from common.store.people.views import ProcessInstanceView, TaskInstanceView


def definition_named(
    db: Connection, principal: Principal, given: str, *, takes_ids: bool = True
) -> DefinitionRow:
    """The only definition of this name that the principal sees, else the one with this id.

    `AmbiguousNameError` for several. The principal is already limited to the chosen project. Pass
    `takes_ids=False` if a number would be the id of another kind of object.
    """
    from common.store.people.definitions import (
        definition_by_id,
        definition_names,
        definition_page,
    )

    # PostgreSQL takes no NUL, and so has no row with one.
    same = (
        definition_page(db, principal, name=given, limit=MOST_CANDIDATES)
        if "\0" not in given
        else []
    )
    check_one(given, candidates_of(same))
    if same:
        return same[0]
    number = id_in(given) if takes_ids else None
    if number is not None:
        seen_one = definition_page(db, principal, after=number - 1, limit=1)
        found = definition_by_id(db, number)
        if seen_one and found is not None and seen_one[0].id == found.id:
            return found
    near = difflib.get_close_matches(given, definition_names(db, principal), n=1)
    perhaps = f"; did you mean {near[0]!r}?" if near else "; see `orcaflow definition list`"
    raise NotFoundError(f"there is no process definition {given!r}{perhaps}")


def candidates_of(rows: Sequence[DefinitionRow]) -> list[Candidate]:
    """List the definitions of one name for an error text."""
    return [
        Candidate(id=each.id, name=each.name, project=each.project_name or str(each.project_id))
        for each in rows
    ]


def definition_given(
    db: Connection, principal: Principal, action: Action, given: str | int
) -> DefinitionRow:
    """The definition of this id, which the principal may do this to, or of this name.

    Names are for the owner of the database alone: among them one could look for foreign ones.
    """
    from common.store.people.definitions import definition_by_id
    from common.store.people.rights import Thing
    from operations.rights import seen

    if isinstance(given, str) and principal.owns_database:
        return definition_named(db, principal, given)
    number = given if isinstance(given, int) else 0
    seen(db, principal, action, Thing.DEFINITION, number)
    found = definition_by_id(db, number)
    if found is None:
        raise NotFoundError(
            f"there is no process definition {given}; see `orcaflow definition list`"
        )
    return found


def dataset_given(db: Connection, principal: Principal, action: Action, name: str) -> DatasetRow:
    """Return the dataset of this name, which the principal may do this to.

    `NotFoundError` for a foreign dataset too. `UnownedDatasetError` if the dataset does not belong
    to a project and the principal may see it.
    """
    from common.model.lock_needs import is_dataset_name
    from common.store.people.datasets import dataset_named, sees_unowned
    from common.store.people.rights import Thing
    from operations.rights import missing, seen

    found = dataset_named(db, name) if is_dataset_name(name) else None
    if found is not None:
        seen(db, principal, action, Thing.DATASET, found.id, given=name)
        return found
    if is_dataset_name(name) and sees_unowned(db, principal, name):
        raise UnownedDatasetError(
            f"dataset {name!r} does not belong to a project, so it can't be shared: first submit a"
            " supervisor for it (orcaflow stream submit)"
        )
    raise missing(Thing.DATASET, name)


def instance_with_id(
    db: Connection,
    principal: Principal,
    process_instance_id: int,
    *,
    action: Action = Action.VIEW,
) -> ProcessInstanceView:
    """The instance, which the principal may do this to; `NotFoundError` for a foreign one too."""
    from common.store.people.rights import Thing
    from common.store.people.views import process_instance_by_id
    from operations.rights import seen

    seen(db, principal, action, Thing.INSTANCE, process_instance_id)
    found = process_instance_by_id(db, process_instance_id)
    if found is None:
        raise no_instance(process_instance_id)
    return found


def no_instance(process_instance_id: int) -> NotFoundError:
    """The error for an instance that does not exist."""
    return NotFoundError(
        f"there is no process instance {process_instance_id}; see `orcaflow instance list`"
    )


def task_with_id(
    db: Connection,
    principal: Principal,
    task_instance_id: int,
    *,
    action: Action = Action.VIEW,
) -> TaskInstanceView:
    """The attempt, which the principal may do this to; `NotFoundError` for a foreign one too."""
    from common.store.people.rights import Thing
    from common.store.people.views import task_instance_by_id
    from operations.rights import seen

    seen(db, principal, action, Thing.TASK, task_instance_id)
    found = task_instance_by_id(db, task_instance_id)
    if found is None:
        raise NotFoundError(
            f"there is no task instance {task_instance_id}; see `orcaflow task list`"
        )
    return found


def worker_group_named(db: Connection, name: str, project_id: int) -> int:
    """Return the id of a worker group that the project may use; -1 for `default`."""
    from common.model.grants import GrantKind
    from operations.grants import Granted
    from operations.references import DEFAULT_WORKER_GROUP

    if name == DEFAULT_WORKER_GROUP:
        return -1
    return Granted(db, project_id).number_of(GrantKind.WORKER_GROUP, name)


def environment_named(db: Connection, given: str | int, project_id: int) -> int:
    """Return the code of an environment that the project may use, given its name or code.

    The environment can't be deleted until the transaction ends, and a later deletion sees the rows
    that this transaction stores with it.
    """
    from common.model.grants import GrantKind
    from common.store.people.environments import hold_environments
    from operations.grants import Granted

    hold_environments(db)
    return Granted(db, project_id).number_of(GrantKind.ENVIRONMENT, given)


def nodes_named(process_json: str, names: str, *, owner: str, field: str) -> list[str]:
    """The tasks of a comma list, each of which must be there: a master would leave out others.

    `field` is the parameter that a usage error names.
    """
    from common.model.definitions import read_process_json
    from common.task_types import known_task_types

    graph = read_process_json(process_json, task_types=known_task_types())
    asked = [name.strip() for name in names.split(",") if name.strip()]
    if not asked:
        raise UsageError(field, "names no task")
    for name in asked:
        if name not in graph.nodes:
            near = difflib.get_close_matches(name, list(graph.nodes), n=1)
            perhaps = f"; did you mean {near[0]!r}?" if near else ""
            raise NotFoundError(f"{owner} has no task {name!r:.200}{perhaps}")
    return asked


def state_named(kind: type[IntEnum], text: str) -> int:
    """The code of a state by its name, in any case; a usage error lists the names."""
    codes = {member.name: int(member) for member in kind}
    code = codes.get(text.upper().replace("-", "_"))
    if code is None:
        raise UsageError(
            "state",
            f"{text!r} is no state; known are {', '.join(name.lower() for name in codes)}",
        )
    return code
