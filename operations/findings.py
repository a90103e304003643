"""Findings: what an author should know about a definition, each with its place."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Severity(StrEnum):
    """The consequence of a finding for an import."""

    MISTAKE = "mistake"  # It keeps everything out.
    UNMAPPED = "unmapped"  # That part stays behind; the definition is right without it.
    WARNING = "warning"  # It is taken as it stands, and may not do what its author expects.


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something about one place of a definition; `node` is None for the definition itself."""

    severity: Severity
    node: str | None = None
    key: str
    problem: str
    cure: str = ""
    keeps_offline: bool = False
    """True if the definition can't do its work without that part, so that it stays OFFLINE."""
    of_database: bool = False
    """True for a reference that only a database can resolve; an import looks it up itself."""
    of_grant: bool = False
    """True for a finding about an object that the project may not use."""

    @property
    def is_mistake(self) -> bool:
        return self.severity is Severity.MISTAKE

    def __str__(self) -> str:
        place = self.key if self.node is None else f"task {self.node[:80]!r}, {self.key}"
        cure = f" ({self.cure})" if self.cure else ""
        return f"{place}: {self.problem}{cure}"
