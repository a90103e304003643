"""The common parts of every runner: its job, its words, its outputs, and its end.

Everything printed goes through `Job.say`, which hides the job's secrets and lets no control
character through. A failure is one sentence: it is printed, and left in a file for the row.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from common.masking import mask_text, printable, spellings

OK: Final = 0
FAILED: Final = 1
_VARIABLE = "ORCAFLOW_OUTPUT"
_REASON_CHARS = 1_500


class JobError(Exception):
    """The job failed; the text says why."""


class Job:
    """The work that a runner was given."""

    def __init__(self, document: Mapping[str, Any], reason_file: Path) -> None:
        self.document = document
        self._reason_file = reason_file
        self.outputs: Mapping[str, str] = document["outputs"]
        # Servers like to repeat what they were sent, spelt as they got it.
        self._secrets = spellings(document["secrets"])

    def say(self, text: str) -> None:
        """Print lines for people."""
        lines = (mask_text(printable(line), self._secrets) for line in text.split("\n"))
        sys.stdout.write("\n".join(lines) + "\n")

    def put_out(self, values: Mapping[str, str]) -> None:
        """Hand values to those downstream."""
        with Path(os.environ[_VARIABLE]).open("a", encoding="utf-8") as file:
            file.write(json.dumps(dict(values)) + "\n")

    def fail(self, error: BaseException) -> int:
        """Say why it failed; the exit code."""
        text = str(error) if isinstance(error, JobError) else f"{type(error).__name__}: {error}"
        self.say(text)
        line = mask_text(printable(" ".join(text.split())), self._secrets)[:_REASON_CHARS]
        self._reason_file.write_text(line + "\n", encoding="utf-8", errors="replace")
        return FAILED


def read_job() -> Job:
    """The job that the first argument names; its file is gone after that."""
    path = Path(sys.argv[1])
    text = path.read_text(encoding="utf-8")
    # It may hold a password, and the directory of a failed attempt is kept.
    path.unlink()
    return Job(json.loads(text), path.with_suffix(".reason"))


def done(job: Job, work: Callable[[Job], None]) -> int:
    """Do the job; the exit code."""
    try:
        work(job)
    except Exception as error:  # noqa: BLE001  # It is told to people, and ends the program.
        return job.fail(error)
    return OK
