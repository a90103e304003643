"""The queues of the registry in memory: submitted attempts with their claims, and kills."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from common.model.cluster import KillEntry, Node, QueueEntry
from common.registry.protocol import RegistryUnavailableError
from tests.memory.watches import Watch

if TYPE_CHECKING:
    from tests.memory.registry import MemoryRegistry

TASKS_QUEUE = "tasks_queue"
TASKS_CLAIMED = "tasks_claimed"
TASKS_KILL = "tasks_kill"


class _NameSet:
    def __init__(self, registry: MemoryRegistry, folder: str) -> None:
        self._registry = registry
        self._folder = folder

    def add(self, names: Sequence[str]) -> None:
        for name in names:
            with self._registry.changing(f"add {self._folder}/{name}"):
                if name not in self._registry.server.children(self._folder):
                    self._registry.server.create(self._folder, name, name)

    def remove(self, names: Sequence[str]) -> None:
        for name in names:
            with self._registry.changing(f"remove {self._folder}/{name}"):
                self._registry.server.delete(self._folder, name)

    def names(self) -> list[str]:
        self._registry.request()
        return list(self._registry.server.children(self._folder))

    def watch(self, changed: Callable[[], None]) -> None:
        self._registry.server.watch(
            Watch(
                registry=self._registry, folder=self._folder, additions_only=True, changed=changed
            )
        )


class MemoryTaskQueue:
    """Submitted attempts, and their claims."""

    def __init__(self, registry: MemoryRegistry) -> None:
        self._registry = registry
        self._queued = _NameSet(registry, TASKS_QUEUE)
        self._claimed = _NameSet(registry, TASKS_CLAIMED)
        self._was_beaten = False

    def offer(self, entries: Sequence[QueueEntry]) -> None:
        self._queued.add([entry.name for entry in entries])

    def offer_soon(self, entries: Sequence[QueueEntry], *, done: Callable[[bool], None]) -> None:
        try:
            self.offer(entries)
        except RegistryUnavailableError:
            done(False)
        else:
            done(True)

    def withdraw(self, entries: Sequence[QueueEntry]) -> None:
        self._queued.remove([entry.name for entry in entries])

    def entries(self) -> tuple[QueueEntry, ...]:
        return _parsed(self._queued.names())

    def claim(self, entries: Sequence[QueueEntry], node: Node) -> tuple[QueueEntry, ...]:
        registry = self._registry
        won: list[QueueEntry] = []
        try:
            registry.settle()
            for entry in entries:
                with registry.changing(f"claim {entry.name}", node):
                    is_queued = entry.name in registry.server.children(TASKS_QUEUE)
                    if is_queued and entry.name not in registry.server.children(TASKS_CLAIMED):
                        registry.server.delete(TASKS_QUEUE, entry.name)
                        text = f"{node.address} {node.incarnation}"
                        registry.server.create(TASKS_CLAIMED, entry.name, text, registry.session)
                        won.append(entry)
        except RegistryUnavailableError:
            for entry in entries:
                registry.take_back_later(TASKS_CLAIMED, entry.name)
            raise
        self._was_beaten = len(won) < len(entries)
        return tuple(won)

    def _take(self, entries: Sequence[QueueEntry], node: Node) -> tuple[QueueEntry, ...]:
        registry = self._registry
        won: list[QueueEntry] = []
        for entry in entries:
            with registry.changing(f"claim {entry.name}", node):
                if entry.name in registry.server.children(TASKS_QUEUE):
                    registry.server.delete(TASKS_QUEUE, entry.name)
                    won.append(entry)
        self._was_beaten = len(won) < len(entries)
        return tuple(won)

    def take_soon(
        self, entries: Sequence[QueueEntry], node: Node
    ) -> Callable[[], tuple[QueueEntry, ...]] | None:
        if self._was_beaten:
            return None
        if self._registry.claims_late:
            return partial(self._take, entries, node)
        won: tuple[QueueEntry, ...] | RegistryUnavailableError
        try:
            won = self._take(entries, node)
        except RegistryUnavailableError as error:
            won = error

        def answer() -> tuple[QueueEntry, ...]:
            if isinstance(won, RegistryUnavailableError):
                raise won
            return won

        return answer

    def claimed(self) -> frozenset[int]:
        return frozenset(entry.task_instance_id for entry in _parsed(self._claimed.names()))

    def release(self, entries: Sequence[QueueEntry]) -> None:
        for entry in entries:
            self._registry.take_back(TASKS_CLAIMED, entry.name)

    def take_out_soon(self, entries: Sequence[QueueEntry]) -> None:
        with suppress(RegistryUnavailableError):
            self.withdraw(entries)

    def watch(self, changed: Callable[[], None]) -> None:
        self._queued.watch(changed)


class MemoryKillQueue:
    """Requests to workers to kill attempts."""

    def __init__(self, registry: MemoryRegistry) -> None:
        self._names = _NameSet(registry, TASKS_KILL)

    def ask(self, entries: Sequence[KillEntry]) -> None:
        self._names.add([entry.name for entry in entries])

    def asked(self, address: str) -> tuple[KillEntry, ...]:
        return tuple(entry for entry in self._entries() if entry.address == address)

    def elsewhere(self, address: str) -> tuple[KillEntry, ...]:
        return tuple(entry for entry in self._entries() if entry.address != address)

    def _entries(self) -> list[KillEntry]:
        entries = (KillEntry.parse(name) for name in self._names.names())
        known = [entry for entry in entries if entry is not None]
        return sorted(known, key=lambda entry: entry.task_instance_id)

    def remove(self, entries: Sequence[KillEntry]) -> None:
        self._names.remove([entry.name for entry in entries])

    def watch(self, changed: Callable[[], None]) -> None:
        self._names.watch(changed)


def _parsed(names: Sequence[str]) -> tuple[QueueEntry, ...]:
    entries = (QueueEntry.parse(name) for name in names)
    ours = [entry for entry in entries if entry is not None]
    return tuple(sorted(ours, key=lambda entry: (entry.sort_key, entry.name)))
