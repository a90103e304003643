"""Calls that turn text into code, an object, an address or a file: each call site is reviewed.

A new call fails this test until it is listed with the reason why no user controls its effect.
`docs/security.md` has the rules for user values that do reach a library.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.house.tree import PACKAGES, ROOT, modules, tree

SINKS = frozenset(
    {
        *("eval", "exec", "__import__", "import_module", "run_path", "run_module"),
        *("pickle.loads", "pickle.load", "cloudpickle.loads", "marshal.loads", "yaml.load"),
        *("yaml.parse", "from_string", "Template", "FileSystem.from_uri", "from_uri"),
        *("get_lexer_by_name", "guess_lexer", "create_engine", "make_url", "literal_eval"),
        *("urlopen", "httpx.Client", "httpx.get", "httpx.stream", "httpx.request", "httpx.post"),
        "httpx.AsyncClient",
        *("os.system", "os.popen", "entry_points"),
    }
)

_STARTERS = frozenset({"run", "Popen", "call", "check_call", "check_output"})
"""Functions that start a program and accept `shell`."""
_TOPOLOGY = "the author's own command and the task that runs the topology, never a daemon"
_AS_THE_TASK = "the process of a task, which runs as the task's account"
_DATA_SOURCE = "checked by common.model.datasource_urls"
REVIEWED = {
    # Code.
    ("common/topology_loading.py", "import_module"): _TOPOLOGY,
    ("common/topology_files.py", "import_module"): _TOPOLOGY,
    ("worker/processes/forked_script.py", "exec"): _AS_THE_TASK,
    ("worker/spark/session/script.py", "exec"): _AS_THE_TASK,
    ("worker/spark/session/work.py", "import_module"): _AS_THE_TASK,
    ("worker/processes/fork_server.py", "import_module"): "modules named in a constant",
    ("worker/spark/host/preload.py", "import_module"): "modules named in a constant",
    ("worker/launching/base.py", "import_module"): "modules named in a constant",
    ("orcaflow/cli/loading.py", "import_module"): "modules named in a constant",
    ("orcaflow/remote/answers.py", "import_module"): "modules named in a constant",
    ("common/store/tables/__init__.py", "import_module"): "modules named in a constant",
    ("common/task_types.py", "import_module"): "entry points of packages that were installed",
    ("common/task_types.py", "entry_points"): "entry points of packages that were installed",
    ("worker/spark/topology/stages.py", "pickle.loads"): _AS_THE_TASK,
    ("worker/spark/topology/keyed.py", "pickle.loads"): _AS_THE_TASK,
    ("worker/spark/topology/program.py", "pickle.loads"): _AS_THE_TASK,
    ("worker/spark/host/udf_pythons.py", "run_module"): _AS_THE_TASK,
    # Documents.
    ("common/strict_yaml.py", "yaml.parse"): "events only; no tag is read",
    ("operations/definition_files.py", "literal_eval"): "a text that a pattern has matched whole",
    ("api/console/catalogue.py", "literal_eval"): "the catalogue that is installed",
    # Texts for people.
    ("api/console/highlighting.py", "get_lexer_by_name"): "a language from a constant",
    ("worker/spark/jvm/java_command.py", "Template"): "the templates of the package",
    # Addresses.
    ("common/log_store/program.py", "FileSystem.from_uri"): "the setting worker.log_store",
    ("common/store/connect.py", "create_engine"): "the setting database.url",
    ("common/store/connect.py", "make_url"): "the setting database.url",
    ("common/store/people/datasources.py", "create_engine"): _DATA_SOURCE,
    ("common/store/people/datasources.py", "make_url"): _DATA_SOURCE,
    ("worker/runners/database.py", "create_engine"): _DATA_SOURCE,
    ("worker/runners/database.py", "make_url"): _DATA_SOURCE,
    ("worker/runners/http.py", "httpx.Client"): "checked by common.destinations at each hop",
    ("worker/spark/managers/rest.py", "httpx.Client"): "managers named in the settings",
    ("api/oidc/provider.py", "httpx.AsyncClient"): "the provider named in the settings",
}


def _name(function: ast.expr) -> str | None:
    """Return the sink that a call names, by its last one or two words."""
    match function:
        case ast.Name(id=name):
            return name if name in SINKS else None
        case ast.Attribute(value=value, attr=attribute):
            owner = value.id if isinstance(value, ast.Name) else getattr(value, "attr", "")
            whole = f"{owner}.{attribute}"
            return next((each for each in (whole, attribute) if each in SINKS), None)
    return None


def sinks_in(module: ast.AST) -> Iterator[str]:
    for node in ast.walk(module):
        if isinstance(node, ast.Call):
            found = _name(node.func)
            if found is not None:
                yield found
            if _last_word(node.func) in _STARTERS and any(
                each.arg == "shell" and not _is_false(each.value) for each in node.keywords
            ):
                yield "shell=True"


def _last_word(function: ast.expr) -> str:
    return getattr(function, "id", None) or getattr(function, "attr", "")


def _is_false(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is False


def found() -> set[tuple[str, str]]:
    return {(_path(path), sink) for path in modules(*PACKAGES) for sink in sinks_in(tree(path))}


def _path(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_every_call_that_interprets_a_text_is_reviewed() -> None:
    assert sorted(found() - REVIEWED.keys()) == []


def test_every_reviewed_call_exists() -> None:
    assert sorted(REVIEWED.keys() - found()) == []


def test_sinks_are_found_by_name_by_owner_and_by_argument() -> None:
    code = "eval(a)\nx.pickle.loads(b)\nrun(c, shell=flag)\nlogger.loads(d)\nrun(e, shell=False)"
    assert sorted(sinks_in(ast.parse(code))) == ["eval", "pickle.loads", "shell=True"]
