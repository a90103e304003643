"""The log of a Spark host: lines of JSON, as every daemon's, by the standard library alone.

The host may run in another interpreter than its daemon, with pyspark and not much else. Secrets are
masked by the rule of all logs (`common.masking`).
"""

from __future__ import annotations

import json
import logging
from datetime import UTC, datetime
from logging.handlers import RotatingFileHandler
from pathlib import Path

from common.masking import SHORT_MASK, is_secret, mask_message

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
        own = {
            key: _masked(key, value)
            for key, value in vars(record).items()
            if key not in _RECORD_KEYS
        }
        line: dict[str, object] = {
            "timestamp": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": mask_message(record.getMessage(), mask=SHORT_MASK),
            **own,
        }
        if record.exc_info:
            line["exception"] = _masked("", self.formatException(record.exc_info))
        return json.dumps(line, default=str)


def _masked(name: str, value: object) -> object:
    """Mask a field; a value that is no text, number or the like is written as text."""
    if value is None or isinstance(value, bool):
        return value
    if is_secret(name):
        return SHORT_MASK
    if isinstance(value, int | float):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return [_masked("", each) for each in value]
    return mask_message(str(value), mask=SHORT_MASK)
