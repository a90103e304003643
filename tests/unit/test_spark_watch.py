"""The watch: callbacks for readable descriptors, and callbacks that fail."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator

import pytest

from worker.spark.host.forks import Watch


@pytest.fixture
def pipes() -> Iterator[list[int]]:
    """The reading ends of two pipes with something in them."""
    ends = [os.pipe(), os.pipe()]
    for _, writing in ends:
        os.write(writing, b"word")
    yield [reading for reading, _ in ends]
    for end in ends:
        for fd in end:
            os.close(fd)


def test_what_fails_is_logged_and_everything_else_is_done(
    pipes: list[int], caplog: pytest.LogCaptureFixture
) -> None:
    watch = Watch()
    done: list[int] = []

    def act(fd: int) -> None:
        done.append(fd)
        raise KeyError(fd)

    for fd in pipes:
        watch.add(fd, lambda fd=fd: act(fd))  # type: ignore[misc]
    with caplog.at_level(logging.ERROR):
        watch.wait(1.0)
    assert sorted(done) == sorted(pipes)
    assert [each.message for each in caplog.records] == ["event could not be dealt with"] * 2


def test_what_an_earlier_act_has_removed_is_not_done(pipes: list[int]) -> None:
    watch = Watch()
    done: list[int] = []

    def act(own: int, other: int) -> None:
        done.append(own)
        watch.remove(other)

    first, second = pipes
    watch.add(first, lambda: act(first, second))
    watch.add(second, lambda: act(second, first))
    watch.wait(1.0)
    assert len(done) == 1
