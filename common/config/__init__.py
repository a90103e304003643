"""The settings: their defaults, their sources, and the origin of each value.

They are read once, at start, into frozen dataclasses: the code's defaults, then the shipped
`conf/*.toml`, then the files of the folder that `ORCAFLOW_CONF_DIR` names, or that the home's
daemons were last started with (`common.config.folder`), then environment
variables (`ORCAFLOW_MASTER__EXEC_THREADS`), then the options of a command line; the later wins. All
mistakes are reported together, each with its place, and no secret is ever repeated.

A *setting* is a field of `common.config.settings` with a default and a docstring; `conf/*.toml` is
rendered from them (`python -m common.config conf`), and a test keeps it so. An empty `database.url`
or `zookeeper.hosts` means the embedded server, whose address is looked up on demand. pydantic
checks what differs from its default and is imported only then, because most commands must start
without it; pydantic-settings is not used, since its import takes longer than the whole command line
may take to start.
"""

from common.config.addresses import (
    database_dsn,
    database_url,
    zookeeper_digest,
    zookeeper_hosts,
)
from common.config.keys import CONF_DIR_VARIABLE, ENVIRONMENT_PREFIX, FILES
from common.config.reading import (
    default_conf_dir,
    home,
    load,
    spark_profiles,
    splices_scripts,
)
from common.config.settings import (
    ApiConfig,
    CommandConfig,
    Config,
    DatabaseConfig,
    EmbeddedConfig,
    MasterConfig,
    OidcConfig,
    StreamsConfig,
    WorkerConfig,
    ZookeeperConfig,
)
from common.config.values import DERIVED_KEYS, effective, get, shown
from common.config.zone import cluster_zone
from common.libpq import dsn as libpq_dsn

__all__ = [
    "CONF_DIR_VARIABLE",
    "DERIVED_KEYS",
    "ENVIRONMENT_PREFIX",
    "FILES",
    "ApiConfig",
    "CommandConfig",
    "Config",
    "DatabaseConfig",
    "EmbeddedConfig",
    "MasterConfig",
    "OidcConfig",
    "StreamsConfig",
    "WorkerConfig",
    "ZookeeperConfig",
    "cluster_zone",
    "database_dsn",
    "database_url",
    "default_conf_dir",
    "effective",
    "get",
    "home",
    "libpq_dsn",
    "load",
    "shown",
    "spark_profiles",
    "splices_scripts",
    "zookeeper_digest",
    "zookeeper_hosts",
]
