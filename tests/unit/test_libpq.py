"""URLs of PostgreSQL as libpq's parameters, of one host and of several."""

from __future__ import annotations

import psycopg2.extensions
import pytest
from sqlalchemy import make_url
from sqlalchemy.dialects.postgresql.psycopg2 import PGDialect_psycopg2

from common.libpq import dsn, parameters, place

BASE = "postgresql+psycopg2://me:secret@"


@pytest.mark.parametrize(
    ("rest", "host", "port"),
    [
        ("db:5433/name", "db", "5433"),
        ("db/name", "db", None),
        ("/name?host=a:5432&host=b:5433", "a,b", "5432,5433"),
        ("/name?host=a&host=b:5433", "a,b", ",5433"),
        ("/name?host=a,b&port=5432,5433", "a,b", "5432,5433"),
        ("/name?host=a,b&port=5433", "a,b", "5433"),
        ("/name?host=a:5433", "a", "5433"),
        ("/name?host=/run/postgresql", "/run/postgresql", None),
        ("/name?host=/run/one,/run/other", "/run/one,/run/other", None),
        ("/name?host=[::1]:5433&host=fe80::1", "::1,fe80::1", "5433,"),
        ("[::1]:5433/name", "::1", "5433"),
    ],
)
def test_hosts_and_ports_are_libpq_s(rest: str, host: str, port: str | None) -> None:
    found = parameters(BASE + rest)
    assert (found["host"], found.get("port")) == (host, port)
    assert psycopg2.extensions.parse_dsn(dsn(BASE + rest)) == found


@pytest.mark.parametrize(
    "rest",
    [
        "db:5433/name?sslmode=require",
        "/name?host=a:5432&host=b:5433",
        "/name?host=a,b&port=5432,5433",
        "/name?host=/run/postgresql",
    ],
)
def test_they_are_what_sqlalchemy_makes_of_the_same_url(rest: str) -> None:
    url = make_url(BASE + rest)
    _, wanted = PGDialect_psycopg2().create_connect_args(url)  # type: ignore[no-untyped-call]
    found = parameters(BASE + rest)
    found.pop("target_session_attrs", None)
    assert found == {name: str(value) for name, value in wanted.items()}


def test_of_several_hosts_the_one_that_takes_changes_is_used() -> None:
    several = f"{BASE}/name?host=a:5432&host=b:5432"
    assert parameters(several)["target_session_attrs"] == "read-write"
    assert parameters(f"{several}&target_session_attrs=any")["target_session_attrs"] == "any"
    assert "target_session_attrs" not in parameters(f"{BASE}a/name")


def test_a_place_names_all_hosts() -> None:
    assert place(parameters(f"{BASE}/n?host=a:5432&host=b:5433")) == "a:5432,b:5433/n"
    assert place(parameters(f"{BASE}/n?host=a,b&port=5433")) == "a:5433,b:5433/n"
    assert place(parameters(f"{BASE}/n?host=a&host=b:5433")) == "a:5432,b:5433/n"
    assert place(parameters("postgresql:///n")) == "localhost:5432/n"


def test_options_add_up_and_of_any_other_parameter_the_last_counts() -> None:
    found = parameters(
        f"{BASE}db/name?options=-c%20a=1&options=-c%20b=2&sslmode=prefer&sslmode=require"
    )
    assert (found["options"], found["sslmode"]) == ("-c a=1 -c b=2", "require")


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ("/name?host=a:5432&host=b:5432&port=5432", "not both"),
        ("/name?host=a,b&port=1,2,3", "2 hosts and 3 ports"),
        ("/name?host=a&port=five", "like postgresql"),
        ("db:port/name", "like postgresql"),
        ("db/name@more", "like postgresql"),
        ("[db/name", "like postgresql"),
    ],
)
def test_what_is_no_address_is_refused_and_not_quoted(rest: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as caught:
        parameters(BASE + rest)
    assert "secret" not in str(caught.value)
