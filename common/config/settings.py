"""The settings themselves: each field is one, with its default and a line on why to change it.

The docstrings are printed into `conf/*.toml`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from annotated_types import Ge, Gt, Le, MaxLen, MinLen

from common.cloud_keys import CLOUD_KEYS
from common.spark_config import SparkConfig

DEFAULT_HOME = "~/.orcaflow"
_FORBID_UNKNOWN: dict[str, object] = {"extra": "forbid"}
Port = Annotated[int, Ge(1), Le(65535)]
PortOrFree = Annotated[int, Ge(0), Le(65535)]
Positive = Annotated[int, Ge(1)]
Percent = Annotated[int, Ge(1), Le(100)]
Seconds = Annotated[float, Gt(0), Le(86_400)]
WholeSeconds = Annotated[int, Ge(1), Le(86_400)]


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseConfig:
    """PostgreSQL: its address, and limits of time."""

    __pydantic_config__: ClassVar[dict[str, object]] = _FORBID_UNKNOWN

    url: str = field(default="", repr=False)
    """As postgresql+psycopg2://user:password@host:port/name; empty uses the embedded server."""
    pool_size: Positive = 5
    """Connections that a daemon keeps open."""
    statement_timeout_seconds: Seconds = 30.0
    """A statement that takes longer is given up: nothing that a loop asks for should."""
    connect_timeout_seconds: WholeSeconds = 5
    """A server that does not answer for so long counts as unreachable."""
    sslmode: Literal["", "disable", "allow", "prefer", "require", "verify-ca", "verify-full"] = ""
    """TLS in libpq's words; verify-full checks certificate and name. Empty: as url says it."""
    sslrootcert: str = ""
    """The file with the certificates that the server's is checked by; system is the system's."""
    sslcert: str = ""
    """The file with the own certificate, for servers that ask for one."""
    sslkey: str = ""
    """The file with the key of sslcert, readable by the daemons' account alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ZookeeperConfig:
    """ZooKeeper: its address, and the silence after which a daemon counts as dead."""

    __pydantic_config__: ClassVar[dict[str, object]] = _FORBID_UNKNOWN

    hosts: str = ""
    """As host:port,host:port; empty uses the embedded server."""
    root: str = "/dolphinscheduler"
    """Everything that Orcaflow keeps in ZooKeeper is below this node."""
    session_timeout_seconds: Annotated[float, Ge(2), Le(86_400)] = 10.0
    """A daemon that is silent for so long counts as dead, and others take its work over."""
    connection_timeout_seconds: Seconds = 10.0
    """A start that gets no answer for so long says so and goes on waiting."""
    digest: str = field(default="", repr=False)
    """user:password for the digest scheme, which all nodes then belong to; empty: digest_file."""
    digest_file: str = ""
    """A file with user:password instead. Without either, only the embedded server has one."""
    tls: bool = False
    """Speak TLS with the servers, at their secureClientPort."""
    tls_verify: Literal["full", "ca", "none"] = "full"
    """Check certificate and name (full), the certificate (ca), or nothing, and warn (none)."""
    tls_ca_file: str = ""
    """The file with the certificates that theirs is checked by, besides the system's."""
    tls_cert_file: str = ""
    """The file with the own certificate, for servers that ask for one."""
    tls_key_file: str = ""
    """The file with the key of tls_cert_file, readable by the daemons' account alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandConfig:
    """Limits of a row of `t_ds_command`."""

    __pydantic_config__: ClassVar[dict[str, object]] = _FORBID_UNKNOWN

    param_limit_bytes: Positive = 1_000_000
    """A longer command_param is refused unread, so that one row can't eat the master's memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedConfig:
    """The PostgreSQL and the ZooKeeper that Orcaflow starts itself if none are named."""

    __pydantic_config__: ClassVar[dict[str, object]] = _FORBID_UNKNOWN

    postgres_port: PortOrFree = 0
    """Port of the embedded PostgreSQL; 0 takes a free one and keeps it while it is free."""
    zookeeper_port: PortOrFree = 0
    """Port of the embedded ZooKeeper; 0 takes a free one and keeps it while it is free."""
    zookeeper_tick_ms: Annotated[int, Ge(50)] = 500
    """ZooKeeper's own unit of time: half a second lets sessions be as short as a second."""
    zookeeper_heap_mb: Annotated[int, Ge(32)] = 512
    """Memory for ZooKeeper's Java heap, which accepts a connection for every 2 MB."""
    firewall: bool = True
    """Limit tenants' accounts with nftables in mode tenant, where root starts the servers."""
    tenant_connections: Annotated[int, Ge(1), Le(100)] = 20
    """Connections of each tenant's account to PostgreSQL; ZooKeeper accepts none of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsConfig:
    """Limits of the supervisors of streams, checked when one is submitted or resumed."""

    __pydantic_config__: ClassVar[dict[str, object]] = _FORBID_UNKNOWN

    max_supervisors_per_project: Positive = 100
    """Supervisors of a project that have not ended, also suspended ones."""
    max_tasks_per_supervisor: Positive = 1000
    """Tasks of a supervisor at a time: taskCount (or taskCountMax) times replicas."""
    max_tasks_per_project: Positive = 2000
    """The same for all supervisors of a project that are not suspended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MasterConfig:
    """A master daemon."""

    __pydantic_config__: ClassVar[dict[str, object]] = _FORBID_UNKNOWN

    host: str = "127.0.0.1"
    """The master's name to others: host:port is its identity in the tables and in ZooKeeper."""
    port: Port = 5678
    """Serves health and metrics; several masters on one host differ by it."""
    exec_threads: Positive = 100
    """Process instances that do work at the same time (not threads); sites set 1000 or more."""
    project_share_percent: Percent = 80
    """Percentage of exec_threads for one project while others exist; 100 disables the limit."""
    exec_task_num: Annotated[int, Ge(0)] = 0
    """Tasks of one process instance on workers at the same time; 0 is no limit but the slots."""
    sub_process_depth: Positive = 100
    """Levels of sub-processes below a process instance; a task that would start more fails."""
    sub_process_runs: Positive = 1000
    """Live and waiting sub-processes of one root instance; a task that would start more fails."""
    fetch_size: Positive = 50
    """Commands taken at once: fewer spread the work better, more cost less."""
    heartbeat_interval_seconds: Seconds = 10.0
    """Interval of reports on load and memory; the session alone shows that the daemon lives."""
    database_patience_seconds: Annotated[float, Ge(5), Le(86_400)] = 15.0
    """After this time without the database a master leaves its runs to another that reaches it."""
    command_poll_seconds: Seconds = 1.0
    """Commands are noticed at once; this finds the one whose notification was missed."""
    ledger_days: Annotated[int, Ge(1), Le(36_500)] = 30
    """Days for which outcomes of commands are kept; the refused stay in t_ds_error_command too."""
    retention_days: Annotated[int, Ge(0), Le(36_500)] = 0
    """Age in days at which ended runs are deleted, with their logs and history; 0: never."""
    repair_interval_seconds: Seconds = 1.0
    """Interval at which the queue and the timers are compared with the tables and repaired."""
    failover_interval_seconds: Seconds = 2.0
    """Interval at which owners in the tables are compared with living daemons."""
    hold_interval_seconds: Seconds = 2.0
    """Interval at which delays, pools and waiting instances are checked without a notification."""
    timeout_interval_seconds: Seconds = 1.0
    """Interval at which time-outs are checked, and so the largest delay of one."""
    dependent_interval_seconds: Seconds = 5.0
    """Interval at which DEPENDENT tasks check their upstream without a notification."""
    schedule_interval_seconds: Seconds = 5.0
    """Interval at which schedules are read again while none is due and none is notified."""
    misfire_threshold_seconds: Annotated[float, Gt(0), Le(86_400)] = 60.0
    """A fire later than this is a misfire; the schedule's policy decides on it."""
    complement_interval_seconds: Seconds = 1.0
    """Interval at which live complements are checked without a notification."""
    task_assignment_timeout_seconds: Annotated[float, Gt(0), Le(86_400)] = 300.0
    """A worker that was chosen for a task has to claim it within this; then another is."""
    min_worker_version: Annotated[str, MaxLen(64)] = "0"
    """Workers of versions below this (as texts) are chosen for no task; others still claim."""
    blacklist_failures: Annotated[int, Ge(0)] = 5
    """Failures in a row of chosen tasks after which a worker is chosen no more for a while."""
    blacklist_seconds: Seconds = 900.0
    """The time for which such a worker is not chosen, unless a task of it succeeds."""
    blacklist_percentage: Annotated[int, Ge(0), Le(100)] = 20
    """No more workers than these are passed over for their failures."""
    stop_deadline_seconds: Annotated[float, Gt(0), Le(86_400)] = 13.0
    """A stop is over after this, whatever workers do; take worker.kill_grace_seconds + 8."""
    max_cpuload_avg: Annotated[float, Gt(0)] = 100.0
    """Above this load average no new command is taken."""
    reserved_memory_gb: Annotated[float, Ge(0)] = 0.1
    """With less available memory than this no new command is taken."""
    http_host: str = "127.0.0.1"
    """Address that serves health and metrics; other than loopback shows them to the network."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig:
    """A worker daemon."""

    __pydantic_config__: ClassVar[dict[str, object]] = _FORBID_UNKNOWN

    host: str = "127.0.0.1"
    """The worker's name to others: host:port is its identity in the tables and in ZooKeeper."""
    port: Port = 1234
    """Serves health and metrics; several workers on one host differ by it."""
    exec_threads: Positive = 100
    """Slots: tasks at the same time (not threads). Those of complements don't keep others out."""
    project_share_percent: Percent = 80
    """Percentage of the slots for one project while others exist; 100 disables the limit."""
    complement_threads: Annotated[int, Ge(0)] = 0
    """Tasks of complements at the same time, in slots that are empty; 0 is as many as slots."""
    complement_niceness: Annotated[int, Ge(0), Le(19)] = 5
    """Niceness of complement tasks: 0 competes for the processor as others do, 19 the least."""
    groups: str = ""
    """Worker groups that it serves, as a,b; it also takes tasks without a group unless reserved."""
    reserved: bool = False
    """Take only tasks of its groups; false also takes tasks without a group."""
    category: Annotated[str, MinLen(1), MaxLen(128)] = "_default_worker_category"
    """Kind of worker, by which strategies prefer some for certain tasks."""
    heartbeat_interval_seconds: Seconds = 10.0
    """Interval of reports on load and memory; the session alone shows that the daemon lives."""
    fetch_task_num: Positive = 20
    """Tasks claimed in one go: more cost less, fewer spread the work better."""
    max_cpuload_avg: Annotated[float, Gt(0)] = 100.0
    """Above this load average no new task is claimed."""
    reserved_memory_gb: Annotated[float, Ge(0)] = 0.1
    """With less available memory than this no new task is claimed."""
    reserved_disk_gb: Annotated[float, Ge(0)] = 0.1
    """With less free space on a volume of its own the worker claims nothing and is not ready."""
    kill_grace_seconds: Annotated[float, Ge(0), Le(86_400)] = 5.0
    """A stopped task has so long to end by itself after TERM before it is killed."""
    log_limit_bytes: Annotated[int, Ge(10_000)] = 100_000_000
    """A task's log is cut off here, so that one task can't fill the disk."""
    working_directory_policy: Literal["never", "on_success", "always"] = "on_success"
    """Removal of an attempt's own directory: never, on_success (failures are kept), always."""
    tenant_mode: Literal["single", "tenant"] = "single"
    """Account of tasks: the worker's own (single), or the tenant's, which takes root (tenant)."""
    tenant_min_uid: Annotated[int, Ge(1), Le(2**32 - 2)] = 1000
    """Least uid of a tenant's account in mode tenant; accounts with smaller uids are refused."""
    python: str = ""
    """Interpreter for PYTHON and PYSPARK tasks; empty is the worker's own."""
    python_profile: Literal["default", "fresh"] = "default"
    """PYTHON tasks run in forks of an interpreter (default), or each in a new one (fresh)."""
    spark_home: str = ""
    """A Spark installation; empty uses the one inside the pyspark package."""
    shell: Annotated[str, MinLen(1), MaxLen(256)] = "bash"
    """Default shell of SHELL tasks without a #! line: a name on their PATH or an absolute path."""
    env_path: str = ""
    """A shell file that is sourced before each SHELL task; empty sources nothing."""
    shell_parameters: Literal["spliced", "environment"] = "spliced"
    """Parameters in scripts: ${day} becomes text (spliced), or is refused for variables alone."""
    task_memory_limit_mb: Annotated[int, Ge(0)] = 0
    """Memory of a task in its own cgroup (v2), elsewhere of each of its processes; 0: no limit."""
    task_process_limit: Annotated[int, Ge(0)] = 0
    """Processes of a task in its own cgroup (v2), elsewhere of a tenant's account; 0: no limit."""
    http_allowed: str = ""
    """HTTP tasks reach these beside the public internet, as 127.0.0.1,10.0.0.0/8,*.corp.example."""
    http_denied: str = ",".join(CLOUD_KEYS)
    """Networks that HTTP tasks never reach, as a,b: here those where clouds give keys away."""
    data_dir: str = ""
    """Folder for data that tasks share; empty is $ORCAFLOW_HOME/data."""
    datasets_dir: str = ""
    """Folder of datasets' files, one for all workers; empty is datasets in the folder of data."""
    topologies_dir: str = ""
    """Folder of topologies' state, one for all workers; empty: topologies in the folder of data."""
    unused_segment_days: Annotated[int, Ge(0), Le(36_500)] = 0
    """Age in days at which segments that were replaced go, with their files; 0: never."""
    http_host: str = "127.0.0.1"
    """Address that serves health, metrics and logs; other than loopback, to the network."""
    tls: bool = False
    """Speak TLS at the port of each worker, and check it wherever logs of others are read."""
    tls_cert_file: str = ""
    """The file with the worker's certificate, which has to be for its host; for workers alone."""
    tls_key_file: str = ""
    """The file with its key, readable by the daemons' account alone."""
    tls_ca_file: str = ""
    """The file with the certificates that workers' are checked by, besides the system's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiConfig:
    """The api-server, which serves the HTTP API."""

    __pydantic_config__: ClassVar[dict[str, object]] = _FORBID_UNKNOWN

    port: Port = 12345
    """Serves the API, health and metrics; several api-servers on one host differ by it."""
    http_host: str = "127.0.0.1"
    """Address to listen on; other than loopback it takes TLS, or a proxy that has it."""
    url: str = ""
    """The address that people use, as https://orcaflow.example.org; empty: by loopback alone."""
    allowed_hosts: str = ""
    """Names of this server in requests besides that of url, as a,b."""
    tls_cert_file: str = ""
    """The file with the certificate, and those between it and the authority's, for https."""
    tls_key_file: str = ""
    """The file with its key, readable by the daemons' account alone."""
    behind_proxy: bool = False
    """Believe trusted_proxies about who asks (X-Forwarded-For), and answer what comes by https."""
    trusted_proxies: str = "127.0.0.1,::1"
    """Addresses and networks of the proxies, as 127.0.0.1,10.0.0.0/8."""
    proxy_accounts: str = "www-data,nginx,caddy,haproxy"
    """Accounts of proxies on this computer, names or numbers; root and the server's count too."""
    pool_size: Positive = 10
    """Connections to the database, of which plain reads have four, or half if that is fewer."""
    statement_timeout_seconds: Seconds = 5.0
    """A request whose statement takes longer is answered with 503."""
    requests_per_second: Annotated[int, Ge(0)] = 50
    """Requests of one user, at each server; twice as many at once. 0 is any number."""
    connections: Positive = 1000
    """Open connections; above it, those waiting for a client are closed, idle ones first."""
    connections_per_address: Annotated[int, Ge(0)] = 256
    """Limit per address, or per client of a trusted proxy; never for loopback. 0 is any number."""
    schedule_seconds_author: Annotated[int, Ge(0), Le(86_400)] = 60
    """Least time between two fires of a schedule that a project's author makes; 0 is any."""
    schedule_seconds_admin: Annotated[int, Ge(0), Le(86_400)] = 10
    """The same for a project's admin. Administrators and the database's owner have no limit."""
    gateway_port: Annotated[int, Ge(0), Le(65_535)] = 0
    """Takes workflows of pydolphinscheduler, whose own default is 25333. 0 is off."""
    user_resource_files: Positive = 1000
    """Resource files of one user, folders included; a call that would write more is refused."""
    user_resource_mb: Positive = 256
    """Size of a user's resource files; a call that would make it larger is refused."""
    reserved_disk_gb: Annotated[float, Ge(0)] = 0.2
    """With less free space no resource file is written; keep it above worker.reserved_disk_gb."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcConfig:
    """Log-ins at an OpenID provider, for the api-server; they take the extra `oidc`."""

    __pydantic_config__: ClassVar[dict[str, object]] = _FORBID_UNKNOWN

    issuer: str = ""
    """The provider, as https://login.example.org/realms/main; empty: there is none."""
    client_id: str = ""
    """The name of this server at the provider; its redirect URI is api.url with /oidc/callback."""
    client_secret_file: str = ""
    """The file with the secret, for the daemons' account alone; empty: a public client."""
    ca_file: str = ""
    """The file with the authorities for the provider's certificate; empty: the system's."""
    scopes: str = "openid profile"
    """Asked of the provider; openid is one of them."""
    creates_users: bool = False
    """A first log-in makes a user, without rights; if false, `orcaflow user link` comes first."""
    name_claim: str = "preferred_username"
    """The claim that names the user that a first log-in makes."""
    groups_claim: str = "groups"
    """The claim with the user's groups, for roles."""
    roles: str = ""
    """Roles of groups, as data=default:author;ops=default:operator; set anew at each log-in."""
    session_hours: Annotated[float, Gt(0), Le(168)] = 12.0
    """A session that was begun there ends after so long, so that the provider is asked again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """Everything that can be set. Code gets the part it needs."""

    __pydantic_config__: ClassVar[dict[str, object]] = _FORBID_UNKNOWN

    home: Path = Path(DEFAULT_HOME)
    """Data, logs, pid files and tasks' directories are below it; usually set as ORCAFLOW_HOME."""
    time_zone: str = ""
    """Zone of schedules and of times in parameters that name none; empty: the home's."""
    complement_date_rule: Literal["schedule_time", "business_date"] = "schedule_time"
    """The meaning of complements' dates if the definition has no rule; 1.2's is business_date."""
    complement_uses_chosen_date: bool = True
    """Only the upgrade to revision 0031 reads this: the rule that existing definitions keep."""
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = "INFO"
    """Least severity that a daemon's log holds."""
    datasource_key_file: str = ""
    """Key file of secrets in the tables; empty is $ORCAFLOW_HOME/datasource.key."""
    stream_variables: str = ""
    """Environment variables that stream specifications may read secrets from, as A,B."""
    log_key_file: str = ""
    """Key file for logs of other hosts' tasks; empty is $ORCAFLOW_HOME/keys/log.key."""
    log_store: str = field(default="", repr=False)
    """Store for task logs: file:///srv/logs, s3://bucket/logs, gs://…, hdfs://…; empty is none."""
    database: DatabaseConfig = field(default_factory=DatabaseConfig)
    zookeeper: ZookeeperConfig = field(default_factory=ZookeeperConfig)
    command: CommandConfig = field(default_factory=CommandConfig)
    embedded: EmbeddedConfig = field(default_factory=EmbeddedConfig)
    streams: StreamsConfig = field(default_factory=StreamsConfig)
    master: MasterConfig = field(default_factory=MasterConfig)
    worker: WorkerConfig = field(default_factory=WorkerConfig)
    spark: SparkConfig = field(default_factory=SparkConfig)
    api: ApiConfig = field(default_factory=ApiConfig)
    oidc: OidcConfig = field(default_factory=OidcConfig)
    origins: Mapping[str, str] = field(default_factory=dict, compare=False)

    @property
    def data_dir(self) -> Path:
        """The folder of the data that tasks share."""
        return Path(self.worker.data_dir or self.home / "data")

    @property
    def datasets_dir(self) -> Path:
        """The folder of the files of datasets."""
        return Path(self.worker.datasets_dir or self.data_dir / "datasets")

    @property
    def topologies_dir(self) -> Path:
        """The folder of the state of topologies."""
        return Path(self.worker.topologies_dir or self.data_dir / "topologies")
