"""Sentences about schedules that several commands print."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orcaflow.cli.output import say

if TYPE_CHECKING:
    from common.store.people.schedule_views import ScheduleView
    from operations.session import Session


def owner_of(view: ScheduleView) -> str:
    """The definition that a schedule runs, by name."""
    return view.definition_name or f"definition {view.process_definition_id}, which is gone"


def warn_without_master(session: Session) -> None:
    """Warn if no master is alive: that forbids nothing, but nothing fires."""
    from operations.explaining import has_master

    found = has_master(session)
    if found is None:
        say("ZooKeeper does not answer, so whether a master is there to fire it is not known")
    elif not found:
        say(
            "no master is alive: nothing fires before one is started"
            " (bin/orcaflow-daemon.sh start master-server), and what is late then is a misfire"
        )
