"""The outcome of a script, and the comparison of two outcomes. It reads files and changes nothing.

Only *marked* lines are compared. A script marks a printed line with `= ` and a logged line with `! `.
The lines of `show` and `printSchema` are recognized by their form. All other lines are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, Final

_PRINTED: Final = re.compile(r"= |\+-[-+]*$|\||root$| \|")
_LOGGED: Final = re.compile(r"! ")
_OF_SPARK: Final = frozenset(
    {"spark-warehouse", "metastore_db", "derby.log", "artifacts", "__pycache__"}
)
"""Files that belong to Spark. A task's warehouse is the profile's, and is not below its directory."""
_CHECKPOINT: Final = "checkpoint"
_DRAWN: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|\d{5,}|(?<=[-.])c\d{3}")
_PART: Final = re.compile(r"part(?:[-.]?\*)*")
_TEXTS: Final = frozenset({".csv", ".json", ".txt", ""})


class Kind(StrEnum):
    """The kinds of differences between a task and `spark-submit`."""

    OTHER_ROWS = "other rows"
    """It prints other lines and ends with the same code. This is the worst kind, because it stays unnoticed."""
    OTHER_FILES = "other files"
    OTHER_EXIT = "other exit"
    """It ends with another code, and is not a failure that `spark-submit` does not have."""
    FAILS = "fails"
    REFUSED = "refused"
    """It fails, and the log names the line of the script and a remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """The result of one run."""

    exit_code: int
    printed: tuple[str, ...]
    logged: tuple[str, ...] = ()
    files: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    """Lines by name; None for a file that is not text or changes from run to run."""

    def document(self) -> dict[str, Any]:
        """Return the document to record."""
        return {
            "exit": self.exit_code,
            "printed": list(self.printed),
            "logged": list(self.logged),
            "files": {name: text and list(text) for name, text in self.files.items()},
        }

    @staticmethod
    def of(document: Mapping[str, Any]) -> Outcome:
        """Read a recorded outcome."""
        return Outcome(
            exit_code=document["exit"],
            printed=tuple(document["printed"]),
            logged=tuple(document["logged"]),
            files={
                name: None if text is None else tuple(text)
                for name, text in document["files"].items()
            },
        )


def printed(output: str) -> tuple[str, ...]:
    """Return the marked lines that a script has printed."""
    return tuple(line.rstrip() for line in output.splitlines() if _PRINTED.match(line))


def logged(output: str) -> tuple[str, ...]:
    """Return the marked lines that a script has logged."""
    return tuple(line.rstrip() for line in output.splitlines() if _LOGGED.match(line))


def kind_of_difference(
    expected: Outcome, found: Outcome, *, is_refusal: bool = False
) -> Kind | None:
    """Return the worst difference, or None."""
    if found.exit_code != expected.exit_code:
        if not found.exit_code or expected.exit_code:
            return Kind.OTHER_EXIT
        return Kind.REFUSED if is_refusal else Kind.FAILS
    if (found.printed, found.logged) != (expected.printed, expected.logged):
        return Kind.REFUSED if is_refusal else Kind.OTHER_ROWS
    return Kind.OTHER_FILES if found.files != expected.files else None


def files_below(
    folder: Path, others: re.Pattern[str] | None = None
) -> dict[str, tuple[str, ...] | None]:
    """Return the files below a folder, without Spark's own and `others`, a pattern of paths.

    Drawn parts of names are replaced by `*`, and the parts of one data set are one file with sorted
    lines: their number depends on the number of cores. A checkpoint is one name without contents.
    """
    found: dict[str, tuple[str, ...] | None] = {}
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        place = path.relative_to(folder)
        if _OF_SPARK.intersection(place.parts) or path.name.startswith("."):
            continue
        if _CHECKPOINT in place.parts:
            found[_CHECKPOINT] = None
            continue
        if others is not None and others.fullmatch(place.as_posix()):
            continue
        name = plain_name(place)
        text = _text(path, place)
        before = found.get(name)
        found[name] = text if before is None or text is None else tuple(sorted(before + text))
    return found


def plain_name(place: Path) -> str:
    """Return a file's name without what is drawn for each run."""
    name = _DRAWN.sub("*", place.name)
    return place.with_name(_PART.sub("part", name)).as_posix()


def _text(path: Path, place: Path) -> tuple[str, ...] | None:
    # Folders such as `_delta_log` and the metadata of models have times and ids in them.
    is_drawn = any(part.startswith("_") or part == "metadata" for part in place.parts)
    if is_drawn or path.suffix not in _TEXTS:
        return None
    try:
        return tuple(sorted(path.read_text(encoding="utf-8").splitlines()))
    except UnicodeDecodeError:
        return None


def difference_shown(expected: Outcome, found: Outcome) -> str:
    """Return the differences of two outcomes for a person, in a few lines."""
    parts: Iterable[tuple[str, object, object]] = (
        ("exit", expected.exit_code, found.exit_code),
        ("printed", expected.printed, found.printed),
        ("logged", expected.logged, found.logged),
        ("files", dict(expected.files), dict(found.files)),
    )
    return "\n".join(
        f"  {name}\n    spark-submit: {one}\n    task:         {other}"
        for name, one, other in parts
        if one != other
    )
