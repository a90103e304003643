"""Data sources' own URLs name a database and nothing else."""

from __future__ import annotations

import pytest

from common.model.datasource_urls import RefusedUrlError, check_url

DATA = "/srv/data"

ALLOWED = [
    "postgresql://db/shop",
    "postgres://me:p%40ss@db.local:5432/shop?sslmode=verify-full&sslrootcert=/etc/ca.pem",
    "postgresql+psycopg2://me@corp@[::1]:5432/shop?connect_timeout=3&application_name=a%20b",
    "postgresql://db/shop?sslcert=me.pem&sslkey=/srv/data/me.key",
    "postgresql://db/shop?options=-csearch_path%3Da,b",
    "mysql+pymysql://me:pw@10.0.0.5:3306/shop?charset=utf8mb4",
    "mariadb://db/",
    "mssql+pyodbc://db:1433/shop?driver=ODBC+Driver+18+for+SQL+Server&Encrypt=yes",
    "oracle+oracledb://db:1521/?service_name=shop.local",
    "clickhouse+native://db/shop?secure=True",
    "hive://db:10000/default?auth=LDAP",
    "ibm_db_sa://db:50000/SHOP",
    "sqlite:///shop.db",
    "sqlite:///a/shop.db?timeout=5",
    "sqlite:////srv/data/shop.db",
    "sqlite:///:memory:",
    "sqlite://",
]


@pytest.mark.parametrize("url", ALLOWED)
def test_a_database_by_its_host_or_file_is_allowed(url: str) -> None:
    check_url(url, data_dir=DATA)


REFUSED = [
    ("sqlite:////etc/passwd", "folder of shared data"),
    ("sqlite:////srv/database/x.db", "folder of shared data"),
    ("sqlite:////srv/data/../../etc/passwd", "folder of shared data"),
    ("sqlite:///../x.db", "folder of shared data"),
    ("sqlite:///%2e%2e/x.db", "folder of shared data"),
    ("sqlite:///file:/etc/passwd", "folder of shared data"),
    ("sqlite:///x.db?uri=true", "'uri'"),
    ("sqlite:///x.db?mode=rwc", "'mode'"),
    ("sqlite://host/x.db", "without a host"),
    ("sqlite+pysqlcipher:///x.db", "driver 'pysqlcipher'"),
    ("postgresql:///shop", "must name a host"),
    ("postgresql:///shop?host=/tmp", "must name a host"),
    ("postgresql://db/shop?host=/tmp", "'host'"),
    ("postgresql://%2Ftmp/shop", "must name a host"),
    ("postgresql://db/shop?passfile=/etc/passwd", "'passfile'"),
    ("postgresql://db/shop?service=x", "'service'"),
    ("postgresql://db/shop?servicefile=/x", "'servicefile'"),
    ("postgresql://db/shop?options=-c%20log_statement=all", "value of options"),
    ("postgresql://db/shop?sslkey=/etc/keys/.ssh/id_rsa", "by sslkey"),
    ("postgresql://db/shop?sslcert=../../x", "by sslcert"),
    ("postgresql://db/shop?sslmode=none", "value of sslmode"),
    ("postgresql://db/shop?user=root", "'user'"),
    ("postgresql://db/shop?hostaddr=1.2.3.4", "'hostaddr'"),
    ("postgresql://db/shop?krbsrvname=x", "'krbsrvname'"),
    ("postgresql://a,b/shop", "must name a host"),
    ("postgresql://db:0/shop", "port"),
    ("postgresql://db:99999/shop", "malformed"),
    ("postgresql://db:5432/x@/tmp", "must name a database"),
    ("postgresql://me:a@b@db/shop", "%40"),
    ("postgresql://db/shop#x", "escape it"),
    ("postgresql://db/shop%20host=evil", "must name a database"),
    ("postgresql://db/sh op", "escape it"),
    ("postgresql://[db/shop", "malformed"),
    ("postgresql+asyncpg://db/shop", "driver 'asyncpg'"),
    ("mysql://db/shop?read_default_file=/etc/x", "'read_default_file'"),
    ("mysql://db/shop?local_infile=1", "'local_infile'"),
    ("mysql://db/shop?unix_socket=/tmp/x", "'unix_socket'"),
    ("mssql+pyodbc:///?odbc_connect=Driver%3D/tmp/x.so", "must name a host"),
    ("mssql+pyodbc://db/shop?driver=/tmp/x.so", "value of driver"),
    ("duckdb:////etc/passwd", "dialect 'duckdb'"),
    ("jdbc:postgresql://db/shop", "must begin like"),
    ("file.db", "must begin like"),
    ("", "must begin like"),
]


@pytest.mark.parametrize(("url", "cause"), REFUSED)
def test_everything_else_is_refused_with_the_reason(url: str, cause: str) -> None:
    with pytest.raises(RefusedUrlError) as caught:
        check_url(url, data_dir=DATA)
    assert cause in str(caught.value)


def test_a_refusal_repeats_no_value() -> None:
    for url in ("postgresql://u:hush@[/d", "postgresql://u:hu@sh@h/d", "mysql://h/d?charset=hu/sh"):
        with pytest.raises(RefusedUrlError) as caught:
            check_url(url, data_dir=DATA)
        assert "hu" not in str(caught.value)
