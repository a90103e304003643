"""The methods of the gateway's entry point: their names, and the arguments of each release.

Releases from 3.1 to 4.1 differ in names, in numbers of arguments and in their order; what comes
here is one call of a `Gateway`, which either asks a database or takes notes. Whoever calls is
known by the token: the names of users among the arguments are passed over.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Protocol, TypeAlias

from common.py4j.wire import Thing, Value
from operations.errors import UsageError
from operations.python_gateway.submissions import Submission

Argument: TypeAlias = str | int | bool | float | None

VERSION: Final = "3.2.2"
"""The release whose gateway this one is like: clients compare it with what they know."""


class Gateway(Protocol):
    """The questions and requests of a file of pydolphinscheduler."""

    def user(self) -> Thing:
        """The user who asks, with `id` and `userName`."""
        ...

    def tenant(self, code: str) -> Thing:
        """A tenant with `id` and `tenantCode`; none is made."""
        ...

    def need_project(self, name: str, description: str | None) -> None:
        """Make sure that there is a project."""
        ...

    def task_code(self, project: str, definition: str, task: str) -> int:
        """The code of a task, that of before if it has one."""
        ...

    def environment(self, name: str) -> int:
        """The code of an environment."""
        ...

    def keep_resource(self, name: str, content: str) -> Thing:
        """Write a file for the tasks of the user."""
        ...

    def resource(self, name: str) -> str:
        """The path at which tasks find a resource."""
        ...

    def datasource(self, name: str, kind: str | None) -> Thing:
        """A data source with `id`, `name` and `type`, without its password."""
        ...

    def definition(self, project: str, name: str) -> Mapping[str, int | str]:
        """A definition: its `id`, `code`, `name`, and `projectCode`."""
        ...

    def task_of(self, project: str, definition: str, task: str) -> int:
        """The code of a task of a definition that is there."""
        ...

    def submit(self, given: Submission) -> int:
        """Save a definition with its schedule, and return its code."""
        ...

    def run(self, project: str, definition: str, *, worker_group: str, warning_type: str) -> None:
        """Begin a run of a definition."""
        ...


class Caller:
    """An entry point: finds the method of a call by its name and the number of its arguments."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway

    def call(self, method: str, arguments: Sequence[Argument]) -> Value:
        """Carry a method out."""
        known = METHODS.get(method)
        if known is None:
            raise UsageError(
                "method",
                f"there is no method {method!r:.100} here: users, tenants and projects are managed"
                " by `orcaflow`",
            )
        counts, carry_out = known
        if len(arguments) not in counts:
            wanted = " or ".join(map(str, counts))
            raise UsageError("method", f"{method} takes {wanted} arguments, not {len(arguments)}")
        return carry_out(self._gateway, _Given(method, arguments))


class _Given:
    """The arguments of a call, read by their types."""

    def __init__(self, method: str, values: Sequence[Argument]) -> None:
        self._method = method
        self.values = values

    def text(self, index: int) -> str:
        found = self.values[index]
        if not isinstance(found, str):
            raise self._wrong(index, "a text")
        return found

    def words(self, index: int) -> str | None:
        """Return a text that may be null or empty, as None."""
        return self.text(index) or None if self.values[index] is not None else None

    def number(self, index: int) -> int:
        found = self.values[index]
        if isinstance(found, bool) or not isinstance(found, int):
            raise self._wrong(index, "a whole number")
        return found

    def _wrong(self, index: int, wanted: str) -> UsageError:
        return UsageError("arguments", f"argument {index + 1} of {self._method} must be {wanted}")


def _version(_gateway: Gateway, _given: _Given) -> Value:
    return VERSION


def _code_and_version(gateway: Gateway, given: _Given) -> Value:
    code = gateway.task_code(given.text(0), given.text(1), given.text(2))
    return Thing(fields={"code": code, "version": 1}, is_map=True)


def _user(gateway: Gateway, _given: _Given) -> Value:
    return gateway.user()


def _tenant(gateway: Gateway, given: _Given) -> Value:
    return gateway.tenant(given.text(0))


def _grant(_gateway: Gateway, _given: _Given) -> Value:
    return None  # Tenants belong to nobody here.


def _project(gateway: Gateway, given: _Given) -> Value:
    gateway.need_project(given.text(1), given.words(2))
    return None


