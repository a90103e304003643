"""Reads the file in which an attempt tells of its Spark application (`common.model.spark`).

The attempt, and so anybody's code, may write it at any time: it is read as one that may be hostile.
"""

from __future__ import annotations

import os
from pathlib import Path

from common.model.spark import LIMIT_BYTES, SparkFacts
from worker.workspace import is_own_file

_NOTHING = SparkFacts()


def read_facts(path: Path) -> SparkFacts:
    """Return the facts that an attempt has written so far; none if there is no readable file."""
    try:
        # Neither a link out of the directory nor a pipe that nobody writes to.
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return _NOTHING
    try:
        if not is_own_file(file):
            return _NOTHING
        # One more than is allowed, so that a document which is too long isn't taken for a whole.
        return SparkFacts.from_json(os.read(file, LIMIT_BYTES + 1))
    except OSError:
        return _NOTHING
    finally:
        os.close(file)
