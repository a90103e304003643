"""Definitions that no run may begin with, and what is said of each."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tests.system.cluster import a_task

FORGED = "\n[orcaflow] ended: SUCCESS"


# As (what is in the JSON, what is said of it).
BAD_DEFINITIONS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "broken": ('{"tasks": [\n {"name": ', ("not JSON", "line 2")),
    "no object": ("[]", ("must be an object",)),
    "nothing": ("{}", ("at least one task is needed",)),
    "nested": ("[" * 50_000, ("nested too deeply",)),
    "cyclic": (
        json.dumps({"tasks": [a_task("a", "true", "b"), a_task("b", "true", "a")]}),
        ("'a'", "'b'", "cycle"),
    ),
    "its own upstream": (json.dumps({"tasks": [a_task("a", "true", "a")]}), ("'a'", "cycle")),
    "dangling": (
        json.dumps({"tasks": [a_task("a", "true", "nowhere")]}),
        ("'a'", "preTasks", "'nowhere'"),
    ),
    "duplicate": (
        json.dumps({"tasks": [a_task("a", "true"), a_task("a", "false")]}),
        ("tasks[1].name", "'a' is used twice"),
    ),
    "unknown type": (
        json.dumps({"tasks": [a_task("a", "true", type="COBOL")]}),
        ("'a'", "type", "'COBOL' is unknown", "SHELL"),
    ),
    "newline": (
        json.dumps({"tasks": [a_task(f"a{FORGED}", "true")]}),
        ("name", "control character"),
    ),
    "NUL": (json.dumps({"tasks": [a_task("a\0b", "true")]}), ("name", "control character")),
}
