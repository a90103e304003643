"""Ends task runs that hold the port of a daemon which is to start, and writes that to the audit.

If the database can't be reached, only the log and the reason of the attempt have it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from common.config import Config, database_url
from common.errors import SchedulerError
from common.model.rights import DATABASE
from common.port_freeing import Freed, free_of_tasks, make_room

log = logging.getLogger(__name__)


def freed(config: Config, port: int, *, server: str) -> str | None:
    """End the task runs of this home that hold a port; return what was done.

    None if the port could not be freed. `server` is the name of the daemon.
    """
    return _noted(config, port, server, free_of_tasks(port, home=config.home, server=server))


def made_room(config: Config, host: str, port: int, *, server: str) -> str | None:
    """End the task runs of this home that keep a daemon from listening; return what was done."""
    return _noted(config, port, server, make_room(host, port, home=config.home, server=server))


def _noted(config: Config, port: int, server: str, ended: Freed | None) -> str | None:
    if ended is None:
        return None
    done = f"ended to free the port {port} of {server}: {ended}"
    _audit(config, ended.task_ids or (None,), done)
    return done


def _audit(config: Config, task_ids: Iterable[int | None], detail: str) -> None:
    from common.store.connect import engine
    from common.store.people.audit import add_line
    from common.store.transaction import transaction

    try:
        made = engine(database_url(config), pool_size=1, application_name="orcaflow-start")
        with transaction(made) as db:
            for task_id in task_ids:
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
