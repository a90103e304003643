"""`tasks_queue`: submitted attempts waiting for a worker, named as in contract §4.4.

A claim deletes the entry and creates `tasks_claimed/<entry>`, ephemeral, so that it goes with the
session of the worker that made it; both in one transaction, which several claims may share. Claims
bridge the moment between the queue and the row; whether the worker may start the attempt is decided
by the row alone. A worker that has no competitor takes entries without a claim, since it claims
their rows at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from functools import partial
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from common.model.cluster import Node, QueueEntry
from common.registry.name_set import NameSet
from common.registry.protocol import RegistryUnavailableError
from common.registry.session import Session

FOLDER = "tasks_queue"
CLAIMED_FOLDER = "tasks_claimed"

# Entries in one transaction: far below the megabyte that a server takes.
_AT_ONCE = 500
# Claims in a row of which other workers took nothing, until the rows are claimed meanwhile.
_CLEAN_ENOUGH = 8


class _Outcome(Enum):
    WON = "won"
    BEATEN = "beaten"
    NO_FOLDER = "no folder"


class ZookeeperTaskQueue:
    """The task queue on ZooKeeper."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._queued = NameSet(session, FOLDER)
        self._claimed = NameSet(session, CLAIMED_FOLDER)
        self._clean = _CLEAN_ENOUGH
        """The claims in a row, so far, of which no other worker took anything."""

    def offer(self, entries: Sequence[QueueEntry]) -> None:
        """Put entries in; an entry that is there already is left as it is."""
        self._queued.add([entry.name for entry in entries])

    def offer_soon(self, entries: Sequence[QueueEntry], *, done: Callable[[bool], None]) -> None:
        """Put new entries in without waiting; `done` learns whether all are in."""
        self._queued.add_soon([entry.name for entry in entries], done=done)

    def withdraw(self, entries: Sequence[QueueEntry]) -> None:
        """Take entries out; one that is not there is no error."""
        self._queued.remove([entry.name for entry in entries])

    def entries(self) -> tuple[QueueEntry, ...]:
        """All entries, first to claim first; names that no master wrote are left out."""
        return _parsed(self._queued.names())

    def claim(self, entries: Sequence[QueueEntry], node: Node) -> tuple[QueueEntry, ...]:
        """Take entries for this node; the answers are those that were won, in the order given.

        When ZooKeeper does not answer for one, none is won: what was claimed all the same is given
        up as soon as ZooKeeper answers again, and the master then offers it once more.
        """
        answer = self._sent(entries, node, text=_text(node), at_once=self._clean > 0)
        return answer()

    def take_soon(
        self, entries: Sequence[QueueEntry], node: Node
    ) -> Callable[[], tuple[QueueEntry, ...]] | None:
        """Take entries without waiting and without a claim; None if other workers compete."""
        if self._clean < _CLEAN_ENOUGH:
            return None
        return self._sent(entries, node, text=None, at_once=True)

    def claimed(self) -> frozenset[int]:
        """Task instance ids that are claimed: neither queued nor yet RUNNING in their row."""
        return frozenset(entry.task_instance_id for entry in _parsed(self._claimed.names()))

    def release(self, entries: Sequence[QueueEntry]) -> None:
        """Drop claims without waiting; what can't be dropped now is dropped later."""
        for first in range(0, len(entries), _AT_ONCE):
            several = entries[first : first + _AT_ONCE]
            self._session.take_back_all([self._claimed.path(entry.name) for entry in several])

    def take_out_soon(self, entries: Sequence[QueueEntry]) -> None:
        """Take entries out without waiting; what stays in is seen by the next look."""
        self._session.delete_soon([self._queued.path(entry.name) for entry in entries])

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` after entries may have been added."""
        self._queued.watch(changed, looks_ahead=True)

    def _sent(
        self, entries: Sequence[QueueEntry], node: Node, *, text: bytes | None, at_once: bool
    ) -> Callable[[], tuple[QueueEntry, ...]]:
        """Send the claims, all in one transaction if wanted; return what waits for the answer.

        Without a `text` entries are taken out, and no claims are made.
        """
        self._session.settle()
        # One that is lost to another worker keeps all the others, hence only while none was.
        several = (
            [entries] if at_once and len(entries) <= _AT_ONCE else [[each] for each in entries]
        )
        try:
            with self._session.asking(node) as client:
                requests = [self._transaction(client, some, text) for some in several]
        except RegistryUnavailableError:
            self._take_back_later(entries, text)
            raise
        self._queued.forget_ahead()
        return partial(self._answered, requests, entries, node, text)

    def _answered(
        self,
        requests: Sequence[Any],
        entries: Sequence[QueueEntry],
        node: Node,
        text: bytes | None,
    ) -> tuple[QueueEntry, ...]:
        try:
            with self._session.asking(node) as client:
                results = [self._session.answer(request) for request in requests]
                outcomes = self._outcomes(client, results, entries, text)
        except RegistryUnavailableError:
            self._take_back_later(entries, text)
            raise
        is_clean = all(outcome is _Outcome.WON for outcome in outcomes)
        self._clean = min(self._clean + 1, _CLEAN_ENOUGH) if is_clean else 0
        return tuple(
            entry
            for entry, outcome in zip(entries, outcomes, strict=True)
            if outcome is _Outcome.WON
        )

    def _take_back_later(self, entries: Sequence[QueueEntry], text: bytes | None) -> None:
        for entry in () if text is None else entries:
            self._session.take_back_later(self._claimed.path(entry.name))

    def _outcomes(
        self,
        client: KazooClient,
        results: Sequence[list[Any]],
        entries: Sequence[QueueEntry],
        text: bytes | None,
    ) -> list[_Outcome]:
        """Read the answers; ask again, one by one, for what they leave open."""
        if len(results) == len(entries):
            outcomes = [_outcome(result) for result in results]
        elif not any(isinstance(result, Exception) for result in results[0]):
            return [_Outcome.WON] * len(entries)
        else:
            pending = [self._transaction(client, [entry], text) for entry in entries]
            outcomes = [_outcome(self._session.answer(request)) for request in pending]
        if _Outcome.NO_FOLDER in outcomes:
            folder = self._session.path(CLAIMED_FOLDER)
            self._session.answer(client.ensure_path_async(folder))
            outcomes = [
                _outcome(self._session.answer(self._transaction(client, [entry], text)))
                if outcome is _Outcome.NO_FOLDER
                else outcome
                for entry, outcome in zip(entries, outcomes, strict=True)
            ]
        return outcomes

    def _transaction(
        self, client: KazooClient, entries: Sequence[QueueEntry], text: bytes | None
    ) -> Any:
        transaction = client.transaction()
        for entry in entries:
            transaction.delete(self._queued.path(entry.name))
            if text is not None:
                transaction.create(self._claimed.path(entry.name), text, ephemeral=True)
        return transaction.commit_async()


def _text(node: Node) -> bytes:
    return f"{node.address} {node.incarnation}".encode()


def _parsed(names: Sequence[str]) -> tuple[QueueEntry, ...]:
    entries = (QueueEntry.parse(name) for name in names)
    ours = [entry for entry in entries if entry is not None]
    return tuple(sorted(ours, key=lambda entry: (entry.sort_key, entry.name)))


def _outcome(results: list[Any]) -> _Outcome:
    """Read the answer of one for one entry: what was deleted and created, or why neither was.

    One that makes no claim deletes only.
    """
    deleted, created = results[0], results[-1]
    if not isinstance(created, Exception):
        return _Outcome.WON
    if isinstance(deleted, NoNodeError):
        return _Outcome.BEATEN
    # The entry exists: either no claim was ever made, or one to it is still held.
    return _Outcome.NO_FOLDER if isinstance(created, NoNodeError) else _Outcome.BEATEN
