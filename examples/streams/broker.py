"""A broker of Kafka without Kafka: the mock cluster of librdkafka, from the wheel of its client.

    python broker.py TOPIC PARTITIONS

It prints its address, and serves until its standard input ends. Others reach it by TCP. It forgets
all at the end, keeps about 5 MB of a partition, and shows aborted transactions to everybody.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import confluent_kafka
from confluent_kafka import Producer

_PRODUCER: Final = 0
_LIST_OFFSETS: Final = 2  # The key of this request in Kafka's protocol.
_SITE: Final = Path(confluent_kafka.__file__).parent.parent


def _library() -> ctypes.CDLL:
    (path,) = _SITE.glob("confluent_kafka.libs/librdkafka-*.so*")
    library = ctypes.CDLL(str(path))
    pointer, text, number = ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int
    for name, result, arguments in (
        ("rd_kafka_conf_new", pointer, []),
        ("rd_kafka_new", pointer, [number, pointer, text, ctypes.c_size_t]),
        ("rd_kafka_destroy", None, [pointer]),
        ("rd_kafka_mock_cluster_new", pointer, [pointer, number]),
        ("rd_kafka_mock_cluster_destroy", None, [pointer]),
        ("rd_kafka_mock_cluster_bootstraps", text, [pointer]),
        ("rd_kafka_mock_topic_create", number, [pointer, text, number, number]),
        ("rd_kafka_mock_topic_set_error", None, [pointer, text, number]),
        (
            *("rd_kafka_mock_push_request_errors_array", None),
            [pointer, ctypes.c_int16, ctypes.c_size_t, ctypes.POINTER(number)],
        ),
        ("rd_kafka_mock_broker_set_down", number, [pointer, ctypes.c_int32]),
        ("rd_kafka_mock_broker_set_up", number, [pointer, ctypes.c_int32]),
    ):
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


class Broker:
    """A cluster of one broker."""

    def __init__(self, library: ctypes.CDLL, cluster: int) -> None:
        self._library = library
        self._cluster = cluster
        self.servers: str = library.rd_kafka_mock_cluster_bootstraps(cluster).decode()
        self._producer = Producer({"bootstrap.servers": self.servers})

    def create(self, topic: str, partitions: int) -> None:
        failed = self._library.rd_kafka_mock_topic_create(
            self._cluster, topic.encode(), partitions, 1
        )
        assert not failed

    def refuse(self, topic: str, code: int) -> None:
        """Answer with this error of Kafka's when the topic is looked up; 0 is none."""
        self._library.rd_kafka_mock_topic_set_error(self._cluster, topic.encode(), code)

    def refuse_offsets(self, codes: Sequence[int]) -> None:
        """Answer the next questions after offsets with these errors of Kafka's, one each."""
        self._library.rd_kafka_mock_push_request_errors_array(
            self._cluster, _LIST_OFFSETS, len(codes), (ctypes.c_int * len(codes))(*codes)
        )

    def produce(self, topic: str, partition: int, values: Sequence[bytes], **more: Any) -> None:
        """Append records to a partition; all are there on return."""
        for value in values:
            while True:
                try:
                    self._producer.produce(topic, value, partition=partition, **more)
                    break
                except BufferError:
                    self._producer.poll(0.1)
        assert self._producer.flush(30) == 0

    def close(self) -> None:
        """End the producer: it would ask for its broker for ever, at a port that others get."""
        del self._producer

    def go_down(self) -> None:
        assert not self._library.rd_kafka_mock_broker_set_down(self._cluster, 1)

    def come_up(self) -> None:
        assert not self._library.rd_kafka_mock_broker_set_up(self._cluster, 1)


@contextmanager
def a_broker() -> Iterator[Broker]:
    library = _library()
    said = ctypes.create_string_buffer(500)
    handle = library.rd_kafka_new(_PRODUCER, library.rd_kafka_conf_new(), said, len(said))
    assert handle, said.value
    cluster = library.rd_kafka_mock_cluster_new(handle, 1)
    broker = Broker(library, cluster)
    try:
        yield broker
    finally:
        broker.close()
        library.rd_kafka_mock_cluster_destroy(cluster)
        library.rd_kafka_destroy(handle)


def main() -> int:
    topic, partitions = sys.argv[1:]
    with a_broker() as broker:
        broker.create(topic, int(partitions))
        sys.stdout.write(f"{broker.servers}\n")
        sys.stdout.flush()
        sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
