"""The operations on tenants, worker groups, environments, pools and alerts over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from common.model.alerts import AlertStatus, AlertType, ShowType
from common.model.concerns import Concern, ConcernKind
from common.store.people.alerts import AlertView
from common.store.people.environments import EnvironmentView
from common.store.people.pools import PoolUse, PoolView
from common.store.people.tenants import TenantView
from common.store.people.worker_groups import WorkerGroupView
from operations.environments import Environment, EnvironmentChange
from operations.tenants import MadeTenant, has_account
from operations.worker_groups import GroupMember, KnownBy, WorkerGroup
from orcaflow.remote.client import Client
from orcaflow.remote.documents import code_of, moment_of

_PAGE: Final = 500


def list_tenants(client: Client) -> list[TenantView]:
    """List the tenants."""
    return [_tenant_of(row) for row in client.pages("/tenants")]


def create_tenant(
    client: Client,
    code: str,
    *,
    queue: str | None,
    description: str | None,
    projects: Sequence[str | int] = (),
) -> MadeTenant:
    """Make a tenant; its account is looked for on this computer."""
    body = {"code": code, "queue": queue, "description": description, "projects": projects}
    made = client.post("/tenants", body)
    return MadeTenant(view=_tenant_of(made), has_account=has_account(made["code"]))


def delete_tenant(client: Client, tenant: str) -> int:
    """Delete a tenant, and return the number of ended runs that named it."""
    (row,) = client.get("/tenants", {"code": tenant})["items"]
    number: int = client.delete(f"/tenants/{row['id']}")["instances"]
    return number


def list_groups(client: Client) -> list[WorkerGroup]:
    """List the worker groups with their living workers."""
    return [_group_of(row) for row in client.pages("/worker-groups")]


def group_given(client: Client, group: str) -> WorkerGroup:
    """Return the worker group of this name."""
    (row,) = client.get("/worker-groups", {"name": group})["items"]
    return _group_of(row)


def create_group(
    client: Client, name: str, *, addresses: Sequence[str], projects: Sequence[str | int] = ()
) -> WorkerGroupView:
    """Make a worker group."""
    body = {"name": name, "addresses": addresses, "projects": projects}
    return _group_view_of(client.post("/worker-groups", body))


def delete_group(client: Client, group: str) -> int:
    """Delete a worker group, and return the number of ended runs that named it."""
    (row,) = client.get("/worker-groups", {"name": group})["items"]
    number: int = client.delete(f"/worker-groups/{row['id']}")["instances"]
    return number


def list_environments(client: Client) -> list[Environment]:
    """List the environments."""
    return [_environment_of(row) for row in client.pages("/environments")]


def environment_given(client: Client, environment: str) -> Environment:
    """Return the environment of this name."""
    (row,) = client.get("/environments", {"name": environment})["items"]
    return _environment_of(row)


def create_environment(
    client: Client,
    name: str,
    *,
    config: str,
    description: str | None,
    worker_groups: Sequence[str],
    code: int | None,
    projects: Sequence[str | int] = (),
) -> Environment:
    """Make an environment."""
    body = {"name": name, "config": config, "description": description, "code": code}
    given = {key: each for key, each in body.items() if each is not None}
    lists = {"worker_groups": worker_groups, "projects": projects}
    return _environment_of(client.post("/environments", {**given, **lists}))


def change_environment(client: Client, environment: str, change: EnvironmentChange) -> Environment:
    """Change an environment."""
    (row,) = client.get("/environments", {"name": environment})["items"]
    body = {
        "name": change.name,
        "config": change.config,
        "description": change.description,
        "worker_groups": change.worker_groups,
    }
    given = {key: each for key, each in body.items() if each is not None}
    return _environment_of(client.patch(f"/environments/{row['id']}", given))


def delete_environment(client: Client, environment: str) -> EnvironmentView:
    """Delete an environment."""
    (row,) = client.get("/environments", {"name": environment})["items"]
    client.delete(f"/environments/{row['id']}")
    return _environment_of(row).view


def list_pools(client: Client) -> list[PoolView]:
    """List the pools by name."""
    return sorted(map(_pool_of, client.pages("/pools")), key=lambda each: each.name)


def pool_given(client: Client, pool: str) -> PoolView:
    """Return the pool of this name with its holders and waiters."""
    return _pool_of(client.get(f"/pools/{_pool_id(client, pool)}"))


def create_pool(
    client: Client,
    name: str,
    *,
    size: int,
    description: str | None,
    projects: Sequence[str | int] = (),
) -> int:
    """Make a pool, and return its id."""
    body = {"name": name, "size": size, "description": description, "projects": projects}
    number: int = client.post("/pools", body)["id"]
    return number


def resize_pool(client: Client, pool: str, *, size: int) -> PoolView:
    """Give a pool another size."""
    return _pool_of(client.patch(f"/pools/{_pool_id(client, pool)}", {"size": size}))


def remove_pool(client: Client, pool: str) -> PoolView:
    """Remove a pool."""
    return _pool_of(client.delete(f"/pools/{_pool_id(client, pool)}"))


def list_alerts(client: Client, *, statuses: Sequence[str] = (), limit: int) -> list[AlertView]:
    """List alerts, a page at a time."""
    found: list[AlertView] = []
    after: str | None = None
    while len(found) < limit:
        page = min(_PAGE, limit - len(found))
        answer = client.get("/alerts", {"status": list(statuses), "limit": page, "after": after})
        found += [_alert_of(row) for row in answer["items"]]
        after = answer["next"]
        if after is None:
            break
    return found


def overview(client: Client, *, limit: int) -> list[Concern]:
    """Return what needs a person."""
    return [
        Concern(
            kind=ConcernKind(row["kind"]),
            since=moment_of(row["since"]),
            **{name: row[name] for name in _OF_CONCERN},
        )
        for row in client.get("/overview", {"limit": limit})["items"]
    ]


_OF_CONCERN: Final = (
    *("id", "name", "process_definition_id", "definition", "project", "count", "reason"),
)


def _tenant_of(row: Mapping[str, Any]) -> TenantView:
    return TenantView(
        id=row["id"],
        code=row["code"],
        name=row["code"],
        description=row["description"],
        queue_id=row["queue_id"],
        queue=row["queue"],
        create_time=datetime.fromisoformat(row["create_time"]),
    )


def _group_view_of(row: Mapping[str, Any]) -> WorkerGroupView:
    return WorkerGroupView(
        id=row["id"],
        name=row["name"],
        addresses=tuple(row["addresses"]),
        create_time=datetime.fromisoformat(row["create_time"]),
    )


def _group_of(row: Mapping[str, Any]) -> WorkerGroup:
    members = row["members"]
    return WorkerGroup(
        view=_group_view_of(row),
        members=None
        if members is None
        else tuple(
            GroupMember(address=each["address"], known_by=KnownBy(each["known_by"]))
            for each in members
        ),
    )


def _environment_of(row: Mapping[str, Any]) -> Environment:
    return Environment(
        view=EnvironmentView(
            id=row["id"],
            code=row["code"],
            name=row["name"],
            config="",
            description=row["description"],
            worker_groups=tuple(row["worker_groups"]),
            create_time=datetime.fromisoformat(row["create_time"]),
            update_time=datetime.fromisoformat(row["update_time"]),
        ),
        config=row["config"],
    )


def _pool_id(client: Client, name: str) -> int:
    (row,) = client.get("/pools", {"name": name})["items"]
    number: int = row["id"]
    return number


def _pool_of(row: Mapping[str, Any]) -> PoolView:
    """A pool; its users are known where the row has them."""
    return PoolView(
        id=row["id"],
        name=row["name"],
        description=row["description"],
        size=row["size"],
        user_id=0,
        used=row["used"],
        waiting=row["waiting"],
        users=tuple(
            PoolUse(
                task_instance_id=each["task_instance_id"],
                task_name=each["task"],
                process_instance_id=each["process_instance_id"],
                slots=each["slots"],
                holds=key == "holders",
                priority=each["priority"],
                since=moment_of(each["since"]),
            )
            for key in ("holders", "waiters")
            for each in row.get(key, ())
        ),
    )


def _alert_of(row: Mapping[str, Any]) -> AlertView:
    return AlertView(
        id=row["id"],
        title=row["title"],
        show_type=code_of(ShowType, row["show_type"]) or 0,
        content=row["content"],
        alert_type=code_of(AlertType, row["alert_type"]) or 0,
        status=code_of(AlertStatus, row["status"]) or 0,
        log=row["log"],
        group_id=row["alertgroup_id"],
        group_name=row["alertgroup"],
        receivers=row["receivers"],
        receivers_cc=row["receivers_cc"],
        create_time=datetime.fromisoformat(row["create_time"]),
        update_time=datetime.fromisoformat(row["update_time"]),
    )


ANSWERS: Final[Mapping[str, Callable[..., Any]]] = {
    "alerts.list_alerts": list_alerts,
    "overview.overview": overview,
    "environments.change_environment": change_environment,
    "environments.create_environment": create_environment,
    "environments.delete_environment": delete_environment,
    "environments.environment_given": environment_given,
    "environments.list_environments": list_environments,
    "pools.create_pool": create_pool,
    "pools.list_pools": list_pools,
    "pools.pool_given": pool_given,
    "pools.remove_pool": remove_pool,
    "pools.resize_pool": resize_pool,
    "tenants.create_tenant": create_tenant,
    "tenants.delete_tenant": delete_tenant,
    "tenants.list_tenants": list_tenants,
    "worker_groups.create_group": create_group,
    "worker_groups.delete_group": delete_group,
    "worker_groups.group_given": group_given,
    "worker_groups.list_groups": list_groups,
}
