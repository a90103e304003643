"""The keys of `command_param` are spelt in `common.model.command_param` alone."""

from __future__ import annotations

import ast
import re

from common.model.command_param import ParamKey
from tests.house.tree import PACKAGES, ROOT, docstrings, modules, place, tree

SPELT_IN = "common/model/command_param.py"
# Keys of other documents as well: of nodes, schedules, relations and files of definitions.
SHARED = {
    ParamKey.RELATION_ID,
    ParamKey.DEFINITION_NAME,
    ParamKey.EXECUTION_TYPE,
    ParamKey.ENVIRONMENT_CODE,
    ParamKey.ON_FAILURE,
    ParamKey.REPROCESS,
    ParamKey.CONFIRMED,
    ParamKey.DATE_RULE,
}
# Alone, or quoted within a piece of JSON or SQL.
SPELLING = re.compile("|".join(rf'"{key}"|^{key}$' for key in ParamKey if key not in SHARED))


def test_no_other_module_spells_a_key_of_command_param() -> None:
    found = [
        place(path, node.lineno)
        for path in modules(*PACKAGES)
        if path.relative_to(ROOT).as_posix() != SPELT_IN
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and SPELLING.search(node.value)
        and (node.lineno, node.value.strip()) not in docstrings(path)
    ]
    assert found == []
