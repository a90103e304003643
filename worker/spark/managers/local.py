"""A `local` master: the application is a process of the attempt's own, without a manager.

It ends with that process, which the supervisor watches.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from worker.spark.managers.base import Application, Ask


class LocalManager:
    """Knows of no applications."""

    name: ClassVar[str] = "nobody"

    def with_tag(self, tag: str) -> list[Application]:
        return []

    def with_prefix(self, prefix: str) -> list[Application]:
        return []

    def nameless(self) -> Sequence[Application]:
        return ()

    def kill(self, application: Application) -> None:
        return None

    def log(self, application: Application) -> str:
        return ""

    def ask(self, application: Application) -> Ask | None:
        return None
