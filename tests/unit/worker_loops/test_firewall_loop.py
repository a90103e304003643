"""The loop that sets missing firewall rules: its log, without a firewall."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from worker.loops.firewall_loop import FirewallLoop


def test_a_reason_is_logged_once_until_it_changes(caplog: pytest.LogCaptureFixture) -> None:
    answers: list[Mapping[str, str]] = [
        {},
        {"postgres": "nft is not installed"},
        {"postgres": "nft is not installed"},
        {"postgres": "nft failed", "zookeeper": "nft failed"},
        {},
        {"postgres": "nft failed"},
        {"postgres": "nft failed", "ports": "nft failed"},
    ]
    counts: list[int] = []
    loop = FirewallLoop(lambda: answers[len(counts)])
    for _ in answers:
        loop.run_once()
        counts.append(len(caplog.records))
    assert counts == [0, 1, 1, 3, 3, 4, 5]
    assert all("nftables" in vars(record)["cure"] for record in caplog.records)
