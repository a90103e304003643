"""A folder of persistent znodes that consist of their names, with change notifications.

The folder's own znode is the *change-notification znode*: adding names writes it in the same
transaction, which fires the watches on it. So a watch costs the same however many names there are,
and removing names fires none. Whoever watches may have the names *looked up ahead*: the request for
them goes out as the watch fires, before the one who wants them is awake to ask.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from threading import Lock
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError

from common.registry.protocol import RegistryUnavailableError
from common.registry.session import Session, WatchKind

# Names in one request: far below the megabyte that a server takes.
_AT_ONCE = 500
# More names than that are not looked up ahead, since they might not be wanted.
_FEW = 100
# A former look ahead shows names that others have taken meanwhile.
_FRESH_SECONDS = 0.05


class _Outcome(Enum):
    CREATED = "created"
    EXISTED = "existed"
    NO_FOLDER = "no folder"


@dataclass(frozen=True, slots=True)
class _Ahead:
    """A request for the names, and the time at which it was sent."""

    pending: Any
    sent: float


class NameSet:
    """The names in one folder. Adding and removing are pipelined and idempotent."""

    def __init__(self, session: Session, folder: str) -> None:
        self._session = session
        self._folder = session.path(folder)
        self._changes_znode = self._folder
        self._lock = Lock()
        self._ahead: _Ahead | None = None
        self._may_look_ahead = False
        """The last look was asked for and found few names: so one ahead of the next is allowed."""

    def add(self, names: Sequence[str]) -> None:
        """Add names and notify watchers; a name that exists already is left as it is."""
        for first in range(0, len(names), _AT_ONCE):
            self._add(names[first : first + _AT_ONCE])

    def add_soon(self, names: Sequence[str], *, done: Callable[[bool], None]) -> None:
        """Add new names in one transaction without waiting; `done` learns whether all are there."""
        if len(names) > _AT_ONCE:
            done(False)
            return

        def answered(request: Any) -> None:
            done(request.exception is None and _outcome(request.value) is _Outcome.CREATED)

        try:
            with self._session.asking() as client:
                self._creation(client, names).rawlink(answered)
        except RegistryUnavailableError:
            done(False)

    def remove(self, names: Sequence[str]) -> None:
        """Remove names; a missing one is no error."""
        for first in range(0, len(names), _AT_ONCE):
            with self._session.asking() as client:
                pending = [
                    client.delete_async(self.path(name)) for name in names[first : first + _AT_ONCE]
                ]
                for request in pending:
                    try:
                        self._session.answer(request)
                    except NoNodeError:
                        continue

    def names(self) -> list[str]:
        """Return all names, in no order."""
        with self._lock:
            ahead, self._ahead = self._ahead, None
        is_fresh = ahead is not None and self._session.now() - ahead.sent < _FRESH_SECONDS
        with self._session.asking() as client:
            pending = (
                ahead.pending
                if ahead is not None and is_fresh
                else client.get_children_async(self._folder)
            )
            try:
                names = list(self._session.answer(pending))
            except NoNodeError:
                names = []
        self._may_look_ahead = len(names) <= _FEW
        return names

    def watch(self, changed: Callable[[], None], *, looks_ahead: bool = False) -> None:
        """Call `changed` after names may have been added; with a look ahead, if wanted."""

        def look_ahead() -> None:
            self._look_ahead()
            changed()

        self._session.watch(
            self._changes_znode, WatchKind.NODE, look_ahead if looks_ahead else changed
        )

    def forget_ahead(self) -> None:
        """Forget the look ahead: it shows names that have been removed since."""
        with self._lock:
            self._ahead = None

    def _look_ahead(self) -> None:
        """Called on the registry's thread, which must not wait."""
        with self._lock:
            # A former one does not show what has been added now.
            self._ahead = None
            if not self._may_look_ahead:
                return
            # Until it has been asked for: who has no use for it pays for one at most.
            self._may_look_ahead = False
            pending = self._session.children_soon(self._folder)
            if pending is not None:
                self._ahead = _Ahead(pending, self._session.now())

    def path(self, name: str) -> str:
        """Return the path of a name."""
        return f"{self._folder}/{name}"

    def _add(self, names: Sequence[str]) -> None:
        with self._session.asking() as client:
            # Mostly all are new: then one transaction is enough, which is several times faster.
            if self._answered(self._creation(client, names)) is _Outcome.CREATED:
                return
            missing = self._create_each(client, names)
            if missing:
                # The folder was never there, or was wiped.
                self._session.answer(client.ensure_path_async(self._folder))
                missing = self._create_each(client, missing)
        if missing:
            raise self._session.unavailable(f"{self._folder} is being wiped")

    def _create_each(self, client: KazooClient, names: Sequence[str]) -> list[str]:
        """Create missing names one by one; return those that failed for want of the folder."""
        pending = [(name, self._creation(client, [name])) for name in names]
        outcomes = [(name, self._answered(request)) for name, request in pending]
        return [name for name, outcome in outcomes if outcome is _Outcome.NO_FOLDER]

    def _creation(self, client: KazooClient, names: Sequence[str]) -> Any:
        # One name goes as a transaction too: kazoo answers a plain `create` through another thread.
        transaction = client.transaction()
        for name in names:
            transaction.create(self.path(name), name.encode())
        transaction.set_data(self._changes_znode, b"")
        return transaction.commit_async()

    def _answered(self, request: Any) -> _Outcome:
        outcome = _outcome(self._session.answer(request))
        if isinstance(outcome, KazooException):
            raise outcome
        return outcome


def _outcome(results: Sequence[Any]) -> _Outcome | KazooException:
    """Read a transaction's answer."""
    if any(isinstance(result, NoNodeError) for result in results):
        return _Outcome.NO_FOLDER
    if any(isinstance(result, NodeExistsError) for result in results):
        return _Outcome.EXISTED
    for result in results:
        if isinstance(result, KazooException):
            return result
    return _Outcome.CREATED
