"""The options of a daemon, stored beside its pid file, so that a restart applies them again."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of a daemon in addition to its port; only `conf_dir` is for every kind."""

    groups: str | None = None
    reserved: bool | None = None
    slots: int | None = None
    conf_dir: str | None = None
    """The configuration folder of any daemon; None for none, or the one of its home."""


def kept_options(file: Path) -> Options:
    """Return the options of the file; none if it is missing or spoilt."""
    try:
        kept = json.loads(file.read_text(encoding="utf-8"))
        groups, slots = kept.get("groups"), kept.get("slots")
        reserved, conf_dir = kept.get("reserved"), kept.get("conf_dir")
    except (OSError, ValueError, AttributeError):
        return Options()
    return Options(
        groups=groups if isinstance(groups, str) else None,
        reserved=reserved if isinstance(reserved, bool) else None,
        slots=slots if isinstance(slots, int) else None,
        conf_dir=conf_dir if isinstance(conf_dir, str) and conf_dir else None,
    )


def keep_options(file: Path, options: Options) -> None:
    """Write the options into the file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(asdict(options)) + "\n", encoding="utf-8")
