"""Prints a chain of causes: a tree for people, a list as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import tzinfo

from common.why import Cause
from operations.documents.causes import cause_rows
from orcaflow.cli.output import Format, escaped, moment, print_json, write


def print_causes(causes: Sequence[Cause], *, form: Format, zone: tzinfo | None) -> None:
    """Print the causes, each with those behind it."""
    if form is Format.JSON:
        print_json(cause_rows(causes))
        return
    for cause in causes:
        _write_tree(cause, "", "", zone)


def _write_tree(cause: Cause, lead: str, below: str, zone: tzinfo | None) -> None:
    since = f" (since {moment(cause.since, zone)})" if cause.since else ""
    write(f"{lead}{escaped(cause.text)}{since}")
    at = moment(cause.next_at, zone) if cause.next_at else None
    bar = "│ " if cause.because else "  "
    if cause.next is not None:
        when = f", at {at}" if at else ""
        write(f"{below}{bar}next: {escaped(cause.next)}{when}")
    elif at:
        write(f"{below}{bar}next: {at}")
    for index, each in enumerate(cause.because):
        last = index == len(cause.because) - 1
        _write_tree(
            each, f"{below}{'└─ ' if last else '├─ '}", f"{below}{'   ' if last else '│  '}", zone
        )
