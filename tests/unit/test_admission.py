"""The limits of a host's load up to which a daemon takes work."""

from __future__ import annotations

import pytest

from common.host import HostLoad
from common.runtime.admission import Admission
from tests.simulation.virtual_clock import VirtualClock


@pytest.mark.parametrize(
    ("load_average", "memory_gb", "room"),
    [(4.0, 0.5, True), (4.1, 0.5, False), (4.0, 0.4, False), (0.0, 9.0, True)],
)
def test_t53_there_is_room_up_to_the_limits_themselves(
    load_average: float, memory_gb: float, room: bool
) -> None:
    load = HostLoad(
        cpu_usage=0.0,
        memory_usage=0.0,
        load_average=load_average,
        available_memory_gb=memory_gb,
    )
    admission = Admission(
        load=lambda: load, max_load_average=4.0, reserved_memory_gb=0.5, clock=VirtualClock()
    )
    assert admission() is room
