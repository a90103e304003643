"""The tags on every Spark application of an attempt, by which its manager finds it.

Pure, standard library only. A *tag* is `orcaflow-<cluster>-<task instance id>-<seal>`. The
*cluster* is twelve hexadecimal digits that stand for the database whose attempts are meant, since
every database has an attempt 1. YARN shows the tag in its tags, Kubernetes in labels, the page of a
driver in a setting. A standalone Master shows only names, which a program may replace.

A program can give any tag to its application. So the *seal* is derived from the attempt's id with
a key that only daemons know. Every worker can derive the tags of lost attempts, and authors of
other projects do not know a tag before the manager shows it. Former versions made no seals.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

Ruler: TypeAlias = Literal["yarn", "standalone", "kubernetes", "local"]
"""The kind of manager that rules the applications of a master URL."""

SETTING: Final = "spark.orcaflow.attempt"
"""Says the tag of an application where settings are shown: its own page, the history server."""
LABEL: Final = "orcaflow-attempt"
CLUSTER_LABEL: Final = "orcaflow-cluster"
NO_CLUSTER: Final = "0" * 12
"""Of attempts whose worker was not told its database."""

_NAME = "orcaflow"
_TAG = re.compile(rf"{_NAME}-([0-9a-f]{{12}})-([1-9][0-9]{{0,18}})(?:-([0-9a-f]{{16}}))?")
_CLUSTER = re.compile(r"[0-9a-f]{12}")
_SEAL_DIGITS: Final = 16


@dataclass(frozen=True, slots=True)
class Tagged:
    """The parts of a tag."""

    cluster: str
    task_instance_id: int
    seal: str = ""
    """"" in a tag of a former version."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tags:
    """The tags of one database's attempts."""

    cluster: str
    key: str = field(default="", repr=False)
    """The secret of the daemons from which seals are derived."""
    unsealed_until: int = 0
    """The last attempt that a former version may have started, with a tag without a seal."""

    @property
    def prefix(self) -> str:
        return prefix(self.cluster)

    def of(self, task_instance_id: int) -> str:
        """Return the tag that an attempt gives its applications."""
        unsealed = f"{self.prefix}{task_instance_id}"
        digest = hmac.new(self.key.encode(), unsealed.encode(), hashlib.sha256)
        return f"{unsealed}-{digest.hexdigest()[:_SEAL_DIGITS]}"

    def of_earlier(self, task_instance_ids: Iterable[int]) -> list[str]:
        """Return all tags that applications of earlier attempts may have."""
        found = []
        for each in task_instance_ids:
            found.append(self.of(each))
            if each <= self.unsealed_until:
                found.append(f"{self.prefix}{each}")
        return found

    def attempt_to_sweep(self, tag: str) -> int | None:
        """Return the attempt after whose end an application with this tag is killed.

        A tag without a seal counts for any attempt: workers of a former version may run beside this
        one, and who forges such a tag loses only an application of their own.
        """
        found = parse(tag)
        if found is None or found.cluster != self.cluster:
            return None
        if found.seal and not hmac.compare_digest(tag, self.of(found.task_instance_id)):
            return None
        return found.task_instance_id


NO_TAGS: Final = Tags(cluster=NO_CLUSTER)


def prefix(cluster: str) -> str:
    """Return the prefix of all tags of a cluster."""
    if not _CLUSTER.fullmatch(cluster):
        raise ValueError(f"{cluster!r} is no cluster: it has twelve hexadecimal digits")
    return f"{_NAME}-{cluster}-"


def parse(text: str) -> Tagged | None:
    """Return the parts of a tag; None for anything that is none."""
    found = _TAG.fullmatch(text)
    return None if found is None else Tagged(found[1], int(found[2]), found[3] or "")


def in_name(name: str) -> str | None:
    """The tag that an application's name ends with, as `named` makes it; None if there is none."""
    found = re.search(rf"\[({_TAG.pattern})\]\Z", name)
    return None if found is None else found[1]


def cluster_of_prefix(tags_prefix: str) -> str:
    """The cluster of a `prefix`."""
    return tags_prefix.removeprefix(f"{_NAME}-").removesuffix("-")


def cluster_tag(tags_prefix: str) -> str:
    """The second tag that YARN is given: it finds whole tags only, never a beginning."""
    return tags_prefix.removesuffix("-")


def ruler(master: str) -> Ruler | None:
    """Return the ruler of a master's applications; None if Spark knows no such master."""
    if master == "yarn" or master.startswith("yarn-"):
        return "yarn"
    if master.startswith("spark://"):
        return "standalone"
    if master.startswith("k8s://"):
        return "kubernetes"
    return "local" if master.startswith("local") else None


def named(name: str, own_tag: str, master: str) -> str:
    """The name of an application: with the tag in it where nothing else is shown."""
    return f"{name} [{own_tag}]" if ruler(master) == "standalone" else name


def conf(own_tag: str, master: str) -> dict[str, str]:
    """The settings that put a tag on an application of this master."""
    found = parse(own_tag)
    if found is None:
        raise ValueError(f"{own_tag!r} is no tag")
    settings = {SETTING: own_tag}
    match ruler(master):
        case "yarn":
            settings["spark.yarn.tags"] = f"{own_tag},{cluster_tag(prefix(found.cluster))}"
        case "kubernetes":
            for pod in ("driver", "executor"):
                settings[f"spark.kubernetes.{pod}.label.{LABEL}"] = own_tag
                settings[f"spark.kubernetes.{pod}.label.{CLUSTER_LABEL}"] = found.cluster
    return settings
