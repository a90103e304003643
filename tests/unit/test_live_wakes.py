"""An opened stream wakes the loop, and a filled mailbox notifies its reader."""

from __future__ import annotations

from api.live.streams import Mailbox, Stream, Streams
from api.live.topics import read_topics
from common.model.rights import DATABASE


def test_an_opened_stream_wakes_the_loop() -> None:
    streams = Streams()
    wakes: list[str] = []
    streams.wake = lambda: wakes.append("opened")
    topics = read_topics("instance:7")
    streams.open(Stream(principal=DATABASE, topics=topics, projects=frozenset()))
    assert wakes == ["opened"]


def test_a_mailbox_notifies_its_reader_of_all_that_it_is_given() -> None:
    mailbox = Mailbox()
    notified: list[bytes] = []
    mailbox.notify_by(lambda: notified.append(mailbox.take()))
    mailbox.post_snapshot(b"all")
    mailbox.post([b"change"])
    mailbox.end(b"end")
    assert notified == [b"all", b"change", b"end"]
