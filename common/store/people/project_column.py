"""The name of a row's project, as a column of the lists that people read.

It is a subquery, because a join would change the plans of the list statements.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, select

from common.store.tables import project


def project_name(project_id: ColumnElement[Any]) -> ColumnElement[Any]:
    """Build the column `project_name` of a row with this project; NULL without a project."""
    return (
        select(project.c.name)
        .where(project.c.id == project_id)
        .correlate_except(project)
        .scalar_subquery()
        .label("project_name")
    )
