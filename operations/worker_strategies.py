"""Shows and changes the strategy by which masters choose workers for tasks that ask for it.

It is Druid's JSON of its dynamic configuration of workers. Masters read it with each choice.
"""

from __future__ import annotations

import json
from typing import Any, Final

from common.model.worker_strategy import DEFAULT_DOCUMENT, StrategyError, read_strategy
from common.store.people.worker_strategies import (
    StrategyView,
    add_strategy,
    lock_strategies,
    strategies,
)
from common.store.transaction import transaction
from operations.errors import UsageError
from operations.rights import administered
from operations.session import Session, operation

_MAX_NOTE: Final = 255
_MAX_DOCUMENT: Final = 1_000_000
_DEFAULT: Final = StrategyView(version=0, document=DEFAULT_DOCUMENT)


@operation
def strategy_history(session: Session, *, limit: int = 100) -> list[StrategyView]:
    """The newest strategies, the present one first; the default one if there never was another."""
    with session.engine.connect() as db:
        return strategies(db, limit=limit) or [_DEFAULT]


@operation
def set_strategy(session: Session, document: Any, *, note: str | None = None) -> StrategyView:
    """Have workers be chosen by another strategy; the present one again changes nothing."""
    if note is not None and not (0 < len(note) <= _MAX_NOTE and note.isprintable()):
        raise UsageError("note", f"a note is one line of {_MAX_NOTE} characters at most")
    try:
        read_strategy(document)
        text = json.dumps(document)
    except StrategyError as error:
        raise UsageError("document", f"no strategy: {error}") from None
    if len(text) > _MAX_DOCUMENT or "\\u0000" in text or "\\ud" in text:
        raise UsageError("document", "no strategy: it is too long, or has characters of no text")
    with administered(session, "worker.strategy", None, opened=transaction) as made:
        db = made.db
        lock_strategies(db)
        present = strategies(db, limit=1)
        if present and present[0].document == document:
            made.detail = "as before"
            return present[0]
        version = add_strategy(db, document, user_name=session.principal.user_name, note=note)
        made.object_id, made.detail = version, note
        return strategies(db, limit=1)[0]
