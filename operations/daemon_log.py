"""Reads the end of a daemon's output or log, for the error of a daemon that did not start."""

from __future__ import annotations

import json
from pathlib import Path

_LOG_TAIL_LINES = 12
_TAIL_BYTES = 50_000


def log_tail(out: Path) -> str:
    """The last lines of the daemon's output, else of its log, as the end of a sentence."""
    for path in (out, out.with_suffix(".log")):
        try:
            with path.open("rb") as file:
                file.seek(max(0, path.stat().st_size - _TAIL_BYTES))
                text = file.read().decode("utf-8", errors="replace")
        except OSError:
            continue
        lines = [plain for line in text.splitlines() for plain in _plain(line)]
        lines = lines[-_LOG_TAIL_LINES:]
        if lines:
            return f"; the end of {path}:\n" + "\n".join(f"  {line}" for line in lines)
    return f"; it wrote nothing to {out}"


def _plain(line: str) -> list[str]:
    """A line of a log for people: level, message, fields, and the trace if there is one."""
    try:
        event = json.loads(line)
        text = f"{event.pop('level')}: {event.pop('message')}"
        trace = str(event.pop("exception", "")).splitlines()
    except (ValueError, KeyError, AttributeError):
        return [line] if line.strip() else []
    for known in ("timestamp", "logger", "thread_name", "daemon"):
        event.pop(known, None)
    fields = "".join(f" {name}={value}" for name, value in event.items())
    return [f"{text}{fields}", *trace]
