"""The pages of Spark's UI that a worker may be asked for, and the questions for them."""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlencode

import pytest

from common.log_access import LogAccessError, LogGuard, LogQuestion, token
from common.page_access import PageQuestion, is_file, is_page

KEY = bytes(range(32))
QUESTION = PageQuestion(
    task=34, path="jobs/job/", arguments="id=1&a=%20b", base="/spark-ui/1.2", sees_shared=False
)


@pytest.mark.parametrize(
    "path",
    [
        *("jobs/", "jobs/job/", "stages/stage/", "SQL/execution/", "executors/"),
        *("static/webui.css", "static/vis-timeline.min.js", "static/images/sort_asc.png"),
        "api/v1/applications",
        "api/v1/applications/local-1795198115959/allexecutors",
        "api/v1/applications/app-1/stages/3/0/taskTable",
        *(f"api/v1/applications/app-1/{each}" for each in ("sql", "sql/12", "sqlTable")),
    ],
)
def test_pages_files_and_documents_that_show_no_settings_are_fetched(path: str) -> None:
    assert is_page(path)
    assert is_file(path) == path.startswith("static/")


@pytest.mark.parametrize(
    "path",
    [
        *("", "/", "jobs/job/kill/", "stages/stage/kill/", "SQL/kill/", "environment/"),
        *("executors/threadDump/", "executors/heapHistogram/", "metrics/json/", "proxy/x/"),
        *("api/v1/applications/app-1/environment", "api/v1/applications/app-1/logs"),
        *("static/../environment/", "static/%2e%2e/environment/", "static//x", "/jobs/"),
        *("jobs/\r\nX: y", "jobs", "static/", "http://elsewhere/jobs/", "//elsewhere/jobs/"),
    ],
)
def test_x105_no_other_page_of_spark_is_fetched(path: str) -> None:
    assert not is_page(path)
    with pytest.raises(ValueError, match="is not shown here"):
        PageQuestion.read(replace(QUESTION, path=path).query())


def test_what_is_signed_is_read_as_it_was_meant() -> None:
    assert PageQuestion.read(QUESTION.query()) == QUESTION


@pytest.mark.parametrize(
    "query",
    [
        "",
        f"{QUESTION.query()}&shared=1",
        QUESTION.query().replace("shared=0", "shared=2"),
        replace(QUESTION, task=2**31).query(),
        replace(QUESTION, arguments="a b").query(),
        replace(QUESTION, arguments="a\r\nHost: x").query(),
        replace(QUESTION, arguments="a#b").query(),
        replace(QUESTION, base="/elsewhere").query(),
        urlencode({"task": 1, "path": "jobs/"}),
        "x" * 10_001,
    ],
)
def test_x105_a_malformed_question_is_refused(query: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        PageQuestion.read(query)


def test_x105_a_token_for_one_question_allows_no_other() -> None:
    guard = LogGuard(KEY, cluster="c")
    allowed = token(KEY, cluster="c", question=QUESTION, now=1000)
    log = LogQuestion(instance=1, task=34)
    for other in (replace(QUESTION, sees_shared=True), replace(QUESTION, task=35), log):
        with pytest.raises(LogAccessError):
            guard.check(allowed, other, now=1000)
    of_log = token(KEY, cluster="c", question=log, now=1000)
    with pytest.raises(LogAccessError, match="a token is needed"):
        guard.check(of_log, QUESTION, now=1000)
    guard.check(allowed, QUESTION, now=1000)
