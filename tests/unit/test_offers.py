"""An offer of a worker: written, read again, and read from a row that anybody may have written."""

from __future__ import annotations

import json
from typing import Any

import pytest

from common.model.offers import MAX_TEXT, Offer, offer_of

GOOD: dict[str, Any] = {"groups": ["etl"], "groupIds": [4], "slots": 8, "version": "0.1.0"}


def test_a_worker_reads_what_it_wrote() -> None:
    offer = offer_of(" etl, 7,, 夜", {7, 4, 9}, slots=8, version="0.1.0", is_reserved=True)
    assert offer == Offer(
        slots=8,
        version="0.1.0",
        groups=("etl", "7", "夜"),
        group_ids=frozenset({4, 7, 9}),
        is_reserved=True,
    )
    assert Offer.read(offer.text()) == offer
    assert Offer.read(json.dumps(GOOD | {"later": [1]})) == offer_of(
        "etl", [4], slots=8, version="0.1.0", is_reserved=False
    )


def test_an_offer_that_is_too_long_is_told_shortened() -> None:
    many = Offer(
        slots=10**9,
        version="v" * 100,
        groups=("g" * 300,) * 2,
        group_ids=frozenset(range(1, 2_000)),
    )
    read = Offer.read(many.text())
    assert read is not None
    assert (read.slots, len(read.version), len(read.groups[0])) == (1_000_000, 64, 256)
    assert len(read.group_ids) == 1_000


@pytest.mark.parametrize(
    "text",
    [
        None, "", "x", "null", "7", '"etl"', "[]", "{}", "[" * 60_000, "9" * 5_000, "NaN",
        '{"cpuUsage":0.1,"memoryUsage":0.2,"loadAverage":0.3}',
        json.dumps(GOOD) + " " * MAX_TEXT,
        *(
            json.dumps(GOOD | change)
            for change in (
                {"groups": None}, {"groups": "etl"}, {"groups": [4]}, {"groups": [""]},
                {"groups": {"etl": 1}}, {"groups": ["g" * 257]}, {"groups": ["g"] * 1_001},
                {"groupIds": ["4"]}, {"groupIds": [True]}, {"groupIds": [4.0]}, {"groupIds": [0]},
                {"groupIds": [-1]}, {"groupIds": [2**63]}, {"groupIds": [[4]]}, {"groupIds": 4},
                {"slots": 0}, {"slots": -1}, {"slots": "8"}, {"slots": True}, {"slots": 1.5},
                {"slots": 10**9}, {"slots": None}, {"version": 1}, {"version": None},
                {"version": "v" * 65}, {"version": ["1"]},
                {"reserved": 1}, {"reserved": None}, {"reserved": "true"},
            )
        ),
    ],
)  # fmt: skip
def test_what_no_worker_writes_is_read_as_nothing(text: str | None) -> None:
    assert Offer.read(text) is None
