"""The job of a Spark task's process: the document that the worker daemon wrote down for it.

Standard library only. Its file is removed as soon as it has been read, for it may hold a password.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.masking import mask_text, printable, spellings
from worker.spark.session import parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """The work of this process, as the worker daemon wrote it."""

    kind: str
    name: str
    tag: str
    profile: str
    master: str
    conf: Mapping[str, str]
    script: str
    arguments: tuple[str, ...]
    params: Mapping[str, Any]
    secrets: tuple[str, ...]
    """Texts that nobody may see, in every spelling that a server may repeat them in."""
    is_classic: bool
    """It gets a classic session, also in the server that it shares with other tasks."""
    py_files: tuple[str, ...]
    archives: tuple[str, ...]
    document: Mapping[str, Any]
    """All of the job, for the keys that only its kind knows."""
    reason_file: Path

    @classmethod
    def read(cls, path: str | Path) -> Job:
        """The job in a file, which is gone after that: it may hold a password."""
        path = Path(path)
        text = path.read_text(encoding="utf-8")
        path.unlink(missing_ok=True)
        return cls.of(json.loads(text), reason_file=path.with_suffix(".reason"))

    @classmethod
    def of(cls, document: Mapping[str, Any], *, reason_file: Path) -> Job:
        """The job in a document; what is missing is empty."""
        return cls(
            kind=document["kind"],
            name=document.get("name", ""),
            tag=document.get("tag", ""),
            profile=document.get("profile", ""),
            master=document.get("master", ""),
            conf=dict(document.get("conf", {})),
            script=document.get("script", ""),
            arguments=tuple(document.get("arguments", ())),
            params=parameters.from_job(document.get("params", {})),
            secrets=spellings(document.get("secrets", ())),
            is_classic=bool(document.get("classic")),
            py_files=tuple(document.get("py_files", ())),
            archives=tuple(document.get("archives", ())),
            document=document,
            reason_file=reason_file,
        )

    def say(self, text: str) -> None:
        """Write a line of Orcaflow's own into the log of the task, at once."""
        sys.stdout.write(f"[orcaflow] {self.shown(text)}\n")
        sys.stdout.flush()

    def shown(self, text: str) -> str:
        """Lines for people: without the job's secrets, and without control characters."""
        lines = text.expandtabs(4).splitlines()
        return "\n".join(mask_text(printable(line), self.secrets) for line in lines)