def _environment(gateway: Gateway, given: _Given) -> Value:
    return gateway.environment(given.text(0))


def _keep_resource(gateway: Gateway, given: _Given) -> Value:
    return gateway.keep_resource(given.text(1), given.text(len(given.values) - 1))


def _program(gateway: Gateway, given: _Given) -> Value:
    """A jar or a script. Its path is its id, which the client puts into the task."""
    path = gateway.resource(given.text(len(given.values) - 1))
    return Thing(fields={"id": path, "name": path}, is_map=True)


def _file(gateway: Gateway, given: _Given) -> Value:
    path = gateway.resource(given.text(1))
    return Thing(fields={"id": path, "fullName": path, "fileName": path})


def _datasource(gateway: Gateway, given: _Given) -> Value:
    kind = given.words(1) if len(given.values) == 2 else None
    return gateway.datasource(given.text(0), kind)


def _datasource_map(gateway: Gateway, given: _Given) -> Value:
    found = gateway.datasource(given.text(0), None)
    kind = found.fields["type"]["descp"].upper()
    return Thing(fields={"id": found.fields["id"], "type": kind}, is_map=True)


def _dependent(gateway: Gateway, given: _Given) -> Value:
    project, definition, task = given.text(0), given.text(1), given.words(2)
    found = gateway.definition(project, definition)
    code = 0 if task is None else gateway.task_of(project, definition, task)
    fields = {
        "projectCode": found["projectCode"],
        "processDefinitionCode": found["code"],
        "taskDefinitionCode": code,
    }
    return Thing(fields=fields, is_map=True)


def _definition(gateway: Gateway, given: _Given) -> Value:
    return Thing(fields=gateway.definition(given.text(1), given.text(2)), is_map=True)


def _submit(gateway: Gateway, given: _Given) -> Value:
    # From 4.0 on the switch of the schedule stands before the kind of warning; until then the
    # tenant stood behind the worker group.
    is_late = not isinstance(given.values[6], str)
    warning = 7 if is_late else 6
    tenant = None if is_late else given.words(10)
    return gateway.submit(
        Submission(
            project=given.text(1),
            name=given.text(2),
            description=given.words(3) or "",
            global_params=given.words(4) or "[]",
            schedule=given.words(5),
            schedule_online=bool(given.values[6]) if is_late else True,
            warning_type=given.words(warning) or "NONE",
            warning_group_id=given.number(warning + 1),
            timeout=given.number(warning + 2),
            worker_group=given.words(warning + 3) or "",
            tenant=tenant,
            online=given.number(11) != 0,
            relations=given.text(12),
            tasks=given.text(13),
            execution_type=given.words(15) or "",
        )
    )


def _run(gateway: Gateway, given: _Given) -> Value:
    if given.words(3) is not None:
        raise UsageError(
            "cronTime", "a run for other dates is a complement: `orcaflow complement run`"
        )
    group = given.words(4) or ""
    warning = given.words(5) or "NONE"
    gateway.run(given.text(1), given.text(2), worker_group=group, warning_type=warning)
    return None


_Method: TypeAlias = "tuple[tuple[int, ...], Callable[[Gateway, _Given], Value]]"
METHODS: Final[Mapping[str, _Method]] = {
    "getGatewayVersion": ((0,), _version),
    "getCodeAndVersion": ((3,), _code_and_version),
    "createUser": ((7,), _user),
    "createTenant": ((3,), _tenant),
    "grantTenantToUser": ((2,), _grant),
    "createOrGrantProject": ((3,), _project),
    "getEnvironmentInfo": ((1,), _environment),
    "createOrUpdateResource": ((3, 4), _keep_resource),
    "getResourcesFileInfo": ((1, 2), _program),
    "queryResourcesFileInfo": ((2,), _file),
    "getDatasource": ((1, 2), _datasource),
    "getDatasourceInfo": ((1,), _datasource_map),
    "getDependentInfo": ((3,), _dependent),
    "getWorkflowInfo": ((3,), _definition),
    "getProcessDefinitionInfo": ((3,), _definition),
    "createOrUpdateWorkflow": ((16,), _submit),
    "createOrUpdateProcessDefinition": ((16,), _submit),
    "execWorkflowInstance": ((6, 8), _run),
    "execProcessInstance": ((6, 8), _run),
}
"""Each name with its numbers of arguments: fifteen methods, four of which have two names."""
