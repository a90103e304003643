"""Watching: the rows that streams show, and the rights of those who watch.

A stream asks for its rights when it is opened, and the looker for all of them again and again.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from common.model.live import (
    LiveAttempt,
    OverviewAnswer,
    OverviewQuestion,
    RunsAnswer,
    RunsQuestion,
)
from common.model.rights import Action, Principal
from common.store.people import live as store
from common.store.people.live import Watchable
from common.store.people.rights import Thing
from operations.rights import seen

if TYPE_CHECKING:
    from common.store.connect import Engine
    from operations.session import Session


def may_watch(session: Session, runs: Collection[int], *, overview: bool) -> Watchable:
    """The runs and projects to watch; `NotFoundError` for a run that is missing or foreign."""
    with session.engine.connect() as db:
        for each in sorted(runs):
            seen(db, session.principal, Action.VIEW, Thing.INSTANCE, each)
        found = store.watchable(db, session.principal, sorted(runs), with_projects=overview)
    return found or Watchable(runs=frozenset(), projects=frozenset())


class WatchedTables:
    """The tables as the looker of a server asks them, on the connections of the server."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def runs(self, question: RunsQuestion) -> RunsAnswer:
        """The watched runs, by one statement."""
        with self._engine.connect() as db:
            return store.watched_runs(db, question)

    def declared_good(self, runs: Sequence[int]) -> list[LiveAttempt]:
        """The attempts in ended runs that a person has declared to be good."""
        with self._engine.connect() as db:
            return store.declared_good(db, runs)

    def overview(self, question: OverviewQuestion) -> OverviewAnswer:
        """Everything that goes on."""
        with self._engine.connect() as db:
            return store.overview(db, question)

    def watchable(
        self, principal: Principal, runs: Sequence[int], *, with_projects: bool
    ) -> Watchable | None:
        """Those of the runs that the principal may still see; None if it is nobody any more."""
        with self._engine.connect() as db:
            return store.watchable(db, principal, runs, with_projects=with_projects)
