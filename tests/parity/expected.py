"""The recorded outcomes of `spark-submit`, in `expected.json`.

`python -m tests.parity record` records them again. The sample of each run of the tests is compared with
them; the check of all scripts runs `spark-submit` itself. Scripts that need a package are not recorded.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.parity.outcomes import Outcome

FILE: Final = Path(__file__).with_name("expected.json")


def read() -> dict[str, Outcome]:
    """Return the recorded outcomes by the names of their scripts."""
    if not FILE.exists():
        return {}
    documents = json.loads(FILE.read_text(encoding="utf-8"))
    return {name: Outcome.of(document) for name, document in documents.items()}


def write(outcomes: Mapping[str, Outcome]) -> None:
    """Record outcomes, one script a line, so that a change of one is a change of one line."""
    lines = (
        f"{json.dumps(name)}: {json.dumps(outcomes[name].document(), ensure_ascii=False)}"
        for name in sorted(outcomes)
    )
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
