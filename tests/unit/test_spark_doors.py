"""The settings that keep other accounts out of a driver, and the token for its pages."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from pathlib import Path

import pytest

from worker.spark.jvm import doors

KEY = bytes(range(32))


@pytest.mark.parametrize("master", ["local", "local[*]", "local[2,3]", "local-cluster[1,1,1024]"])
def test_a_driver_without_executors_elsewhere_answers_this_computer_alone(master: str) -> None:
    settings = doors.settings(master)
    assert settings["spark.driver.host"] == settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert settings["spark.authenticate"] == "true"
    assert doors.variables(master) == {"SPARK_LOCAL_IP": "127.0.0.1"}


@pytest.mark.parametrize(
    ("master", "secret"),
    [("k8s://https://k8s:6443", True), ("spark://there:7077", False), ("yarn", False)],
)
def test_executors_elsewhere_reach_their_driver(master: str, secret: bool) -> None:
    settings = doors.settings(master)
    assert "spark.driver.bindAddress" not in settings
    assert ("spark.authenticate" in settings) is secret
    assert doors.variables(master) == {}


def test_no_page_of_a_driver_offers_a_kill() -> None:
    for master in ("local[2]", "yarn", "spark://there:7077", "k8s://https://k8s:6443"):
        assert doors.settings(master)["spark.ui.killEnabled"] == "false"


def test_a_page_token_is_signed_with_the_key_that_the_filter_is_given() -> None:
    head, said, signature = doors.page_token(KEY).split(".")
    expected = hmac.new(KEY, f"{head}.{said}".encode(), hashlib.sha256).digest()
    assert base64.urlsafe_b64decode(f"{signature}=") == expected
    assert json.loads(base64.urlsafe_b64decode(f"{head}==")) == {"alg": "HS256", "typ": "JWT"}
    (encoded,) = [text for name, text in doors.page_settings(KEY).items() if "secretKey" in name]
    assert base64.urlsafe_b64decode(encoded) == KEY


@pytest.fixture
def home(tmp_path: Path) -> str:
    """A Spark that knows tokens."""
    (tmp_path / "jars").mkdir()
    for library in ("jjwt-api", "jjwt-impl", "jjwt-jackson"):
        (tmp_path / "jars" / f"{library}-0.12.6.jar").touch()
    return str(tmp_path)


def test_pages_of_a_driver_without_executors_elsewhere_want_a_token_of_its_own(home: str) -> None:
    settings, token = doors.guard(home, "local[2]", {})
    others, other = doors.guard(home, "local[2]", {})
    assert settings["spark.ui.filters"] == "org.apache.spark.ui.JWSFilter"
    assert settings.keys() == others.keys()
    assert settings != others
    assert token
    assert token != other


@pytest.mark.parametrize("master", ["yarn", "spark://there:7077", "k8s://https://k8s:6443"])
def test_workers_elsewhere_read_the_tag_of_a_driver_without_a_token(home: str, master: str) -> None:
    assert doors.guard(home, master, {}) == ({}, "")


def test_filters_of_the_site_or_the_task_stay(home: str) -> None:
    assert doors.guard(home, "local", {"spark.ui.filters": ""}) == ({}, "")


def test_a_spark_that_knows_no_token_has_pages_without_one(tmp_path: Path) -> None:
    assert doors.guard(str(tmp_path), "local", {}) == ({}, "")


def test_the_token_is_for_its_account_alone(tmp_path: Path) -> None:
    doors.write_token(tmp_path / "page.token", "a.b.c")
    assert (tmp_path / "page.token").read_text() == "a.b.c"
    assert (tmp_path / "page.token").stat().st_mode & 0o777 == 0o600


def test_a_page_without_a_token_is_asked_without_one() -> None:
    assert doors.headers("") == {}
    assert doors.headers("a.b.c") == {"Authorization": "Bearer a.b.c"}


def test_pages_are_guarded_where_the_filter_has_all_of_its_libraries(tmp_path: Path) -> None:
    (tmp_path / "jars").mkdir()
    for name in ("jjwt-api", "jjwt-impl", "jjwt-jackson"):
        assert not doors.can_guard_pages(str(tmp_path))
        (tmp_path / "jars" / f"{name}-0.13.0.jar").touch()
    assert doors.can_guard_pages(str(tmp_path))
