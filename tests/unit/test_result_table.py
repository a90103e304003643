"""Limits of a result's rows, and the failures that runners make of them."""

from __future__ import annotations

import pytest

from worker.result_table import Result, ResultTooLargeError
from worker.runners.database import failing
from worker.runners.job import JobError


def test_a_list_that_is_put_out_may_not_exceed_64_kib() -> None:
    result = Result(["name"], rows_shown=1, outputs={"name": "LIST"})
    result.take(["x" * 60_000])
    with pytest.raises(ResultTooLargeError, match="output parameter 'name' has more than 65,536"):
        result.take(["x" * 6_000])


def test_values_that_are_not_put_out_are_not_counted() -> None:
    result = Result(["name"], rows_shown=1, outputs={"name": "VARCHAR"})
    for _ in range(3):
        result.take(["x" * 60_000])
    assert result.count == 3


def test_a_runner_fails_its_job_with_the_words_of_the_limit() -> None:
    with pytest.raises(JobError, match=r"^the result is too large$"), failing("line 1"):
        raise ResultTooLargeError("the result is too large")
