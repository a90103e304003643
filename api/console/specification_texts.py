"""Finds the texts about keys of task types, which the console's catalogue translates.

The texts are in the specifications of the types, outside of the folder from which `pybabel extract`
takes texts. It calls `extract` in the place of reading `task_inputs.py` (pyproject.toml). The types
of other packages are shown in the language of their specifications.
"""

from __future__ import annotations

from collections.abc import Iterator

from api.console.task_inputs import inputs_of
from common.task_types import known_task_types, task_type_spec


def extract(*_: object, **__: object) -> Iterator[tuple[int, None, str, list[str]]]:
    """Yield each text once, as Babel's interface for extractors wants it."""
    texts: dict[str, None] = {}
    for name in known_task_types():
        texts |= dict.fromkeys(each.about for each in inputs_of(task_type_spec(name), {}))
    yield from ((1, None, text, []) for text in texts if text)
