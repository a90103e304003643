"""Requests with a token to a page of this account, at whose port an outsider may listen."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from typing import Any

import pytest

from common.own_http import OPENER
from common.ports import check_server, is_of, listener_of, ports_of, server_account
from tests.integration.managers.server import Asked, FakeServer, Said, as_json
from tests.outsiders import ACCOUNT, AS_ROOT, an_outsider
from worker.runners.own_page import OwnPage
from worker.spark.jvm import doors
from worker.spark.managers.base import ManagerUnreachableError
from worker.spark.progress.connect_progress import ConnectProgress
from worker.spark.progress.facts_file import FactsFile
from worker.spark.progress.meter import Meter
from worker.spark.session.sessions import Place, _ask_page

TOKEN = "the-page-token"


class Page(FakeServer):
    def answer(self, asked: Asked) -> Said:
        return as_json([asked.headers.get("Authorization", "")])


def a_request(url: str) -> urllib.request.Request:
    return urllib.request.Request(f"{url}/jobs/", headers=dict(doors.headers(TOKEN)))


def test_a_page_of_this_account_gets_the_request() -> None:
    with Page() as page, OPENER.open(a_request(page.url), timeout=10) as answer:
        assert TOKEN in answer.read().decode()


@AS_ROOT
def test_x100_an_outsider_at_the_port_of_a_page_gets_no_token() -> None:
    session: Any = type("Session", (), {"session_id": "s1", "registerProgressHandler": id})()
    facts = FactsFile(None)
    facts.update(application_ids=("app-1",))
    with an_outsider() as outsider:
        with pytest.raises(urllib.error.URLError, match=f"belongs to account number {ACCOUNT}"):
            OPENER.open(a_request(outsider.url), timeout=10)
        place = Place(port=1, token="", session_id="", ui_link=outsider.url, page_token=TOKEN)
        with pytest.raises(urllib.error.URLError):
            _ask_page(place, "/jobs/")
        progress = ConnectProgress(session, facts, Meter(-60), outsider.url, doors.headers(TOKEN))
        progress.close()
        ask = OwnPage("tag", lambda: TOKEN)._asking(outsider.port)
        with pytest.raises(ManagerUnreachableError):
            ask("applications", {})
        assert "Bearer" not in outsider.received()
    assert facts.current.progress.jobs_done == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_the_account_behind_a_connection_is_known_before_and_after_it_is_accepted(
    host: str,
) -> None:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with (
        socket.create_server((host, 0), family=family) as door,
        socket.create_connection(door.getsockname()[:2]) as connection,
    ):
        assert server_account(connection) == os.geteuid()
        with door.accept()[0]:
            check_server(connection, os.geteuid(), "the server")
            with pytest.raises(ConnectionRefusedError, match=r"and the server to 1$"):
                check_server(connection, 1, "the server")


def test_a_listener_is_that_of_the_process_that_has_its_socket() -> None:
    with socket.create_server(("127.0.0.1", 0)) as door:
        port = door.getsockname()[1]
        listener = listener_of(port)
        assert listener is not None
        assert is_of(listener, os.getpid())
        assert port in ports_of(os.getpid())
        # Another process of the same account.
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
            assert not is_of(listener, other.pid)
            assert ports_of(other.pid) == set()
            other.kill()
