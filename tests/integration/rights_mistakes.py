"""Mistakes of rights, planted one at a time: a check that lets everybody pass.

A request that was refused is sent again while the check that has refused it does not, and what it
does then is not committed. If it is refused still, by a check further on, that one is opened too:
the first is repeated, and no test can miss it. `undecided` reads all calls of checks in the tree, so
that a new one which no request needs is noticed.
"""

from __future__ import annotations

import ast
import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, wraps
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest
from sqlalchemy import literal, true

from common.errors import NotAllowedError, NotFoundError
from common.model.rights import EVERYTHING
from common.store.people import audit
from common.store.people import rights as store
from operations import rights
from tests.house.tree import ROOT, modules, tree

Frame: TypeAlias = "tuple[str, int]"
"""A file and a line."""
Place: TypeAlias = "tuple[Frame, ...]"
"""A call of a check, and the calls that led there, the innermost first."""

CHECKED: Final = ("operations", "api/dolphinscheduler", "api/druid")
_UNSEEN: Final = frozenset({"operations/rights.py", "operations/session.py"})
_CHECKS: Final = ("seen", "check_administrator", "check_author")
_BY_CHECKS: Final = frozenset(
    {
        *_CHECKS,
        *("administered", "_administered", "definition_given", "instance_with_id", "task_with_id"),
        "dataset_given",
        *("project_given", "definition_in", "check_in", "check_project"),
    }
)
"""The checks, and the functions that others leave it to."""
_FILTERS: Final[dict[str, Callable[..., Any]]] = {
    "seen_projects": lambda _principal, _project: true(),
    "told_seen": lambda _project: true(),
    "actions_in": lambda _principal, _project: literal(int(EVERYTHING)),
    "sees_everything": lambda _db, _principal: True,
    "seen_instances": lambda _db, _principal, ids: frozenset(ids),
}
BY_DOLPHINSCHEDULER: Final = frozenset(
    {
        "api/dolphinscheduler/definitions:_given 1",
        "api/dolphinscheduler/definitions:_given 2",
        "api/dolphinscheduler/runs:execute_task 1",
        "api/dolphinscheduler/tasks:stop",
        "operations/projects:check_in",
        "operations/projects:definition_in",
    }
)
"""The checks that only DolphinScheduler's API needs: its own test shows it."""
BY_DRUID: Final = frozenset({"operations/streams:_all_active"})
"""The checks that only Druid's paths need."""
BY_GATEWAY: Final = frozenset(
    {
        "operations/datasources:list_datasources",
        "operations/python_gateway/stored:keep_resource",
    }
)
BY_OTHERS: Final = (
    BY_DOLPHINSCHEDULER
    | BY_GATEWAY
    | BY_DRUID
    | {
        # test_why_tells_nothing_of_projects_that_are_not_one_s_own
        "operations/control_decisions:_is_seen",
        # test_a_sub_process_of_a_foreign_project_is_shown_to_nobody
        "operations/instances:child_of 2",
        # test_a_run_below_a_foreign_root_is_not_compared_for_users_who_can_t_see_the_root
        "operations/run_versions:compare_with_latest 2",
        # test_a_pool_is_changed_by_its_maker_and_shows_foreign_users_to_nobody
        "operations/pools:_check_owner",
        # test_a_new_object_is_granted_to_projects_where_its_maker_is_an_author
        "operations/grants:grant_new",
        # test_a_pool_is_resized_and_removed_by_its_maker_alone_and_as_it_was_shown
        "operations/pools:check_maker",
        # test_schedules_are_for_authors_and_those_of_foreign_projects_are_missing
        "operations/schedule_drafts:draft_of",
        "operations/schedule_drafts:new_draft",
        # test_a_supervisor_is_its_projects_and_orders_take_rights
        "operations/streams:_check_author",
        # test_a_data_source_tells_who_uses_it_and_no_password
        "operations/datasources:users_of_datasource",
        # test_a_share_is_made_by_admins_with_projects_that_they_see_and_ends_with_its_definition
        "operations/shares:_other_project",
        # test_every_page_answers_every_role_as_its_policy_says, of the console
        "operations/run_plans:plan_run",
        "operations/definition_versions:plan_restore",
        "operations/projects:projects_of_author",
        # test_an_admin_submits_the_supervisors_of_a_project_that_asks_for_a_review
        "operations/reviewing:check_submitter",
        # test_rights_are_those_of_the_topology_s_project
        "operations/topology_submission:_check_author",
    }
)
"""The checks that the requests of the HTTP API's matrix do not need, and other tests do."""
LEFT_OUT_OF_LISTS: Final = frozenset(
    {
        *(f"{word} /api/v1/projects/{{id}}" for word in ("GET", "PATCH", "DELETE")),
        *("GET /api/v1/projects/{id}/members", "POST /api/v1/schedules/simulate", "pools"),
        *(f"GET /api/v1/datasets/{{id}}{part}" for part in ("", "/files", "/rows")),
        *(f"GET /api/v1/{kind}/{{id}}" for kind in ("datasources", "environments", "tenants")),
        "GET /api/v1/worker-groups/{id}",
        *(f"{word} /api/v1/pools/{{id}}" for word in ("GET", "PATCH", "DELETE")),
    }
)
"""Requests whose object is not only checked, but also read from a list of what its user sees."""
_REPEATED: Final = {
    "the operation that is called next asks for the same, or for more": (
        *("api/dolphinscheduler/definitions:export 1", "api/dolphinscheduler/definitions:export 2"),
        *("api/dolphinscheduler/instances:_given", "api/dolphinscheduler/instances:delete_many"),
        *("api/dolphinscheduler/instances:show", "api/dolphinscheduler/instances:show_parent"),
        *("api/dolphinscheduler/instances:show_sub_process", "api/dolphinscheduler/tasks:_given"),
        *("api/dolphinscheduler/runs:start 1", "api/dolphinscheduler/runs:start 2"),
        *("api/dolphinscheduler/runs:start_many", "api/dolphinscheduler/runs:execute"),
        *("api/dolphinscheduler/runs:execute_many", "api/dolphinscheduler/tasks:force"),
        *("api/dolphinscheduler/schedules:_given", "api/dolphinscheduler/tasks:list_page"),
        "api/dolphinscheduler/versions:_given",
        *("api/dolphinscheduler/schedules:create 1", "api/dolphinscheduler/schedules:create 2"),
        *("operations/complementing:create", "operations/definitions:definition_with_code"),
        *("operations/definitions:replace_definition", "operations/instance_commands:recover"),
        *(
            "operations/explaining:causes_of_task_instance",
            "operations/datasources:create_own_datasource",
        ),
        *(
            "operations/instance_commands:_recovery_of",
            "operations/instance_commands:execute_tasks",
        ),
        *("operations/instance_commands:put_commands", "operations/instances:child_of 1"),
        "operations/python_gateway/stored:run",
    ),
    "what is asked for was checked, or made by the caller, a moment ago": (
        *("api/dolphinscheduler/definitions:save", "api/dolphinscheduler/definitions:update"),
        *("api/dolphinscheduler/runs:execute_task 2", "operations/complement_plans:typical_of"),
        "operations/definitions:_rename",
        *("operations/definitions:export_definition", "operations/instance_commands:_is_so"),
        "operations/instances:cells_of",
        *("operations/python_gateway/stored:submit", "operations/tasks:force_success 2"),
        "operations/definition_versions:version_page",
        *("operations/run_changes:changes_since_good", "operations/run_orders:orders_of"),
        "operations/tasks:force_success 3",
    ),
    "the project of the path was found among those that the caller sees, and is the object's": (
        *(
            "api/dolphinscheduler/definitions:generate_codes",
            "api/dolphinscheduler/lists:preference",
        ),
        *("api/dolphinscheduler/schedules:preview", "operations/numbered_pages:check_project"),
        *("api/dolphinscheduler/runs:check_start 1", "api/dolphinscheduler/runs:check_start 2"),
        *(
            "api/dolphinscheduler/instances:list_page 1",
            "api/dolphinscheduler/instances:list_page 2",
        ),
        *(
            "api/dolphinscheduler/schedules:list_page 1",
            "api/dolphinscheduler/schedules:list_page 2",
        ),
        *("operations/numbered_pages:_page", "operations/numbered_pages:runs_of"),
    ),
    "the statement that reads it leaves out what the caller does not see": (
        *("operations/projects:project_detail", "operations/projects:project_page"),
        *("operations/simulating:_views", "operations/tokens:create_token"),
        *("operations/streams:submit_stream", "operations/topology_submission:_check_project"),
    ),
    "the command line alone calls it, for the owner of the database": (
        *("operations/instances:dag_of", "operations/instances:snapshot_of"),
        *("operations/stored_complements:with_id", "operations/purging:purge"),
        "operations/tasks:list_tasks 1",
    ),
}
REPEATED: Final = {name: reason for reason, names in _REPEATED.items() for name in names}
"""The checks that no request needs, with the reason: it is refused, or right, without them too."""


