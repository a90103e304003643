"""Messages over the socket of a Spark host: whole, in parts, too long, or nonsense."""

from __future__ import annotations

import array
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from worker.spark.host.proxy_protocol import (
    BadRequestError,
    Link,
    Request,
    check,
    listening,
    request_bytes,
)

OWN, OTHER = 1_000, 1_001


@dataclass(frozen=True, slots=True)
class Ends:
    """Both ends of a conversation, and a file whose copies are counted."""

    proxy: socket.socket
    link: Link
    file: int

    def send(self, content: bytes, *, files: int = 0) -> None:
        rights = array.array("i", [self.file] * files)
        control = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, rights)] if files else []
        sent = self.proxy.sendmsg([content], control)
        assert sent == len(content)

    def copies(self) -> int:
        """The number of descriptors of this process that are that file."""
        found = 0
        for entry in Path("/proc/self/fd").iterdir():
            with suppress(OSError):  # The descriptor of the listing.
                found += os.path.sameopenfile(int(entry.name), self.file)
        return found - 1

    def received(self) -> str:
        return self.proxy.recv(65_536).decode()


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[Ends]:
    proxy, connection = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    file = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    link = Link(connection)
    yield Ends(proxy, link, file)
    link.close()
    proxy.close()
    os.close(file)


def framed(*words: bytes) -> bytes:
    body = b"\0".join(words)
    return len(body).to_bytes(4, "big") + body


TASK = framed(b"task", b"/attempt", b"2", b"default", b"/attempt/job.json", b"A=1", b"B=x=y")


def test_a_whole_request_has_its_words_its_environment_and_its_files(ends: Ends) -> None:
    ends.send(TASK, files=3)
    ends.link.receive()
    request = ends.link.request()
    assert request is not None
    assert (request.what, request.directory) == ("task", "/attempt")
    assert request.arguments == ("default", "/attempt/job.json")
    assert request.environment == {"A": "1", "B": "x=y"}
    assert ends.copies() == len(request.files) == 3
    request.close()
    assert ends.copies() == 0


def test_a_request_in_parts_comes_when_its_last_byte_has(ends: Ends) -> None:
    for position in range(len(TASK)):
        assert ends.link.request() is None
        # The files come with the first byte, wherever the sender's system splits the message.
        ends.send(TASK[position : position + 1], files=0 if position else 3)
        ends.link.receive()
    request = ends.link.request()
    assert request is not None
    assert len(request.files) == 3
    request.close()


def test_two_requests_in_one_part_come_one_after_the_other(ends: Ends) -> None:
    ends.send(request_bytes("follow", "first") + request_bytes("follow", "second"))
    ends.link.receive()
    found = [ends.link.request(), ends.link.request(), ends.link.request()]
    assert [each and each.arguments for each in found] == [("first",), ("second",), None]


def test_bytes_that_are_no_text_come_through_as_they_are(ends: Ends) -> None:
    ends.send(framed(b"task", b"/\xff", b"1", b"\xfe", b"NA\xcfVE=\xff"))
    ends.link.receive()
    request = ends.link.request()
    assert request is not None
    assert os.fsencode(request.directory) == b"/\xff"
    assert os.fsencode(request.arguments[0]) == b"\xfe"
    assert request.environment == {os.fsdecode(b"NA\xcfVE"): os.fsdecode(b"\xff")}


def test_words_that_are_no_variables_are_left_out_of_the_environment(ends: Ends) -> None:
    ends.send(framed(b"task", b"/", b"0", b"", b"=", b"=x", b"novalue", b"A="))
    ends.link.receive()
    request = ends.link.request()
    assert request is not None
    assert request.environment == {"A": ""}


@pytest.mark.parametrize(
    "frame",
    [
        framed(),
        framed(b"task"),
        framed(b"task", b"/"),
        framed(b"task", b"/", b"many", b"x"),
        framed(b"task", b"/", b"-1", b"x"),
        framed(b"task", b"/", b"3", b"x", b"y"),
        framed(b"task", b"/", b"9" * 5_000),
        b"\xff" * 64,
        b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        (8_000_001).to_bytes(4, "big"),
    ],
    ids=lambda frame: repr(frame[:12]),
)
def test_nonsense_is_refused_and_its_files_are_closed(ends: Ends, frame: bytes) -> None:
    ends.send(frame, files=3)
    ends.link.receive()
    with pytest.raises(BadRequestError):
        ends.link.request()
    ends.link.close()
    assert ends.copies() == 0


