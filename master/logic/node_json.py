"""Reads out of a node's `task_json` what the master needs of its `params`. Pure."""

from __future__ import annotations

import json


def local_parameters(task_json: str) -> object:
    """Return the node's `localParams` as written: a list, JSON text of one, or None."""
    try:
        node = json.loads(task_json)
        params = node.get("params") if isinstance(node, dict) else None
        if isinstance(params, str):
            params = json.loads(params or "{}")
    except (ValueError, RecursionError):
        return None
    return params.get("localParams") if isinstance(params, dict) else None
