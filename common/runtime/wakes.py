"""Wakes between loops that are wired before they have threads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field


@dataclass(slots=True)
class Wakes:
    """Cuts a loop's rest short, by the loop's name; nothing happens while no thread runs it."""

    by_name: dict[str, Callable[[], None]] = field(default_factory=dict)

    def wake(self, *names: str) -> None:
        """Wake the loops of these names. Safe from any thread."""
        for name in names:
            wake = self.by_name.get(name)
            if wake is not None:
                wake()
