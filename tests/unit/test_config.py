"""Configuration from files and variables: it reports its sources, and keeps secrets."""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, asdict
from pathlib import Path
from zoneinfo import ZoneInfo

import psycopg2.extensions
import pytest
from pydantic import TypeAdapter
from sqlalchemy.engine import make_url

from common import config as configuration
from common.config import Config, effective, get, home, libpq_dsn, load, zookeeper_digest
from common.config.folder import record_folder
from common.config.keys import defaults, flattened
from common.config.reading import _CHECKS
from common.config.zone import cluster_zone, own_zone, record_zone, zone_record
from common.embedded.addresses import (
    PostgresAddress,
    ZookeeperAddress,
    postgres_file,
    record,
    zookeeper_file,
)
from common.errors import ConfigurationError, ServiceUnreachableError
from common.process_identity import process_start_time
from common.registry.config import RegistryTls, registry_config
from common.spark_config import mistakes as spark_mistakes
from operations.daemon_options import Options
from operations.kept_settings import conf_dir_of, note_on_conf_dir, notes_on_start

OwnFile = Callable[[str, str], Path]


@pytest.fixture
def own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OwnFile:
    """Writes a file of the folder that ORCAFLOW_CONF_DIR names."""
    monkeypatch.setenv("ORCAFLOW_CONF_DIR", str(tmp_path))

    def write(name: str, text: str) -> Path:
        path = tmp_path / name
        path.write_text(text, encoding="utf-8")
        return path

    return write


def mistakes() -> str:
    with pytest.raises(ConfigurationError) as caught:
        load()
    assert caught.value.exit_code == 78
    return str(caught.value)


def test_with_nothing_said_the_defaults_and_the_embedded_servers_are_used() -> None:
    config = load()
    assert config == Config(home=Path("~/.orcaflow").expanduser())
    assert config.database.url == ""
    assert config.zookeeper.hosts == ""