NEEDLESS_FILTERS: Final = {
    **dict.fromkeys(
        ("api/dolphinscheduler/definitions:_named", "operations/python_gateway/stored:_row"),
        "definition_page is asked for a project that was found among those that the caller sees",
    ),
    **dict.fromkeys(
        ("api/dolphinscheduler/instances:list_of_trigger", "api/dolphinscheduler/tasks:list_page"),
        "names and runs are asked for of a command, a complement or attempts of a project"
        " that was just checked, and a run is of their definition",
    ),
}
"""The callers that need no filter of lists below them, with the reason; other callers do."""


@dataclass
class Plants:
    """The checks that were opened: those that a request needs, and those that others repeat."""

    decisive: set[Place] = field(default_factory=set)
    repeated: list[tuple[str, tuple[Place, ...]]] = field(default_factory=list)
    unexplained: list[str] = field(default_factory=list)
    """Requests that are refused by something that is no check."""
    refused: Place | None = None
    """The check that has refused last."""
    opened: tuple[Place, ...] = ()

    def plant(self, request: str, is_refused: Callable[[], bool]) -> None:
        """Send a request again that was just refused, as often as there are checks on its way."""
        still = True
        while still:
            if self.refused is None or self.refused in self.opened:
                self.unexplained.append(request)
                break
            self.opened += (self.refused,)
            self.refused = None
            still = is_refused()
        else:
            if len(self.opened) == 1:
                self.decisive.update(self.opened)
            else:
                self.repeated.append((request, self.opened))
        self.opened, self.refused = (), None

    def undecided(self) -> set[str]:
        """Return the calls of checks without which every request was answered as with them."""
        needed = {frame for place in self.decisive for frame in place}
        return {
            name
            for name, (file, lines) in _calls().items()
            if not any((file, line) in needed for line in lines)
        }


