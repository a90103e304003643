"""Requests for a session's progress to its server's page."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from tests.integration.managers.server import Asked, FakeServer, Said, as_json
from worker.spark.progress.connect_progress import ConnectProgress
from worker.spark.progress.facts_file import FactsFile
from worker.spark.progress.meter import Meter


class Page(FakeServer):
    """One job, which is the session's."""

    def answer(self, asked: Asked) -> Said:
        job = {"jobId": 1, "status": "SUCCEEDED", "stageIds": [], "jobTags": ["x_Session_s1_y"]}
        return as_json([job] if asked.path.endswith("/jobs") else [])


class Session:
    """As much of Spark's as is asked for."""

    session_id = "s1"

    def registerProgressHandler(self, handler: object) -> None:  # noqa: N802  # Spark's own name.
        return


@pytest.fixture
def page() -> Iterator[Page]:
    with Page() as page:
        yield page


def test_a_proxy_of_the_environment_is_not_asked_about_this_computer(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    facts = FactsFile(None)
    facts.update(application_ids=("app-1",))
    session: Any = Session()
    # One that has lasted a minute is asked about at its end in any case.
    ConnectProgress(
        session, facts, Meter(time.monotonic() - 60), page.url, {"Authorization": "Bearer a.b"}
    ).close()
    assert facts.current.progress.jobs_done == 1
