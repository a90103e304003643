"""Data sources that Spark tasks name: in files, in the tables, and as options of its `jdbc`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from common.store.worker.ports import DataSource
from operations.references import (
    Catalog,
    Kind,
    Names,
    add_names,
    name_references,
    number_references,
    wanted,
)
from worker.launching.base import TaskParameterError
from worker.launching.spark_datasource import SparkDatasource, spark_datasources
from worker.spark.session.datasources import finder

MYSQL, POSTGRESQL, ORACLE, SQLSERVER, DB2 = 0, 1, 5, 6, 7


def options(params: Mapping[str, Any] | str, kind: int = POSTGRESQL) -> SparkDatasource:
    text = params if isinstance(params, str) else json.dumps(params)
    row = DataSource(id=3, name="sales_db", type=kind, connection_params=text)
    (found,) = spark_datasources({"datasources": {"sales": 3}}, {3: row})
    return found


def original(kind: str, **more: Any) -> dict[str, Any]:
    """A row as the original writes it."""
    return {
        "address": f"jdbc:{kind}://db:99",
        "database": "shop",
        "jdbcUrl": f"jdbc:{kind}://db:99/shop",
        "user": "me",
        "password": "hunter2@:/",
        **more,
    }


def test_a_row_of_the_original_s_form_is_the_options_of_jdbc() -> None:
    found = options(original("postgresql", other="sslmode=require&connectTimeout=5"))
    assert found.name == "sales"
    assert found.options == {
        "url": "jdbc:postgresql://db:99/shop?sslmode=require&connectTimeout=5",
        "driver": "org.postgresql.Driver",
        "user": "me",
        "password": "hunter2@:/",
    }
    assert found.secrets == ("hunter2@:/",)
    assert "hunter2" not in repr(found)


@pytest.mark.parametrize(
    ("kind", "params", "url", "driver"),
    [
        (MYSQL, original("mysql"), "jdbc:mysql://db:99/shop", "com.mysql.cj.jdbc.Driver"),
        (
            MYSQL,
            {"address": "jdbc:mysql://db:3306", "database": "shop", "other": {"useSSL": "true"}},
            "jdbc:mysql://db:3306/shop?useSSL=true",
            "com.mysql.cj.jdbc.Driver",
        ),
        (
            SQLSERVER,
            {"address": "jdbc:sqlserver://db", "database": "shop", "other": "encrypt=true"},
            "jdbc:sqlserver://db;databaseName=shop;encrypt=true",
            "com.microsoft.sqlserver.jdbc.SQLServerDriver",
        ),
        (
            DB2,
            {"address": "jdbc:db2://db:50000", "database": "shop", "other": "a=b"},
            "jdbc:db2://db:50000/shop:a=b;",
            "com.ibm.db2.jcc.DB2Driver",
        ),
        (
            ORACLE,
            {"jdbcUrl": "jdbc:oracle:thin:@//db:1521/shop"},
            "jdbc:oracle:thin:@//db:1521/shop",
            "oracle.jdbc.OracleDriver",
        ),
        (
            POSTGRESQL,
            {"url": "postgresql+psycopg2://db/shop?sslmode=require&connect_timeout=3"},
            "jdbc:postgresql://db/shop?sslmode=require&connectTimeout=3",
            "org.postgresql.Driver",
        ),
        (
            MYSQL,
            {"url": "mysql+pymysql://db:3306/shop?charset=utf8mb4"},
            "jdbc:mysql://db:3306/shop",
            "com.mysql.cj.jdbc.Driver",
        ),
        (
            SQLSERVER,
            {"url": "mssql+pyodbc://db:1433/shop?driver=ODBC+Driver"},
            "jdbc:sqlserver://db:1433;databaseName=shop",
            "com.microsoft.sqlserver.jdbc.SQLServerDriver",
        ),
        (
            ORACLE,
            {"url": "oracle://db:1521/shop"},
            "jdbc:oracle:thin:@//db:1521/shop",
            "oracle.jdbc.OracleDriver",
        ),
        (POSTGRESQL, {"url": "sqlite:////x/y.db"}, "jdbc:sqlite:/x/y.db", "org.sqlite.JDBC"),
        (
            POSTGRESQL,
            {"url": "exasol+x://db", "jdbcUrl": "jdbc:exa:db:8563", "driver": "com.exasol.jdbc.E"},
            "jdbc:exa:db:8563",
            "com.exasol.jdbc.E",
        ),
    ],
)
def test_every_form_of_a_row_has_its_jdbc_url(
    kind: int, params: Mapping[str, Any], url: str, driver: str
) -> None:
    found = options(params, kind).options
    assert (found["url"], found["driver"]) == (url, driver)


def test_a_password_in_an_url_of_ours_becomes_an_option() -> None:
    found = options({"url": "postgresql+psycopg2://me:hunter2%40x@db/shop"})
    assert found.options == {
        "url": "jdbc:postgresql://db/shop",
        "driver": "org.postgresql.Driver",
        "user": "me",
        "password": "hunter2@x",
    }


@pytest.mark.parametrize(
    ("params", "told"),
    [
        ("not json hunter2", "connection_params is not valid JSON"),
        ("[]", "connection_params must be a JSON object"),
        ({"user": "hunter2"}, "has no jdbcUrl, address or url"),
        ({"jdbcUrl": "hunter2"}, "jdbcUrl must be like jdbc:postgresql://"),
        ({"jdbcUrl": "jdbc:exa:db"}, 'give the class of its JDBC driver as "driver"'),
        ({"jdbcUrl": "jdbc:mysql://db/x?user=a&password=hunter2"}, "stands in the URL"),
        ({"jdbcUrl": "jdbc:mysql://db/x?PASSWORD=hunter2"}, "password stands in the URL"),
        ({"jdbcUrl": "jdbc:postgresql://me:hunter2@db/x"}, "a user stands in the URL"),
        ({"jdbcUrl": "jdbc:mysql://db/x?autoDeserialize=true"}, "'autoDeserialize' is not allowed"),
        ({"jdbcUrl": "jdbc:mysql://db/x?%61utoDeserialize=true"}, "is not allowed"),
        ({"jdbcUrl": "jdbc:mysql://(host=db,allowLoadLocalInfile=true)/x"}, "is not allowed"),
        ({"jdbcUrl": "jdbc:postgresql://db/x?socketFactory=a.B"}, "is not allowed"),
        ({"jdbcUrl": "jdbc:h2:mem:x;INIT=RUNSCRIPT", "driver": "org.h2.Driver"}, "not allowed"),
        ({**original("postgresql"), "other": "socketFactoryArg=x"}, "is not allowed"),
        ({**original("postgresql"), "other": {"a": "b&socketFactory=x"}}, "can't be put into"),
        ({**original("postgresql"), "other": 7}, "other must be text"),
        ({"address": "jdbc:mysql://db", "database": "x?a=b"}, "database must be a name"),
        ({"url": "exasol+x://me:hunter2@db/x"}, "no JDBC URL follows from its url"),
        ({"url": "mysql://db/x?read_default_file=/etc/x"}, "no JDBC URL follows from its url"),
        ({"url": "postgresql://[hunter2/x"}, "url is malformed"),
        ({"jdbcUrl": "jdbc:mysql://db/x", "password": ["hunter2"]}, "password must be text"),
        ({"jdbcUrl": "jdbc:mysql://db/x", "driver": "a b"}, "the class of its JDBC driver"),
    ],
)
def test_a_row_that_can_not_be_used_is_told_without_what_stands_in_it(
    params: Mapping[str, Any] | str, told: str
) -> None:
    with pytest.raises(TaskParameterError) as caught:
        options(params, MYSQL)
    assert str(caught.value).startswith("data source 'sales_db': ")
    assert told in str(caught.value)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("sales", "params.datasources: must be an object"),
        ({"sales": {"id": 3}}, "params.datasources.sales: must be the name or the id"),
        ({"sales": True}, "params.datasources.sales: must be the name or the id"),
        ({"sales": "sales_db"}, "params.datasources.sales: must be the id of a data source"),
        ([4], "params.datasources[0]: the project has no data source 4"),
        ({"a.b": 3}, "params.datasources.a.b: 'a.b' can't be the name of a catalog"),
        ({"spark_catalog": 3}, "can't be the name of a catalog"),
        ([3, 3], "params.datasources[1]: 'sales_db' is named twice"),
        (dict.fromkeys(map("a{}".format, range(21)), 3), "names 21 data sources; 20 are"),
    ],
)
def test_what_a_task_names_wrongly_is_told_with_its_key(given: object, told: str) -> None:
    row = DataSource(
        id=3, name="sales_db", type=POSTGRESQL, connection_params=json.dumps(original("postgresql"))
    )
    with pytest.raises(TaskParameterError) as caught:
        spark_datasources({"datasources": given}, {3: row})
    assert told in str(caught.value)


def test_a_list_of_ids_goes_by_the_names_of_the_rows() -> None:
    row = DataSource(
        id=3, name="sales_db", type=POSTGRESQL, connection_params=json.dumps(original("postgresql"))
    )
    (found,) = spark_datasources({"datasources": ["3"]}, {3: row})
    assert found.name == "sales_db"
    assert spark_datasources({}, {}) == ()


def test_a_script_finds_options_that_hide_the_password_when_they_are_printed() -> None:
    datasource = finder({"sales": dict(options(original("postgresql")).options)})
    found = datasource("sales")
    assert found["password"] == "hunter2@:/"
    assert "hunter2" not in f"{found} {found!r}"
    assert "jdbc:postgresql://db:99/shop" in repr(found)
    found["dbtable"] = "orders"
    assert "dbtable" not in datasource("sales")
    with pytest.raises(KeyError, match=r"names no data source 'x' \(it names sales\)"):
        datasource("x")


def a_document(datasources: object, task_type: str = "PYSPARK") -> dict[str, Any]:
    return {"tasks": [{"name": "t", "type": task_type, "params": {"datasources": datasources}}]}


def sources(document: Mapping[str, Any]) -> object:
    return document["tasks"][0]["params"]["datasources"]


CATALOG = Catalog(
    datasources={"sales_db": (3,), "twice": (4, 5)},
    datasource_ids=frozenset({3, 4, 5}),
)


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (["sales_db"], [3]),
        ({"sales": "sales_db", "x": 4}, {"sales": 3, "x": 4}),
        ([4, "sales_db"], [4, 3]),
        ([4, 3], [4, 3]),
        ([], []),
    ],
)
def test_names_in_a_file_become_the_ids_of_the_database(given: object, stored: object) -> None:
    document = a_document(given)
    assert list(number_references(document, CATALOG)) == []
    assert sources(document) == stored


def test_what_an_import_has_to_look_up_is_known() -> None:
    found = wanted(a_document({"sales": "sales_db", "x": 4, "y": None}))
    assert found.datasource_names == {"sales_db"}
    assert found.datasource_ids == {4}
    assert wanted(a_document(["sales_db"], "SHELL")).datasource_names == frozenset()


def test_a_data_source_that_is_ambiguous_or_no_name_keeps_a_definition_out() -> None:
    document = a_document({"a": "nobody", "b": 9, "c": "twice", "d": [1]})
    assert [str(each) for each in number_references(document, CATALOG)] == [
        "task 't', params.datasources.c: 'twice' is ambiguous: data sources 4, 5; give the id",
        "task 't', params.datasources.d: must be the name or the id of a data source",
    ]
    assert sources(document) == {"a": "nobody", "b": 9, "c": "twice", "d": [1]}


def test_an_export_names_what_the_ids_stand_for() -> None:
    document = a_document({"sales": 3, "gone": 9})
    add_names(
        document,
        project_id=1,
        definitions={},
        datasources={3: "sales_db"},
        worker_groups={},
        environments={},
    )
    assert sources(document) == {"sales": "sales_db", "gone": 9}


def test_ids_of_another_database_are_named_or_refused() -> None:
    document = a_document([7, 8])
    names = Names(given={(Kind.DATASOURCE, 7): "sales_db"})
    (found,) = name_references(document, names=names, foreign=True)
    assert str(found) == (
        "task 't', params.datasources[1]: data source 8 of the other database has no name in this"
        " file (say which one it is: --map datasource:8=NAME)"
    )
    names = Names(given={(Kind.DATASOURCE, 7): "sales_db", (Kind.DATASOURCE, 8): "crm"})
    assert list(name_references(document, names=names, foreign=True)) == []
    assert sources(document) == ["sales_db", "crm"]
