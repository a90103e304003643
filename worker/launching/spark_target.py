"""The target of a SPARK task: the master of its program, its driver's place, and how to follow it.

Pure but for reading the task's keys.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from common.model.task_type import Key, Shape
from worker.launching.base import TaskContext, TaskParameterError
from worker.spark.jvm import doors
from worker.spark.managers import tags
from worker.spark.managers.settings import ManagerSettings

DEPLOY_MODE: Final = Key(
    name="deployMode",
    shape=Shape.WORD,
    about="The driver's place: in the cluster, or on the worker as client or local.",
    words=("cluster", "client", "local"),
)
_YARN_ATTEMPTS: Final = "spark.yarn.maxAppAttempts"
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """The place of a program, and that of its driver."""

    master: str
    mode: str
    ruler: tags.Ruler

    @property
    def in_cluster(self) -> bool:
        """True if the driver runs elsewhere, and its manager lists it as the application itself.

        A standalone Master lists the two apart.
        """
        return self.mode == "cluster" and self.ruler in ("yarn", "kubernetes")

    @property
    def words(self) -> list[str]:
        mode = [] if self.mode == "local" else ["--deploy-mode", self.mode]
        return ["--master", self.master, *mode]


def target_of(context: TaskContext, program_type: str) -> Target:
    """Read master and deploy mode of a task; `TaskParameterError` if they don't fit each other."""
    master = context.substitute(context.text("master")).strip()
    return read_target(context.word(DEPLOY_MODE), master, program_type)


def read_target(mode: str, master: str, program_type: str) -> Target:
    """Return the target that these values name; `TaskParameterError` if they don't agree."""
    if not mode:
        mode = "local" if master.startswith("local") else "cluster"
    master = master or ("local" if mode == "local" else "yarn")
    ruler = tags.ruler(master)
    if ruler is None or not master.isprintable() or " " in master:
        raise TaskParameterError(
            "params.master must be yarn, spark://host:7077, k8s://https://host:6443 or local[n],"
            f" not {master[:80]!r}"
        )
    if (ruler == "local") != (mode == "local"):
        if mode == "client":
            mode = "local"  # The same thing.
        else:
            raise TaskParameterError(f"params.deployMode: {mode} is not for the master {master}")
    if program_type == "PYTHON" and mode == "cluster" and ruler == "standalone":
        raise TaskParameterError(
            "params.deployMode: a standalone cluster runs Python programs in client mode only"
        )
    return Target(master=master, mode=mode, ruler=ruler)


def notes_of_managers(managers: ManagerSettings, target: Target) -> list[str]:
    """Return notes for the log about what can't be followed; refuse it in cluster mode."""
    missing = managers.what_is_missing(target.master)
    if target.mode == "cluster" and target.ruler == "standalone" and not managers.standalone_urls:
        # A guessed page will do while the driver is a process of ours. One that goes on without us
        # has to be found by whoever makes up for this attempt, and by the sweep, which don't guess.
        missing = "spark.standalone_urls"
    if missing and target.mode == "cluster":
        raise TaskParameterError(
            f"params.deployMode: in cluster mode the application on {target.master} could be"
            f" neither followed nor stopped, since {missing} in worker.toml does not name its"
            " manager; set that, or take client"
        )
    if missing:
        return [f"{missing} in worker.toml does not name its manager: only the driver is watched"]
    return []


def namespace_of(context: TaskContext, managers: ManagerSettings, target: Target) -> str:
    """Read the namespace of a task on Kubernetes; only one that the sweep knows is allowed."""
    given = context.substitute(context.text("namespace")).strip()
    if target.ruler != "kubernetes":
        if given:
            raise TaskParameterError(f"params.namespace is not for the master {target.master}")
        return ""
    if given and not _NAMESPACE.fullmatch(given):
        raise TaskParameterError(f"params.namespace: {given[:80]!r} is no name of a namespace")
    is_followed = not managers.what_is_missing(target.master)
    if given and is_followed and given not in managers.kubernetes_namespaces:
        raise TaskParameterError(
            f"params.namespace: {given!r} is not among those of spark.kubernetes_namespace in"
            " worker.toml, so nobody would end an application that is left there"
        )
    return given or managers.kubernetes_namespaces[0]


def default_settings(target: Target, said: Mapping[str, str]) -> dict[str, str]:
    """Return settings that hold unless the task says otherwise, of a driver on this worker."""
    if target.mode == "cluster":
        # Its doors are those of another computer. From 4040 on Spark tries sixteen ports for its
        # UI, and then gives up.
        return {} if target.in_cluster or "spark.ui.port" in said else {"spark.ui.port": "0"}
    settings = {"spark.ui.port": "0", **doors.settings(target.master)}
    return {key: text for key, text in settings.items() if key not in said}


def fallback_settings(target: Target, said: Mapping[str, str]) -> dict[str, str]:
    """Return settings that hold unless the task or Spark's own defaults say otherwise."""
    if target.ruler == "yarn" and target.mode == "cluster" and _YARN_ATTEMPTS not in said:
        # Retries are the task's: a second attempt of YARN's would run the program twice in one.
        return {_YARN_ATTEMPTS: "1"}
    return {}


def waiting_settings(target: Target) -> dict[str, str]:
    """spark-submit goes when it has submitted: the application is followed without a JVM."""
    if target.mode != "cluster":
        return {}
    match target.ruler:
        case "yarn":
            return {"spark.yarn.submit.waitAppCompletion": "false"}
        case "kubernetes":
            return {"spark.kubernetes.submission.waitAppCompletion": "false"}
        case _:
            return {
                "spark.standalone.submit.waitAppCompletion": "true",
                # The other way of submitting can't wait.
                "spark.master.rest.enabled": "false",
            }
