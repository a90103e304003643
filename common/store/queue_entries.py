"""The place of an attempt in the registry's queue, from its rows (contract §4.4). Does no I/O.

Adds the word *yield*: attempts of complements give way to all others of the same priority. Used by
every side of the store.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import func

from common.model.cluster import ANY_WORKER, QueueEntry, ip_number
from common.model.commands import CommandType
from common.store.tables import process_instance

# The same as `is_complement`, as a condition on the row of the process instance.
IS_COMPLEMENT: Final = (
    func.split_part(func.coalesce(process_instance.c.history_cmd, ""), ",", 1)
    == CommandType.COMPLEMENT_DATA.name
)


def queue_hosts(ip_list: str | None) -> str:
    """Return the addresses of a worker group in the form of a queue entry (contract §4.4)."""
    numbers = []
    for address in (ip_list or "").split(","):
        try:
            numbers.append(str(ip_number(address)))
        except ValueError:
            # A host name has no number: its workers are matched by the id of the group.
            continue
    return ",".join(numbers) or ANY_WORKER


def effective_group(task_group_id: int, process_group_id: int) -> int:
    """Return the group that a task is bound to; 0 or less means any worker."""
    return task_group_id if task_group_id > 0 else process_group_id


def is_complement(history_cmd: str | None) -> bool:
    """True for a run that a complement began: its first command says so."""
    return (history_cmd or "").partition(",")[0] == CommandType.COMPLEMENT_DATA.name


def queue_entry(
    *,
    process_priority: int,
    process_instance_id: int,
    task_priority: int,
    task_instance_id: int,
    worker_group_id: int,
    ip_list: str | None,
    yields: bool,
    worker: str | None = None,
) -> QueueEntry:
    """Return the queue entry of an attempt whose effective group is `worker_group_id`.

    Of one for which a `worker` was chosen, that one's alone.
    """
    bound = worker_group_id > 0 and not worker
    return QueueEntry(
        process_priority=process_priority,
        process_instance_id=process_instance_id,
        task_priority=task_priority,
        task_instance_id=task_instance_id,
        hosts=queue_hosts(ip_list) if bound else ANY_WORKER,
        worker_group_id=worker_group_id if bound else -1,
        yields=yields,
        worker=worker or "",
    )
