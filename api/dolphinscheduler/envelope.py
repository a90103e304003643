"""The envelope of DolphinScheduler's answers: its status codes, pages and times.

HTTP says 200 whatever happened, since scripts look at `code` and `success`. Adds the word *status*:
a number with a sentence that clients compare, byte for byte those of the original.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from enum import Enum
from typing import Any
from zoneinfo import ZoneInfo


class Status(Enum):
    """A status code with its sentence, in which `{0}` and its like are filled in."""

    SUCCESS = (0, "success")
    INTERNAL = (10000, "Internal Server Error: {0}")
    PARAMETER = (10001, "request parameter {0} is not valid")
    NO_TASK = (10008, "task instance not found")
    WRONG_PASSWORD = (10013, "user name or password error")
    NO_PROJECT = (10018, "project {0} not found ")
    PROJECT_EXISTS = (10019, "project {0} already exists")
    NO_SUB_PROCESS_TASK = (10021, "task instance {0} is not sub process instance")
    NO_SCHEDULE = (10022, "scheduler crontab {0} does not exist")
    SCHEDULE_ONLINE = (10023, "online status does not allow update operations")
    WRONG_CRON = (10024, "scheduler crontab expression validation failure: {0}")
    LOGIN_FAILED = (10043, "user login failure")
    CREATE_PROJECT = (10048, "create project error")
    CREATE_SCHEDULE = (10076, "create schedule error")
    UPDATE_SCHEDULE = (10077, "update schedule error")
    ONLINE_SCHEDULE = (10078, "publish schedule online error")
    LOG = (10103, "view task instance log error")
    DOWNLOAD_LOG = (10104, "download task instance log file error")
    CREATE_DEFINITION = (10105, "create process definition error")
    UPDATE_DEFINITION = (10107, "update process definition error")
    RELEASE_DEFINITION = (10108, "release process definition error")
    DELETE_INSTANCE = (10117, "delete process instance by id error")
    SWITCH_VERSION = (10151, "Switch process definition version error")
    SWITCH_NO_DEFINITION = (
        10152,
        (
            "Switch process definition version error: not exists process definition,"
            " [process definition id {0}]"
        ),
    )
    SWITCH_NO_VERSION = (
        10153,
        (
            "Switch process definition version error: not exists process definition version,"
            " [process definition id {0}] [version number {1}]"
        ),
    )
    LIST_VERSIONS = (10154, "query process definition versions error")
    DELETE_VERSION = (10156, "delete process definition version error")
    FORCE_SUCCESS = (10165, "force task success error")
    DEFINITION_EXISTS = (10168, "process definition name {0} already exists")
    FORBIDDEN = (30001, "user has no operation privilege")
    NO_INSTANCE = (50001, "process instance {0} does not exist")
    NO_DEFINITION = (50003, "process definition {0} does not exist")
    DEFINITION_OFFLINE = (50004, "process definition {0} process version {1} not online")
    INSTANCE_ALREADY = (50005, "the status of process instance {0} is already {1}")
    INSTANCE_STATE = (
        50006,
        "the status of process instance {0} is {1},Cannot perform {2} operation",
    )
    NO_SUB_PROCESS = (50007, "sub process instance {0} does not exist")
    INSTANCE_BUSY = (
        50009,
        "process instance {0} is executing the command, please wait ...",
    )
    NOT_SUB_PROCESS = (
        50010,
        "process instance {0} is not sub process instance",
    )
    START = (50014, "start process instance error")
    EXECUTE = (50015, "execute process instance error")
    INVALID_DATA = (50017, "data {0} not valid")
    DEFINITION_ONLINE = (50021, "process definition [{0}] is already online")
    DELETE_DEFINITION = (50022, "delete process definition by id error")
    DELETE_SCHEDULE = (50024, "delete schedule by id error")
    IMPORT = (50029, "import process definition error")
    VERSION_IN_FORCE = (50053, "the version that the master table is using")

    CREATE_ENVIRONMENT = (120001, "create environment error")
    ENVIRONMENT_EXISTS = (120002, "this environment name [{0}] already exists")
    UPDATE_ENVIRONMENT = (120005, "update environment [{0}] info error")
    DELETE_ENVIRONMENT = (120006, "delete environment error")
    NO_ENVIRONMENT = (1200009, "not found environment code [{0}] ")

    @property
    def code(self) -> int:
        return self.value[0]

    def sentence(self, *parts: object) -> str:
        """Return the sentence with its parts filled in, each of bounded length."""
        return self.value[1].format(*(f"{each!s:.1000}" for each in parts))


class RefusedError(Exception):
    """The answer to a call is a status other than success."""

    def __init__(self, status: Status, *parts: object, more: str = "") -> None:
        said = status.sentence(*parts)
        super().__init__(f"{said}: {more}" if more else said)
        self.status = status


def answer(data: object, *, message: str | None = None) -> dict[str, Any]:
    """Build the envelope of success."""
    return {
        "code": Status.SUCCESS.code,
        "msg": Status.SUCCESS.sentence() if message is None else message,
        "data": data,
        "failed": False,
        "success": True,
    }


def refusal(status: Status, message: str) -> dict[str, Any]:
    """Build the envelope of a failure."""
    return {
        "code": status.code,
        "msg": message,
        "data": None,
        "failed": True,
        "success": False,
    }


def page(rows: Sequence[object], *, total: int, number: int, size: int) -> dict[str, Any]:
    """Build a page of rows; pages are counted from 1."""
    return {
        "totalList": list(rows),
        "total": total,
        "totalPage": max(1, -(-total // size)),
        "pageSize": size,
        "currentPage": number,
        "pageNo": number,
    }


def moment(at: datetime | None, zone: ZoneInfo) -> str | None:
    """Return an instant as the wall clock of the zone shows it, without its offset."""
    if at is None:
        return None
    try:
        return at.astimezone(zone).strftime("%Y-%m-%d %H:%M:%S").rjust(19, "0")
    except OverflowError:
        return at.strftime("%Y-%m-%d %H:%M:%S").rjust(19, "0")


def span(begin: datetime | None, end: datetime | None) -> str | None:
    """Return the time between two instants, as `1d 2h 3m 4s` with zero parts left out."""
    if begin is None or end is None:
        return None
    left = max(0, round((end - begin).total_seconds()))
    parts = []
    for unit, seconds in (("d", 86_400), ("h", 3600), ("m", 60), ("s", 1)):
        number, left = divmod(left, seconds)
        if number:
            parts.append(f"{number}{unit}")
    return " ".join(parts) or "0s"
