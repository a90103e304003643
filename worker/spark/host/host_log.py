"""The log of a Spark host: lines of JSON, as every daemon's, by the standard library alone.

The host may run in another interpreter than its daemon, with pyspark and not much else.
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path

_LOG_BYTES = 5_000_000
_RECORD_KEYS = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}


def write_to(path: Path) -> None:
    """Have everything that is logged written there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handler = RotatingFileHandler(path, maxBytes=_LOG_BYTES, backupCount=2, encoding="utf-8")
    handler.setFormatter(_Lines())
    logging.basicConfig(level=logging.INFO, handlers=[handler])


class _Lines(logging.Formatter):
    """One line of JSON for each record."""

    def format(self, record: logging.LogRecord) -> str:
        own = {key: value for key, value in vars(record).items() if key not in _RECORD_KEYS}
        line: dict[str, object] = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **own,
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)
