"""Probes YARN for the doctor: its ResourceManagers, and its configuration on this computer."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

_PATH: Final = "/ws/v1/cluster/info"
_WITHIN: Final = timedelta(seconds=3)
_LARGEST_BYTES: Final = 100_000
_FOLDERS: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")
_FILE: Final = "yarn-site.xml"


class ManagerState(StrEnum):
    """The state of a ResourceManager, as it answers."""

    ACTIVE = "active"
    STANDBY = "standby"
    REFUSES = "refuses to answer"
    NONE = "does not answer"


def probe(url: str) -> ManagerState:
    """Request the state of a ResourceManager at an address such as `http://rm:8088`."""
    parts = urlsplit(url)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    try:
        connection = kind(parts.netloc, timeout=_WITHIN.total_seconds())
    except (http.client.HTTPException, ValueError):
        return ManagerState.NONE
    try:
        connection.request("GET", f"{parts.path.rstrip('/')}{_PATH}")
        answer = connection.getresponse()
        return state_in(answer.status, answer.read(_LARGEST_BYTES))
    except (OSError, http.client.HTTPException, UnicodeError):
        return ManagerState.NONE
    finally:
        connection.close()


def state_in(status: int, body: bytes) -> ManagerState:
    """Return the state in an answer about a cluster."""
    if status in (401, 403):
        return ManagerState.REFUSES
    try:
        info = json.loads(body)["clusterInfo"]
        # Without high availability there is one, which is active once it has started.
        if status != 200 or info["state"] != "STARTED":
            return ManagerState.NONE
        is_standby = info.get("haState", "ACTIVE") != "ACTIVE"
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return ManagerState.NONE
    return ManagerState.STANDBY if is_standby else ManagerState.ACTIVE


def configuration_problem(environment: Mapping[str, str]) -> str:
    """Return the reason for which `spark-submit` can't find YARN here; "" if it can."""
    named = {name: environment[name] for name in _FOLDERS if environment.get(name)}
    if not named:
        return f"neither {' nor '.join(_FOLDERS)} is set"
    if any((Path(folder) / _FILE).is_file() for folder in named.values()):
        return ""
    said = ", ".join(f"{name}={folder}" for name, folder in named.items())
    return f"there is no {_FILE} in {said}"
