"""The address of a channel to a Connect server of this computer."""

from __future__ import annotations

import copy

from worker.spark.jvm.connect_channel import LoopbackChannel
from worker.spark.session.sessions import Place


def test_x100_a_channel_goes_to_the_address_that_the_server_listens_at() -> None:
    place = Place(port=20_123, token="a token", session_id="0" * 36)
    builder = LoopbackChannel(place.port, place.parameters)
    # `localhost` may also be the IPv6 address, where programs of other accounts can listen.
    for each in (builder, copy.deepcopy(builder)):
        assert each.endpoint == "127.0.0.1:20123"
        assert each.token == "a token"
        each.toChannel().close()
