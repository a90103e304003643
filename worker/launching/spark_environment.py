"""`environment`: the Python of a task's own, packed in an archive or made from requirements.

    {"archive": "envs/forecast.tar.gz"}        {"requirements": ["scikit-learn==1.5.2"]}

Nothing is made here: the task's process does that (`worker.spark.session.environments`). Here the
two are checked, and what executors on other hosts need is shipped along.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from worker.launching.base import TaskContext, TaskParameterError
from worker.launching.resources import resource_name
from worker.launching.shipped import local_file

_MOST: Final = 200
_KEY: Final = "environment"
_NAME: Final = "orcaflow_environment"
"""What an archive is called in the directories of executors."""
PYTHON_SETTING: Final = "spark.sql.execution.pyspark.python"
"""Which Python a session's UDFs run in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEnvironment:
    """What a task wants."""

    archive: str = ""
    requirements: tuple[str, ...] = ()

    def document(self, context: TaskContext) -> dict[str, object]:
        """What the task's process is told. An account keeps its environments to itself."""
        account = context.account
        home = context.resources.parent / "environments"
        root = home if account is None else Path(account.home, ".cache/orcaflow/environments")
        return {
            "root": str(root),
            "archive": self.archive,
            "requirements": list(self.requirements),
        }

    def shipped(self, master: str) -> list[str]:
        """The archives that executors need; `TaskParameterError` if they can't have it."""
        if master.startswith("local"):
            return []
        if not self.archive:
            raise TaskParameterError(
                f"params.{_KEY}.requirements: the environment is made on this worker, and the"
                f" executors of {master[:80]} run elsewhere: pack it by venv-pack or conda-pack,"
                " and give it as archive"
            )
        return [f"{self.archive}#{_NAME}"]

    def conf(self, master: str) -> dict[str, str]:
        """Settings of the session by which executors use it."""
        return {} if master.startswith("local") else {PYTHON_SETTING: f"./{_NAME}/bin/python"}


def task_environment(context: TaskContext) -> TaskEnvironment | None:
    """What `environment` asks for; None if it is absent."""
    given = context.params.get(_KEY)
    if isinstance(given, str) and given.strip():
        try:
            given = json.loads(given)
        except (ValueError, RecursionError):
            given = 0
    if given in (None, "", {}):
        return None
    named = [
        key for key in ("archive", "requirements") if isinstance(given, Mapping) and given.get(key)
    ]
    if not isinstance(given, Mapping) or len(named) != 1 or set(given) - set(named):
        raise TaskParameterError(
            f'params.{_KEY} must be {{"archive": "path"}} or {{"requirements": ["name==1.0"]}}'
        )
    if named == ["archive"]:
        place = f"{_KEY}.archive"
        name = context.substitute(resource_name(place, given["archive"]))
        if "://" in name or "#" in name or not name.isprintable():
            raise TaskParameterError(f"params.{place} must be a file on this worker")
        return TaskEnvironment(archive=local_file(context, place, name))
    return TaskEnvironment(requirements=_requirements(context, given["requirements"]))


def _requirements(context: TaskContext, given: object) -> tuple[str, ...]:
    if not isinstance(given, list) or len(given) > _MOST:
        raise TaskParameterError(f"params.{_KEY}.requirements must be a list of at most {_MOST}")
    found = []
    for index, each in enumerate(given):
        text = context.substitute(each).strip() if isinstance(each, str) else ""
        # An option would have pip do something else.
        if not text or text.startswith("-") or not text.isprintable():
            raise TaskParameterError(
                f"params.{_KEY}.requirements[{index}] must be like name==1.0, without options"
            )
        found.append(text)
    return tuple(dict.fromkeys(found))
