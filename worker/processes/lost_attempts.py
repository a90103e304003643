"""Ends the processes of attempts that were given up while nobody could end them.

A daemon that dies, freezes or is cut off from everything leaves its processes beside the attempts
that replace theirs. Their rows keep the mark `lost_at` until somebody on this host has seen that no
process is left. Any worker of the host may do that, and the warden (`worker.warden`) where there is
none. No threads and no time of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from common.store.worker.ports import TaskStore
from worker.processes.attempt_processes import belonging, kill_exactly, scan

log = logging.getLogger(__name__)


def end_lost(store: TaskStore, host: str, *, spared: Collection[int] = ()) -> int:
    """Kill what is left of the host's lost attempts; return the number of attempts it was of.

    `spared` are ended by others. What is found gone loses its mark, and only what was looked for.
    """
    lost = {task_id: path for task_id, path in store.lost(host).items() if task_id not in spared}
    if not lost:
        return 0
    found = belonging(scan(), paths={path: task_id for task_id, path in lost.items()}, sessions={})
    for task_id, processes in found.items():
        log.warning(
            "processes of a lost attempt are killed",
            extra={"task_instance_id": task_id, "pids": [each.pid for each in processes]},
        )
        for each in processes:
            kill_exactly(each)
    gone = [task_id for task_id in lost if task_id not in found]
    if gone:
        store.found_gone(host, gone)
    return len(found)