def test_who_sends_more_files_than_a_request_has_is_refused(ends: Ends) -> None:
    for _ in range(2):
        ends.send(b"\0", files=3)
        ends.link.receive()
    with pytest.raises(BadRequestError, match="open files"):
        ends.link.request()
    ends.link.close()
    assert ends.copies() == 0


def test_files_of_a_request_that_never_comes_are_closed_with_the_link(ends: Ends) -> None:
    ends.send(TASK[:10], files=3)
    ends.link.receive()
    assert ends.copies() == 3
    ends.link.close()
    assert ends.copies() == 0


def test_what_comes_after_the_request_are_signals_without_files(ends: Ends) -> None:
    ends.send(b"\x0f\x02", files=2)
    ends.link.receive()
    assert ends.link.signals() == b"\x0f\x02"
    assert ends.link.signals() == b""
    assert ends.copies() == 0


def test_a_link_is_over_when_the_other_side_is_gone(ends: Ends) -> None:
    ends.link.receive()
    assert not ends.link.is_over
    ends.proxy.close()
    ends.link.receive()
    assert ends.link.is_over


def test_what_is_told_to_nobody_ends_the_link_and_nothing_else(ends: Ends) -> None:
    ends.proxy.close()
    ends.link.exit(0)
    assert ends.link.is_over


def test_every_message_is_one_line_whatever_its_text_is(ends: Ends) -> None:
    ends.link.say("first\nexit 0\r\nthird")
    ends.link.error("SERVER_LOST", "it\nhas died")
    ends.link.exit(-9)
    assert ends.received() == "say first exit 0 third\nerror SERVER_LOST it has died\nexit -9\n"


def test_a_long_text_is_cut(ends: Ends) -> None:
    ends.link.say("x" * 100_000)
    assert len(ends.received()) < 5_000


def test_the_account_of_the_proxy_is_as_the_kernel_reports_it(ends: Ends) -> None:
    assert ends.link.uid == os.geteuid()


def a_request(what: str, *arguments: str, files: int = 3) -> Request:
    return Request(
        what=what, arguments=arguments, directory="/", environment={}, files=(0,) * files
    )


@pytest.mark.parametrize(
    "request_",
    [a_request("task", "default", "/job"), a_request("python", "/s", "-m", "pyspark.daemon")],
    ids=lambda each: each.what,
)
def test_the_hosts_own_account_may_ask_for_processes(request_: Request) -> None:
    check(request_, uid=OWN, own=OWN)


def test_no_other_account_may_ask_a_host_for_anything() -> None:
    check(a_request("follow", "{}", files=0), uid=OWN, own=OWN)
    for request in (
        a_request("follow", "{}", files=0),
        a_request("task", "default", "/job"),
        a_request("python", "/s", "-m", "pyspark.daemon"),
    ):
        with pytest.raises(BadRequestError, match=f"account {OTHER}"):
            check(request, uid=OTHER, own=OWN)


def test_the_daemon_of_a_tenants_host_is_root_which_may_follow_it_and_nothing_else() -> None:
    check(a_request("follow", "{}", files=0), uid=0, own=OWN)
    for request in (
        a_request("task", "default", "/job"),
        a_request("python", "/s", "-m", "pyspark.daemon"),
    ):
        with pytest.raises(BadRequestError, match="account 0"):
            check(request, uid=0, own=OWN)


@pytest.mark.parametrize(
    "request_",
    [
        a_request("task", "default"),
        a_request("task", "default", "/job", "more"),
        a_request("task", "default", "/job", files=2),
        a_request("python"),
        a_request("python", "/s", files=0),
        a_request("follow", files=0),
        a_request("follow", "{}", files=1),
        a_request("reboot", "now"),
        a_request(""),
    ],
    ids=repr,
)
def test_what_is_no_request_of_a_task_proxy_is_refused(request_: Request) -> None:
    with pytest.raises(BadRequestError):
        check(request_, uid=OWN, own=OWN)


def test_a_socket_can_stand_at_a_path_longer_than_an_address_may_be(tmp_path: Path) -> None:
    folder = tmp_path / ("long" * 40)
    folder.mkdir()
    with listening(str(folder / "door"), mode=0o600):
        assert (folder / "door").stat().st_mode & 0o777 == 0o600


def test_a_socket_takes_the_place_of_one_that_nobody_listens_at(tmp_path: Path) -> None:
    path = str(tmp_path / "door")
    listening(path, mode=0o600).close()
    with listening(path, mode=0o600) as door, socket.socket(socket.AF_UNIX) as proxy:
        proxy.connect(path)
        assert door.accept()[0].close() is None
