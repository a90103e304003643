"""Tags of definitions: what two authors who save at once are told apart by.

A tag is the version with a hash of everything that an export has, but for secrets, whose change
makes a new version. Who saves names the tag of what was read; another one now means that somebody
else was faster.
"""

from __future__ import annotations

import hashlib
import json
from datetime import UTC
from typing import TYPE_CHECKING, Final
from zoneinfo import ZoneInfo

from common.store.people import audit
from operations.errors import ChangedMeanwhileError
from operations.exporting import exported_with_references

if TYPE_CHECKING:
    from common.store.connect import Connection
    from common.store.people.definitions import DefinitionRow

_SAVING: Final = ("definition.import", "definition.execution-type")


def definition_tag(db: Connection, found: DefinitionRow) -> str:
    """The tag of a definition as it is now."""
    # Schedules have their own lives, and times in whatever zone say the same.
    document = exported_with_references(db, found, zone=ZoneInfo("UTC")).document
    document.pop("schedules", None)
    text = json.dumps(document, sort_keys=True)
    return f"v{found.version}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"


def check_tag(db: Connection, found: DefinitionRow, expected: str) -> None:
    """Refuse a change of what has changed since it was read; `*` is whatever there is.

    Nobody saves meanwhile: the caller holds the lock of imports.
    """
    now = definition_tag(db, found)
    given = [each.strip() for each in expected.split(",")]
    if "*" in given or f'"{now}"' in given:
        return
    saved = audit.last_change(db, "definition", found.id, actions=_SAVING)
    by = "somebody" if saved is None else saved[0]
    at = found.update_time if saved is None else saved[1]
    raise ChangedMeanwhileError(
        f"process definition {found.name!r} is at version {found.version}, saved by {by} at"
        f" {at.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC; read it again, and send your change with its"
        " ETag",
        tag=now,
    )
