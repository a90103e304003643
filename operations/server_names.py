"""The names of the servers that can be started and stopped; imports nothing, for option parsers."""

from __future__ import annotations

from enum import StrEnum


class ServerName(StrEnum):
    """A server of one `$ORCAFLOW_HOME`; STANDALONE is all of them together."""

    STANDALONE = "standalone-server"
    MASTER = "master-server"
    WORKER = "worker-server"
    API = "api-server"
    ZOOKEEPER = "zookeeper"
    POSTGRES = "postgres"
