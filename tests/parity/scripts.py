"""The scripts of the suite, and the directives in their first lines.

A script opens with comments. The modules that scripts import do not, which keeps them apart. Directives
are the comments `# arguments:`, `# py-files:` (modules next to the script) and `# needs:` (a package of
Maven, which the check of all scripts resolves and the sample leaves out).
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

FOLDER: Final = Path(__file__).with_name("scripts")
POSTGRESQL: Final = "{postgresql}"
"""The argument that is replaced by the JDBC URL of a database."""

SAMPLE: Final = (
    "views/reused_name",
    "views/stage_by_stage",
    "views/dropped_before_use",
    "udfs/in_a_loop",
    "catalogs/current_database",
    "errors/has_column",
    "settings/ansi_after_frame",
    "files/read_or_empty",
    "contexts/context_of_conf",
    "program/relative_round_trip",
    "program/arguments",
    "ending/exit_code",
    "streaming/foreach_batch",
    "modules/package_beside",
)
"""The scripts that every run of the tests compares: they take half a minute."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A script with the options of its submission."""

    name: str
    """Topic and name: `views/reused_name`."""
    path: Path
    arguments: tuple[str, ...] = ()
    py_files: tuple[Path, ...] = ()
    package: str = ""
    """The coordinates of the package that it needs; "" for none."""

    @property
    def topic(self) -> str:
        return self.name.partition("/")[0]

    def given(self, postgresql: str) -> tuple[str, ...]:
        """Return the arguments for a run with this database."""
        return tuple(postgresql if each == POSTGRESQL else each for each in self.arguments)


def scripts(patterns: Iterable[str] = ("*",)) -> tuple[Script, ...]:
    """Return the scripts whose names match one of the patterns, in order."""
    wanted = tuple(patterns)
    return tuple(
        script for script in _all() if any(fnmatchcase(script.name, pattern) for pattern in wanted)
    )


def _all() -> Iterator[Script]:
    for path in sorted(FOLDER.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if text.startswith("# "):
            yield _read(path, text)


def _read(path: Path, text: str) -> Script:
    directives: dict[str, str] = {}
    for line in text.splitlines():
        key, colon, value = line.removeprefix("# ").partition(": ")
        if not line.startswith("# ") or not colon or key not in ("arguments", "py-files", "needs"):
            break
        directives[key] = value
    return Script(
        name=path.relative_to(FOLDER).with_suffix("").as_posix(),
        path=path,
        arguments=tuple(shlex.split(directives.get("arguments", ""))),
        py_files=tuple(path.with_name(name) for name in directives.get("py-files", "").split()),
        package=directives.get("needs", ""),
    )
