"""Writes the OpenAPI document: `python -m api.openapi > docs/openapi.json`."""

from __future__ import annotations

import json
import sys

from api.app import build, openapi
from common.config import Config
from common.store.connect import engine


def document() -> str:
    """Return the document as it is kept in the tree."""
    # Nothing connects: the engine is lazy, and the document asks nothing.
    made = engine("postgresql+psycopg2://nobody@localhost/none")
    app = build(Config(), made, version="1")
    return json.dumps(openapi(app), indent=1, sort_keys=True, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    sys.stdout.write(document())
