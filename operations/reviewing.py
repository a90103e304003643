"""The review that a project may ask for: there, definitions change by approved proposals alone.

Supervisors and topologies can't be proposed. In such a project, only an admin submits them.

The owner of the database is asked for none, as SQL by hand is not; the version then shows the
author `database`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from common.errors import NotAllowedError, NotFoundError
from common.model.rights import Action
from common.store.people import proposals as store
from common.store.people.projects import review_of
from common.store.people.rights import Thing
from operations.errors import ForbiddenError
from operations.rights import seen

if TYPE_CHECKING:
    from common.model.rights import Principal
    from common.store.connect import Connection
    from common.store.people.definitions import DefinitionRow


class ReviewNeededError(NotAllowedError):
    """The project asks for a review. Propose the change, which somebody else approves."""


def check_unreviewed(db: Connection, principal: Principal, project_id: int) -> None:
    """Refuse a change of a definition in a project that asks for a review.

    The switch stays as it is for whoever holds the lock of imports.
    """
    if principal.owns_database:
        return
    found = review_of(db, project_id)
    if found is None:
        raise NotFoundError(f"there is no project {project_id}; see `orcaflow project list`")
    if found.since is not None:
        raise ReviewNeededError(
            f"project {found.name!r} asks for a review, so that its definitions change by"
            " proposals which somebody else approves; propose it: `orcaflow definition propose`"
        )


def check_submitter(db: Connection, principal: Principal, project_id: int) -> None:
    """Require an admin for a supervisor or topology in a project with reviews.

    The submission holds the code that runs, and no second person would review an author's.
    """
    found = review_of(db, project_id)
    if found is None or found.since is None:
        return
    try:
        seen(db, principal, Action.ADMIN, Thing.PROJECT, project_id)
    except ForbiddenError:
        raise ReviewNeededError(
            f"project {found.name!r} asks for a review: an admin of the project submits it"
        ) from None


def check_approved(db: Connection, principal: Principal, row: DefinitionRow) -> None:
    """Refuse to release a version that was saved under review, and that nobody has approved."""
    if principal.owns_database:
        return
    found = review_of(db, row.project_id)
    since = None if found is None else found.since
    if since is not None and store.is_unapproved(db, row.id, row.version, since=since):
        raise ReviewNeededError(
            f"nobody has approved version {row.version} of {row.name!r}, and its project asks for a"
            " review; propose it: `orcaflow definition propose`"
        )
