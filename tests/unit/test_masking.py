"""One rule for secrets: by the names of parameters, fields, settings and URL parameters."""

from __future__ import annotations

import json
import logging
import re
import time
from pathlib import Path

import pytest

from common.masking import (
    is_secret,
    mask_json,
    mask_message,
    mask_setting,
    mask_text,
    mask_value,
    secrets_in,
    secrets_in_json,
    shown_reason,
    spellings,
)
from common.model import spark_keys
from common.runtime import log as logs
from common.spark_config import shown_setting
from worker.spark.host import host_log
from worker.spark.session.datasources import HIDDEN, Options

SECRET_NAMES = [
    "password",
    "PASSWD",
    "db_password",
    "dbPassword",
    "javax.jdo.option.ConnectionPassword",
    "sslpassword",
    "pass_word",
    "DB_PASS",
    "dbpass",
    "spark.ssl.pass",
    "pwd",
    "Pwd",
    "db_pwd",
    "userPwd",
    "pw",
    "db_pw",
    "passphrase",
    "key_passphrase",
    "pass-phrase",
    "passphrase_of_key",
    "secret",
    "client_secret",
    "spark.hadoop.fs.s3a.secret.key",
    "AWS_SECRET_ACCESS_KEY",
    "access_key",
    "accessKey",
    "ACCESSKEY",
    "spark.hadoop.fs.s3a.access.key",
    "access-key-id",
    "token",
    "API_TOKEN",
    "tokens",
    "credential",
    "credentials",
    "google.credentials.json",
    "api_key",
    "apikey",
    "X-Api-Key",
    "API KEY",
    "private_key",
    "privateKey",
    "fs.azure.account.key.me.blob.core.windows.net",
    "encryption_key",
    "ssh_key",
    "Authorization",
    "Proxy-Authorization",
    "Cookie",
    "set-cookie",
    "zookeeper.digest",
    "digest",
]
PLAIN_NAMES = [
    "monkey",
    "turkey",
    "key",
    "keys",
    "key_column",
    "primary_key",
    "foreignKey",
    "sort.key",
    "public_key",
    "keytab",
    "signal",
    "sig_count",
    "psking",
    "passenger",
    "passengers",
    "passage",
    "bypass",
    "compass",
    "pass_rate",
    "first_pass_rows",
    "passport",
    "secretary",
    "tokenizer",
    "tokenized",
    "upward",
    "group_wd",
    "step_width",
    "apiKeyword",
    "image_digest",
    "author",
    "authorization_enabled",
    "cookies_seen",
    "day",
    "",
]


@pytest.mark.parametrize("name", SECRET_NAMES)
def test_a_name_that_sounds_secret_is_recognised(name: str) -> None:
    assert is_secret(name)


@pytest.mark.parametrize("name", PLAIN_NAMES)
def test_a_name_that_only_resembles_one_is_no_secret(name: str) -> None:
    assert not is_secret(name)


URLS = [
    "jdbc:postgresql://db:5432/x?user=me&password=hunter2",
    "jdbc:postgresql://db:5432/x?user=me&pwd=hunter2&ssl=true",
    "jdbc:postgresql://db/x?user=me&passphrase=hunter2",
    "jdbc:sqlserver://db:1433;databaseName=x;user=me;password=hunter2;encrypt=true",
    "jdbc:sqlserver://db:1433;user=me;PWD={hun;ter2};encrypt=true",
    "jdbc:mysql://db/x?user=me&password=hun,hunter2",
    "s3a://bucket/x?access_key=hunter2",
    "postgresql+psycopg2://me:hunter2@db:5432/orcaflow",
    "amqp://me:hunt@er2hunter2@broker/x",
    "amqp://me@corp:hunter2@broker",
    "amqp://me:hun/hunter2@broker",
    "redis://:hunter2@cache:6379/0",
]


