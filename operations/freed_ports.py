"""Ends a task run that holds the port of a daemon which is to start, and writes that to the audit.

Where the database can't be reached, only the log and the reason of the attempt have it.
"""

from __future__ import annotations

import logging

from common.config import Config, database_url
from common.errors import SchedulerError
from common.model.rights import DATABASE
from common.port_freeing import free_of_tasks, make_room

log = logging.getLogger(__name__)


def freed(config: Config, port: int, *, server: str) -> str | None:
    """End the task run of this home that listens at a port; return what was done.

    None if no task run was ended. `server` is the name of the daemon.
    """
    return _noted(config, port, server, free_of_tasks(port, home=config.home, server=server))


def made_room(config: Config, host: str, port: int, *, server: str) -> str | None:
    """End the task run of this home that keeps a daemon from listening; return what was done."""
    return _noted(config, port, server, make_room(host, port, home=config.home, server=server))


def _noted(config: Config, port: int, server: str, task_id: int | None) -> str | None:
    if task_id is None:
        return None
    done = f"task run {task_id} held the port {port} of {server} and was ended"
    _audit(config, task_id, done)
    return done


def _audit(config: Config, task_id: int, detail: str) -> None:
    from common.store.connect import engine
    from common.store.people.audit import add_line
    from common.store.transaction import transaction

    try:
        made = engine(database_url(config), pool_size=1, application_name="orcaflow-start")
        with transaction(made) as db:
            add_line(
                db,
                DATABASE,
                action="task.end",
                object_type="task",
                object_id=task_id,
                object_name=None,
                project_id=None,
                refused=False,
                detail=detail,
            )
        made.dispose()
    except SchedulerError as error:
        log.warning("audit line was not written", extra={"reason": str(error)})
