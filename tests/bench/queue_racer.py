"""A worker of `queue.py`: claims entries beside others until there are none, and tells how many.

`python -m tests.bench.queue_racer HOSTS ROOT NUMBER`, with the credential in the first line of
standard input. It answers `ready`, waits for a second line, and prints the entries that it won.
"""

from __future__ import annotations

import sys

from common.clock import SystemClock
from common.model.cluster import NodeKind
from common.registry.config import RegistryConfig
from common.registry.connect import connect

BATCH = 20


def main(hosts: str, root: str, number: str) -> int:
    digest = sys.stdin.readline().strip()
    registry = connect(RegistryConfig(hosts=hosts, root=root, digest=digest), clock=SystemClock())
    try:
        node = registry.membership.join(NodeKind.WORKER, f"racer{number}:1", "")
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()
        won = 0
        while entries := registry.task_queue.entries():
            for first in range(0, len(entries), BATCH):
                mine = registry.task_queue.claim(entries[first : first + BATCH], node)
                registry.task_queue.release(mine)
                won += len(mine)
                if not mine:
                    break  # Others were there before: look again.
        sys.stdout.write(f"{won}\n")
        registry.membership.leave()
    finally:
        registry.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
