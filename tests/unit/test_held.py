"""A daemon that is imported and then held until its starter lets it begin."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from common.runtime.held import GO, StarterGoneError, await_start


@pytest.fixture
def gate() -> Iterator[tuple[int, int]]:
    """A pipe: the end that the daemon reads, and the end that its starter holds."""
    reading, writing = os.pipe()
    yield reading, writing
    for descriptor in (reading, writing):
        try:
            os.close(descriptor)
        except OSError:
            continue  # The test has closed it.


def test_a_held_daemon_begins_when_it_is_told_to_and_keeps_no_pipe(gate: tuple[int, int]) -> None:
    reading, writing = gate
    os.write(writing, GO)
    await_start(reading)
    # The starter still holds its end, which would otherwise be waited for.
    assert os.read(reading, 1) == b""


@pytest.mark.parametrize("said", [b"", GO[:-1]])
def test_a_daemon_whose_starter_is_gone_does_not_begin(gate: tuple[int, int], said: bytes) -> None:
    reading, writing = gate
    os.write(writing, said)
    os.close(writing)
    with pytest.raises(StarterGoneError):
        await_start(reading)
