"""Watches of the registry in memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.memory.registry import MemoryRegistry


@dataclass(slots=True, kw_only=True, eq=False)
class Watch:
    """A daemon's watch of a folder. `additions_only`: of names being added."""

    registry: MemoryRegistry
    folder: str
    additions_only: bool
    changed: Callable[[], None]
