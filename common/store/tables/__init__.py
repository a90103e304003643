"""Every table of the database, as SQLAlchemy Core objects: the schema as the code sees it.

Names and codes are those of the behavioural contract. What Orcaflow adds are columns with defaults
(listed in `sql/README.md`). Defaults live in the database, so that a row typed by hand needs no
more than a program's row. A CHECK says what must never be, whoever writes; a partial index serves
one loop's question.

Nothing here connects or queries. `common.store.schema` turns this into DDL, adds the triggers, and
compares it with a real database; the other modules of `common.store` build statements from it.

They are imported from here, wherever they are: a table is made when it is first asked for, and the
tables of its subject with it. A command needs a few, and to make all takes a tenth of its time.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from common.store.tables.accounts import access_token as access_token
    from common.store.tables.accounts import login_failure as login_failure
    from common.store.tables.accounts import queue as queue
    from common.store.tables.accounts import session as session
    from common.store.tables.accounts import tenant as tenant
    from common.store.tables.accounts import user as user
    from common.store.tables.accounts import user_identity as user_identity
    from common.store.tables.alerts import alert as alert
    from common.store.tables.alerts import alertgroup as alertgroup
    from common.store.tables.alerts import relation_user_alertgroup as relation_user_alertgroup
    from common.store.tables.assignments import project_failures as project_failures
    from common.store.tables.assignments import task_assignment as task_assignment
    from common.store.tables.assignments import worker_failures as worker_failures
    from common.store.tables.assignments import worker_strategy as worker_strategy
    from common.store.tables.columns import COMMAND_TYPES as COMMAND_TYPES
    from common.store.tables.columns import EXECUTION_STATES as EXECUTION_STATES
    from common.store.tables.columns import metadata as metadata
    from common.store.tables.commands import ASKED_RECOVERY as ASKED_RECOVERY
    from common.store.tables.commands import OWN_RECOVERY as OWN_RECOVERY
    from common.store.tables.commands import TURN_OF_COMMAND as TURN_OF_COMMAND
    from common.store.tables.commands import WITHOUT_EFFECT as WITHOUT_EFFECT
    from common.store.tables.commands import CommandLane as CommandLane
    from common.store.tables.commands import command as command
    from common.store.tables.commands import command_ledger as command_ledger
    from common.store.tables.commands import error_command as error_command
    from common.store.tables.commands import turn_of_command as turn_of_command
    from common.store.tables.complements import complement as complement
    from common.store.tables.complements import complement_date as complement_date
    from common.store.tables.datasets import dataset as dataset
    from common.store.tables.datasets import dataset_offsets as dataset_offsets
    from common.store.tables.datasets import dataset_topic_offsets as dataset_topic_offsets
    from common.store.tables.datasets import pending_segment as pending_segment
    from common.store.tables.datasets import segment as segment
    from common.store.tables.datasets import task_lock as task_lock
    from common.store.tables.datasets import task_lock_holder as task_lock_holder
    from common.store.tables.datasets import task_lock_request as task_lock_request
    from common.store.tables.definitions import definition_draft as definition_draft
    from common.store.tables.definitions import definition_draft_save as definition_draft_save
    from common.store.tables.definitions import definition_proposal as definition_proposal
    from common.store.tables.definitions import process_definition as process_definition
    from common.store.tables.definitions import process_definition_log as process_definition_log
    from common.store.tables.grants import grant as grant
    from common.store.tables.pools import task_group as task_group
    from common.store.tables.pools import task_group_queue as task_group_queue
    from common.store.tables.projects import project as project
    from common.store.tables.projects import relation_project_user as relation_project_user
    from common.store.tables.projects import share as share
    from common.store.tables.requests import audit_log as audit_log
    from common.store.tables.requests import idempotency_key as idempotency_key
    from common.store.tables.resources import datasource as datasource
    from common.store.tables.resources import relation_datasource_user as relation_datasource_user
    from common.store.tables.resources import relation_resources_user as relation_resources_user
    from common.store.tables.resources import relation_udfs_user as relation_udfs_user
    from common.store.tables.resources import resource as resource
    from common.store.tables.resources import udf as udf
    from common.store.tables.results import quality_result as quality_result
    from common.store.tables.results import task_log_tail as task_log_tail
    from common.store.tables.revisions import version as version
    from common.store.tables.runs import LAST_RUN as LAST_RUN
    from common.store.tables.runs import RARE_ENDS_OF_RUNS as RARE_ENDS_OF_RUNS
    from common.store.tables.runs import WORKERLESS_TASK_TYPES as WORKERLESS_TASK_TYPES
    from common.store.tables.runs import process_instance as process_instance
    from common.store.tables.runs import relation_process_instance as relation_process_instance
    from common.store.tables.runs import task_instance as task_instance
    from common.store.tables.schedules import schedule as schedule
    from common.store.tables.schedules import schedule_fire as schedule_fire
    from common.store.tables.servers import cluster as cluster
    from common.store.tables.servers import environment as environment
    from common.store.tables.servers import (
        environment_worker_group_relation as environment_worker_group_relation,
    )
    from common.store.tables.servers import master_server as master_server
    from common.store.tables.servers import worker_group as worker_group
    from common.store.tables.servers import worker_mode as worker_mode
    from common.store.tables.servers import worker_server as worker_server
    from common.store.tables.streams import stream_task as stream_task
    from common.store.tables.streams import supervisor as supervisor
    from common.store.tables.streams import supervisor_command as supervisor_command
    from common.store.tables.streams import supervisor_runtime as supervisor_runtime
    from common.store.tables.topologies import topology as topology
    from common.store.tables.topologies import topology_version as topology_version

_SUBJECTS: Final[Mapping[str, tuple[str, ...]]] = {
    "columns": ("COMMAND_TYPES", "EXECUTION_STATES"),
    "commands": (
        "command",
        "turn_of_command",
        "TURN_OF_COMMAND",
        "CommandLane",
        "OWN_RECOVERY",
        "ASKED_RECOVERY",
        "error_command",
        "command_ledger",
        "WITHOUT_EFFECT",
    ),
    "definitions": (
        "process_definition",
        "process_definition_log",
        "definition_draft",
        "definition_draft_save",
        "definition_proposal",
    ),
    "runs": (
        "RARE_ENDS_OF_RUNS",
        "LAST_RUN",
        "WORKERLESS_TASK_TYPES",
        "process_instance",
        "task_instance",
        "relation_process_instance",
    ),
    "datasets": (
        "task_lock",
        "task_lock_holder",
        "task_lock_request",
        "dataset",
        "segment",
        "pending_segment",
        "dataset_offsets",
        "dataset_topic_offsets",
    ),
    "streams": ("supervisor", "supervisor_runtime", "supervisor_command", "stream_task"),
    "topologies": ("topology", "topology_version"),
    "assignments": ("task_assignment", "worker_strategy", "project_failures", "worker_failures"),
    "pools": ("task_group", "task_group_queue"),
    "schedules": ("schedule", "schedule_fire"),
    "complements": ("complement", "complement_date"),
    "servers": (
        "worker_group",
        "environment",
        "environment_worker_group_relation",
        "cluster",
        "master_server",
        "worker_mode",
        "worker_server",
    ),
    "alerts": ("alert", "alertgroup", "relation_user_alertgroup"),
    "results": ("quality_result", "task_log_tail"),
    "resources": (
        "datasource",
        "resource",
        "udf",
        "relation_resources_user",
        "relation_udfs_user",
        "relation_datasource_user",
    ),
    "projects": ("project", "relation_project_user", "share"),
    "grants": ("grant",),
    "accounts": (
        "tenant",
        "queue",
        "user",
        "session",
        "access_token",
        "user_identity",
        "login_failure",
    ),
    "requests": ("audit_log", "idempotency_key"),
    "revisions": ("version",),
}
"""The names of each module of this package."""

_PLACES: Final = {name: subject for subject, names in _SUBJECTS.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import the module of a table; the metadata are those of all tables, so they take them all."""
    if name == "metadata":
        for subject in _SUBJECTS:
            import_module(f"{__name__}.{subject}")
        found = import_module(f"{__name__}.columns").metadata
    elif name in _PLACES:
        found = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found
