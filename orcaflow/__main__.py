"""The program `orcaflow`, also where the script is not installed: `python -m orcaflow`.

A command ends soon, and most of its time goes into imports. Looking through all that they make for
garbage would take a third of that: during the imports, which leave none, and at the end, when the
process goes anyway.
"""

from __future__ import annotations

import gc
import sys
from typing import Final

_FIRST_COLLECTION: Final = 1_000_000
"""Objects, net of those freed: more than any import makes. A command that watches gets there."""


def main() -> int:
    """Run the command of the arguments and return its exit code."""
    gc.set_threshold(_FIRST_COLLECTION)
    from orcaflow.cli.app import main as command_line

    try:
        return command_line()
    finally:
        gc.freeze()


if __name__ == "__main__":
    sys.exit(main())
