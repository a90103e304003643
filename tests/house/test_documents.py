"""Paths, links, entry points, commands and words that the documents name exist, or are used."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main
from typer.core import TyperGroup

from orcaflow.cli.app import app
from orcaflow.cli.projects import OF_PROJECTS
from tests.documents import ROOT, blocks, commands, pages

ARCHITECTURE = ROOT / "ARCHITECTURE.md"
PACKAGES = ("common", "master", "worker", "operations", "api", "orcaflow", "sql")
ROOMS = (*PACKAGES, "bin", "conf", "docs", "examples", "tests")
TO_COME = "### Rooms to come"
"""The section about what does not exist yet."""

_CODE = re.compile(r"`([^`\n]+)`")
_CODE_TO_COME = re.compile(r"`([^`\n]+)` \(to come\)")
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_ENTRY_POINT = re.compile(
    r"`((?:common|master|worker|operations|api|orcaflow)(?:\.\w+)+):([\w.]+)`"
)
_PATH = re.compile(rf"(?:{'|'.join(ROOMS)})/[\w./-]*")
_CALL = re.compile(
    r"(?:^|[\s(])((?:orcaflow|orcaflow-daemon\.sh|start-all\.sh|stop-all\.sh)(?: [^|;&)\n]*)?)"
)
_TEST = re.compile(r"`(?:([\w/]+\.py)::)?(test_\w+)`")
_SCRIPTS = {"orcaflow-daemon.sh": ["server"], "start-all.sh": ["server", "start"]}
_SCRIPTS |= {"stop-all.sh": ["server", "stop"]}

PAGES = pages()


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def prose(page: Path) -> str:
    """A page without its fenced blocks, and without its section about the future."""
    text = re.sub(
        r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL
    )
    text = re.sub(rf"^{TO_COME}$.*?(?=^## )", "", text, flags=re.MULTILINE | re.DOTALL)
    return _CODE_TO_COME.sub("", text)


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_readme_is_short_and_names_the_test_command() -> None:
    lines = (ROOT / "README.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) <= 150
    assert "Tests: `bin/test`" in lines


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_paths_of_a_page_exist(page: Path) -> None:
    named = [code for code in _CODE.findall(prose(page)) if _PATH.fullmatch(code)]
    missing = [path for path in named if not (ROOT / path).exists()]
    assert [path for path in missing if not (page.parent / path).exists()] == []


def test_what_is_to_come_does_not_exist_yet() -> None:
    page = ARCHITECTURE.read_text(encoding="utf-8")
    text = page.partition(TO_COME)[2].partition("\n## ")[0]
    rooms = [line.split("|")[2] for line in text.splitlines() if line.startswith("| ")]
    named = [code for cell in rooms for code in _CODE.findall(cell) if "/" in code]
    assert named
    assert [path for path in (*named, *_CODE_TO_COME.findall(page)) if (ROOT / path).exists()] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_the_links_of_a_page_lead_somewhere(page: Path) -> None:
    for link in _LINK.findall(prose(page)):
        if link.startswith(("http:", "https:")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name(page)}: {link}"
        if anchor:
            assert anchor in anchors(target), f"{name(page)}: {link}"


@cache
def defined(module: str) -> frozenset[str]:
    """The functions, classes and methods of a module, by its source."""
    path = ROOT / module.replace(".", "/")
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    if not path.exists():
        return frozenset()
    return frozenset(_definitions(ast.parse(path.read_text(encoding="utf-8")).body))


def _definitions(body: list[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef):
            yield node.name
        elif isinstance(node, ast.ClassDef):
            yield node.name
            yield from (f"{node.name}.{inner}" for inner in _definitions(node.body))


def test_every_entry_point_of_the_architecture_exists() -> None:
    found = _ENTRY_POINT.findall(ARCHITECTURE.read_text(encoding="utf-8"))
    assert len(found) > 40
    missing = [f"{module}:{what}" for module, what in found if what not in defined(module)]
    assert missing == []


@cache
def modules_of_tests() -> dict[str, frozenset[str]]:
    """The modules of each test, below `tests/`."""
    found: dict[str, set[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for test in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE):
            found.setdefault(test, set()).add(str(path.relative_to(ROOT / "tests")))
    return {test: frozenset(modules) for test, modules in found.items()}


@pytest.mark.parametrize("page", ["streams.md", "streams-capabilities.md"])
def test_the_tests_that_a_page_about_streams_names_exist(page: str) -> None:
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    named = _TEST.findall(text)
    assert len(named) > 40
    known = modules_of_tests()
    missing = [(path, test) for path, test in named if test not in known]
    missing += [(path, test) for path, test in named if path and path not in known.get(test, ())]
    assert missing == []


def test_each_capability_of_streams_has_a_test_or_says_why_not() -> None:
    text = (ROOT / "docs" / "streams-capabilities.md").read_text(encoding="utf-8")
    rows = [
        row
        for row in re.findall(r"^\| .*", text, re.MULTILINE)
        if not row.startswith("| capability")
    ]
    assert len(rows) > 80
    held = re.compile(r"::test_\w+`|not built[^|]*[:,] |see \[below\]")
    assert [row for row in rows if not held.search(row)] == []


def test_each_line_of_the_tables_about_topologies_names_its_tests() -> None:
    text = (ROOT / "docs" / "topologies.md").read_text(encoding="utf-8")
    tables = [
        part.split("\n\n")[0]
        for part in re.split(r"^\|[^\n]*\| test \|\n\|-[^\n]*\n", text, flags=re.MULTILINE)[1:]
    ]
    assert len(tables) == 3
    rows = [row for table in tables for row in table.splitlines() if row.startswith("|")]
    assert len(rows) > 25
    known = modules_of_tests()
    modules = {module.rpartition("/")[2] for found in known.values() for module in found}
    for row in rows:
        module = ""
        named = re.findall(r"`(test_\w+\.py)?(?:::)?(test_\w+)?`", row)
        held = [(path, test) for path, test in named if path or test]
        assert held, row
        for path, test in held:
            module = path or module
            assert module in modules, row
            assert not test or any(each.endswith(module) for each in known.get(test, ())), row


def shown_commands() -> Iterator[tuple[str, list[str]]]:
    """The words of every call of the command line on any page, with the place."""
    for page in PAGES:
        lines = [(name(page), code) for code in _CODE.findall(prose(page))]
        for block in blocks(page):
            if block.language == "sh":
                lines += [(f"{one.page}:{one.line}", one.text) for one in commands(block)]
        for place, text in lines:
            for words in calls(text):
                yield place, words


def calls(text: str) -> Iterator[list[str]]:
    """The calls of `orcaflow` in a text, without what the shell adds to them."""
    text = re.sub(r"(?:^|\s)#\s.*", "", text.replace("\\\n", " ").split("<<")[0])
    inner = re.findall(r"\$\(([^)]*)\)", text)
    quoted = re.sub(r"'[^']*'|\"[^\"]*\"", "QUOTED", re.sub(r"\$\([^)]*\)", "INNER", text))
    for line in (quoted, *inner):
        for call in _CALL.findall(line):
            words = call.split()
            yield [*_SCRIPTS.get(words[0], []), *words[1:]]


ROOT_COMMAND = typer.main.get_command(app)


@pytest.mark.parametrize(
    ("place", "words"),
    list(shown_commands()),
    ids=lambda it: it if isinstance(it, str) else " ".join(it),
)
def test_a_command_that_a_page_shows_is_known_with_its_options(
    place: str, words: list[str]
) -> None:
    command: Any = ROOT_COMMAND
    rest, path = list(words), []
    while isinstance(command, TyperGroup) and rest and not rest[0].startswith("-"):
        if rest[0] in command.commands:
            path.append(rest.pop(0))
            command = command.commands[path[-1]]
        elif command.name == "complement":
            path.append("run")
            command = command.commands["run"]  # The name of a definition starts a complement run.
        elif rest[0] == "…":
            return
        else:
            pytest.fail(f"{place}: {rest[0]!r} is no command of {command.name!r}")
    options = {option for one in command.params for option in (*one.opts, *one.secondary_opts)}
    options |= {"--project"} if " ".join(path) in OF_PROJECTS else set()
    given = {word.split("=")[0] for word in rest if re.match(r"--?[a-z]", word)}
    assert given <= options | {"--help", "-h"}, place


def glossary() -> list[str]:
    text = ARCHITECTURE.read_text(encoding="utf-8").partition("\n## 13. Words\n")[2]
    cells = re.findall(r"^\| ([^|]+?) \|", text, re.MULTILINE)[1:]
    return [word for cell in cells if cell != "---" for word in re.split(r", | / | → ", cell)]


@cache
def spoken() -> str:
    """The source of all packages in lower case, with its names split into words."""
    texts = (
        path.read_text(encoding="utf-8")
        for package in PACKAGES
        for path in sorted((ROOT / package).rglob("*.py"))
    )
    apart = re.sub(r"(?<=[a-z])(?=[A-Z])|_|\s+", " ", " ".join(texts))
    return apart.lower()


@pytest.mark.parametrize("word", glossary())
def test_a_word_of_the_glossary_is_used_in_the_code(word: str) -> None:
    assert re.search(rf"\b{re.escape(word.lower())}", spoken()), word
