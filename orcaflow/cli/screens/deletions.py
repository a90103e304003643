"""Sentences about what was deleted, and about what is left of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from operations.texts import counted
from orcaflow.cli.output import escaped, say, write

if TYPE_CHECKING:
    from operations.deleting import Deleted


def print_deleted(deleted: Deleted) -> None:
    """Print the instances that are gone, and report the files that stay."""
    numbers = ", ".join(str(each) for each in deleted.ids[:10])
    more = f" and {len(deleted.ids) - 10} more" if len(deleted.ids) > 10 else ""
    write(
        f"deleted {counted(len(deleted.ids), 'process instance')} ({numbers}{more}) with"
        f" {counted(deleted.attempts, 'task instance')}"
        if deleted.ids
        else "deleted no process instance: there was none"
    )
    say_left(deleted)


def say_left(deleted: Deleted) -> None:
    """Report the files that stay, if any do."""
    for each in deleted.left:
        say(f"not removed: {escaped(each)}")
    if deleted.hosts:
        say(f"logs stay on other hosts: {escaped(', '.join(deleted.hosts[:10]))}")
