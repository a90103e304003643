"""The silence after which a session of a Connect server counts as closed."""

from __future__ import annotations

from worker.spark.session.sessions import Silence


def looks(*found: bool, each: float) -> list[bool]:
    """The answers to looks that are so many seconds apart and find the server busy, or not."""
    silence = Silence()
    return [silence.is_long(number * each, is_busy=is_busy) for number, is_busy in enumerate(found)]


def test_a_few_looks_are_not_enough_however_long_they_take() -> None:
    assert looks(*[False] * 8, each=10.0) == [*[False] * 7, True]


def test_a_moment_is_not_enough_however_many_looks_it_has() -> None:
    assert looks(*[False] * 60, each=0.01) == [*[False] * 50, *[True] * 10]


def test_it_begins_anew_with_whatever_runs() -> None:
    answers = looks(*[False] * 7, True, *[False] * 8, each=0.25)
    assert answers == [*[False] * 15, True]


def test_a_server_that_is_always_busy_is_never_silent() -> None:
    assert not any(looks(*[True] * 100, each=1.0))
