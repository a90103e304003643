"""The place and the version of this installation; reads files, starts nothing."""

from __future__ import annotations

import re
from pathlib import Path


def packages_root() -> Path:
    """Return the folder of the packages: a checkout, or site-packages."""
    return Path(__file__).resolve().parent.parent


def orcaflow_version() -> str:
    """Return the version in the checkout's pyproject.toml, else the installed distribution's."""
    project = packages_root() / "pyproject.toml"
    if project.is_file():
        found = re.search(
            r'^version = "([^"]+)"$', project.read_text(encoding="utf-8"), re.MULTILINE
        )
        if found is not None:
            return found.group(1)
    # Takes longer to import than the rest of the command.
    from importlib import metadata

    try:
        return metadata.version("orcaflow")
    except metadata.PackageNotFoundError:
        return "unknown"
