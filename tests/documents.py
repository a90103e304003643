"""The repository's documents for tests: their code blocks, and the commands in these."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

_FENCE = re.compile(r"^```(\w*)$")
_FILE = re.compile(r"^<!-- file: (\S+) -->$")
_NOT_RUN = re.compile(r"^<!-- not run: (.+) -->$")
_EXIT_CODE = re.compile(r"# exit code (\d+)")
_HERE_DOCUMENT = re.compile(r"<<'(\w+)'")


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A fenced block. A comment before it may name its file, or the reason that it is not run."""

    page: str
    line: int
    language: str
    text: str
    file: str | None = None
    not_run: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownCommand:
    """A command of a shell block, with its place and its documented exit code."""

    page: str
    line: int
    text: str
    exit_code: int = 0


def pages() -> list[Path]:
    """All documents of the repository."""
    folders = (ROOT / name for name in ("docs", "examples", "sql"))
    return sorted(
        [*ROOT.glob("*.md"), *(page for folder in folders for page in folder.rglob("*.md"))]
    )


def blocks(path: Path) -> Iterator[Block]:
    page = str(path.relative_to(ROOT))
    language: str | None = None
    start, lines = 0, list[str]()
    file: str | None = None
    not_run: str | None = None
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        fence = _FENCE.match(line)
        if language is None:
            if fence:
                language, start, lines = fence[1], number + 1, []
            elif found := _FILE.match(line):
                file = found[1]
            elif found := _NOT_RUN.match(line):
                not_run = found[1]
            elif line.strip():
                file = not_run = None
        elif line == "```":
            yield Block(
                page=page,
                line=start,
                language=language,
                text="\n".join(lines) + "\n",
                file=file,
                not_run=not_run,
            )
            language = file = not_run = None
        else:
            lines.append(line)


def commands(block: Block) -> Iterator[ShownCommand]:
    """The commands of a shell block; one ends with its line, unless a backslash or `<<` continues it."""
    lines: list[str] = []
    ends_with: str | None = None
    for number, line in enumerate(block.text.splitlines(), start=block.line):
        if not lines and (not line.strip() or line.startswith("#")):
            continue
        lines.append(line)
        if ends_with is None:
            here = _HERE_DOCUMENT.search(line)
            ends_with = here[1] if here else None
            if ends_with is not None or line.endswith("\\"):
                continue
        elif line != ends_with:
            continue
        text = "\n".join(lines)
        code = _EXIT_CODE.search(text)
        yield ShownCommand(
            page=block.page,
            line=number - len(lines) + 1,
            text=text,
            exit_code=int(code[1]) if code else 0,
        )
        lines, ends_with = [], None
    assert not lines, f"{block.page}:{block.line} ends inside a command"
