"""The definition and the project of a run, by their names and codes. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The definition and the project of a run. Fields of deleted ones are empty."""

    definition_name: str = ""
    definition_code: int = 0
    project_name: str = ""
    project_code: int = 0


NOWHERE: Final = Origin()
"""No definition and no project."""
