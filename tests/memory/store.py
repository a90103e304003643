"""The store's protocols in memory, on which the simulator runs the real loops.

Collects the names of one module per subject: the tables and their rows (`rows`), transactions over
them (`database`), and for each port of the master and the worker a store over the database. All is
single-threaded and deterministic: rows are visited in order of id and nothing iterates over a set.
`common.store` and these stores pass one conformance suite.
"""

from __future__ import annotations

from tests.memory.commands import MemoryCommandStore
from tests.memory.complements import MemoryComplementStore
from tests.memory.database import (
    By,
    Change,
    CommitHook,
    MemoryDatabase,
    RowRefusedError,
    Transaction,
)
from tests.memory.dependents import MemoryDependentStore
from tests.memory.failover import MemoryFailoverStore
from tests.memory.holds import MemoryHoldStore
from tests.memory.lock_rows import LockRequestRecord
from tests.memory.retention import MemoryRetentionStore
from tests.memory.rows import (
    EPOCH,
    FAR,
    AlertRecord,
    CommandRecord,
    ComplementDateRecord,
    ComplementRecord,
    DataSourceRecord,
    DefinitionRecord,
    ErrorCommandRecord,
    FireRecord,
    LedgerRecord,
    PoolQueueRecord,
    PoolRecord,
    ProcessRecord,
    QueueRecord,
    Record,
    RelationRecord,
    Rows,
    ScheduleRecord,
    TaskRecord,
    TenantRecord,
    UserRecord,
    WorkerGroupRecord,
)
from tests.memory.runs import MemoryRunStore
from tests.memory.schedules import MemoryScheduleStore
from tests.memory.tasks import MemoryTaskStore
from tests.memory.timeouts import MemoryTimeoutStore

__all__ = [
    "EPOCH",
    "FAR",
    "AlertRecord",
    "By",
    "Change",
    "CommandRecord",
    "CommitHook",
    "ComplementDateRecord",
    "ComplementRecord",
    "DataSourceRecord",
    "DefinitionRecord",
    "ErrorCommandRecord",
    "FireRecord",
    "LedgerRecord",
    "MemoryCommandStore",
    "MemoryComplementStore",
    "MemoryDatabase",
    "MemoryDependentStore",
    "MemoryFailoverStore",
    "MemoryHoldStore",
    "MemoryRetentionStore",
    "MemoryRunStore",
    "MemoryScheduleStore",
    "MemoryTaskStore",
    "MemoryTimeoutStore",
    "LockRequestRecord",
    "PoolQueueRecord",
    "PoolRecord",
    "ProcessRecord",
    "QueueRecord",
    "Record",
    "RelationRecord",
    "RowRefusedError",
    "Rows",
    "ScheduleRecord",
    "TaskRecord",
    "TenantRecord",
    "Transaction",
    "UserRecord",
    "WorkerGroupRecord",
]
