"""Writes the shipped files into a folder: `python -m common.config conf`."""

import sys
from pathlib import Path

from common.config.keys import FILES
from common.config.rendering import rendered

if __name__ == "__main__":
    for file in FILES:
        (Path(sys.argv[1]) / file).write_text(rendered(file), encoding="utf-8")
