"""Spark's profiles are an open map of settings; `classic` is none of them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from common.config import Config, effective, get, load
from common.errors import ConfigurationError
from common.spark_config import SparkConfig, SparkProfile, addresses, conf_from
from orcaflow.cli.app import app

OwnFile = Callable[[str], Path]


@pytest.fixture
def own_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> OwnFile:
    """Writes the worker.toml of the folder that ORCAFLOW_CONF_DIR names."""
    monkeypatch.setenv("ORCAFLOW_CONF_DIR", str(tmp_path))

    def write(text: str) -> Path:
        path = tmp_path / "worker.toml"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def mistakes() -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        load()
    return str(caught.value).splitlines()[1:]


def test_with_nothing_said_there_is_one_profile_and_it_is_the_default() -> None:
    spark = load().spark
    assert spark == SparkConfig()
    assert dict(spark.profiles) == {"default": SparkProfile()}
    assert spark.default_profile == "default"
    assert spark.prewarmed() == ()


def test_a_table_makes_a_profile_and_a_variable_changes_or_makes_one(
    own_file: OwnFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = own_file(
        "[spark]\ndefault_profile = 'etl'\nprewarm = 'etl, tiny'\n"
        "[spark.profiles.etl]\nmaster = 'local[2]'\nmax_sessions = 3\n[spark.profiles.tiny]\n"
    )
    monkeypatch.setenv("ORCAFLOW_SPARK__PROFILES__ETL__MASTER", "spark://cluster:7077")
    monkeypatch.setenv("ORCAFLOW_SPARK__PROFILES__AD_HOC__MAX_SERVERS", "5")
    monkeypatch.setenv("ORCAFLOW_SPARK__PROFILES__DEFAULT__DRIVER_MEMORY", "2g")
    config = load()
    assert config.spark.default_profile == "etl"
    assert config.spark.prewarmed() == ("etl", "tiny")
    assert dict(config.spark.profiles) == {
        "ad_hoc": SparkProfile(max_servers=5),
        "default": SparkProfile(driver_memory="2g"),
        "etl": SparkProfile(master="spark://cluster:7077", max_sessions=3),
        "tiny": SparkProfile(),
    }
    origins = {key: origin for key, _, origin in effective(config)}
    assert origins["spark.profiles.etl.max_sessions"] == str(path)
    assert origins["spark.profiles.etl.master"] == "ORCAFLOW_SPARK__PROFILES__ETL__MASTER"
    assert origins["spark.profiles.etl.idle_timeout_seconds"] == "default"
    assert origins["spark.profiles.default.master"].endswith("conf/worker.toml")
    assert get(config, "spark.profiles.etl.master") == "spark://cluster:7077"


def test_the_default_profile_may_be_the_private_driver(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORCAFLOW_SPARK__DEFAULT_PROFILE", "classic")
    assert load().spark.default_profile == "classic"


def test_names_of_spark_keep_their_dots_in_whichever_way_they_are_written(
    own_file: OwnFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    own_file(
        '[spark.profiles.quoted]\nconf = { "spark.sql.shuffle.partitions" = 4,'
        ' "spark.sql.ansi.enabled" = true }\n'
        "[spark.profiles.plain.conf]\nspark.sql.shuffle.partitions = 4\n"
        "spark.sql.ansi.enabled = true\n"
    )
    monkeypatch.setenv(
        "ORCAFLOW_SPARK__PROFILES__VARIABLE__CONF",
        '{"spark.sql.shuffle.partitions": 4, "spark.sql.ansi.enabled": "true"}',
    )
    config = load()
    wanted = {"spark.sql.shuffle.partitions": "4", "spark.sql.ansi.enabled": "true"}
    for name in ("quoted", "plain", "variable"):
        assert dict(config.spark.profiles[name].conf) == wanted
        assert json.loads(get(config, f"spark.profiles.{name}.conf")) == wanted
        assert get(config, f"spark.profiles.{name}.conf.spark.sql.shuffle.partitions") == "4"
    with pytest.raises(KeyError):
        get(config, "spark.profiles.plain.conf.spark.sql")


def test_secrets_of_a_profile_are_masked_when_shown_and_given_when_asked_for(
    own_file: OwnFile,
) -> None:
    own_file(
        "[spark.profiles.s3.conf]\n"
        '"spark.hadoop.fs.s3a.secret.key" = "hunter2"\n'
        '"spark.hadoop.fs.s3a.access.key" = "hunter2"\n'
        '"spark.sql.catalog.pg.url" = "jdbc:postgresql://me:hunter2@db/x?password=hunter2&a=b"\n'
        '"spark.driver.extraJavaOptions" = "-Djavax.jdo.option.ConnectionPassword=hunter2 -Dx=y"\n'
        '"spark.sql.ansi.enabled" = "true"\n'
    )
    config = load()
    shown = {key: value for key, value, _ in effective(config)}
    assert json.loads(shown["spark.profiles.s3.conf"]) == {
        "spark.hadoop.fs.s3a.secret.key": "***",
        "spark.hadoop.fs.s3a.access.key": "***",
        "spark.sql.catalog.pg.url": "jdbc:postgresql://me:***@db/x?password=***&a=b",
        "spark.driver.extraJavaOptions": "-Djavax.jdo.option.ConnectionPassword=*** -Dx=y",
        "spark.sql.ansi.enabled": "true",
    }
    assert "hunter2" not in repr(config)
    assert get(config, "spark.profiles.s3.conf.spark.hadoop.fs.s3a.secret.key") == "hunter2"


def test_all_mistakes_are_reported_together_with_their_places(
    own_file: OwnFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = own_file(
        "[spark]\ndefault_profile = 'et'\nprewarm = 'etl,nope'\nyarn_urls = 'rm:8088'\n"
        "history_url = 'http://me:hunter2@history'\ncolour = 'blue'\n"
        "[spark.profiles]\nflat = 3\n"
        "[spark.profiles.etl]\nmastr = 'yarn'\ndriver_memory = 'much'\nmax_sessions = 0\n"
        'conf = { "spark.master" = "yarn" }\n'
        "[spark.profiles.classic]\nmaster = 'yarn'\n"
        "[spark.profiles.connect]\nmaster = 'yarn'\n"
        "[spark.profiles.'Big One']\nmaster = 'mesos://x'\n"
        "[spark.profiles.odd]\nconf = { 'spark.x' = [1] }\n"
        "[spark.profiles.own]\nconf = { 'spark.connect.grpc.binding.port' = 1 }\n"
        "[spark.profiles.blind]\nconf = { 'spark.ui.enabled' = false }\n"
    )
    monkeypatch.setenv("ORCAFLOW_SPARK__PROFILES__ETL__CONF", "spark.x=1")
    monkeypatch.setenv("ORCAFLOW_SPARK__PROFILES__OLD__MASTER", "mesos://hunter")
    text = "\n".join(mistakes())
    for expected in (
        f"{path}: spark.default_profile: there is no profile 'et'; known are ",
        f"{path}: spark.prewarm: there is no profile 'nope'",
        f"{path}: spark.yarn_urls: it must be like http://host:8088, without a password in it",
        f"{path}: spark.history_url: it must be like http://host:8088",
        f"{path}: spark.colour is not a setting",
        f"{path}: spark.profiles.flat: it must be a table, [spark.profiles.flat]",
        f"{path}: spark.profiles.etl.mastr is not a setting; did you mean spark.profiles.etl.mas",
        f"{path}: spark.profiles.etl.driver_memory: 'much' is no amount of memory",
        f"{path}: spark.profiles.etl.max_sessions: input should be greater than or equal to 1",
        f"{path}: spark.profiles.connect.master: connect is a kind of session and no profile",
        f"{path}: spark.profiles.classic.master: classic is a kind of session and no profile",
        f"{path}: spark.profiles.Big One.master: 'Big One' is no name",
        f"{path}: spark.profiles.Big One.master: 'mesos://x' is no master",
        f"{path}: spark.profiles.odd.conf: 'spark.x' must be text, a number or a boolean",
        f"{path}: spark.profiles.own.conf: spark.connect.grpc.binding.port is set by Orcaflow",
        f"{path}: spark.profiles.blind.conf: spark.ui.enabled must stay true: ",
        "ORCAFLOW_SPARK__PROFILES__ETL__CONF: spark.profiles.etl.conf: it must be JSON",
        "ORCAFLOW_SPARK__PROFILES__OLD__MASTER: spark.profiles.old.master: 'mesos://hunter' is no",
    ):
        assert expected in text
    assert "hunter2" not in text


def test_settings_with_a_key_of_their_own_are_refused_in_the_free_map(own_file: OwnFile) -> None:
    own_file('[spark.profiles.etl]\nconf = { "spark.driver.memory" = "8g" }\n')
    assert "spark.driver.memory has a key of its own: driver_memory" in mistakes()[0]


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        ("spark.ui.enabled", False, "must stay true"),
        ("spark.ui.killEnabled", "FALSE", "must stay true"),
        ("spark.ui.threadDumpsEnabled", "no", "must stay true"),
        ("spark.ssl.ui.enabled", "true", "must stay false"),
        ("spark.ui.filters", "org.example.Login", "must stay empty"),
    ],
)
def test_a_profile_cannot_take_away_the_pages_that_sessions_are_closed_by(
    key: str, value: object, rule: str
) -> None:
    with pytest.raises(ValueError, match=f"{key} {rule}: .* closed"):
        conf_from({key: value})


@pytest.mark.parametrize(
    ("key", "value"),
    [("spark.ui.enabled", True), ("spark.ui.killEnabled", "true"), ("spark.ssl.ui.enabled", False)],
)
def test_what_a_profile_says_of_those_pages_may_be_what_holds_anyway(
    key: str, value: object
) -> None:
    assert list(conf_from({key: value})) == [key]


def test_a_profile_belongs_into_the_workers_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORCAFLOW_CONF_DIR", str(tmp_path))
    path = tmp_path / "common.toml"
    path.write_text("[spark.profiles.etl]\nmaster = 'yarn'\n", encoding="utf-8")
    assert f"{path}: spark.profiles.etl.master belongs into worker.toml" in mistakes()[0]


def test_the_command_line_shows_and_gives_what_profiles_say(
    own_file: OwnFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = own_file("[spark.profiles.etl]\nmaster = 'yarn'\n")
    shown = CliRunner().invoke(app, ["config", "show", "--origin", "--output", "json"])
    assert shown.exit_code == 0
    rows = {row["key"]: row for row in json.loads(shown.stdout)}
    assert rows["spark.profiles.etl.master"] == {
        "key": "spark.profiles.etl.master",
        "value": "yarn",
        "origin": str(path),
    }
    given = CliRunner().invoke(app, ["config", "get", "spark.profiles.default.master"])
    assert (given.exit_code, given.stdout) == (0, "local[*]\n")


def test_urls_are_listed_without_the_stroke_at_their_end() -> None:
    assert addresses("http://a:8088/, http://b:8088,") == ("http://a:8088", "http://b:8088")
    assert addresses("") == ()


def test_a_configuration_of_the_tests_own_has_the_default_profile() -> None:
    assert Config().spark.profiles["default"] == SparkProfile()