def test_an_own_file_overrides_key_by_key_and_a_variable_overrides_both(
    own_file: OwnFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = own_file("master.toml", "[master]\nexec_threads = 7\nfetch_size = 3\n")
    monkeypatch.setenv("ORCAFLOW_MASTER__FETCH_SIZE", "9")
    config = load(overrides={"master.port": 5999})
    assert config.master.exec_threads == 7
    assert config.master.fetch_size == 9
    assert config.master.port == 5999
    assert config.master.heartbeat_interval_seconds == 10
    origins = {key: origin for key, _, origin in effective(config)}
    assert origins["master.exec_threads"] == str(path)
    assert origins["master.fetch_size"] == "ORCAFLOW_MASTER__FETCH_SIZE"
    assert origins["master.port"] == "command line"
    assert origins["master.host"].endswith("conf/master.toml")


def test_the_home_is_a_variable_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCAFLOW_HOME", "~/elsewhere")
    assert load().home == Path("~/elsewhere").expanduser()


@pytest.mark.parametrize("named", [None, "", "~/elsewhere", "relative", "/absolute"])
def test_the_home_alone_is_the_home_of_all_settings(
    named: str | None, own_file: OwnFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_file("common.toml", 'home = "/of/the/file"\n')
    monkeypatch.delenv("ORCAFLOW_HOME", raising=False)
    if named is not None:
        monkeypatch.setenv("ORCAFLOW_HOME", named)
    assert home() == load().home


def test_the_home_alone_needs_no_other_setting_to_be_right(
    own_file: OwnFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ORCAFLOW_HOME", raising=False)
    own_file("common.toml", 'home = "/of/the/file"\ntime_zone = "Mars/Olympus"\n')
    assert home() == Path("/of/the/file")


@pytest.mark.parametrize("text", ["home = 5\n", "home = \n"])
def test_a_home_that_can_not_be_read_is_told_with_its_place(
    text: str, own_file: OwnFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ORCAFLOW_HOME", raising=False)
    path = own_file("common.toml", text)
    with pytest.raises(ConfigurationError, match=re.escape(str(path))):
        home()


def test_all_mistakes_are_reported_together_with_their_places(
    own_file: OwnFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = own_file(
        "common.toml", 'time_zone = "Mars/Olympus"\n[zookeeper]\nhosts = "nowhere"\nroot = "x"\n'
    )
    worker = own_file("worker.toml", "[worker]\nexec_thread = 5\n[master]\nport = 1\n")
    master = own_file("master.toml", "[master\n")
    monkeypatch.setenv("ORCAFLOW_MASTER__PORT", "many")
    monkeypatch.setenv("ORCAFLOW_ZOOKEEPER__SESSION_TIMEOUT_SECONDS", "1")
    monkeypatch.setenv("ORCAFLOW_DATABAS__URL", "x")
    text = mistakes()
    assert f"{common}: time_zone: 'Mars/Olympus' is no zone" in text
    assert f"{common}: zookeeper.hosts: 'nowhere' is not host:port" in text
    assert f"{common}: zookeeper.root: 'x' is not the path of a node" in text
    assert (
        f"{worker}: worker.exec_thread is not a setting; did you mean worker.exec_threads?" in text
    )
    assert f"{worker}: master.port belongs into master.toml" in text
    assert f"{master}: Expected ']'" in text
    assert "ORCAFLOW_MASTER__PORT: master.port: input should be a valid integer" in text
    assert "(it is 'many')" in text
    assert "zookeeper.session_timeout_seconds: input should be greater than or equal to 2" in text
    assert "ORCAFLOW_DATABAS__URL: databas.url is not a setting; did you mean database.url?" in text


def test_a_folder_that_is_not_there_is_a_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCAFLOW_CONF_DIR", str(tmp_path / "nowhere"))
    assert f"ORCAFLOW_CONF_DIR: {tmp_path / 'nowhere'} is not a folder" in mistakes()


def test_a_home_has_the_folder_that_its_daemons_were_last_started_with(
    tmp_path: Path, own_file: OwnFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    monkeypatch.setenv("ORCAFLOW_HOME", str(home))
    own_file("worker.toml", "[worker]\nexec_threads = 8\n")
    assert conf_dir_of(home, Options()) == str(tmp_path)
    assert note_on_conf_dir(home) is None
    monkeypatch.delenv("ORCAFLOW_CONF_DIR")
    assert load().worker.exec_threads == 8
    assert load(overrides={"home": str(tmp_path / "other")}).worker.exec_threads != 8
    note = note_on_conf_dir(home)
    assert note is not None
    assert (str(tmp_path) in note, "is not set" in note) == (True, True)
    # A daemon keeps its folder, and a new daemon uses the folder of the home.
    assert conf_dir_of(home, Options(conf_dir="/own")) == "/own"
    assert conf_dir_of(home, Options()) == str(tmp_path)
    monkeypatch.setenv("ORCAFLOW_CONF_DIR", "elsewhere")
    assert "last started with" in (note_on_conf_dir(home) or "")
    monkeypatch.setenv("ORCAFLOW_CONF_DIR", "")
    assert load().worker.exec_threads != 8
    assert "not used any more" in (note_on_conf_dir(home) or "")
    assert conf_dir_of(home, Options(conf_dir="/own")) is None
    monkeypatch.delenv("ORCAFLOW_CONF_DIR")
    assert (load().worker.exec_threads != 8, note_on_conf_dir(home)) == (True, None)


def test_a_home_keeps_the_zone_that_its_daemons_were_started_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCAFLOW_HOME", str(tmp_path))
    assert cluster_zone(load()) == own_zone()
    there = ZoneInfo("Asia/Tokyo" if own_zone().key != "Asia/Tokyo" else "America/Lima")
    record_zone(tmp_path, there)
    assert cluster_zone(load()) == there
    (note,) = notes_on_start(load())
    assert (there.key in note, own_zone().key in note) == (True, True)
    monkeypatch.setenv("ORCAFLOW_TIME_ZONE", "Europe/Berlin")
    assert cluster_zone(load()) == ZoneInfo("Europe/Berlin")
    assert list(notes_on_start(load())) == []
    monkeypatch.delenv("ORCAFLOW_TIME_ZONE")
    record_zone(tmp_path, ZoneInfo("localtime"))
    assert cluster_zone(load()) == there
    for spoilt in ("nowhere", "../../etc/passwd", "", "\0"):
        zone_record(tmp_path).write_text(spoilt)
        assert cluster_zone(load()) == own_zone()


def test_a_recorded_folder_that_is_gone_refuses_a_start_without_its_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCAFLOW_HOME", str(tmp_path))
    record_folder(tmp_path, tmp_path / "gone")
    told = mistakes()
    assert f"{tmp_path / 'gone'} is not a folder" in told
    assert "name its new place by ORCAFLOW_CONF_DIR" in told


def test_variables_that_are_no_settings_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCAFLOW_TASK_INSTANCE_ID", "7")
    assert load() == Config(home=Path("~/.orcaflow").expanduser())


@pytest.mark.parametrize(
    "url",
    [
        "mysql://admin:hunter2@db/orcaflow",
        "postgresql+psycopg2://admin:hunter2@db:port/orcaflow",
        "postgresql+psycopg2://admin:hunter2@db:5432",
        "postgresql+psycopg2://admin:hunter2:@/more@db:5432/orcaflow",
        "postgresql://[hunter2/orcaflow",
    ],
)
def test_a_wrong_url_is_reported_without_its_password(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCAFLOW_DATABASE__URL", url)
    monkeypatch.setenv("ORCAFLOW_ZOOKEEPER__DIGEST", "hunter2")
    text = mistakes()
    assert "ORCAFLOW_DATABASE__URL: database.url: " in text
    assert "ORCAFLOW_ZOOKEEPER__DIGEST: zookeeper.digest: it must be user:password" in text
    assert "hunter2" not in text


def test_secrets_are_masked_when_shown_and_given_when_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = "postgresql://me:hunter2@db:5433/orcaflow?sslmode=require&sslpassword=hunter2"
    monkeypatch.setenv("ORCAFLOW_DATABASE__URL", url)
    monkeypatch.setenv("ORCAFLOW_ZOOKEEPER__DIGEST", "me:hunter2")
    config = load()
    shown = {key: value for key, value, _ in effective(config)}
    assert shown["database.url"] == (
        "postgresql://me:***@db:5433/orcaflow?sslmode=require&sslpassword=***"
    )
    assert shown["zookeeper.digest"] == "***"
    assert "hunter2" not in repr(shown)
    assert "hunter2" not in repr(config)
    assert get(config, "database.url").startswith("postgresql+psycopg2://me:hunter2@db:5433/")


def test_the_dsn_is_what_libpq_reads_out_of_the_url() -> None:
    url = r"postgresql+psycopg2://me:p%40ss%27%5C%20word@db:5433/my%20base?application_name=it%27s"
    parsed = psycopg2.extensions.parse_dsn(libpq_dsn(url))
    assert parsed == {
        "host": "db",
        "port": "5433",
        "user": "me",
        "password": r"p@ss'\ word",
        "dbname": "my base",
        "application_name": "it's",
    }


def test_a_socket_folder_may_be_the_host() -> None:
    dsn = libpq_dsn("postgresql:///orcaflow?host=/run/postgresql")
    assert psycopg2.extensions.parse_dsn(dsn) == {"host": "/run/postgresql", "dbname": "orcaflow"}


def test_without_a_running_embedded_server_the_cure_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCAFLOW_HOME", str(tmp_path))
    config = load()
    for key in configuration.DERIVED_KEYS:
        with pytest.raises(ServiceUnreachableError, match="start standalone-server") as caught:
            get(config, key)
        assert caught.value.exit_code == 5


def test_the_running_embedded_servers_are_used_when_none_are_configured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, this_process: dict[str, float]
) -> None:
    home = tmp_path / "it's a home"
    monkeypatch.setenv("ORCAFLOW_HOME", str(home))
    password_file = home / "postgres.password"
    record(
        postgres_file(home),
        PostgresAddress(
            host="127.0.0.1",
            port=5000,
            user="orcaflow",
            password_file=password_file,
            dbname="orcaflow",
            pid=int(this_process["pid"]),
            start_time=this_process["start_time"],
        ),
    )
    record(
        zookeeper_file(home),
        ZookeeperAddress(
            host="127.0.0.1",
            port=6000,
            pid=int(this_process["pid"]),
            start_time=this_process["start_time"],
        ),
    )
    config = load()
    assert get(config, "zookeeper.hosts") == "127.0.0.1:6000"
    parsed = psycopg2.extensions.parse_dsn(get(config, "database.dsn"))
    assert parsed == {
        "host": "127.0.0.1",
        "port": "5000",
        "user": "orcaflow",
        "dbname": "orcaflow",
        "passfile": str(password_file),
    }
    url = make_url(get(config, "database.url"))
    assert (url.drivername, url.port, url.database) == ("postgresql+psycopg2", 5000, "orcaflow")
    assert url.query == {"passfile": str(password_file), "require_auth": "scram-sha-256"}


@pytest.fixture
def this_process() -> dict[str, float]:
    import os

    start_time = process_start_time(os.getpid())
    assert start_time is not None
    return {"pid": os.getpid(), "start_time": start_time}


def test_the_configuration_can_not_be_changed() -> None:
    config = load()
    with pytest.raises(FrozenInstanceError):
        config.master.port = 1  # type: ignore[misc]  # That it is refused is the point.


def test_tls_of_the_database_is_set_apart_from_its_url(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCAFLOW_DATABASE__URL", "postgresql://me@db/orcaflow")
    monkeypatch.setenv("ORCAFLOW_DATABASE__SSLMODE", "verify-full")
    monkeypatch.setenv("ORCAFLOW_DATABASE__SSLROOTCERT", "/etc/our ca.pem")
    config = load()
    parsed = psycopg2.extensions.parse_dsn(get(config, "database.dsn"))
    assert (parsed["sslmode"], parsed["sslrootcert"]) == ("verify-full", "/etc/our ca.pem")
    assert "sslkey" not in parsed
    url = make_url(get(config, "database.url"))
    assert url.query == {"sslmode": "verify-full", "sslrootcert": "/etc/our ca.pem"}
    # The nearer word counts.
    monkeypatch.setenv("ORCAFLOW_DATABASE__URL", "postgresql://me@db/orcaflow?sslmode=require")
    parsed = psycopg2.extensions.parse_dsn(get(load(), "database.dsn"))
    assert (parsed["sslmode"], parsed["sslrootcert"]) == ("require", "/etc/our ca.pem")


def test_an_unknown_sslmode_is_a_mistake(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCAFLOW_DATABASE__SSLMODE", "verify")
    assert "database.sslmode: input should be" in mistakes()


def test_the_credential_for_zookeeper_comes_from_a_setting_a_file_or_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCAFLOW_HOME", str(tmp_path / "home"))
    drawn = zookeeper_digest(load())
    assert zookeeper_digest(load()) == drawn
    assert drawn.startswith("orcaflow:")
    assert stat.S_IMODE((tmp_path / "home" / "zookeeper.digest").stat().st_mode) == 0o600
    # Somebody else's servers know nothing of it.
    monkeypatch.setenv("ORCAFLOW_ZOOKEEPER__HOSTS", "zk:2181")
    assert zookeeper_digest(load()) == ""
    (tmp_path / "digest").write_text("me:hush\n")
    monkeypatch.setenv("ORCAFLOW_ZOOKEEPER__DIGEST_FILE", str(tmp_path / "digest"))
    assert zookeeper_digest(load()) == "me:hush"
    monkeypatch.setenv("ORCAFLOW_ZOOKEEPER__DIGEST", "you:hush")
    assert zookeeper_digest(load()) == "you:hush"
    assert "hush" not in repr(registry_config(load()))
    monkeypatch.delenv("ORCAFLOW_ZOOKEEPER__DIGEST")
    (tmp_path / "digest").write_text("hush\n")
    with pytest.raises(ConfigurationError, match="does not hold user:password") as caught:
        zookeeper_digest(load())
    assert "hush" not in str(caught.value)


def test_tls_of_zookeeper_is_checked_by_default_and_half_of_it_is_a_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCAFLOW_ZOOKEEPER__HOSTS", "zk:2281")
    assert registry_config(load()).tls is None
    monkeypatch.setenv("ORCAFLOW_ZOOKEEPER__TLS_CERT_FILE", str(tmp_path / "cert.pem"))
    with pytest.raises(ConfigurationError, match=r"zookeeper\.tls is false"):
        registry_config(load())
    monkeypatch.setenv("ORCAFLOW_ZOOKEEPER__TLS", "true")
    with pytest.raises(ConfigurationError, match="go together"):
        registry_config(load())
    monkeypatch.setenv("ORCAFLOW_ZOOKEEPER__TLS_KEY_FILE", str(tmp_path / "key.pem"))
    with pytest.raises(ConfigurationError, match=r"zookeeper\.tls_cert_file: there is no file"):
        registry_config(load())
    for name in ("cert.pem", "key.pem"):
        (tmp_path / name).touch()
    assert registry_config(load()).tls == RegistryTls(
        cert_file=str(tmp_path / "cert.pem"), key_file=str(tmp_path / "key.pem")
    )
    assert RegistryTls().verify == "full"


def test_no_key_is_asked_for_in_vain() -> None:
    with pytest.raises(KeyError):
        get(load(), "master.no_such_key")


def test_settings_that_are_the_defaults_are_read_without_anything_heavy(tmp_path: Path) -> None:
    code = (
        "import common.config, sys; common.config.load();"
        "print([name for name in ('pydantic', 'psutil', 'sqlalchemy', 'kazoo') if name in sys.modules])"
    )
    environment = {"ORCAFLOW_HOME": str(tmp_path), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.strip() == "[]"


def test_a_default_is_right_though_it_is_not_checked() -> None:
    unchecked = {key: value for key, value in defaults().items() if key != "home"}
    checked = TypeAdapter(Config).validate_python(asdict(Config()))
    for key, value in flattened(checked):
        if key != "home":
            assert (value, type(value)) == (unchecked[key], type(unchecked[key])), key
    assert not [*spark_mistakes(unchecked)]
    for key, check in _CHECKS.items():
        if default := unchecked[key]:
            check(str(default))


def test_a_value_of_another_type_is_checked_though_it_equals_the_default(own_file: OwnFile) -> None:
    own_file("worker.toml", "[worker]\nkill_grace_seconds = 5\nexec_threads = 100.0\n")
    worker = load().worker
    assert type(worker.kill_grace_seconds) is float
    assert type(worker.exec_threads) is int
    own_file("common.toml", "complement_uses_chosen_date = 7\nhome = 1\n")
    said = mistakes()
    assert "complement_uses_chosen_date: input should be a valid boolean" in said
    assert "home: input is not a valid path" in said
