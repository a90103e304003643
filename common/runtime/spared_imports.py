"""Imports a library without another that it would bring along and that no daemon needs.

Most of a daemon's start is imports. A library that is absent for a moment is one that is not
installed to whoever is imported meanwhile; what has been imported already stays.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def absent(library: str) -> Iterator[None]:
    """Have this library not found by imports, unless it has been imported already."""
    if library in sys.modules:
        yield
        return
    # As the import system has it: None is a module that can't be had.
    sys.modules[library] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[library]
