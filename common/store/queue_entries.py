"""What a row says about its place in the registry's queue (specification §4.4). Pure.

Adds the word *yield*: what a complement began gives way to all else of the same priority.
"""

from __future__ import annotations

from common.model.cluster import ANY_WORKER, QueueEntry, ip_number
from common.model.commands import CommandType


def queue_hosts(ip_list: str | None) -> str:
    """The addresses of a worker group as a queue entry names them (specification §4.4)."""
    numbers = []
    for address in (ip_list or "").split(","):
        try:
            numbers.append(str(ip_number(address)))
        except ValueError:
            # A host's name can't be told as a number: its workers go by the group's id.
            continue
    return ",".join(numbers) or ANY_WORKER


def effective_group(task_group_id: int, process_group_id: int) -> int:
    """The group that a task is bound to; not above 0 means any worker."""
    return task_group_id if task_group_id > 0 else process_group_id


def is_complement(history_cmd: str | None) -> bool:
    """Whether a run with these commands, the first of which began it, is one of a complement."""
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
) -> QueueEntry:
    """The place in the queue of an attempt whose effective group is `worker_group_id`."""
    bound = worker_group_id > 0
    return QueueEntry(
        process_priority=process_priority,
        process_instance_id=process_instance_id,
        task_priority=task_priority,
        task_instance_id=task_instance_id,
        hosts=queue_hosts(ip_list) if bound else ANY_WORKER,
        worker_group_id=worker_group_id if bound else -1,
        yields=yields,
    )
