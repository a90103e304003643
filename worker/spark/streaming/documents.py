"""Documents between a stream's task and its source, which are different processes: files of JSON.

    limits   of the task: read on, pause, or read up to these ends; each with a higher `version`
    place    of the source: the limits that it knows, and the offsets before which all is done

A document is replaced as a whole, so that a reader has the old one or the new one.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from common.errors import SchedulerError
from common.model.streams.spec import Offsets
from common.model.streams.tasks import offsets_document, offsets_of

LIMITS: Final = "limits.json"
PLACE: Final = "place.json"


class BadDocumentError(SchedulerError):
    """A document is not what its reader expects; the message names the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The range that a source may read. Offsets of `ends` are the first not to be read."""

    version: int = 0
    paused: bool = False
    ends: Offsets | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The source's report, between two batches: all before `offsets` is done.

    `trouble`: the reason for which the broker gives no answer, and `latest` may be old.
    """

    version: int
    offsets: Offsets
    latest: Offsets = field(default_factory=dict)
    trouble: str = ""


def read_limits(folder: Path) -> Limits:
    """Return the latest limits; before the first there are none."""
    written = _read(folder / LIMITS)
    if written is None:
        return Limits()
    try:
        ends = written["ends"]
        return Limits(
            version=int(written["version"]),
            paused=bool(written["paused"]),
            ends=None if ends is None else offsets_of(ends),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadDocumentError(f"{LIMITS} has no limits: {error!r}") from error


def write_limits(folder: Path, limits: Limits) -> None:
    """Replace the limits."""
    ends = None if limits.ends is None else offsets_document(limits.ends)
    document = {"version": limits.version, "paused": limits.paused, "ends": ends}
    replace(folder / LIMITS, document)


def read_place(folder: Path) -> Place | None:
    """Return the source's latest report, None before the first."""
    written = _read(folder / PLACE)
    if written is None:
        return None
    try:
        return Place(
            version=int(written["version"]),
            offsets=offsets_of(written["offsets"]),
            latest=offsets_of(written["latest"]),
            trouble=str(written["trouble"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadDocumentError(f"{PLACE} has no place: {error!r}") from error


def write_place(folder: Path, place: Place) -> None:
    """Replace the source's report."""
    document = {
        "version": place.version,
        "offsets": offsets_document(place.offsets),
        "latest": offsets_document(place.latest),
        "trouble": place.trouble,
    }
    replace(folder / PLACE, document)


def replace(path: Path, document: Mapping[str, Any]) -> None:
    """Write a document in one step, for the task's account alone."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        json.dump(document, file)
    beside.replace(path)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise BadDocumentError(f"{path.name} is no JSON") from error
