"""Puts the Spark host together and serves, once it is known to be the only one at its place.

All that takes PySpark and half a second to import is imported by this module.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Mapping
from pathlib import Path

from worker.spark.host import preload
from worker.spark.host.connect_server import MakeCommand, scratch_of
from worker.spark.host.forking import raise_file_limit
from worker.spark.host.loop import Host
from worker.spark.jvm import cds_building, java_command


def serve(directory: Path, *, spark_home: str, for_tenant: bool) -> None:
    """Serve until nobody needs it."""
    preload.ready()
    raise_file_limit()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Host(
        directory,
        python=sys.executable,
        command=_command(spark_home, builds=not for_tenant),
        ends_idle=for_tenant,
    ).run()


def _command(spark_home: str, *, builds: bool) -> MakeCommand:
    """`builds`: an archive of classes that is not there is made; the daemon does it for tenants."""

    def command(
        conf: Mapping[str, str], directory: Path, environment: Mapping[str, str]
    ) -> java_command.Command:
        made = java_command.command(
            java_command.PYTHON_DRIVER,
            conf=conf,
            properties_file=directory / "server.properties",
            home=spark_home,
            environment=environment,
            scratch=scratch_of(directory),
        )
        if made.archive is None and builds:
            # The next one will start faster.
            cds_building.build_in_background(spark_home, made.argv[0])
        return made

    return command
