"""The channel from a client to a Spark Connect server on this computer, without TLS.

PySpark allows a token without TLS only for the host `localhost`. That name may also be the IPv6
address of the loopback, at which the server does not listen and any other program can. So the
channel goes to the IPv4 address, at which the server listens. Needs pyspark.
"""

from __future__ import annotations

from pyspark.sql.connect.client import DefaultChannelBuilder

from worker.spark.jvm.doors import LOOPBACK

_WITHOUT_PROXY = ("grpc.enable_http_proxy", 0)


class LoopbackChannel(DefaultChannelBuilder):
    """A builder of channels to the server at one port."""

    def __init__(self, port: int, parameters: str) -> None:
        """`parameters` are those of a connection string, such as the token."""
        self._endpoint = f"{LOOPBACK}:{port}"
        super().__init__(f"sc://localhost:{port}/;{parameters}", channelOptions=[_WITHOUT_PROXY])

    @property
    def endpoint(self) -> str:
        return self._endpoint
