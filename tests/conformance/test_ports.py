"""Both stores implement every port in full: on PostgreSQL and in memory."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from common.store.master import ports as master_ports
from common.store.master.commands import PostgresCommandStore
from common.store.master.complement_progress import PostgresComplementStore
from common.store.master.dependents import PostgresDependentStore
from common.store.master.failover import PostgresFailoverStore
from common.store.master.holds import PostgresHoldStore
from common.store.master.runs import PostgresRunStore
from common.store.master.schedules import PostgresScheduleStore
from common.store.master.supervisor_ports import SupervisorStore
from common.store.master.supervisors import PostgresSupervisorStore
from common.store.master.timeouts import PostgresTimeoutStore
from common.store.worker import ports as worker_ports
from common.store.worker.stream_tasks import PostgresStreamTasks
from common.store.worker.tasks import PostgresTaskStore
from common.store.worker.topologies import PostgresTopologies
from tests.memory.store import (
    MemoryCommandStore,
    MemoryComplementStore,
    MemoryDependentStore,
    MemoryFailoverStore,
    MemoryHoldStore,
    MemoryRunStore,
    MemoryScheduleStore,
    MemoryTaskStore,
    MemoryTimeoutStore,
)
from tests.memory.streams import MemoryStreamTasks, MemorySupervisorStore
from worker.datasets.orders import StreamTasks
from worker.datasets.topologies import Topologies

STORES = (
    PostgresCommandStore,
    PostgresComplementStore,
    PostgresDependentStore,
    PostgresFailoverStore,
    PostgresHoldStore,
    PostgresRunStore,
    PostgresScheduleStore,
    PostgresTaskStore,
    PostgresTimeoutStore,
    MemoryCommandStore,
    MemoryComplementStore,
    MemoryDependentStore,
    MemoryFailoverStore,
    MemoryHoldStore,
    MemoryRunStore,
    MemoryScheduleStore,
    MemoryTaskStore,
    MemoryTimeoutStore,
)
PORTS = [
    port
    for module in (master_ports, worker_ports)
    for name, port in inspect.getmembers(module, inspect.isclass)
    if name.endswith("Store") and port.__module__ == module.__name__
]


def methods(port: type[Any]) -> dict[str, Any]:
    return {
        name: method
        for name, method in vars(port).items()
        if inspect.isfunction(method) and not name.startswith("_")
    }


@pytest.mark.parametrize("port", PORTS, ids=lambda port: str(port.__name__))
def test_each_port_is_implemented_on_postgresql_and_in_memory(port: type[Any]) -> None:
    assert [store.__name__ for store in STORES if port in store.__mro__] == [
        f"Postgres{port.__name__}",
        f"Memory{port.__name__}",
    ]


# A method that is missing would be inherited from the protocol, whose bodies return None.
@pytest.mark.parametrize("store", STORES, ids=lambda store: str(store.__name__))
def test_a_store_has_every_method_of_its_port_with_the_same_parameters(store: type[Any]) -> None:
    [port] = [port for port in PORTS if port in store.__mro__]
    assert methods(port)
    for name, method in methods(port).items():
        own = vars(store).get(name)
        assert own is not None, name
        assert list(inspect.signature(own).parameters) == list(inspect.signature(method).parameters)


@pytest.mark.parametrize(
    ("port", "stores"),
    [
        (SupervisorStore, (PostgresSupervisorStore, MemorySupervisorStore)),
        (StreamTasks, (PostgresStreamTasks, MemoryStreamTasks)),
        (Topologies, (PostgresTopologies,)),
    ],
)
def test_a_port_of_streams_or_topologies_is_implemented_in_full(
    port: type[Any], stores: tuple[type[Any], ...]
) -> None:
    assert methods(port)
    for store in stores:
        for name, method in methods(port).items():
            own = vars(store).get(name)
            assert own is not None, f"{store.__name__}.{name}"
            parameters = list(inspect.signature(method).parameters)
            assert list(inspect.signature(own).parameters) == parameters
