"""`environment`: the Python of a task's own, packed in an archive or made from requirements.

    {"archive": "envs/forecast.tar.gz"}        {"requirements": ["scikit-learn==1.5.2"]}

Nothing is made here: the task's process does that (`worker.spark.session.environments`). Here the
two are checked, and what executors on other hosts need is shipped along.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from worker.launching.base import TaskContext, TaskParameterError, fault_at
from worker.launching.keys import check_archive_name, check_requirement, read_environment
from worker.launching.shipped import local_file

_KEY: Final = "environment"
_NAME: Final = "orcaflow_environment"
"""The name of an archive in the directories of executors."""
PYTHON_SETTING: Final = "spark.sql.execution.pyspark.python"
"""The setting for the Python of a session's UDFs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskEnvironment:
    """The environment that a task wants."""

    archive: str = ""
    requirements: tuple[str, ...] = ()

    def document(self, context: TaskContext) -> dict[str, object]:
        """Return the part of the job about it. An account keeps its environments to itself."""
        account = context.account
        home = context.resources.parent / "environments"
        root = home if account is None else Path(account.home, ".cache/orcaflow/environments")
        return {
            "root": str(root),
            "archive": self.archive,
            "requirements": list(self.requirements),
        }

    def shipped(self, master: str) -> list[str]:
        """Return the archives that executors need; `TaskParameterError` if they can't have it."""
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
        """Return the settings of the session by which executors use it."""
        return {} if master.startswith("local") else {PYTHON_SETTING: f"./{_NAME}/bin/python"}


def task_environment(context: TaskContext) -> TaskEnvironment | None:
    """Return the environment that `environment` asks for; None if it is absent."""
    with fault_at(_KEY):
        given = read_environment(context.params.get(_KEY))
        if "archive" in given:
            name = context.substitute(str(given["archive"]))
            check_archive_name(name)
            return TaskEnvironment(archive=local_file(context, f"{_KEY}.archive", name))
        if "requirements" not in given:
            return None
        listed = given["requirements"]
        found = []
        for index, each in enumerate(listed if isinstance(listed, list) else ()):
            text = context.substitute(each).strip()
            check_requirement(text, index)
            found.append(text)
    return TaskEnvironment(requirements=tuple(dict.fromkeys(found)))
