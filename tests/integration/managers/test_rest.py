"""Reading responses of managers: none may block the reader, or fill its memory."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from tests.integration.managers.server import (
    MORE_TROUBLES,
    TROUBLES,
    Asked,
    FakeServer,
    Said,
    as_json,
)
from worker.spark.managers.base import ManagerError, ManagerUnreachableError
from worker.spark.managers.rest import Limits, Rest

BRIEF = Limits(connect_seconds=2.0, read_seconds=1.0, whole_seconds=2.0, tries=1)
AMPLE = Limits(connect_seconds=30.0, read_seconds=30.0, whole_seconds=30.0, tries=1)
SOON_SECONDS = 20.0
"""Far more than a request may take, and far less than for ever."""


class Plain(FakeServer):
    """A healthy server."""

    def answer(self, asked: Asked) -> Said:
        return as_json({"path": asked.path})


@pytest.fixture
def server() -> Iterator[Plain]:
    with Plain() as server:
        yield server


def error_of_request(rest: Rest) -> ManagerError | None:
    """The error of a request in a thread of its own: one that hangs can't block the tests."""
    wrong: list[ManagerError] = []

    def request() -> None:
        try:
            rest.json("/x")
        except ManagerError as error:
            wrong.append(error)

    thread = threading.Thread(target=request, daemon=True)
    thread.start()
    thread.join(SOON_SECONDS)
    assert not thread.is_alive(), "it hangs"
    return wrong[0] if wrong else None


@pytest.mark.parametrize("trouble", [*TROUBLES, *MORE_TROUBLES])
def test_no_answer_holds_who_asked_and_the_next_one_counts(server: Plain, trouble: str) -> None:
    rest = Rest([server.url], limits=BRIEF)
    assert rest.json("/first") == {"path": "/first"}
    server.trouble = trouble
    assert error_of_request(rest) is not None
    server.trouble = ""
    assert rest.json("/again") == {"path": "/again"}


@pytest.mark.parametrize("trouble", ["hints", "slow head", "slow chunk"])
def test_an_answer_that_never_begins_took_too_long(server: Plain, trouble: str) -> None:
    server.trouble = trouble
    error = error_of_request(Rest([server.url], limits=BRIEF))
    assert isinstance(error, ManagerUnreachableError)
    assert "takes too long to answer" in str(error)


@pytest.mark.parametrize("trouble", ["zipped", "bomb"])
def test_no_answer_is_unpacked(server: Plain, trouble: str) -> None:
    server.trouble = trouble
    error = error_of_request(Rest([server.url], limits=AMPLE))
    assert "in an encoding that was not asked for" in str(error)
    assert server.asked[-1].headers["Accept-Encoding"] == "identity"
