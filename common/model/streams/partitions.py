"""The partitions of a stream: numbers in one topic, or pairs of topic and number in several.

Pure. A supervisor of one topic has plain numbers. A supervisor with a pattern has values of
`TopicPartition`, which texts and JSON show as `topic:number`, as Druid does. A supervisor has both
only while tasks from before a change of its specification end. All partitions have one order.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import total_ordering
from typing import Final, TypeAlias

_MOST_NUMBER: Final = 2**31 - 1
_NUMBER: Final = re.compile(r"0|[1-9][0-9]{0,9}", re.ASCII)
_ALL_OF_TOPIC: Final = ":*"
TOPIC_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,249}", re.ASCII)
"""The names that Kafka allows."""


@total_ordering
@dataclass(frozen=True, slots=True)
class TopicPartition:
    """A partition of one of several topics. In order, it follows all plain numbers."""

    topic: str
    number: int

    def __str__(self) -> str:
        return f"{self.topic}:{self.number}"

    def __lt__(self, other: object) -> bool:
        if isinstance(other, TopicPartition):
            return (self.topic, self.number) < (other.topic, other.number)
        return False if isinstance(other, int) else NotImplemented


Partition: TypeAlias = int | TopicPartition


def read_partition(text: object) -> Partition:
    """Read `3` or `topic:3`; a `ValueError` for everything else."""
    topic, colon, digits = str(text).rpartition(":")
    if not _NUMBER.fullmatch(digits) or int(digits) > _MOST_NUMBER:
        raise ValueError(f"{str(text)!r:.300} is not a partition")
    if not colon:
        return int(digits)
    if not TOPIC_NAME.fullmatch(topic):
        raise ValueError(f"{str(text)!r:.300} is not a partition: {topic!r:.260} is not a topic")
    return TopicPartition(topic, int(digits))


def read_chosen(texts: Iterable[object]) -> tuple[list[Partition], list[str]]:
    """Read partitions, and topics with all their partitions (`topic:*`); a `ValueError` else."""
    partitions: list[Partition] = []
    topics: list[str] = []
    for text in map(str, texts):
        topic = text.removesuffix(_ALL_OF_TOPIC)
        if topic != text and TOPIC_NAME.fullmatch(topic):
            topics.append(topic)
        else:
            partitions.append(read_partition(text))
    return partitions, topics


def shown_partition(partition: Partition) -> int | str:
    """Return a partition as JSON has it where it is a value: the number, or `topic:number`."""
    return partition if isinstance(partition, int) else str(partition)


def number_of(partition: Partition) -> int:
    """Return the number of a partition in its topic."""
    return partition if isinstance(partition, int) else partition.number


def topic_of(partition: Partition, topic: str) -> str:
    """Return the topic of a partition; plain numbers belong to `topic`."""
    return topic if isinstance(partition, int) else partition.topic


def group_of(partition: Partition, groups: int) -> int:
    """Return the number of the task group that reads a partition, as Druid computes it."""
    if isinstance(partition, int):
        return partition % groups
    code = (31 * _java_hash(partition.topic) + partition.number) & 0xFFFF_FFFF
    return abs(code - 2**32 if code >= 2**31 else code) % groups


def name_several_topics(partitions: Iterable[Partition]) -> bool:
    """Return True if a partition contains its topic, as with a pattern."""
    return any(isinstance(each, TopicPartition) for each in partitions)


def _java_hash(text: str) -> int:
    """Return `String.hashCode()` of Java, without its sign."""
    code = 0
    for letter in text:
        code = (31 * code + ord(letter)) & 0xFFFF_FFFF
    return code
