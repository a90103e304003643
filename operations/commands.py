"""Lists commands with their outcomes, and follows one that was put.

A command waits until a master takes it; then the ledger has its outcome. Nothing here waits:
whoever wants to see a command taken asks for its outcome again.
"""

from __future__ import annotations

from collections.abc import Sequence

from common.errors import NotFoundError, SchedulerError
from common.model.commands import CommandOutcome
from common.model.rights import Action
from common.store.people import ledger
from common.store.people.ledger import CommandView
from common.store.people.rights import Thing
from operations.errors import CommandFailedError, UsageError
from operations.lookup import definition_named
from operations.rights import seen
from operations.session import Session, operation

WAITING = "WAITING"
"""The outcome, in words, of a command that no master has handled yet."""

OUTCOMES = (WAITING, *(outcome.name for outcome in CommandOutcome))


@operation
def list_commands(
    session: Session,
    *,
    outcomes: Sequence[str] = (),
    definition: str | None = None,
    limit: int,
) -> list[CommandView]:
    """The newest commands first, `limit` at most; of one definition, with one of the outcomes.

    Only those that wait: in the order in which masters take them.
    """
    wanted = {_outcome_named(each) for each in outcomes} or set(OUTCOMES)
    principal = session.principal
    with session.engine.connect() as db:
        if definition is not None:
            found = definition_named(db, principal, definition)
            # The name is unique within its project.
            principal, definition = principal.within(found.project_id), found.name
        return ledger.list_commands(
            db,
            waiting=WAITING in wanted,
            outcomes=[each for each in CommandOutcome if each.name in wanted],
            definition_name=definition,
            limit=limit,
            principal=principal,
        )


@operation
def command_with_id(session: Session, command_id: int) -> CommandView:
    """The command with its outcome; `NotFoundError` if none of this id is on record."""
    with session.engine.connect() as db:
        seen(db, session.principal, Action.VIEW, Thing.COMMAND, command_id)
        found = ledger.find_command(db, command_id)
    if found is None:
        raise NotFoundError(f"there is no command {command_id}; see `orcaflow command list`")
    return found


@operation
def outcome(session: Session, command_id: int) -> CommandView | None:
    """The command once a master has carried it out; None while it waits.

    `CommandFailedError` if it was dropped or refused, with the master's reason.
    """
    with session.engine.connect() as db:
        found = ledger.find_command(db, command_id)
    if found is None:
        raise SchedulerError(
            f"command {command_id} is gone, and no master has handled it: somebody has deleted it"
        )
    if found.outcome is None:
        return None
    if found.outcome is not CommandOutcome.TAKEN:
        raise CommandFailedError(found)
    return found


def _outcome_named(text: str) -> str:
    name = text.upper()
    if name not in OUTCOMES:
        known = ", ".join(each.lower() for each in OUTCOMES)
        raise UsageError("outcome", f"{text!r} is no outcome; known are {known}")
    return name
