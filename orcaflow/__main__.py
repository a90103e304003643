"""`python -m orcaflow` is the command line, for where the `orcaflow` script is not installed."""

from __future__ import annotations

import sys

from orcaflow.cli.app import main

if __name__ == "__main__":
    sys.exit(main())
