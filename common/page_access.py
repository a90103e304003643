"""The pages of Spark's UI that a worker fetches for an api-server, and the questions for them.

Pure. A page, file or document of the UI that is not listed here is never fetched: the pages of
settings and thread dumps show secrets, and others end jobs. `common.log_access`
makes and checks the tokens of questions.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta
from typing import ClassVar, Final
from urllib.parse import parse_qsl, urlencode

PATH: Final = "/v1/spark-ui"
MOST_BYTES: Final = 8 * 1024 * 1024
PATIENCE: Final = timedelta(seconds=10)
"""The time for one page, from the question to the last byte."""
PREFIX: Final = "/spark-ui"
"""The first part of the paths of these pages at an api-server."""
FIRST_PAGE: Final = "jobs/"

_PAGES: Final = frozenset(
    {
        *(FIRST_PAGE, "jobs/job/", "stages/", "stages/stage/", "stages/pool/"),
        *("storage/", "storage/rdd/", "executors/", "SQL/", "SQL/execution/"),
        *("connect/", "connect/session/", "StreamingQuery/", "StreamingQuery/statistics/"),
        *("streaming/", "streaming/batch/"),
    }
)
_NAME: Final = r"[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*"
_FILE: Final = re.compile(rf"static/{_NAME}(?:/{_NAME}){{0,4}}")
_DOCUMENT: Final = re.compile(
    rf"api/v1/applications(?:/{_NAME}/(?:(?:all)?executors|(?:all)?miscellaneousprocess"
    r"|stages/[0-9]{1,9}/[0-9]{1,9}(?:/task(?:Summary|Table|List))?|sql(?:Table|/[0-9]{1,18})?))?"
)
"""The documents of Spark's REST API that the scripts of its pages read."""
_ARGUMENTS: Final = re.compile(r"[!$-~]{0,2000}")
_BASE: Final = re.compile(rf"{PREFIX}/[0-9a-f.]{{1,200}}")
_LARGEST_ID: Final = 2**31 - 1
_KEYS: Final = ("task", "path", "arguments", "base", "shared")


def is_file(path: str) -> bool:
    """Return True for the path of one of Spark's own style sheets, scripts and pictures."""
    return _FILE.fullmatch(path) is not None


def is_page(path: str) -> bool:
    """Return True for the path, without the first slash, of something that may be fetched."""
    return path in _PAGES or is_file(path) or _DOCUMENT.fullmatch(path) is not None


def are_arguments(text: str) -> bool:
    """Return True for text that may be the query of a page."""
    return _ARGUMENTS.fullmatch(text) is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class PageQuestion:
    """A page of the UI of the driver, or of the server, that an attempt has its session in."""

    scheme: ClassVar[str] = "Orcaflow-Page"

    task: int
    path: str
    arguments: str = ""
    """The query of the page."""
    base: str
    """The prefix that the links of the page get."""
    sees_shared: bool
    """True if the page may be one of a server that tasks of all projects share."""

    def query(self) -> str:
        """Return the query of a URL; what is signed."""
        given = (self.task, self.path, self.arguments, self.base, int(self.sees_shared))
        return urlencode(dict(zip(_KEYS, given, strict=True)))

    @classmethod
    def read(cls, query: str) -> PageQuestion:
        """Read the query of a URL; `ValueError` says what is wrong with it."""
        if len(query) > 10_000:
            raise ValueError("the query is too long")
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=len(_KEYS))
        given = dict(pairs)
        if tuple(name for name, _ in pairs) != _KEYS:
            raise ValueError(f"the query has the keys {', '.join(_KEYS)}")
        if not re.fullmatch("[0-9]{1,10}", given["task"]) or int(given["task"]) > _LARGEST_ID:
            raise ValueError("task is an id")
        if given["shared"] not in ("0", "1"):
            raise ValueError("shared is 0 or 1")
        if not is_page(given["path"]):
            raise ValueError("this page of Spark's UI is not shown here")
        if not are_arguments(given["arguments"]) or not _BASE.fullmatch(given["base"]):
            raise ValueError("the arguments or the base are malformed")
        return cls(
            task=int(given["task"]),
            path=given["path"],
            arguments=given["arguments"],
            base=given["base"],
            sees_shared=given["shared"] == "1",
        )
