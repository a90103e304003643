"""The scripts for which a PYSPARK task differs from `spark-submit`, each with its kind and reason.

The check of the suite fails for a script that differs without an entry here. It also fails for an entry
that no longer differs, or that differs in another way.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tests.parity.outcomes import Kind


@dataclass(frozen=True, slots=True)
class Difference:
    """A recorded difference."""

    kind: Kind
    reason: str


LINKED: Final = "a module of `pyFiles` is linked into the attempt's directory"

DIFFERENCES: Final[Mapping[str, Difference]] = {
    "modules/py_files": Difference(Kind.OTHER_FILES, LINKED),
}


def verdict(name: str, kind: Kind | None) -> str:
    """Return the fault of a script that differs in this way; "" if that is recorded."""
    recorded = DIFFERENCES.get(name)
    if recorded is None:
        return "" if kind is None else f"{kind}, which is not recorded"
    if kind is None:
        return f"no difference: delete its entry ({recorded.kind}) in differences.py"
    return "" if kind is recorded.kind else f"{kind}, but recorded is: {recorded.kind}"