@contextmanager
def planting() -> Iterator[Plants]:
    """Stand beside every check, to open it or to note that it has refused."""
    plants = Plants()
    add_line = audit.add_line

    def noted(db: Any, principal: Any, *, refused: bool, **line: Any) -> None:
        if not plants.opened:
            add_line(db, principal, refused=refused, **line)
        elif not refused:
            raise NotAllowedError("it would have been done")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit, "add_line", noted)
        for name in _CHECKS:
            real = getattr(rights, name)
            _everywhere(patch, real, _beside(plants, real))
        _everywhere(patch, store.is_administrator, _beside(plants, store.is_administrator))
        yield plants


def _beside(plants: Plants, real: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(real)
    def check(db: Any, principal: Any, *asked: Any, **named: Any) -> Any:
        if principal.owns_database:
            return real(db, principal, *asked, **named)
        if plants.opened and _place() in plants.opened:
            return _passed(real, db, principal, asked)
        try:
            found = real(db, principal, *asked, **named)
        except (NotFoundError, NotAllowedError):
            plants.refused = _place()
            raise
        if found is False:
            plants.refused = _place()
        return found

    return check


def _passed(real: Callable[..., Any], db: Any, principal: Any, asked: tuple[Any, ...]) -> Any:
    if real.__name__ != "seen":
        return True
    _, thing, number = asked
    found = store.held(db, principal, thing, number)
    return store.Held(actions=EVERYTHING, project_id=None if found is None else found.project_id)


@contextmanager
def lists_of_everybody() -> Iterator[None]:
    """Let every list have what is in all projects."""
    with pytest.MonkeyPatch.context() as patch:
        for name, everybodys in _FILTERS.items():
            _everywhere(patch, getattr(store, name), everybodys)
        _forget_statements()
        yield
    _forget_statements()


def _everywhere(patch: pytest.MonkeyPatch, real: Any, other: Any) -> None:
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("operations", "api", "common"):
            for attribute, value in list(vars(module).items()):
                # One that was imported meanwhile has kept what stood beside it.
                if value is real or getattr(value, "__wrapped__", None) is real:
                    patch.setattr(module, attribute, other)


def _forget_statements() -> None:
    for name, module in list(sys.modules.items()):
        if name.startswith("common.store.people"):
            for value in list(vars(module).values()):
                if hasattr(value, "cache_clear"):
                    value.cache_clear()


def _place() -> Place:
    found = []
    inner: Any = sys._getframe(2)
    while inner is not None:
        file = inner.f_code.co_filename
        if file.startswith(_FOLDERS):
            name = Path(file).relative_to(ROOT).as_posix()
            if name not in _UNSEEN:
                found.append((name, inner.f_lineno))
        inner = inner.f_back
    return tuple(found)


_FOLDERS: Final = tuple(f"{ROOT / folder}/" for folder in CHECKED)


def functions() -> set[str]:
    """Return the names of all functions that may call a check."""
    return {
        f"{path.relative_to(ROOT).with_suffix('').as_posix()}:{each.name}"
        for path in modules(*CHECKED)
        for each in ast.walk(tree(path))
        if isinstance(each, ast.FunctionDef)
    }


@cache
def _calls() -> dict[str, tuple[str, range]]:
    """Return the calls of checks: the file and the lines of each, by its function and a number."""
    # Garbage of py4j's logs tracebacks as it goes, which parse lines; no tree is made meanwhile.
    gc.disable()
    try:
        return dict(_found_calls())
    finally:
        gc.enable()


def _found_calls() -> Iterator[tuple[str, tuple[str, range]]]:
    for path in modules(*CHECKED):
        file = path.relative_to(ROOT).as_posix()
        if file in _UNSEEN:
            continue
        for function in ast.walk(tree(path)):
            if not isinstance(function, ast.FunctionDef):
                continue
            calls = [
                each
                for each in ast.walk(function)
                if isinstance(each, ast.Call)
                and getattr(each.func, "id", getattr(each.func, "attr", "")) in _BY_CHECKS
            ]
            for number, each in enumerate(sorted(calls, key=lambda call: call.lineno), 1):
                more = f" {number}" if len(calls) > 1 else ""
                name = f"{file.removesuffix('.py')}:{function.name}{more}"
                yield name, (file, range(each.lineno, (each.end_lineno or each.lineno) + 1))
