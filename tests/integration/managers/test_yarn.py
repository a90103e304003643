"""YARN, healthy and faulty."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pytest

from tests.integration.managers.bench import CLUSTER, TAGS, yarn_tags
from tests.integration.managers.server import TROUBLES, Asked, FakeServer, Said, as_json
from tests.integration.managers.yarn import FakeYarn
from tests.integration.spark_host import until
from worker.spark.managers.base import (
    Application,
    AppState,
    ManagerError,
    ManagerRefusedError,
    ManagerUnreachableError,
)
from worker.spark.managers.rest import HASTY
from worker.spark.managers.yarn import YarnManager

TAG = TAGS.of(7)


@pytest.fixture
def yarn() -> Iterator[FakeYarn]:
    with FakeYarn() as yarn:
        yield yarn


def manager(*urls: str) -> YarnManager:
    return YarnManager(urls, user="etl", limits=HASTY)


class Parrot(FakeServer):
    """Gives the same response to every request."""

    def __init__(self, document: Any) -> None:
        self.document = document
        super().__init__()

    def answer(self, asked: Asked) -> Said:
        return as_json(self.document)


def test_no_applications_are_none(yarn: FakeYarn) -> None:
    assert manager(yarn.url).with_tag(TAG) == []


def test_applications_are_found_by_a_tag_or_by_the_cluster_s(yarn: FakeYarn) -> None:
    mine = yarn.submit(yarn_tags(TAG))
    yarn.submit(yarn_tags(TAGS.of(8)))
    yarn.submit("theirs")
    yarn.submit(f"orcaflow-{CLUSTER}")
    asked = manager(yarn.url)
    assert [each.id for each in asked.with_tag(TAG)] == [mine.id]
    assert len(asked.with_prefix(TAGS.prefix)) == 2


def test_an_answer_that_does_not_heed_the_tag_is_sifted(yarn: FakeYarn) -> None:
    # As from a ResourceManager that is too old to know the parameter.
    app = {"id": "application_1_1", "state": "RUNNING", "finalStatus": "UNDEFINED"}
    with Parrot({"apps": {"app": [{**app, "applicationTags": "theirs"}, app]}}) as parrot:
        assert manager(parrot.url).with_tag(TAG) == []


def test_one_application_may_come_without_a_list() -> None:
    app = {"id": "application_1_1", "state": "ACCEPTED", "applicationTags": TAG}
    with Parrot({"apps": {"app": app}}) as parrot:
        (found,) = manager(parrot.url).with_tag(TAG)
    assert found.state is AppState.WAITING


@pytest.mark.parametrize(
    ("state", "final", "means"),
    [
        ("NEW", "UNDEFINED", AppState.WAITING),
        ("NEW_SAVING", "UNDEFINED", AppState.WAITING),
        ("ACCEPTED", "UNDEFINED", AppState.WAITING),
        ("SUBMITTED", "UNDEFINED", AppState.WAITING),
        ("RUNNING", "UNDEFINED", AppState.RUNNING),
        ("FINISHED", "SUCCEEDED", AppState.SUCCEEDED),
        ("FINISHED", "FAILED", AppState.FAILED),
        ("FINISHED", "KILLED", AppState.KILLED),
        ("FINISHED", "UNDEFINED", AppState.FAILED),
        ("FAILED", "FAILED", AppState.FAILED),
        ("KILLED", "KILLED", AppState.KILLED),
    ],
)
def test_t20_an_application_that_has_yet_to_start_has_not_failed(
    state: str, final: str, means: AppState
) -> None:
    app = {"id": "application_1_1", "state": state, "finalStatus": final, "applicationTags": TAG}
    with Parrot({"apps": {"app": [app]}}) as parrot:
        assert manager(parrot.url).with_tag(TAG)[0].state is means


@pytest.mark.parametrize(
    "document",
    [
        [],
        {},
        {"apps": []},
        {"apps": {"app": "x"}},
        {"apps": {"app": [None]}},
        {"apps": {"app": [{}]}},
        {"apps": {"app": [{"id": "application_1_1"}]}},
        {"apps": {"app": [{"id": "application_1_1", "state": "DANCING"}]}},
        {"apps": {"app": [{"id": "../../x", "state": "RUNNING"}]}},
        {"RemoteException": {"message": "not now"}},
    ],
)
def test_half_an_answer_is_none(document: Any) -> None:
    with Parrot(document) as parrot, pytest.raises(ManagerUnreachableError):
        manager(parrot.url).with_tag(TAG)


@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_bad_answer_is_none(yarn: FakeYarn, trouble: str) -> None:
    yarn.submit(yarn_tags(TAG))
    yarn.trouble = trouble
    asked = manager(yarn.url)
    with pytest.raises(ManagerError):
        asked.with_tag(TAG)
    yarn.trouble = ""

    def found() -> int:
        with suppress(ManagerUnreachableError):  # So hasty a one may miss a server that is busy.
            return len(asked.with_tag(TAG))
        return 0

    until(lambda: found() == 1)


def test_nobody_there_is_no_answer() -> None:
    with pytest.raises(ManagerUnreachableError, match="can't be asked"):
        manager("http://127.0.0.1:9").with_tag(TAG)


def test_a_refusal_says_who_refused_and_with_what(yarn: FakeYarn) -> None:
    yarn.trouble = "401"
    with pytest.raises(ManagerRefusedError, match="refuses to answer: status 401"):
        manager(yarn.url).with_tag(TAG)


def test_the_one_that_answered_is_asked_first_the_next_time(yarn: FakeYarn) -> None:
    with FakeYarn() as away:
        away.trouble = "500"
        asked = manager(away.url, yarn.url)
        for _ in range(3):
            asked.with_tag(TAG)
        assert len(away.asked) == 1


def test_a_kill_is_asked_for_in_the_name_of_the_application_s_user(yarn: FakeYarn) -> None:
    yarn.submit(yarn_tags(TAG), user="alice")
    asked = manager(yarn.url)
    asked.kill(asked.with_tag(TAG)[0])
    assert yarn.asked[-1].query["user.name"] == "alice"
    assert asked.with_tag(TAG)[0].state is AppState.KILLED


LOG_SERVER = "/ws/v1/applicationhistory"


def ended(yarn: FakeYarn) -> Application:
    yarn.submit(yarn_tags(TAG), stderr="it divided by zero\n")
    yarn.end_all("FINISHED", "FAILED")
    (found,) = manager(yarn.url).with_tag(TAG)
    return found


def test_a_redirect_to_the_log_server_on_a_resource_manager_s_host_is_followed(
    yarn: FakeYarn,
) -> None:
    yarn.aggregates = yarn.url + LOG_SERVER
    assert manager(yarn.url).log(ended(yarn)) == "stderr:\nit divided by zero"


@pytest.mark.parametrize("answer", ["404", "http://elsewhere.test:1/ws"])
def test_the_configured_log_server_has_what_a_node_has_no_longer(
    yarn: FakeYarn, answer: str
) -> None:
    yarn.aggregates = answer
    asked = YarnManager([yarn.url], user="etl", log_url=yarn.url + LOG_SERVER, limits=HASTY)
    assert asked.log(ended(yarn)) == "stderr:\nit divided by zero"
    assert yarn.asked[-1].query["user.name"] == "etl"


def test_the_log_server_has_the_log_of_a_node_that_is_gone(yarn: FakeYarn) -> None:
    app = ended(yarn)
    gone = replace(app, place=app.place.replace(yarn.url, "http://127.0.0.1:9"))
    asked = YarnManager([yarn.url], user="etl", log_url=yarn.url + LOG_SERVER, limits=HASTY)
    assert asked.log(gone) == "stderr:\nit divided by zero"


@pytest.mark.parametrize(
    "base",
    [
        "404",
        "http://elsewhere.test:1/ws/v1/applicationhistory",
        "http://localhost:{port}/ws/v1/applicationhistory",
        "http://127.0.0.1@localhost:{port}/ws/v1/applicationhistory",
        "file:///etc",
        "http://[",
    ],
)
def test_a_redirect_to_another_host_is_refused_with_the_key_to_set(
    yarn: FakeYarn, base: str
) -> None:
    yarn.aggregates = base.format(port=yarn.url.rpartition(":")[2])
    app = ended(yarn)
    with pytest.raises(ManagerRefusedError, match=r"spark\.yarn_log_url"):
        manager(yarn.url).log(app)
    assert not any("applicationhistory" in each.path for each in yarn.asked)


def test_a_redirect_leads_to_that_log_only(yarn: FakeYarn) -> None:
    yarn.aggregates = f"{yarn.url}/ws/v1/cluster/apps?x="
    app = ended(yarn)
    with pytest.raises(ManagerRefusedError, match=r"spark\.yarn_log_url"):
        manager(yarn.url).log(app)


def test_a_log_that_has_yet_to_be_moved_is_not_an_answer(yarn: FakeYarn) -> None:
    yarn.aggregates, yarn.has_moved = yarn.url + LOG_SERVER, False
    app = ended(yarn)
    with pytest.raises(ManagerUnreachableError, match="does not have the log yet"):
        manager(yarn.url).log(app)


def test_the_log_is_its_last_part(yarn: FakeYarn) -> None:
    app = yarn.submit(yarn_tags(TAG), stderr="x" * 600_000 + "\nthe end\n")
    asked = manager(yarn.url)
    log = asked.log(asked.with_tag(TAG)[0])
    assert log.endswith("the end")
    assert len(log) < 300_000
    app.stderr = ""
    assert asked.log(asked.with_tag(TAG)[0]) == ""
