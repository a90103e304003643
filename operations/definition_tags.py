"""Tags of definitions: what two authors who save at once are told apart by.

A tag is the version with a hash of everything that an export has, but for secrets, whose change
makes a new version. Who saves names the tag of what was read; another one now means that somebody
else was faster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from common.model.date_rules import DateRule
from operations.exporting import exported_with_references
from operations.tags import changed_meanwhile, hashed, names

if TYPE_CHECKING:
    from common.store.connect import Connection
    from common.store.people.definitions import DefinitionRow

_SAVING: Final = (
    "definition.import",
    "definition.execution-type",
    "definition.restore",
    "definition.publish",
    "definition.approve",
)


def definition_tag(db: Connection, found: DefinitionRow) -> str:
    """The tag of a definition as it is now."""
    # Schedules have their own lives, and times in whatever zone say the same.
    document = exported_with_references(db, found, zone=ZoneInfo("UTC")).document
    document.pop("schedules", None)
    if found.date_rule is DateRule.BUSINESS_DATE:
        # Drafts from before the upgrade that set this rule still have the tag without it.
        document.pop("complementDateRule", None)
    return f"v{found.version}-{hashed(document)}"


def check_tag(db: Connection, found: DefinitionRow, expected: str) -> None:
    """Refuse a change of what has changed since it was read; `*` is whatever there is.

    Nobody saves meanwhile: the caller holds the lock of imports.
    """
    now = definition_tag(db, found)
    if names(expected, now):
        return
    raise changed_meanwhile(
        db,
        f"process definition {found.name!r} is at version {found.version}",
        "definition",
        found.id,
        actions=_SAVING,
        update_time=found.update_time,
        tag=now,
    )
