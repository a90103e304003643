"""Spark's UI through the worker and the api-server: the pages, the processes and the rights."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from common.clock import SystemClock
from common.log_access import token
from common.page_access import PATH, PageQuestion
from operations.worker_calls import Answered, call
from tests.fake_drivers import Attempts, a_driver, a_page_server, seen_by
from tests.outsiders import AS_ROOT, an_outsider

KEY = bytes(range(32))
BASE = "/spark-ui/1.2"
OWN, SHARED, LYING = 1, 2, 3
TOKENS = {OWN: "own.page.token", SHARED: "shared.page.token"}


class Worker:
    """A worker with an attempt that has a driver, and one with a session in a shared server."""

    def __init__(self, folder: Path, ends: ExitStack) -> None:
        self.attempts = Attempts()
        servers = folder / "spark-1"
        self.folders = {OWN: folder / "1", SHARED: servers / "server-1", LYING: folder / "3"}
        for each in self.folders.values():
            each.mkdir(parents=True)
        (folder / "2").mkdir()
        (self.folders[OWN] / "spark_1.token").write_text(TOKENS[OWN])
        (self.folders[SHARED] / "page.token").write_text(TOKENS[SHARED])
        self.ports = {
            task: ends.enter_context(a_driver(self.folders[task], is_of_attempt=task == OWN))
            for task in (OWN, SHARED)
        }
        self.link(OWN, folder / "1", self.ports[OWN])
        self.link(SHARED, folder / "2", self.ports[SHARED])
        self.address = ends.enter_context(a_page_server(self.attempts, servers, KEY, "c"))

    def link(self, task: int, directory: Path, port: int) -> None:
        self.attempts.write_link(task, directory, f"http://127.0.0.1:{port}")

    def get(self, task: int, path: str = "jobs/", **changes: Any) -> Answered:
        question = PageQuestion(
            **{"task": task, "path": path, "base": BASE, "sees_shared": True, **changes}
        )
        now = SystemClock().now().timestamp()
        return call(
            self.address,
            f"{PATH}?{question.query()}",
            allowed=token(KEY, cluster="c", question=question, now=now),
            most=10_000_000,
            seconds=30,
        )


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    with ExitStack() as ends:
        yield Worker(tmp_path_factory.mktemp("pages"), ends)


@pytest.mark.parametrize("task", [OWN, SHARED])
def test_a_page_comes_from_the_task_s_driver_or_server_with_its_token(
    worker: Worker, task: int
) -> None:
    answered = worker.get(task, "jobs/job/", arguments="id=7&x=%20")
    path, headers = seen_by(answered.body)
    assert (answered.status, path) == (200, "/jobs/job/?id=7&x=%20")
    assert headers["authorization"] == f"Bearer {TOKENS[task]}"
    assert headers["x-forwarded-context"] == BASE
    assert not {"cookie", "origin"} & headers.keys()
    kept = {name.lower(): text for name, text in answered.headers.items()}
    assert kept["content-type"] == "text/html"
    assert not {"set-cookie", "content-security-policy"} & kept.keys()


def test_x105_the_pages_of_a_shared_server_are_for_users_who_see_every_project(
    worker: Worker,
) -> None:
    answered = worker.get(SHARED, sees_shared=False)
    assert answered.status == 403
    assert "statements of all projects" in answered.reason
    assert "profile classic" in answered.reason
    assert worker.get(OWN, sees_shared=False).status == 200


def test_x105_a_port_that_an_attempt_has_written_down_leads_to_its_own_processes_alone(
    worker: Worker,
) -> None:
    # The driver of another attempt, and a port of the cluster.
    for port in (worker.ports[OWN], int(worker.address.rpartition(":")[2]), 1):
        worker.link(LYING, worker.folders[LYING], port)
        answered = worker.get(LYING)
        assert (answered.status, answered.reason) == (
            404,
            "Spark's UI of this attempt can not be found at this worker",
        )
    # A shared server stays a shared one, whoever names it.
    worker.link(LYING, worker.folders[LYING], worker.ports[SHARED])
    assert worker.get(LYING, sees_shared=False).status == 403
    assert worker.get(99).status == 404


@AS_ROOT
def test_x105_a_program_of_another_account_gets_neither_request_nor_token(worker: Worker) -> None:
    with an_outsider() as outsider:
        worker.link(LYING, worker.folders[LYING], outsider.port)
        assert worker.get(LYING).status == 404
        assert outsider.received() == ""


def test_a_redirect_leads_to_a_listed_page_of_the_same_ui_or_nowhere(worker: Worker) -> None:
    here = f"http://127.0.0.1:{worker.ports[OWN]}"
    for place in (f"{here}/jobs/job/?id=1", f"{BASE}/jobs/job/?id=1"):
        answered = worker.get(OWN, "stages/", arguments=place)
        assert (answered.status, answered.headers["Location"]) == (302, f"{BASE}/jobs/job/?id=1")
    for place in ("http://169.254.169.254/jobs/", f"{here}/environment/", "//elsewhere/jobs/", ""):
        answered = worker.get(OWN, "stages/", arguments=place)
        assert answered.status == 502
        assert "Location" not in answered.headers


def test_errors_and_pages_that_are_too_large_are_not_passed_on(worker: Worker) -> None:
    missing, large = worker.get(OWN, "storage/"), worker.get(OWN, "executors/")
    assert (missing.status, missing.reason) == (404, "Spark's UI has no such page")
    assert (large.status, large.reason) == (502, "the page has more than 8388608 bytes")
    assert len(large.body) < 200


def test_x105_a_link_in_the_place_of_a_token_is_not_followed(worker: Worker) -> None:
    file = worker.folders[OWN] / "spark_1.token"
    kept = file.with_name("elsewhere")
    file.rename(kept)
    file.symlink_to(kept)
    try:
        assert "authorization" not in seen_by(worker.get(OWN).body)[1]
    finally:
        kept.replace(file)


def test_x105_a_question_without_a_token_is_refused(worker: Worker) -> None:
    question = PageQuestion(task=OWN, path="jobs/", base=BASE, sees_shared=True)
    answered = call(worker.address, f"{PATH}?{question.query()}", allowed="", most=1000, seconds=30)
    assert (answered.status, json.loads(answered.body)["error"]) == (401, "a token is needed")
