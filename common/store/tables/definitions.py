"""Process definitions."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    CheckConstraint,
    Column,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from common.model.date_rules import DateRule
from common.model.proposals import ProposalState
from common.model.states import ExecutionType, ReleaseState
from common.store.tables.columns import (
    code,
    code_is_no_other_id,
    known,
    known_words,
    metadata,
    not_empty,
    number,
    own_code,
    own_id,
    seen_by_reader,
    time,
    time_now,
    times,
)


def _of_definition() -> Column[int | None]:
    """The definition that the row goes with; NULL for one that is to be made."""
    return Column(
        "process_definition_id",
        Integer,
        ForeignKey("t_ds_process_definition.id", ondelete="CASCADE"),
    )


process_definition: Final = Table(
    "t_ds_process_definition",
    metadata,
    own_id(),
    Column("name", String(255), nullable=False),
    number("version", 1),
    code("release_state", 0),
    number("project_id", 1),
    number("user_id", 1),
    Column("process_definition_json", Text),
    Column("description", Text),
    Column("global_params", Text),
    code("flag", 1),
    Column("locations", Text),
    Column("connects", Text),
    Column("receivers", Text),
    Column("receivers_cc", Text),
    *times(),
    number("timeout", 0),
    number("tenant_id", -1),
    Column("modify_by", String(36), server_default=text("''")),
    code("execution_type", 0),
    own_code(),
    # What a date of its complements is; NULL leaves that to the cluster.
    Column("complement_date_rule", String(16)),
    UniqueConstraint("project_id", "name"),
    UniqueConstraint("code"),
    not_empty("name"),
    known("release_state", ReleaseState),
    known("flag", range(2)),
    known("execution_type", ExecutionType),
    known_words("complement_date_rule", DateRule),
    CheckConstraint("version >= 1", name="version"),
    code_is_no_other_id(),
    info=seen_by_reader(
        "id name version release_state project_id user_id description flag create_time "
        "update_time timeout tenant_id modify_by execution_type code "
        "complement_date_rule",
    ),
)
Index("process_definition_index", process_definition.c.project_id, process_definition.c.id)

# The versions of definitions. Their documents have references in the place of secrets.
process_definition_log: Final = Table(
    "t_ds_process_definition_log",
    metadata,
    Column(
        "process_definition_id",
        Integer,
        ForeignKey("t_ds_process_definition.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("document", Text, nullable=False),
    Column("user_id", Integer),
    Column("user_name", String(64)),
    Column("note", String(255)),
    time_now("create_time"),
    info=seen_by_reader("process_definition_id version user_id user_name note create_time"),
)

# The drafts of authors, of a definition or of a new one, and their last saves. A draft may hold
# anything: its text is what its author has typed.
definition_draft: Final = Table(
    "t_ds_definition_draft",
    metadata,
    own_id(),
    number("project_id"),
    _of_definition(),
    number("user_id"),
    Column("user_name", String(64), nullable=False),
    number("base_version", 0),
    Column("base_tag", String(64)),
    number("revision", 1),
    *times(),
    info=seen_by_reader(
        "id project_id process_definition_id user_id user_name base_version revision "
        "create_time update_time",
    ),
)
Index(
    "t_ds_definition_draft_definition_key",
    definition_draft.c.process_definition_id,
    definition_draft.c.user_id,
    unique=True,
    postgresql_where=definition_draft.c.process_definition_id.is_not(None),
)
Index(
    "t_ds_definition_draft_new_key",
    definition_draft.c.project_id,
    definition_draft.c.user_id,
    unique=True,
    postgresql_where=definition_draft.c.process_definition_id.is_(None),
)

definition_draft_save: Final = Table(
    "t_ds_definition_draft_save",
    metadata,
    Column(
        "draft_id",
        Integer,
        ForeignKey("t_ds_definition_draft.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    Column("revision", Integer, primary_key=True, autoincrement=False),
    Column("content", Text, nullable=False),
)

# What somebody else is asked to put in force, as it was proposed.
definition_proposal: Final = Table(
    "t_ds_definition_proposal",
    metadata,
    own_id(),
    number("project_id"),
    _of_definition(),
    Column("name", String(255), nullable=False),
    number("user_id"),
    Column("user_name", String(64), nullable=False),
    number("base_version", 0),
    Column("base_tag", String(64)),
    number("draft_revision", nullable=True),
    Column("document", Text, nullable=False),
    Column("note", String(1000)),
    code("state", 0),
    number("decided_by", nullable=True),
    Column("decided_by_name", String(64)),
    Column("reason", String(1000)),
    time("decide_time"),
    number("version", nullable=True),
    time_now("create_time"),
    known("state", ProposalState),
    not_empty("name"),
    info=seen_by_reader(
        "id project_id process_definition_id name user_id user_name base_version "
        "draft_revision state decided_by decided_by_name decide_time version create_time",
    ),
)
Index(
    "t_ds_definition_proposal_definition_index",
    definition_proposal.c.process_definition_id,
    definition_proposal.c.id,
)
Index("t_ds_definition_proposal_project_index", definition_proposal.c.project_id)
Index(
    "t_ds_definition_proposal_waiting_key",
    definition_proposal.c.project_id,
    definition_proposal.c.name,
    definition_proposal.c.user_id,
    unique=True,
    postgresql_where=definition_proposal.c.state == 0,
)
