"""The name of a row's project, as a column of the lists that people read.

A subquery and not a join, so that the statements of lists keep their plans.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import ColumnElement, select

from common.store.tables import project


def project_name(project_id: ColumnElement[Any]) -> ColumnElement[Any]:
    """Build the column `project_name` of a row with this project; NULL without one."""
    return (
        select(project.c.name)
        .where(project.c.id == project_id)
        .correlate_except(project)
        .scalar_subquery()
        .label("project_name")
    )