@pytest.mark.parametrize("url", URLS)
def test_a_password_in_a_url_is_masked_wherever_a_text_is_written(url: str, tmp_path: Path) -> None:
    message = f"can't reach {url}, retrying"
    for text in (mask_text(message), mask_setting(message), mask_message(message)):
        assert "hunter2" not in text
        assert "ter2}" not in text
        assert text.startswith("can't reach ")
        assert "******" in text
    assert "hunter2" not in shown_setting("spark.sql.catalog.sales.url", url)
    assert "hunter2" not in repr(Options(url=url))
    assert "hunter2" not in _logged(tmp_path, url)


ASSIGNED = [
    "host=db pwd=hunter2 port=1",
    "host=db passphrase='it\\'s hunter2' port=1",
    "access_key=hunter2",
    "AWS_ACCESS_KEY_ID=hunter2 x",
    'refused: {"accessKey": "hunter2", "x": 1}',
    'refused: {\\"access_key\\": \\"hunter2\\"}',
    "{'pwd': 'hunter2'}",
    "Authorization: Bearer hunter2",
    "set-cookie: a=b; c=hunter2",
    "db_pass=hunter2",
    "ran mysql --password hunter2 -u me",
    "curl --oauth2-bearer-token 'it is hunter2' x",
    "psk=hunter2",
    "https://account.blob/x?sv=2022&sig=hunter2&se=1",
    "s3: X-Amz-Signature=hunter2",
]


@pytest.mark.parametrize("text", ASSIGNED)
def test_a_value_given_by_a_secret_name_is_masked_in_the_daemon_s_log(
    text: str, tmp_path: Path
) -> None:
    assert "hunter2" not in mask_message(text)
    assert "hunter2" not in _logged(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        "the monkey=1 sat, key_column=id; passenger: 3",
        "http://host:8080/path?mail=me@corp",
        "http://[::1]:8080/?mail=me@corp",
        "spark://a:7077,b:7077 of me@corp",
        "jdbc:postgresql://db:5432/x?user=me&sslmode=require",
        "k8s://https://cluster:6443",
        "s3a://bucket/passenger?key=1;keytab=/x",
        "12:30:05 all done",
        "ran pass-rate --keys a -k b --author me - --monkey see",
    ],
)
def test_a_text_without_a_secret_stays_as_it_is(text: str, tmp_path: Path) -> None:
    assert mask_text(text) == mask_setting(text) == mask_message(text) == text
    assert text in _logged(tmp_path, text)


def test_fields_of_secret_names_are_masked_in_the_daemon_s_log(tmp_path: Path) -> None:
    fields = {"pwd": 42, "env": {"ACCESS_KEY": "hunter2", "key_column": "id"}}
    (line,) = _lines(tmp_path, "connected", fields)
    assert line["pwd"] == "***"
    assert line["env"] == {"ACCESS_KEY": "***", "key_column": "id"}


def test_a_secret_that_begins_with_another_is_masked_as_a_whole() -> None:
    assert mask_text("x abcd-efgh abcd", ["abcd", "abcd-efgh", "x"]) == "x ****** ******"


def test_a_secret_with_control_characters_is_masked_as_it_is_printed() -> None:
    assert mask_text("it is hunter\\n2.", ["hunter\n2"]) == "it is ******."


def test_the_spellings_of_a_secret_are_those_that_servers_repeat() -> None:
    assert {"p@ss", "p%40ss", "cEBzcw=="} <= set(spellings(["p@ss"]))


def test_the_secrets_of_parameters_are_the_values_of_secret_names_longer_ones_first() -> None:
    given = {"pwd": "abcd", "access_key": "abcdef", "day": "2026", "token": ""}
    assert secrets_in(given) == ("abcdef", "abcd")


def test_a_document_is_masked_by_names_values_and_urls() -> None:
    given = {
        "pwd": "hunter2",
        "nested": [{"access_key": "x", "monkey": "x"}, "say hunter2", 7],
        "url": "jdbc:mysql://db/x?user=me&pwd=hunter3",
    }
    assert mask_value(given, ["hunter2"]) == {
        "pwd": "******",
        "nested": [{"access_key": "******", "monkey": "x"}, "say ******", 7],
        "url": "jdbc:mysql://db/x?user=me&pwd=******",
    }


