"""A task that lint accepts is never refused for its form when it is launched, of any type."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from common.errors import InvalidDefinitionError
from common.params import with_some_date
from common.task_types import known_task_types
from operations.definition_files import read_definition_files
from tests.unit.task_forms import GOOD, PLACES, RULES, VALUES, launched

VALUE = "v1"
# The parameters are those of the test, and an import replaces names of data sources by ids.
_GIVEN = ("localParams", "datasource", "datasourceName")
# Lint and launcher once disagreed about SQL with a parameter, and about keys without placeholders.
_SCRIPTS = {"rawScript", "sql"}
_LITERAL = {"environment"}

PIECES = (
    *("select ", "1", " ", "'", '"', "`", "\\", ";", "\n", "--", "/*", "*/", "$$", "E'", "r'"),
    *("${x}", "'${x}'", "!{x}", "t_", ".t", ":x", "$[yyyyMMdd]", "$[HH'']", "begin ", "end", "é"),
)
sql_texts = st.lists(st.sampled_from(PIECES), max_size=8).map("".join)
texts = st.one_of(
    sql_texts,
    sql_texts.map(lambda text: f"select {text}"),
    st.sampled_from(
        ["http://h/${x}", "${x}", "a ${x}", "${x}/P1D", "2026-01-01/P1D", "--conf ${x}"]
    ),
)
values = st.one_of(
    st.sampled_from(VALUES),
    texts,
    st.lists(texts, max_size=2),
    st.dictionaries(st.sampled_from(["spark.x", "a", "${x}"]), texts, max_size=2),
    texts.map(lambda text: [{"type": "custom_sql", "sql": text, "min": 1}, *RULES]),
    texts.map(lambda text: [{"prop": "${x}", "httpParametersType": "HEADERS", "value": text}]),
)


def documents(name: str) -> st.SearchStrategy[dict[str, Any]]:
    """Documents of a type: a good task with any keys changed."""
    keys = _keys(name)
    changes = st.dictionaries(st.sampled_from(keys), values, min_size=1, max_size=2)
    return changes.map(lambda changed: {**GOOD[name], **changed})


def _keys(name: str) -> list[str]:
    return [each.name for each in known_task_types()[name].keys if each.name not in _GIVEN]


def is_accepted(folder: Path, name: str, params: dict[str, Any]) -> bool:
    """Return whether lint finds neither a mistake nor a reason for which the task fails."""
    path = folder / "d.json"
    path.write_text(
        json.dumps({"name": "d", "tasks": [{"name": "t", "type": name, "params": params}]})
    )
    try:
        (found,) = read_definition_files([path], resources=folder / "resources")
    except InvalidDefinitionError:
        return False
    return not any("the task fails" in each.problem for each in found.findings)


@pytest.mark.parametrize("name", sorted(GOOD))
def test_what_lint_accepts_is_not_refused_by_the_launcher(tmp_path: Path, name: str) -> None:
    @settings(
        max_examples=25,
        deadline=None,
        derandomize=True,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    @example(GOOD[name] | dict.fromkeys(_SCRIPTS & GOOD[name].keys(), "select '${x}', ${x}"))
    @example(GOOD[name] | dict.fromkeys(_SCRIPTS & GOOD[name].keys(), "select 'a ${x}"))
    @example(GOOD[name] | dict.fromkeys(_LITERAL & set(_keys(name)), "$[yyyyMMdd]"))
    @given(documents(name))
    def check(drawn: dict[str, Any]) -> None:
        local = [{"prop": "x", "direct": "IN", "type": "VARCHAR", "value": VALUE}]
        params = {**drawn, "localParams": local}
        # A value or a date may still make a text wrong, so they are written out as well.
        written = json.loads(with_some_date(json.dumps(params).replace("${x}", VALUE)))
        if not (is_accepted(tmp_path, name, params) and is_accepted(tmp_path, name, written)):
            return
        home = Path(tempfile.mkdtemp(dir=tmp_path))
        refused = launched(home, name, params)
        shutil.rmtree(home)
        assert not refused or any(place in refused for place in PLACES), refused

    check()
