"""Makes the manager that rules the applications of a master, and all that are configured."""

from __future__ import annotations

import getpass
import os

from worker.spark.managers.base import ApplicationManager
from worker.spark.managers.kubernetes import KubernetesManager
from worker.spark.managers.local import LocalManager
from worker.spark.managers.rest import PATIENT, Limits
from worker.spark.managers.settings import ManagerSettings
from worker.spark.managers.standalone import StandaloneManager
from worker.spark.managers.tags import ruler
from worker.spark.managers.yarn import YarnManager


def manager_of(
    master: str,
    settings: ManagerSettings,
    *,
    user: str,
    namespace: str = "",
    limits: Limits = PATIENT,
    before: ApplicationManager | None = None,
) -> ApplicationManager | None:
    """Return the manager of a master's applications; None if none is configured.

    `user` is for whom YARN is asked; `namespace` that of Kubernetes. `before` is one that was made
    for the same: what it has found out is known to this one too.
    """
    if settings.what_is_missing(master):
        return None
    match ruler(master):
        case "yarn":
            return _yarn(settings, user, limits)
        case "standalone":
            made = StandaloneManager(
                settings.standalone_pages(master),
                master=master,
                history_url=settings.history_url,
                limits=limits,
            )
            if isinstance(before, StandaloneManager):
                made.learn_from(before)
            return made
        case "kubernetes":
            return _kubernetes(settings, (namespace or settings.kubernetes_namespaces[0],), limits)
        case _:
            return LocalManager()


def all_managers(settings: ManagerSettings, *, user: str) -> list[ApplicationManager]:
    """All that are configured, each of which may be away without the others."""
    found: list[ApplicationManager] = []
    if settings.yarn_urls:
        found.append(_yarn(settings, user, PATIENT))
    found += [
        StandaloneManager([page], history_url=settings.history_url)
        for page in settings.standalone_urls
    ]
    if settings.kubernetes_url:
        found.append(_kubernetes(settings, settings.kubernetes_namespaces, PATIENT))
    return found


def own_user() -> str:
    """The account that asks, as far as it has a name."""
    try:
        return os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _yarn(settings: ManagerSettings, user: str, limits: Limits) -> YarnManager:
    return YarnManager(
        settings.yarn_urls,
        user=user,
        log_url=settings.yarn_log_url,
        history_url=settings.history_url,
        limits=limits,
    )


def _kubernetes(
    settings: ManagerSettings, namespaces: tuple[str, ...], limits: Limits
) -> KubernetesManager:
    return KubernetesManager(
        settings.kubernetes_url,
        namespaces=namespaces,
        token_file=settings.kubernetes_token_file,
        ca_file=settings.kubernetes_ca_file,
        history_url=settings.history_url,
        limits=limits,
    )