def test_properties_and_everything_below_a_secret_name_are_masked() -> None:
    given = [
        {"prop": "db_password", "direct": "IN", "type": "VARCHAR", "value": "hunter2"},
        {"prop": "pin_token", "value": 1234},
        {"prop": "day", "value": "2026-11-20"},
        {"credentials": {"user": "me", "list": ["hunter2", 7, True]}},
    ]
    assert mask_value(given) == [
        {"prop": "db_password", "direct": "IN", "type": "VARCHAR", "value": "******"},
        {"prop": "pin_token", "value": "******"},
        {"prop": "day", "value": "2026-11-20"},
        {"credentials": {"user": "******", "list": ["******", "******", True]}},
    ]


def test_json_in_json_is_masked_and_the_values_wherever_else_they_stand() -> None:
    inner = json.dumps({"db_password": "hunter2", "x": 1.50})
    text = json.dumps({"StartParams": inner, "note": "say hunter2", "list": "[1]"})
    assert secrets_in_json(text) == ("hunter2",)
    masked = json.loads(mask_json(text))
    assert json.loads(masked["StartParams"]) == {"db_password": "******", "x": 1.5}
    assert (masked["note"], masked["list"]) == ("say ******", "[1]")
    assert "hunter2" not in mask_json('{"db_password": "hunter2"')
    plain = '{"n":1.50, "list":"[1,  2]"}'
    assert mask_json(plain) == plain


def test_a_reason_is_masked_like_a_message() -> None:
    assert shown_reason("no connection: pwd=hunter2") == "no connection: pwd=******"
    assert shown_reason(None) is None


@pytest.mark.parametrize("name", ["pwd", "passphrase", "password", "accessKey", "api_key", "token"])
def test_spark_is_told_to_hide_options_of_the_same_names(name: str) -> None:
    # Java evaluates the expression; the constructs that it uses mean the same there.
    assert is_secret(name)
    assert re.sub(HIDDEN, "gone", f'key: "{name}" value: "hunter2"') == "gone"


@pytest.mark.parametrize("name", ["pwd", "passphrase", "password"])
def test_spark_is_told_to_hide_passwords_in_statements(name: str) -> None:
    assert "hunter2" not in re.sub(HIDDEN, "gone", f"OPTIONS ({name} 'hunter2')")


@pytest.mark.parametrize("value", ["jdbc:mysql://db/x?pwd=hunter2", "-Dmy.passphrase=hunter2"])
def test_a_secret_in_a_setting_is_refused_where_everybody_could_read_it(value: str) -> None:
    with pytest.raises(spark_keys.RefusedError) as caught:
        spark_keys.check_setting("spark.x", value, is_argument=True)
    assert "hunter2" not in str(caught.value)


def test_masking_a_long_line_takes_no_time_to_speak_of() -> None:
    # A minute and more if an expression tried each place of a long word anew.
    started = time.perf_counter()
    for line in ("a" * 200_000, "=" * 200_000, "a://" * 50_000, "?a=" * 50_000, "a:b@" * 50_000):
        mask_message(line)
        mask_setting(line)
    assert time.perf_counter() - started < 5


def test_the_log_of_a_spark_host_is_masked_too() -> None:
    record = logging.LogRecord("test", logging.INFO, "", 0, f"failed: {URLS[0]}", None, None)
    record.__dict__.update(pwd="hunter2", cause="access_key=hunter2", pid=7, urls=URLS[:2])
    text = host_log._Lines().format(record)
    assert "hunter2" not in text
    assert json.loads(text)["pid"] == 7


def _logged(home: Path, text: str) -> str:
    (line,) = _lines(home, "failed: " + text, {"detail": text, "nested": {"list": [text]}})
    return json.dumps(line, ensure_ascii=False)


def _lines(home: Path, message: str, fields: dict[str, object]) -> list[dict[str, object]]:
    formatter = logs.JsonLines("test")
    record = logging.LogRecord("test", logging.INFO, "", 0, message, None, None)
    record.__dict__.update(fields)
    return [json.loads(formatter.format(record))]
