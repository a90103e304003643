"""Projects, the rights of people in them, and the objects that other projects share with them."""

from __future__ import annotations

from typing import Final

from sqlalchemy import (
    Column,
    ForeignKey,
    Index,
    Integer,
    String,
    Table,
    UniqueConstraint,
)

from common.model.reach import ShareKind
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

project: Final = Table(
    "t_ds_project",
    metadata,
    own_id(),
    Column("name", String(100), nullable=False),
    Column("description", String(200)),
    number("user_id", 1),
    code("flag", 1),
    *times(),
    own_code(),
    # Since when definitions are changed by approved proposals alone; NULL: they are not.
    time("review_since"),
    UniqueConstraint("code"),
    not_empty("name"),
    known("flag", range(2)),
    code_is_no_other_id(),
    info=seen_by_reader(
        "id name description user_id flag create_time update_time code review_since"
    ),
)
Index("t_ds_project_user_id_index", project.c.user_id)

relation_project_user: Final = Table(
    "t_ds_relation_project_user",
    metadata,
    own_id(),
    number("user_id"),
    number("project_id", nullable=True),
    number("perm", 1),
    *times(),
    info=seen_by_reader("id user_id project_id perm create_time update_time"),
)
Index("t_ds_relation_project_user_user_id_index", relation_project_user.c.user_id)

# The definitions and datasets of other projects that the definitions of this project may use.
share: Final = Table(
    "t_ds_share",
    metadata,
    Column("object_type", String(16), primary_key=True),
    Column("object_id", Integer, primary_key=True, autoincrement=False),
    Column(
        "project_id",
        Integer,
        ForeignKey("t_ds_project.id", ondelete="CASCADE"),
        primary_key=True,
        autoincrement=False,
    ),
    number("user_id"),
    time_now("create_time"),
    known_words("object_type", ShareKind),
)
Index("t_ds_share_project_index", share.c.project_id, share.c.object_type)
