"""The figures of this computer are sane."""

from __future__ import annotations

from common.host import host_load, own_rss_bytes


def test_the_load_is_within_its_bounds() -> None:
    load = host_load()
    assert 0.0 <= load.cpu_usage <= 1.0
    assert 0.0 <= load.memory_usage <= 1.0
    assert load.load_average >= 0.0
    assert load.available_memory_gb > 0.0
    assert own_rss_bytes() > 1_000_000
